"""Requests of all kinds under one budget: answers, compactions, background responses and batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.openai import OpenAICompaction
from support.examples import examples
from support.jobs import JobProvider
from support.virtual_time import VirtualTimeLoop

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.records import RequestRecord, Usage

HISTORY: list[ModelMessage] = [
    ModelRequest(parts=[UserPromptPart("before")]),
    ModelResponse(parts=[TextPart("yes")]),
]


@dataclass(frozen=True)
class Call:
    """A call of one of the agents, which starts at a second and may be cancelled at a later one."""

    kind: str
    starts: int
    lasts: int | None


CALLS = st.builds(
    Call,
    kind=st.sampled_from(["answer", "compaction", "background", "batch"]),
    starts=st.integers(0, 6),
    lasts=st.none() | st.integers(0, 6),
)


def agents(provider: JobProvider, max_tokens: int | None) -> dict[str, FastroAgent[Any, str]]:
    model = provider.model()
    batching = BatchModelRequests(
        max_requests=3,
        max_wait=timedelta(seconds=2),
        poll_interval=timedelta(seconds=1),
        max_poll_interval=timedelta(seconds=1),
        max_resubmissions=1,
    )
    background: Any = {"openai_background": True}
    return {
        "answer": FastroAgent(model, max_tokens=max_tokens),
        "compaction": FastroAgent(
            model, max_tokens=max_tokens, capabilities=[OpenAICompaction(message_count_threshold=2)]
        ),
        "background": FastroAgent(model, max_tokens=max_tokens, model_settings=background),
        "batch": FastroAgent(model, max_tokens=max_tokens, capabilities=[batching]),
    }


async def make(call: Call, number: int, by_kind: dict[str, FastroAgent[Any, str]]) -> object:
    await asyncio.sleep(call.starts)
    prompt, history = f"question {number}", HISTORY if call.kind == "compaction" else None
    async with asyncio.timeout(call.lasts):
        return await by_kind[call.kind].run(prompt, message_history=history)


@settings(max_examples=examples(30))
@given(
    calls=st.lists(CALLS, min_size=1, max_size=10),
    usd=st.sampled_from(["0.0003", "0.002", "0.02", "0.1"]),
    requests=st.integers(1, 12),
    max_tokens=st.sampled_from([None, 40]),
    faults=st.integers(0, 2),
    outcomes=st.lists(st.sampled_from(["succeeded", "succeeded", "500", "expired"]), max_size=6),
)
def test_a_budget_holds_and_every_bill_is_in_the_account(
    calls: Sequence[Call], usd: str, requests: int, max_tokens: int | None, faults: int, outcomes: list[str]
) -> None:
    left = iter(outcomes)
    provider = JobProvider(outcome=lambda body: next(left, "succeeded"))
    provider.fail_next(faults)

    async def run() -> tuple[Usage, list[RequestRecord]]:
        by_kind = agents(provider, max_tokens)
        async with budget_scope(Budget(usd=usd, requests=requests)) as scope:
            await asyncio.gather(
                *(make(call, number, by_kind) for number, call in enumerate(calls)), return_exceptions=True
            )
            used, room = scope.usage, scope.remaining
            assert room.usd == Decimal(usd) - used.committed_usd  # nothing is reserved any more
            assert room.requests == requests - used.request_count
        return scope.usage, list(scope.records)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        usage, records = runner.run(run())
    assert provider.billed_usd <= usage.committed_usd <= Decimal(usd)
    assert len(provider.ledger) <= usage.request_count <= requests
    billed = {entry.id: entry.cost_usd for entry in provider.ledger}
    settled = {str(record.response_id): record.cost_usd for record in records if record.outcome == "settled"}
    assert settled.items() <= billed.items()
    unmeasured = [record for record in records if record.outcome == "unmeasured"]
    assert len(billed) - len(settled) <= len(unmeasured) == usage.unmeasured_requests

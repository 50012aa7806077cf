"""Faults of the server, in every protocol and way of asking, beside a table of what each may lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
)
from pydantic_ai.models import Model
from support.accounting import assert_account_matches
from support.asking import BACKOFF, WAYS, Asked, Way, ask, is_in_step, is_streamed
from support.leftovers import assert_no_task_is_left

from fastroai import FastroAgent, TimeLimitExceeded
from fastroai.runtime import FailureClass, classify
from fastroai.runtime.budgets.ledger import Account as BudgetAccount
from fastroai.runtime.retrying.failures import is_exhausted
from fastroai.testing import Fault, ModelServer, Reply, Usage

RECOVERABLE, TERMINAL, AMBIGUOUS = FailureClass.RECOVERABLE, FailureClass.TERMINAL, FailureClass.AMBIGUOUS

STORY = "Once upon a time there was a token that nobody had counted. "
FIRST_PIECE = STORY[: Reply().chunk_size]
SPENT = Usage(40, 60)


@dataclass(frozen=True)
class Trouble:
    """A fault, and what the documentation says of it."""

    fault: Fault
    error: type[Exception]
    failure: FailureClass
    in_transit: bool = True
    """Whether the request has failed on its way, which is for the request to repeat."""
    strikes_open_stream: bool = False
    """Whether a stream was open by then, which no request repeats."""
    wish: float = 0.0
    """Seconds that the provider asks to wait."""

    def is_of_request(self, way: Way) -> bool:
        """Whether the request owns it; else the call, or the step."""
        return self.in_transit and not (self.strikes_open_stream and is_streamed(way))

    def most_requests(self, way: Way) -> int:
        """If it stays."""
        if is_in_step(way):
            return {RECOVERABLE: 4, AMBIGUOUS: 2, TERMINAL: 1}[self.failure]
        return 3 if self.failure is not TERMINAL and self.is_of_request(way) else 1

    def wait_before(self, retry: int, way: Way) -> float:
        """Seconds, before the first retry, which is 1, and so on."""
        own = BACKOFF * 2 ** (retry - 1) if is_in_step(way) else 0.0
        return max(own, self.wish)


TROUBLES = {
    "429": Trouble(Fault.status(429, retry_after=0.01), ModelRateLimitError, RECOVERABLE, wish=0.01),
    "500": Trouble(Fault.status(500), ModelServerError, RECOVERABLE),
    "400": Trouble(Fault.status(400), ModelRequestRejectedError, TERMINAL),
    "disconnect": Trouble(Fault.disconnect(), ModelConnectionError, AMBIGUOUS),
    "cut": Trouble(Fault.cut(after=1), ModelConnectionError, AMBIGUOUS, strikes_open_stream=True),
    "malformed": Trouble(
        Fault.malformed(after=1), ModelAPIError, AMBIGUOUS, in_transit=False, strikes_open_stream=True
    ),
}

ALL_WAYS = pytest.mark.parametrize("way", WAYS)
ALL_TROUBLES = pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)


def teller(model: Model, **options: Any) -> FastroAgent[Any, str]:
    """An agent with a budget, which has to hold nothing in the end."""
    return FastroAgent(model, name="teller", max_tokens=100, cost_budget=5_000_000, **options)


def assert_settled_up(server: ModelServer, asked: Asked, accounts: list[BudgetAccount]) -> None:
    """The account is that of the server's ledger, and nothing goes on."""
    assert_account_matches(server.ledger, asked.records, asked.usage)
    assert accounts, "there was a budget, which is looked at when the test is over"
    assert_no_task_is_left()


@ALL_WAYS
@ALL_TROUBLES
async def test_a_fault_that_stays_is_raised_after_the_attempts_of_whoever_owns_it(
    server: ModelServer, model: Model, way: Way, trouble: Trouble, accounts: list[BudgetAccount]
) -> None:
    server.rule(None, Reply(STORY, usage=SPENT, fault=trouble.fault))
    asked = await ask(way, teller(model))

    assert isinstance(asked.error, trouble.error)
    assert classify(asked.error) is trouble.failure
    requests = trouble.most_requests(way)
    assert len(server.ledger.entries) == requests
    assert is_exhausted(asked.error) == (requests > 1)

    of_request = trouble.is_of_request(way)
    outcome = "released" if trouble.fault.kind == "status" else "unmeasured"
    waits = [0.0] + [trouble.wait_before(retry, way) for retry in range(1, requests)]
    assert [(record.attempt, record.backoff_ms) for record in asked.records] == [
        (number, wait * 1000) if of_request else (1, 0) for number, wait in enumerate(waits, start=1)
    ]
    assert [record.outcome for record in asked.records] == [outcome] * requests
    assert [record.use for record in asked.records] == ["retried"] * (requests - 1) + ["failed"]

    told = [(retry.unit, retry.attempt, retry.failure_class, retry.delay) for retry in asked.retries]
    unit = "call" if way == "ctx.run" else "step"
    assert told == [
        (unit, failed, trouble.failure, wait)
        for failed, wait in enumerate(waits[1:], start=1)
        if not of_request
    ]
    assert_settled_up(server, asked, accounts)


@ALL_WAYS
@pytest.mark.parametrize("reference", ["openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5"])
@pytest.mark.parametrize("kind", [kind for kind in TROUBLES if kind != "400"])
async def test_a_fault_that_passes_leaves_the_answer_and_its_record(
    server: ModelServer, model: Model, way: Way, kind: str, accounts: list[BudgetAccount]
) -> None:
    trouble = TROUBLES[kind]
    server.rule(None, Reply(STORY, usage=SPENT))
    server.fail_next(1, trouble.fault)
    asked = await ask(way, teller(model))

    if trouble.most_requests(way) == 1:
        assert isinstance(asked.error, trouble.error)
        assert len(server.ledger.entries) == 1
    else:
        assert asked.output == STORY
        assert asked.quality == ("clean" if is_in_step(way) else None)
        assert [record.use for record in asked.records] == ["retried", "kept"]
        assert len(asked.retries) == (not trouble.is_of_request(way))
        if way == "ctx.run_stream":
            before = FIRST_PIECE if trouble.strikes_open_stream else ""
            assert "".join(asked.texts) == before + STORY, "a step that is tried again tells its story again"
    assert_settled_up(server, asked, accounts)


@ALL_WAYS
async def test_slow_bytes_are_an_answer_like_any_other(
    server: ModelServer, model: Model, way: Way, accounts: list[BudgetAccount]
) -> None:
    slow = Fault.slow(before_headers=0.01, between_chunks=0.002)
    server.script(Reply(STORY, usage=SPENT, fault=slow))
    asked = await ask(way, teller(model, timeout=30))
    assert asked.output == STORY
    assert [(record.outcome, record.use, record.attempt) for record in asked.records] == [
        ("settled", "kept", 1)
    ]
    assert_settled_up(server, asked, accounts)


async def test_bytes_that_are_too_slow_are_charged_at_their_bound_each_time(
    server: ModelServer, model_of: Callable[[str], Model], accounts: list[BudgetAccount]
) -> None:
    """All at once, as each of them waits for its time to run out."""
    server.rule(None, Reply(STORY, usage=SPENT, fault=Fault.hang(after=1)))
    references = ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5")
    agents = [teller(model_of(reference), timeout=5) for reference in references]
    all_asked = await asyncio.gather(*(ask(way, agent) for way in WAYS for agent in agents))
    for asked, way in zip(all_asked, [way for way in WAYS for _ in agents], strict=True):
        assert isinstance(asked.error, TimeLimitExceeded)
        assert classify(asked.error) is AMBIGUOUS
        attempts = 2 if is_in_step(way) else 1
        assert [record.outcome for record in asked.records] == ["unmeasured"] * attempts
        assert [retry.failure_class for retry in asked.retries] == [AMBIGUOUS] * (attempts - 1)
    records = [record for asked in all_asked for record in asked.records]
    entries = await server.ledger.wait_for(len(records), state="finished")
    assert all(entry.client_disconnected for entry in entries)
    records.sort(key=lambda record: record.response_id is None)  # those that can be told apart come first
    assert_settled_up(server, Asked(records=records), accounts)

"""Compactions of Anthropic, through its own SDK: on demand, and by the provider within a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, cast

import httpx2
import pytest
from anthropic import AsyncAnthropic
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.anthropic import AnthropicCompaction, AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from fastroai import Budget, CostBudgetExceeded, FastroAgent, budget_scope
from fastroai.errors import RequestBudgetExceeded, UnboundedRequestError, usage_of

# https://claude.com/pricing#api: US dollars per token of Claude Haiku 4.5
INPUT, OUTPUT = Decimal(1) / 1_000_000, Decimal(5) / 1_000_000
COMPACTED: Final = (900, 60)
"""Input and output tokens of a compaction."""
ANSWERED: Final = (70, 30)
HISTORY: list[ModelMessage] = [
    ModelRequest.user_text_prompt("The capital of France?"),
    ModelResponse(parts=[TextPart("Paris.")]),
]


@dataclass
class Claude:
    """Anthropic's endpoint for messages, which summarizes where it is asked to."""

    status: int = 200
    """Of compactions."""
    summary: str | None = "France was talked about."
    within: bool = False
    """Whether it compacts within each request for an answer."""
    billed: list[tuple[int, int]] = field(default_factory=list)
    hang: Callable[[], Awaitable[None]] | None = None

    def model(self) -> AnthropicModel:
        """A model of Anthropic's that compacts on demand."""
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(cast(Any, self.serve)))
        client = AsyncAnthropic(api_key="k", http_client=http, max_retries=0)
        provider = AnthropicProvider(anthropic_client=client)
        profile: Any = {"anthropic_supports_on_demand_compaction": True}
        return AnthropicModel("claude-haiku-4-5", provider=provider, profile=profile)

    @property
    def billed_usd(self) -> Decimal:
        """By the price page."""
        return sum((asked * INPUT + said * OUTPUT for asked, said in self.billed), Decimal(0))

    async def serve(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("count_tokens"):
            return httpx2.Response(404, json={"error": {"type": "not_found_error", "message": "no"}})
        body = json.loads(request.content)
        is_compaction = "compaction" in body
        if is_compaction and self.hang is not None:
            await self.hang()
        if is_compaction and self.status != 200:
            error = {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}
            return httpx2.Response(self.status, json=error)
        tokens = COMPACTED if is_compaction else ANSWERED
        self.billed.append(tokens)
        usage: dict[str, Any] = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
        block = {"type": "compaction", "content": self.summary, "signature": "s"}
        content: list[Any] = [block] if is_compaction else [{"type": "text", "text": "Lyon."}]
        if self.within and not is_compaction:
            self.billed.append(COMPACTED)
            content.insert(0, {"type": "compaction", "content": self.summary})
            usage["iterations"] = [_iteration("compaction", *COMPACTED), _iteration("message", *ANSWERED)]
        return httpx2.Response(
            200,
            json={
                "id": "msg",
                "type": "message",
                "role": "assistant",
                "model": "claude-haiku-4-5",
                "content": content,
                "stop_reason": "compaction" if is_compaction else "end_turn",
                "stop_sequence": None,
                "usage": usage,
            },
        )


def _iteration(kind: str, asked: int, said: int) -> dict[str, Any]:
    cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation": None}
    return {"type": kind, "input_tokens": asked, "output_tokens": said, **cache}


class Compacting(AbstractCapability[Any]):
    """Has the model summarize what was said before, as `OpenAICompaction` does for OpenAI's."""

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        earlier, news = request_context.messages[:-1], request_context.messages[-1]
        if earlier:
            of_earlier = replace(request_context, messages=earlier)
            summary = await request_context.model.compact_messages(of_earlier, instructions="Keep names.")
            request_context.messages = [summary, news]
        return request_context


def agent(claude: Claude, **options: Any) -> FastroAgent[Any, str]:
    return FastroAgent(
        claude.model(),
        **{"capabilities": [Compacting()], "max_tokens": 200, "request_retries": 0, **options},
    )


async def test_a_compaction_on_demand_is_a_request_in_the_account() -> None:
    claude = Claude()
    async with budget_scope(Budget(usd=1)) as scope:
        response = await agent(claude).run("And its second city?", message_history=HISTORY)
    assert response.output == "Lyon."
    assert claude.billed == [COMPACTED, ANSWERED]
    assert scope.usage.request_count == 2
    assert scope.usage.cost_usd == claude.billed_usd
    assert scope.usage.cost_complete


async def test_a_budget_of_requests_counts_it() -> None:
    claude = Claude()
    async with budget_scope(Budget(requests=1)):
        with pytest.raises(RequestBudgetExceeded):
            await agent(claude).run("And its second city?", message_history=HISTORY)
    assert claude.billed == [COMPACTED]


async def test_a_budget_that_cannot_pay_for_it_stops_the_run_before_it() -> None:
    claude = Claude()
    async with budget_scope(Budget(usd="0.0011")):
        with pytest.raises(CostBudgetExceeded):
            await agent(claude).run("And its second city?", message_history=HISTORY)
    assert claude.billed == []


async def test_one_that_is_refused_costs_nothing() -> None:
    with pytest.raises(ModelHTTPError) as caught:
        await agent(Claude(status=529)).run("And its second city?", message_history=HISTORY)
    spent = usage_of(caught.value)
    assert spent is not None
    assert (spent.committed_usd, spent.failed_requests) == (0, 1)


async def test_one_without_a_summary_was_billed_all_the_same() -> None:
    claude = Claude(summary=None)
    async with budget_scope(Budget(usd=1)) as scope:
        with pytest.raises(UnexpectedModelBehavior):
            await agent(claude).run("And its second city?", message_history=HISTORY)
    assert scope.usage.committed_usd >= claude.billed_usd > 0
    assert scope.usage.request_count == 1


async def test_one_that_is_cancelled_counts_at_its_bound() -> None:
    asked = asyncio.Event()

    async def hang() -> None:
        asked.set()
        await asyncio.Event().wait()

    async with budget_scope(Budget(usd=1)) as scope:
        run = agent(Claude(hang=hang)).run("And its second city?", message_history=HISTORY)
        task = asyncio.create_task(run)
        await asked.wait()
        task.cancel()
        await asyncio.wait([task])
    assert scope.usage.unmeasured_requests == 1
    assert scope.usage.committed_usd >= 200 * OUTPUT


async def test_a_compaction_within_a_request_is_part_of_its_cost() -> None:
    claude = Claude(within=True)
    compaction = AnthropicCompaction(token_threshold=50_000)
    response = await agent(claude, capabilities=[compaction]).run("And its second city?")
    assert claude.billed == [ANSWERED, COMPACTED]
    assert response.usage.request_count == 1
    assert response.cost_usd == claude.billed_usd
    assert response.usage.cost_complete


async def test_nothing_bounds_a_request_that_may_compact_within() -> None:
    claude = Claude(within=True)
    compacting = agent(claude, capabilities=[AnthropicCompaction(token_threshold=50_000)])
    async with budget_scope(Budget(usd=1)):
        with pytest.raises(UnboundedRequestError):
            await compacting.run("And its second city?")
    assert claude.billed == []
    async with budget_scope(Budget(usd=1, on_unbounded="allow")) as scope:
        await compacting.run("And its second city?")
    assert scope.usage.cost_usd == claude.billed_usd

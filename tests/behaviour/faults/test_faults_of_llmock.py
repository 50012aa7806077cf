"""The same faults from llmock, which reads the protocols for itself, and judges its clients.

What it cannot do: a date in `Retry-After`, a body without streaming that is no JSON, and a connection that
ends without streaming. It has no ledger; its journal says what it served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
)
from pydantic_ai.messages import AgentStreamEvent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from support.asking import BACKOFF, PATIENT, WAYS, Asked, Way, ask, is_in_step, is_streamed

from fastroai import (
    FastroAgent,
    Pipeline,
    PipelineConfig,
    StepContext,
    StepExecutionError,
    TimeLimitExceeded,
    step,
)
from fastroai.errors import AnswerCutError
from fastroai.records import RequestRecord
from fastroai.runtime import FailureClass, ProviderLimit, classify
from fastroai.runtime.budgets.ledger import Account as BudgetAccount
from fastroai.store import MemoryRunStore

RECOVERABLE, TERMINAL, AMBIGUOUS = FailureClass.RECOVERABLE, FailureClass.TERMINAL, FailureClass.AMBIGUOUS

STORY = "Once upon a time there was a token that nobody had counted. " * 3
PROTOCOLS = ("responses", "chat", "messages")


@pytest.fixture(scope="module")
def running() -> Iterator[LLMockServer]:
    with LLMockServer() as server:
        yield server


@pytest.fixture
def mock(running: LLMockServer, accounts: list[BudgetAccount]) -> Iterator[LLMock]:
    mock = LLMock(running).reset()
    mock.reply(STORY, times=None)
    yield mock
    assert accounts, "there was a budget, which is looked at when the test is over"


def model_of(protocol: str, mock: LLMock) -> Model:
    if protocol == "messages":
        anthropic = AnthropicProvider(base_url=mock.base_url("anthropic"), api_key="none")
        anthropic.client.max_retries = 0
        return AnthropicModel("claude-haiku-4-5", provider=anthropic)
    openai = OpenAIProvider(base_url=mock.base_url("openai"), api_key="none")
    openai.client.max_retries = 0
    return (OpenAIResponsesModel if protocol == "responses" else OpenAIChatModel)(
        "gpt-5-mini", provider=openai
    )


@pytest.fixture(params=PROTOCOLS)
async def model(request: pytest.FixtureRequest, mock: LLMock) -> Any:
    async with model_of(request.param, mock) as model:  # llmock keeps connections open
        yield model


def teller(model: Model, **options: Any) -> FastroAgent[Any, str]:
    return FastroAgent(model, name="teller", max_tokens=500, cost_budget=5_000_000, **options)


async def watch(context: object, events: AsyncIterable[AgentStreamEvent]) -> None:
    async for _ in events:
        pass


@dataclass(frozen=True)
class Trouble:
    """How llmock is told, and what the documentation says of it."""

    tell: Callable[[LLMock], object]
    error: type[Exception]
    failure: FailureClass
    wish: float = 0.0
    """Seconds that it asks to wait; it always says something."""

    @property
    def retries(self) -> int:
        """In a step under the ready-made policies."""
        return {RECOVERABLE: 3, AMBIGUOUS: 1, TERMINAL: 0}[self.failure]


REFUSALS = {
    "429": Trouble(
        lambda mock: mock.rate_limit(times=None, retry_after=0.01), ModelRateLimitError, RECOVERABLE, 0.01
    ),
    "500": Trouble(lambda mock: mock.fail(500, times=None, retry_after=0), ModelServerError, RECOVERABLE),
    "400": Trouble(lambda mock: mock.context_overflow(times=None), ModelRequestRejectedError, TERMINAL),
}

BROKEN_STREAMS = {
    "disconnect": Trouble(
        lambda mock: mock.disconnect(after_chunks=4, times=None), ModelConnectionError, AMBIGUOUS
    ),
    "corrupt": Trouble(lambda mock: mock.corrupt(after_chunks=4, times=None), ModelAPIError, AMBIGUOUS),
}

ALL_WAYS = pytest.mark.parametrize("way", WAYS)


def outcomes(records: Any) -> list[tuple[str, str, int]]:
    return [(record.outcome, record.use, record.attempt) for record in records]


@ALL_WAYS
@pytest.mark.parametrize("trouble", REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_that_stays_is_repeated_by_the_request_and_costs_nothing(
    mock: LLMock, model: Model, way: Way, trouble: Trouble
) -> None:
    trouble.tell(mock)
    asked = await ask(way, teller(model))
    assert isinstance(asked.error, trouble.error)
    assert classify(asked.error) is trouble.failure
    retries = trouble.retries if is_in_step(way) else min(trouble.retries, 2)
    assert len(mock.requests) == 1 + retries
    assert outcomes(asked.records) == [
        *(("released", "retried", attempt) for attempt in range(1, retries + 1)),
        ("released", "failed", retries + 1),
    ]
    own = [BACKOFF * 2**number if is_in_step(way) else 0.0 for number in range(retries)]
    assert [record.backoff_ms for record in asked.records[1:]] == [
        max(wait, trouble.wish) * 1000 for wait in own
    ]
    assert asked.retries == []
    assert asked.usage is not None
    assert asked.usage.cost_complete
    assert asked.usage.committed_usd == 0


@pytest.mark.parametrize("way", [way for way in WAYS if is_streamed(way)])
@pytest.mark.parametrize("trouble", BROKEN_STREAMS.values(), ids=BROKEN_STREAMS)
async def test_a_stream_that_breaks_is_repeated_by_the_step_alone_and_charged_at_its_bound(
    mock: LLMock, model: Model, way: Way, trouble: Trouble
) -> None:
    trouble.tell(mock)
    asked = await ask(way, teller(model))
    assert isinstance(asked.error, trouble.error)
    assert classify(asked.error) is trouble.failure
    attempts = 1 + (trouble.retries if is_in_step(way) else 0)
    assert len(mock.requests) == attempts
    assert outcomes(asked.records) == [("unmeasured", "retried", 1)] * (attempts - 1) + [
        ("unmeasured", "failed", 1)
    ]
    assert [(retry.unit, retry.failure_class) for retry in asked.retries] == [("step", AMBIGUOUS)] * (
        attempts - 1
    )
    assert asked.usage is not None
    assert not asked.usage.cost_complete
    assert asked.usage.committed_usd == sum(record.bound_usd or 0 for record in asked.records)


@pytest.mark.parametrize("kind", ["disconnect", "corrupt", "truncate"])
async def test_a_call_that_streams_behind_run_is_made_again_after_an_answer_that_broke_off(
    mock: LLMock, model: Model, kind: str
) -> None:
    getattr(mock, kind)(after_chunks=4)
    asked = await ask("ctx.run", teller(model, capabilities=[ProcessEventStream(watch)]))
    assert asked.output == STORY
    assert asked.quality == "clean"
    assert [(record.outcome, record.use, record.cut) for record in asked.records] == [
        ("unmeasured", "retried", True),
        ("settled", "kept", False),
    ]
    [retry] = asked.retries
    assert (retry.unit, retry.failure_class, retry.delay) == ("call", AMBIGUOUS, BACKOFF)
    # Where PydanticAI says itself what is wrong, that stays; where the stream just ends, nobody else would.
    assert isinstance(retry.error, AnswerCutError if kind == "truncate" else ModelAPIError)
    assert len(mock.requests) == 2


@pytest.mark.parametrize("way", [way for way in WAYS if is_streamed(way)])
async def test_a_stream_that_silently_ends_early_is_flagged(mock: LLMock, model: Model, way: Way) -> None:
    mock.truncate(after_chunks=6)
    asked = await ask(way, teller(model))
    assert asked.output is not None
    assert STORY.startswith(asked.output)
    assert asked.output != STORY
    assert [(record.outcome, record.cut) for record in asked.records] == [("unmeasured", True)]
    assert asked.quality == ("degraded" if is_in_step(way) else None)


@pytest.mark.parametrize("way", ["ctx.run_stream"])
async def test_slow_bytes_are_an_answer_like_any_other(mock: LLMock, model: Model, way: Way) -> None:
    mock.delay(0.01).pace(1)
    asked = await ask(way, teller(model, timeout=30))
    assert asked.output == STORY
    assert outcomes(asked.records) == [("settled", "kept", 1)]


async def test_a_stream_that_stalls_runs_out_of_time(mock: LLMock) -> None:
    """All protocols at once, as each of them waits for its time to run out."""
    mock.stall(after_chunks=4, seconds=20, times=None)

    async def stalled(protocol: str) -> Asked:
        async with model_of(protocol, mock) as model:
            return await ask("agent.run_stream_events", teller(model, timeout=3))

    for asked in await asyncio.gather(*map(stalled, PROTOCOLS)):
        assert isinstance(asked.error, TimeLimitExceeded)
        assert outcomes(asked.records) == [("unmeasured", "failed", 1)]


@pytest.mark.parametrize("way", ["ctx.run", "ctx.run_stream"])
async def test_llmock_finds_nothing_wrong_with_how_a_rate_limit_is_waited_out(
    mock: LLMock, model: Model, way: Way
) -> None:
    mock.rate_limit(times=2, retry_after=0.05)
    asked = await ask(way, teller(model))
    assert asked.output == STORY
    assert [record.backoff_ms for record in asked.records] == [0, 50, 50]
    mock.assert_resilient()


async def test_its_quota_is_kept_to_after_the_first_refusal(mock: LLMock) -> None:
    """It says how long its quota takes to fill up again; whoever has less time does not try."""
    mock.limits(rpm=1)
    async with model_of("chat", mock) as model:
        limit = ProviderLimit(max_concurrency=4)
        agent = teller(model, timeout=5, provider_limits={"openai": limit})
        assert (await ask("ctx.run", agent)).output == STORY
        refused = await ask("ctx.run", agent)
        assert isinstance(refused.error, ModelRateLimitError)
        assert "not retried: the provider asked to wait" in refused.error.__notes__[0]
        assert limit.status("openai").held_back_for > 5
    assert [record.status for record in mock.requests] == [200, 429]
    mock.assert_resilient()


async def test_the_next_model_answers_when_the_first_is_down(mock: LLMock) -> None:
    mock.fail(503, times=None, retry_after=0, provider="openai")
    async with model_of("responses", mock) as first, model_of("messages", mock) as second:
        agent = teller(FallbackModel(first, second))
        late = {RECOVERABLE: PATIENT[AMBIGUOUS]}
        asked = await ask("ctx.run", agent, late)
    assert asked.output == STORY
    assert [(record.provider, record.outcome) for record in asked.records] == [
        ("openai", "released"),
        ("openai", "released"),
        ("anthropic", "settled"),
    ]


async def test_a_run_on_record_goes_on_when_llmock_is_well_again(mock: LLMock, model: Model) -> None:
    agent, store = teller(model), MemoryRunStore()

    @step
    async def plan(ctx: StepContext) -> str:
        return (await ctx.run(agent, "Plan")).output

    @step
    async def tell(ctx: StepContext) -> str:
        if not ctx.shared["well"]:
            mock.fail(500, times=None, retry_after=0)
        return (await ctx.run(agent, "Tell")).output

    pipeline = Pipeline[Any, Any, str](
        "p",
        {"plan": plan, "tell": tell},
        dependencies={"tell": ["plan"]},
        config=PipelineConfig(retry=PATIENT),
    )
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store, context={"well": False})
    assert len(mock.requests) == 1 + 4
    mock.reset()
    mock.reply(STORY)
    result = await pipeline.resume("r", store=store, context={"well": True})
    assert result.output == STORY
    assert len(mock.requests) == 1
    records: tuple[RequestRecord, ...] = result.usage.records
    assert [record.outcome for record in records] == ["settled", *["released"] * 4, "settled"]

"""Budgets and limits of calls, in time and beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic_ai import capture_run_messages
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from support.virtual_time import VirtualTimeLoop

from fastroai import (
    AgentConfig,
    Budget,
    CostBudgetExceeded,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    StepConfig,
    StepContext,
    budget_scope,
    step,
)
from fastroai.errors import RequestBudgetExceeded, TimeBudgetExceeded
from fastroai.store import MemorySpendStore, RedisSpendStore, SQLiteSpendStore
from fastroai.usage import CostCalculator, ModelFallback, SpendClaim, SpendVerdict

T = TypeVar("T")

A_TOKEN_IS_A_MICROCENT = CostCalculator(
    pricing_overrides={"function:priced": {"input_per_mtok": 0, "output_per_mtok": 1}}
)


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def agent_of(
    seconds: float = 0.0, *, uses: int = 20, most: int = 100, **options: object
) -> FastroAgent[None, str]:
    """Answers after so many seconds for `uses` microcents, of `most` that are reserved."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await asyncio.sleep(seconds)
        return ModelResponse(parts=[TextPart("ok")], usage=RequestUsage(output_tokens=uses))

    model = FunctionModel(respond, model_name="priced")
    return FastroAgent(model, max_tokens=most, cost_calculator=A_TOKEN_IS_A_MICROCENT, **options)  # type: ignore[arg-type]


def limit_of(microcents: int, key: str = "k") -> SpendLimit:
    return SpendLimit(microcents=microcents, window="total", key=key, store=MemorySpendStore())


@pytest.mark.parametrize("given", ["option", "config"])
async def test_a_budget_for_one_call_does_not_lift_the_agents_spend_limit(given: str) -> None:
    limit = limit_of(50)
    agent = agent_of(budget=limit) if given == "option" else agent_of(config=AgentConfig(budget=limit))
    for budget in ({"budget": Budget(usd=1)}, {"cost_budget": 50_000}):
        response = await agent.run("x", **budget)  # type: ignore[arg-type]
        assert response.cost_usd == Decimal("0.00002")
    assert (await limit.status()).spent_usd == Decimal("0.00004")


async def test_a_more_specific_budget_of_a_step_does_not_lift_its_spend_limit() -> None:
    limit = limit_of(50)

    @step(budget=limit)
    async def ask(ctx: StepContext[None]) -> str:
        return (await ctx.run(agent_of(), "x")).output

    pipeline = Pipeline("p", {"ask": ask}, step_configs={"ask": StepConfig(cost_budget=1_000)})
    await pipeline.execute()
    assert (await limit.status()).spent_usd == Decimal("0.00002")
    lifted = Pipeline("p", {"ask": ask}, step_configs={"ask": StepConfig(budget=None)})
    await lifted.execute()
    assert (await limit.status()).spent_usd == Decimal("0.00002")


def test_a_timeout_of_a_call_does_not_run_while_it_waits_for_others_under_a_budget() -> None:
    async def ask() -> list[str]:
        agent = agent_of(0.6, timeout=1)
        async with budget_scope(Budget(microcents=180)):
            answers = await asyncio.gather(*(agent.run("x") for _ in range(5)))
        return [answer.output for answer in answers]

    assert run_in_virtual_time(ask()) == ["ok"] * 5


def test_nor_does_that_of_a_step() -> None:
    @step(timeout=1)
    async def ask(ctx: StepContext[None]) -> str:
        return (await agent_of(0.6).run("x")).output

    steps = {f"ask{number}": ask for number in range(5)}
    pipeline = Pipeline(
        "p",
        {**steps, "end": ask},
        {"end": list(steps)},
        config=PipelineConfig(budget=Budget(microcents=200)),
    )
    assert run_in_virtual_time(pipeline.execute()).output == "ok"


def test_whoever_reads_a_stream_does_not_wait_for_it() -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three"):
            yield word

    streaming = FastroAgent(
        FunctionModel(stream_function=stream, model_name="priced"),
        max_tokens=100,
        cost_calculator=A_TOKEN_IS_A_MICROCENT,
    )

    async def read() -> tuple[list[int], float]:
        started = asyncio.get_running_loop().time()
        spent: list[int] = []
        async with budget_scope(Budget(microcents=150)):
            async for chunk in streaming.run_stream("x"):
                if chunk.content:
                    spent.append((await agent_of(uses=5).run("nested")).cost_microcents)
        return spent, asyncio.get_running_loop().time() - started

    spent, seconds = run_in_virtual_time(read())
    assert spent == [5, 5, 5]
    assert seconds < 0.5


def prompts_in(messages: Sequence[ModelMessage]) -> list[object]:
    return [
        part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)
    ]


async def test_a_stopped_run_goes_on_from_its_own_messages_and_not_from_those_of_a_run_in_its_tool() -> None:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if prompts_in(messages)[-1] == "inner" or len(messages) > 4:
            return ModelResponse(parts=[TextPart("ok")])
        return ModelResponse(parts=[ToolCallPart("ask_inside", {})])

    agent = FastroAgent(FunctionModel(respond))

    async def ask_inside() -> str:
        return (await agent.agent.run("inner")).output

    earlier = (await agent.run("inner")).all_messages()
    agent.agent.tool_plain(ask_inside)  # type: ignore[attr-defined]
    with pytest.raises(RequestBudgetExceeded) as caught:
        await agent.run("outer", message_history=earlier, budget=Budget(requests=2))
    [run] = caught.value.stopped_runs
    assert prompts_in(run.messages) == ["inner", "outer"]
    assert len(run.messages) == 5, "the tool's return is there, so that it is not called again"


async def test_a_run_that_is_stopped_before_its_first_request_goes_on_from_its_history() -> None:
    agent = agent_of()
    earlier = (await agent.run("earlier")).all_messages()

    async def instructions() -> str:
        for question in ("what", "how"):
            await agent_of().run(question)
        return "Do it."

    instructed = FastroAgent(agent.agent.model, instructions=instructions, name="instructed")
    with pytest.raises(RequestBudgetExceeded) as caught:
        await instructed.run("x", message_history=earlier, budget=Budget(requests=1))
    assert [prompts_in(run.messages) for run in caught.value.stopped_runs][-1] == ["earlier"]


async def test_messages_of_a_run_can_be_captured_as_those_of_any_pydantic_ai_agent() -> None:
    with capture_run_messages() as messages:
        response = await agent_of().run("x")
    assert messages == response.all_messages()


def test_a_run_that_an_outer_time_budget_stops_can_go_on() -> None:
    @step
    async def ask(ctx: StepContext[None]) -> str:
        return (await ctx.run(agent_of(60, name="slow"), "x")).output

    async def stop_of(work: Coroutine[Any, Any, object]) -> TimeBudgetExceeded:
        with pytest.raises(TimeBudgetExceeded) as caught:
            await work
        return caught.value

    async def scoped() -> None:
        async with budget_scope(Budget(ms=600)):
            await agent_of(60, name="slow").run("x")

    pipeline = Pipeline("p", {"ask": ask}, config=PipelineConfig(budget=Budget(ms=600)))
    for work in (scoped(), pipeline.execute(), agent_of(60, name="slow").run("x", budget=Budget(ms=600))):
        stop = run_in_virtual_time(stop_of(work))
        [run] = stop.stopped_runs
        assert run.agent == "slow"
        assert [message.kind for message in stop.messages] == ["request"]


async def test_a_model_to_step_down_to_that_cannot_be_built_is_seen_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        await agent_of(budget=Budget(usd=1, fallback=ModelFallback(at=0.9, use="openai:gpt-5-nano"))).run("x")


async def test_a_stop_says_what_open_streams_have_reserved() -> None:
    gate = asyncio.Event()

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "one"
        await gate.wait()
        yield "two"

    streaming = FastroAgent(
        FunctionModel(stream_function=stream, model_name="priced"),
        max_tokens=100,
        cost_calculator=A_TOKEN_IS_A_MICROCENT,
    )
    async with budget_scope(Budget(microcents=100)), streaming.run_stream("x") as chunks:
        async for _ in chunks:
            with pytest.raises(CostBudgetExceeded, match=r"spent, \$0\.0001 reserved by requests in flight"):
                await agent_of().run("nested")
            break
        gate.set()


async def test_two_limits_in_one_place_count_a_request_once(tmp_path: Path) -> None:
    file = tmp_path / "spend.db"
    inner = SpendLimit(microcents=500, window="total", key="k", store=SQLiteSpendStore(file))
    outer = SpendLimit(microcents=150, window="total", key="k", store=SQLiteSpendStore(file))
    assert inner.store == outer.store
    assert inner.store != SQLiteSpendStore(tmp_path / "other.db")
    async with budget_scope(outer):
        await agent_of(budget=inner).run("x")
    assert (await inner.status()).spent_usd == Decimal("0.00002")
    assert RedisSpendStore("redis://localhost:1/0") == RedisSpendStore("redis://localhost:1/0")
    assert RedisSpendStore("redis://localhost:1/0") != RedisSpendStore("redis://localhost:1/1")


async def test_a_lease_that_ends_before_the_request_is_sent_is_asked_for_again_in_order() -> None:
    asked: list[str] = []

    class Lapsing(MemorySpendStore):
        async def reserve(self, claim: SpendClaim) -> SpendVerdict:
            asked.append(claim.account.key)
            return await super().reserve(claim)

        async def mark_sent(self, claim: SpendClaim) -> bool:
            if claim.account.key == "b" and asked.count("b") == 1:
                await self.settle(claim, Decimal(0))  # as when its lease is over
            return await super().mark_sent(claim)

    store = Lapsing()
    limits = [SpendLimit(microcents=150, window="total", key=key, store=store) for key in ("b", "a")]
    await agent_of(budget=limits).run("x")
    assert asked == ["a", "b", "a", "b"]
    for limit in limits:
        status = await limit.status()
        assert (status.spent_usd, status.reserved_usd) == (Decimal("0.00002"), 0)

"""What agents find on record: by whom it was asked, in which attempt, and what became of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from support.agents import TOKEN_IS_MICROCENT, paid_agent, prompt_of
from support.interruptions import (
    RUN,
    DyingStore,
    assert_the_sum_of_the_log,
    entries_of,
    go_on,
    interrupt,
    never,
    nth,
)
from support.virtual_time import in_virtual_time

from fastroai import FastroAgent
from fastroai.errors import BudgetExceeded, StepExecutionError
from fastroai.pipelines import Pipeline, StepConfig, StepContext, step
from fastroai.runtime import ProviderLimit
from fastroai.runtime.facts import ReplayDiverged, RequestEnded, RequestSent, ToolEnded
from fastroai.store import MemoryRunStore
from fastroai.usage import Budget


class Office:
    """Agents of one kind, and how often they were asked and their tool was called."""

    def __init__(self, requests: int = 3, *, same_ids: bool = False) -> None:
        self.requests, self.same_ids = requests, same_ids
        self.asked: Counter[str] = Counter()
        self.called: Counter[str] = Counter()

    def agent(self, **options: Any) -> FastroAgent[Any, str]:
        """Calls its tool until the last request; each costs a microcent more than the one before."""

        async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            prompt = prompt_of(messages)
            self.asked[prompt] += 1
            returned = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
            usage = RequestUsage(input_tokens=100 + len(returned))
            if len(returned) + 1 < self.requests:
                args = {"who": prompt if self.same_ids else f"{prompt} {len(returned)}"}
                number = 0 if self.same_ids else len(returned)
                part = ToolCallPart("work", args, tool_call_id=f"{prompt}{number}")
                return ModelResponse(parts=[part], usage=usage)
            text = ", ".join(str(part.content) for part in returned)
            return ModelResponse(parts=[TextPart(f"{prompt}: {text}")], usage=usage)

        async def work(who: str) -> str:
            """Work."""
            self.called[who] += 1
            return f"{who} did {self.called[who]}" if self.same_ids else f"{who} did"

        options.setdefault("tools", [work])
        options.setdefault("cost_calculator", TOKEN_IS_MICROCENT)
        return FastroAgent(FunctionModel(respond, model_name="paid"), name="clerk", **options)


def alone(execute: Any, **options: Any) -> Pipeline[Any, Any]:
    """A pipeline of one step, as a new process has it."""
    return Pipeline("p", {"alone": step(execute)}, **options)


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True])
@in_virtual_time  # a slow machine would make more writes of the same facts
async def test_a_loop_goes_on_from_every_write(written: bool) -> None:
    async def work(ctx: StepContext[None]) -> str:
        return (await ctx.run(office.agent(), "Go")).output

    office = Office(10)
    counting = DyingStore(MemoryRunStore(), never)
    undisturbed = await alone(work).execute(run_id=RUN, store=counting)
    for write in range(2, counting.writes - 1, 4):
        office, store, writes, lost = Office(10), MemoryRunStore(), [0], [0]

        def at(entries: Any, writes: Any = writes, lost: Any = lost, write: int = write) -> bool:
            writes[0] += 1
            lost[0] = 0 if written else sum(isinstance(entry, RequestEnded) for entry in entries)
            return bool(writes[0] == write)

        await interrupt(alone(work), store, at, written=written)
        result = await go_on(alone(work), store)
        assert result.output == undisturbed.output
        assert office.asked["Go"] == 10 + lost[0]
        assert sum(office.called.values()) <= 10
        assert result.usage.cost_usd == undisturbed.usage.cost_usd
        await assert_the_sum_of_the_log(result, store)


async def test_calls_of_tools_with_the_same_id_and_arguments_have_their_own_results() -> None:
    office, store = Office(5, same_ids=True), MemoryRunStore()

    async def work(ctx: StepContext[None]) -> str:
        return (await ctx.run(office.agent(), "Go")).output

    await interrupt(alone(work), store, nth(RequestEnded, 4), written=True)
    result = await go_on(alone(work), store)
    assert result.output == "Go: Go did 1, Go did 2, Go did 3, Go did 4"
    assert office.asked["Go"] == 5


@pytest.mark.parametrize("number", range(1, 6))
async def test_calls_that_have_changed_places_keep_their_tool_results_too(number: int) -> None:
    office, store, prompts = Office(3), MemoryRunStore(), ["a", "b"]

    async def work(ctx: StepContext[None]) -> list[str]:
        agent = office.agent()
        return sorted(one.output for one in await asyncio.gather(*(ctx.run(agent, p) for p in prompts)))

    await interrupt(alone(work), store, nth(RequestEnded, number), written=True)
    ended = sum(isinstance(entry, ToolEnded) for entry in await entries_of(store))
    called = sum(office.called.values())
    prompts.reverse()
    result = await go_on(alone(work), store)
    assert result.output == ["a: a 0 did, a 1 did", "b: b 0 did, b 1 did"]
    assert sum(office.called.values()) == called + 4 - ended
    assert sum(office.asked.values()) == 6 + result.usage.unmeasured_requests


async def test_what_a_pipeline_in_a_tool_has_spent_is_in_the_account_of_the_call() -> None:
    inner_asked: list[str] = []

    async def note(prompt: str) -> None:
        inner_asked.append(prompt)

    office, responses = Office(4), []

    async def work(ctx: StepContext[None]) -> str:
        async def run_it(who: str) -> str:
            inner = paid_agent(30, before=note)

            @step
            async def ask(ctx: StepContext[None]) -> str:
                return (await ctx.run(inner, ctx.get_input("who"))).output

            @step
            async def again(ctx: StepContext[None]) -> str:
                return (await ctx.run(inner, ctx.get_dependency("ask"))).output

            nested = Pipeline("inner", {"ask": ask, "again": again}, {"again": ["ask"]})
            return str((await nested.execute({"who": who})).output)

        run_it.__name__ = "work"
        responses.append(await ctx.run(office.agent(tools=[run_it]), "Go"))
        return responses[-1].output

    undisturbed = await alone(work).execute()
    before = responses.pop()
    for number in (3, 4, 7, 10):
        inner_asked.clear()
        store = MemoryRunStore()
        await interrupt(alone(work), store, nth(RequestEnded, number), written=True)
        result = await go_on(alone(work), store)
        assert result.output == undisturbed.output
        assert len(inner_asked) == 6
        after = responses.pop()
        assert after.usage == before.usage, f"interrupted at request {number}"
        assert result.usage.total == undisturbed.usage.total
        responses.clear()


async def test_attempts_at_a_step_go_on_and_what_they_threw_away_is_marked() -> None:
    office, attempts = Office(2), []

    async def work(ctx: StepContext[None]) -> str:
        attempts.append(ctx.attempt)
        output = (await ctx.run(office.agent(), "Go")).output
        if ctx.attempt < 3:
            raise ConnectionError
        return output

    config = {"alone": StepConfig(retries=2, retry_delay=0.0)}
    undisturbed = await alone(work, step_configs=config).execute()
    uses = [record.use for record in undisturbed.usage.records]
    assert uses == ["retried"] * 4 + ["kept"] * 2
    for number in range(1, 7):
        store = MemoryRunStore()
        await interrupt(alone(work, step_configs=config), store, nth(RequestEnded, number), written=True)
        attempts.clear()
        result = await go_on(alone(work, step_configs=config), store)
        assert attempts[-1] == 3
        assert [record.use for record in result.usage.records] == uses
        assert result.usage.total == undisturbed.usage.total


@in_virtual_time  # a slow machine would write an attempt before the request that dies
async def test_attempts_at_a_mapped_step_go_on() -> None:
    attempts: list[int] = []

    @step
    async def one(ctx: StepContext[None]) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError
        return (await ctx.run(paid_agent(), "Go")).output

    async def work(ctx: StepContext[None]) -> list[str]:
        return await ctx.map(one, ["x"])

    one.config = StepConfig(retries=2, retry_delay=0.0)
    for written, made_again in ((False, [1, 2, 3]), (True, [3])):
        store = MemoryRunStore()
        await interrupt(alone(work), store, nth(RequestSent), written=written)
        attempts.clear()
        await go_on(alone(work), store)
        assert attempts == made_again


async def test_a_call_that_goes_another_way_has_spent_what_it_had_spent() -> None:
    """Its tool is called each time, and says something else: what came after that is asked and paid anew."""
    said: list[int] = []
    office = Office(4)

    def agent() -> FastroAgent[Any, str]:
        from pydantic_ai import Tool

        async def work(who: str) -> str:
            """Work."""
            said.append(1)
            return f"time {len(said)}"

        tool = Tool(work, metadata={"repeatable": True})
        return office.agent(tools=[tool], budget=Budget(requests=5))

    async def execute(ctx: StepContext[None]) -> str:
        return (await ctx.run(agent(), "Go")).output

    store = MemoryRunStore()
    await interrupt(alone(execute), store, nth(RequestEnded, 3), written=True)
    with pytest.raises((BudgetExceeded, StepExecutionError)):
        await go_on(alone(execute), store)
    assert office.asked["Go"] == 5
    assert sum(isinstance(entry, ReplayDiverged) for entry in await entries_of(store)) == 1


async def test_a_request_that_is_cancelled_before_it_goes_out_costs_nothing_and_leaves_its_place() -> None:
    """While it is put on record: it may be there already."""
    asked: list[str] = []
    arrived, may_go_on = asyncio.Event(), asyncio.Event()

    class SlowStore(DyingStore):
        async def append(self, key: str, values: Any, *, revision: int) -> None:
            await super().append(key, values, revision=revision)
            if b'"request_sent"' in b"".join(values) and not may_go_on.is_set():
                arrived.set()
                await may_go_on.wait()

    async def note(prompt: str) -> None:
        asked.append(prompt)

    agent = paid_agent(before=note, provider_limits={"function": ProviderLimit(max_concurrency=1)})

    async def work(ctx: StepContext[None]) -> str:
        first = asyncio.create_task(ctx.run(agent, "first"))
        await arrived.wait()
        first.cancel()
        await asyncio.wait([first])
        may_go_on.set()
        return (await ctx.run(agent, "second")).output

    store = MemoryRunStore()
    result = await alone(work).execute(run_id=RUN, store=SlowStore(store, never))
    assert asked == ["second"]
    assert result.usage.unmeasured_requests == 0
    assert result.usage.request_count == 1
    await assert_the_sum_of_the_log(result, store)

"""Runs that are taken up after each of their entries: what looks the same is not taken for the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import ModelRetry, Tool
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.stored_runs import entries_of, header_of, raw_log

from fastroai import BasePipeline, FastroAgent, Pipeline, StepConfig, StepContext, step
from fastroai.runtime.facts import AnyFact, StepFinished, ToolEnded
from fastroai.store import MemoryRunStore
from fastroai.store.record.headers import encode_header, header_key, log_key


async def cut_off(pipeline: Pipeline[Any, Any]) -> AsyncIterator[tuple[MemoryRunStore, list[AnyFact], Any]]:
    """The record of a run, cut off after each of its entries, and the output of the whole."""
    whole = MemoryRunStore()
    result = await pipeline.execute(run_id="run", store=whole)
    log, header = await raw_log(whole, "run"), await header_of(whole, "run")
    for length in range(1, len(log)):
        store = MemoryRunStore()
        await store.append(
            header_key("run"), [encode_header(replace(header, status="running", log_revision=0))], revision=0
        )
        await store.append(log_key(header), log[:length], revision=0)
        yield store, await entries_of(store, "run"), result.output


def returned(log: list[AnyFact]) -> int:
    return sum(isinstance(entry, ToolEnded) for entry in log)


def calling(tool: str, times: int, function: Any) -> Pipeline[Any, Any]:
    """Two calls of an agent that calls a tool so many times, with the same id and arguments."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        told = [part.model_response_str() for part in parts if part.part_kind == "tool-return"]
        if len(told) < times:
            return ModelResponse([ToolCallPart(tool, {"number": 0}, "call_0")])
        return ModelResponse([TextPart("; ".join(told))])

    agent = FastroAgent(FunctionModel(answer), tools=[Tool(function)])

    @step
    async def say(ctx: StepContext) -> str:
        return " / ".join([str((await ctx.run(agent, "go")).output) for _ in range(2)])

    return Pipeline("outer", {"say": say})


async def test_calls_of_a_tool_that_look_the_same_keep_their_own_results() -> None:
    count = 0

    async def poll(number: int) -> str:
        nonlocal count
        count += 1
        return f"poll {count}"

    pipeline = calling("poll", 3, poll)
    async for store, log, output in cut_off(pipeline):
        count = returned(log)  # as it stood when the run was cut off
        assert (await pipeline.resume("run", store=store)).output == output
        assert count == 6
        assert output == "poll 1; poll 2; poll 3 / poll 4; poll 5; poll 6"


@pytest.mark.slow
async def test_pipelines_that_a_tool_runs_are_not_taken_for_each_other() -> None:
    count = 0
    ran: set[str] = set()

    async def nest(number: int) -> str:
        nonlocal count
        count += 1
        return str((await inner.execute({"which": f"run {count}"})).output)

    @step
    async def first(ctx: StepContext) -> str:
        ran.add(ctx.get_input("which"))
        return str(ctx.get_input("which"))

    @step
    async def second(ctx: StepContext) -> str:
        return f"{ctx.get_dependency('first')} done"

    inner = Pipeline("inner", {"first": first, "second": second}, {"second": ["first"]})
    pipeline = calling("nest", 2, nest)
    async for store, log, output in cut_off(pipeline):
        count = returned(log)
        ran.clear()
        assert (await pipeline.resume("run", store=store)).output == output
        assert not ran & {str(entry.output) for entry in log if isinstance(entry, StepFinished)}
        assert output == "run 1 done; run 2 done / run 3 done; run 4 done"


async def test_what_a_tool_tells_the_model_by_an_exception_is_on_record_as_any_result() -> None:
    count = 0

    async def fussy(number: int) -> str:
        nonlocal count
        count += 1
        if count % 3 == 1:
            raise ModelRetry("once more")
        if count % 3 == 2:
            raise ToolFailed("it is broken")
        return "fine"

    pipeline = calling("fussy", 3, fussy)
    async for store, log, output in cut_off(pipeline):
        assert "once more" in output
        assert "it is broken" in output
        count = returned(log)
        assert (await pipeline.resume("run", store=store)).output == output
        assert count == 6


async def test_an_effect_in_a_nested_pipeline_happens_once_though_the_step_around_it_is_retried() -> None:
    effects: list[str] = []
    failures = 0

    @step
    async def pay(ctx: StepContext) -> str:
        key = ctx.idempotency_key
        return await ctx.once("pay", lambda: effects.append(key) or "paid")

    @step
    async def check(ctx: StepContext) -> str:
        nonlocal failures
        failures += 1
        if failures % 2:
            raise ConnectionError("not yet")
        return str(ctx.get_dependency("pay"))

    inner = Pipeline("inner", {"pay": pay, "check": check}, {"check": ["pay"]})
    outer = Pipeline("outer", {"pay": inner.as_step(config=StepConfig(retries=1, retry_delay=0))})
    assert (await outer.execute(run_id="run", store=MemoryRunStore())).output == "paid"
    assert len(effects) == 1
    await outer.execute()
    assert len(set(effects)) == 2, "another run is another matter"


async def test_a_router_that_a_step_runs_twice_has_two_places() -> None:
    ran: set[str] = set()

    @step
    async def say(ctx: StepContext) -> str:
        ran.add(ctx.get_input("word"))
        return str(ctx.get_input("word"))

    class Desk(BasePipeline[Any, Any, str]):
        async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
            return "only"

    desk = Desk()
    desk.register_pipeline("only", Pipeline("only", {"say": say}))

    @step
    async def twice(ctx: StepContext) -> str:
        return " ".join([str((await desk.execute({"word": word})).output) for word in ("one", "two")])

    pipeline = Pipeline("outer", {"twice": twice})
    async for store, log, output in cut_off(pipeline):
        ran.clear()
        assert (await pipeline.resume("run", store=store)).output == output == "one two"
        assert not ran & {str(entry.output) for entry in log if isinstance(entry, StepFinished)}

"""What is on record of a run is what happened: with and without a store, whoever stops it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import date
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from support.agents import paid_agent, request_costs
from support.declared_facts import FACTS

from fastroai import (
    Budget,
    Graph,
    Inbox,
    MemoryRunStore,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    graphs,
    pipelines,
    rows,
    step,
    workflows,
)
from fastroai.agent import FastroAgent
from fastroai.errors import BudgetExceeded, StepExecutionError, TimeLimitExceeded
from fastroai.pipelines import (
    BasePipeline,
    Fact,
    QuestionAsked,
    RunFinished,
    StepFinished,
    StepSkipped,
)
from fastroai.runtime.facts import (
    OnceDone,
    OnceFailed,
    OnceStarted,
    RequestEnded,
    RequestSent,
    SpendingRecorded,
    ToolEnded,
)
from fastroai.store import RunHistory, RunTrace, fact_to_json, trace_of


@step
async def greedy(ctx: StepContext) -> None:
    for _ in range(9):
        await ctx.run(paid_agent(1), "more")


@step
async def asks_twice(ctx: StepContext) -> None:
    for _ in range(2):
        await ctx.run(paid_agent(1), "more")


@step
async def fails(ctx: StepContext) -> None:
    raise ValueError("no")


@step
async def works(ctx: StepContext) -> int:
    return 1


OWN = StepConfig(budget=Budget(requests=1), on_error="continue")


async def test_a_run_has_the_same_facts_with_and_without_a_store() -> None:
    inner = Pipeline(
        "inner",
        {"fails": fails, "works": works},
        output_step="works",
        step_configs={"fails": StepConfig(on_error="continue")},
    )
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"own": asks_twice, "nested": inner.as_step(), "after": works},
        {"after": ["own"]},
        output_step="nested",
        step_configs={"own": OWN},
    )
    live = (await pipeline.execute()).trace
    kept = (await pipeline.execute(store=MemoryRunStore())).trace
    assert live.diff(kept) == ()
    assert [(one.place, one.status) for one in live.steps] == [(one.place, one.status) for one in kept.steps]
    assert live.replay(pipeline) is None
    assert kept.replay(pipeline) is None


SIDE_FACTS = (RequestSent, RequestEnded, SpendingRecorded, ToolEnded, OnceStarted, OnceDone, OnceFailed)


def side_facts(trace: RunTrace) -> list[dict[str, object]]:
    """What is on record of requests, tools and side effects, without ids, times and costs."""
    told: list[dict[str, object]] = []
    for fact in trace.entries:
        match fact:
            case RequestSent():
                told.append({"kind": fact.kind, "request": fact.request, "rejects": fact.rejects})
            case RequestEnded():
                assert isinstance(fact.response, dict)
                told.append(
                    {"kind": fact.kind, "parts": fact.response["parts"], "cost": fact.record.cost_usd}
                )
            case SpendingRecorded():
                told.append({"kind": fact.kind, "place": fact.place, "cost": fact.record.cost_usd})
            case ToolEnded():
                result = fact.result and fact.result["parts"][0]["content"]  # which has a time beside it
                told.append({"kind": fact.kind, "tool": fact.tool, "retry": fact.retry, "result": result})
            case OnceStarted() | OnceDone() | OnceFailed():
                known = {one.name: getattr(fact, one.name) for one in fields(fact) if one.name != "timestamp"}
                told.append({"kind": fact.kind, **known, "part": None})
            case _:
                pass
    return told


@pytest.mark.parametrize("kind", ["pipeline", "graph"])
async def test_requests_tools_and_side_effects_are_the_same_facts_with_and_without_a_store(kind: str) -> None:
    def look_up(word: str) -> dict[str, str]:
        if word == "a":
            raise ModelRetry("not that")
        return {"found": word}

    async def ask_another(ctx: RunContext[Any]) -> str:
        return (await paid_agent(3).run("inside")).output

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls = [
            ToolCallPart("look_up", {"word": "a"}, "1"),
            ToolCallPart("look_up", {"word": "b"}, "2"),
            ToolCallPart("ask_another", {}, "3"),
        ]
        asked = sum(isinstance(message, ModelResponse) for message in messages)
        part = calls[asked] if asked < len(calls) else TextPart("done")
        return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=1, output_tokens=0))

    agent: FastroAgent[Any, str] = FastroAgent(
        FunctionModel(respond, model_name="paid"),
        tools=[look_up, ask_another],
        cost_calculator=request_costs(1),
    )

    @step(retries=1, retry_delay=0)
    async def busy(ctx: StepContext) -> str:
        if ctx.attempt == 1:
            with suppress(KeyError):
                await ctx.once("fails", lambda: {}["nothing"])
            raise ValueError("not yet")
        await ctx.once("pay", lambda: {"receipt": 7})
        ctx.record_usage(model="search", cost_usd="0.1")
        async with ctx.spend("0.2", model="search") as spend:
            spend.settle("0.1")
        return (await ctx.run(agent, "go")).output

    async def traced(store: MemoryRunStore | None) -> RunTrace:
        if kind == "pipeline":
            return (await Pipeline("p", {"busy": busy}).execute(store=store)).trace
        return (await Graph("p", nodes={"busy": busy}).run(store=store)).trace

    live, kept = await traced(None), await traced(MemoryRunStore())
    assert live.status == kept.status == "finished"
    assert live.diff(kept) == ()
    assert side_facts(live) == side_facts(kept)
    assert [type(fact) for fact in live.entries] == [type(fact) for fact in kept.entries]
    assert {type(fact) for fact in live.entries}.issuperset(SIDE_FACTS)
    assert RunTrace.from_json(live.to_json()).diff(kept) == ()


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


async def test_what_no_store_would_take_is_shown_in_the_trace_of_a_run_without_one() -> None:
    def look_up() -> Any:
        return Odd()

    # Both tools are called at once: a PydanticAI from 2.68 on sends no request with such a result.
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls = [ToolCallPart("look_up", {}, "1"), ToolCallPart("final_result", {"said": "done"}, "2")]
        return ModelResponse(parts=calls, usage=RequestUsage(input_tokens=1), metadata={"by": Odd()})

    class Answer(BaseModel):
        said: str

    agent = FastroAgent(
        FunctionModel(respond), tools=[look_up], output_type=Answer, end_strategy="exhaustive"
    )

    @step
    async def asks(ctx: StepContext) -> str:
        await ctx.once("odd", Odd)
        return (await ctx.run(agent, "go")).output.said

    trace = (await Pipeline("p", {"asks": asks}).execute()).trace
    [effect] = [fact.result for fact in trace.entries if isinstance(fact, OnceDone)]
    [found] = [fact.result for fact in trace.entries if isinstance(fact, ToolEnded)]
    assert effect == found == "<odd>"
    hashes = {fact.request.fingerprint for fact in trace.entries if isinstance(fact, RequestSent)}
    assert len(hashes) == 1
    assert trace.diff((await Pipeline("p", {"asks": asks}).execute()).trace) == ()


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
async def test_a_run_in_which_an_own_budget_and_then_an_outer_one_ran_out_replays(
    store: MemoryRunStore | None,
) -> None:
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"own": asks_twice, "greedy": greedy},
        {"greedy": []},
        output_step="greedy",
        config=PipelineConfig(budget=Budget(requests=4), max_concurrency=1),
        step_configs={"own": OWN},
    )
    with pytest.raises(BudgetExceeded) as caught:
        await pipeline.execute(store=store)
    trace = trace_of(caught.value)
    assert trace is not None
    assert trace.status == "failed"
    assert trace.replay(pipeline) is None


async def test_after_its_own_budget_ran_out_a_step_is_resumed_with_the_same_attempt() -> None:
    """So what it has paid for is not paid again."""
    attempts: list[int] = []

    @step
    async def own(ctx: StepContext) -> None:
        attempts.append(ctx.attempt)
        await ctx.run(paid_agent(1), "more")
        await ctx.run(paid_agent(1), "more")

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"own": own}, step_configs={"own": StepConfig(budget=Budget(requests=1))}
    )
    store = MemoryRunStore()
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    with pytest.raises(StepExecutionError):
        await pipeline.resume("r", store=store)
    assert attempts == [1, 1]


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
async def test_each_step_that_a_stop_leaves_out_is_told_and_on_record(store: MemoryRunStore | None) -> None:
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"fails": fails, "next": works, "last": works}, {"next": ["fails"], "last": ["next"]}
    )
    seen: list[object] = []
    stream = pipeline.stream(store=store)
    with pytest.raises(StepExecutionError) as caught:
        async for event in stream:
            seen.append(event)
    skipped = [(event.step_id, event.cause) for event in seen if isinstance(event, StepSkipped)]
    assert skipped == [("next", "'fails' failed"), ("last", "'fails' failed")]
    assert isinstance(seen[-1], RunFinished)
    trace = trace_of(caught.value)
    assert trace is not None
    assert [one.step for one in trace.steps if one.status == "skipped"] == ["next", "last"]


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
@pytest.mark.parametrize("kind", ["pipeline", "graph"])
async def test_the_end_of_a_failed_run_is_one_fact(kind: str, store: MemoryRunStore | None) -> None:
    told: list[object] = []
    if kind == "pipeline":
        pipeline: Pipeline[Any, Any] = Pipeline("p", {"fails": fails})
        with pytest.raises(StepExecutionError) as caught:
            async for event in pipeline.stream(run_id=kind, store=store):
                told.append(event)
        trace = trace_of(caught.value)
    else:
        stream = Graph("g", nodes={"fails": fails}).stream(run_id=kind, store=store)
        async for event in stream:
            told.append(event)
        trace = stream.result.trace
    assert trace is not None
    ended, heard = trace.ended, told[-1]
    assert isinstance(heard, RunFinished)
    assert ended is not None
    assert (ended.step_id, ended.reason, ended.failure) == (heard.step_id, heard.reason, heard.failure)
    assert ended.duration_ms == heard.duration_ms > 0
    assert ended.step_id == "fails"


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
async def test_the_end_by_a_time_limit_says_how_long_the_run_was(store: MemoryRunStore | None) -> None:
    @step
    async def hangs(ctx: StepContext) -> None:
        await asyncio.Event().wait()

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"hangs": hangs}, config=PipelineConfig(total_timeout=0.5))
    with pytest.raises(TimeLimitExceeded) as caught:
        await pipeline.execute(store=store)
    trace = trace_of(caught.value)
    assert trace is not None
    assert trace.ended is not None
    assert trace.ended.duration_ms >= 500


class SlowToOpen(MemoryRunStore):
    """Takes its time to put a run on record."""

    SECONDS = 0.05

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """The first entries of a run are late."""
        if revision == 0:
            await asyncio.sleep(self.SECONDS)
        await super().append(key, values, revision=revision)


@pytest.mark.parametrize("way", ["fails", "cancelled"])
async def test_the_duration_of_a_run_has_the_time_that_its_store_took_to_open(way: str) -> None:
    begun = asyncio.Event()

    @step
    async def ends(ctx: StepContext) -> None:
        begun.set()
        if way == "fails":
            raise RuntimeError("no")
        await asyncio.Event().wait()

    store = SlowToOpen()
    task = asyncio.create_task(Pipeline("p", {"ends": ends}).execute(run_id="r", store=store))
    if way == "cancelled":
        await begun.wait()
        task.cancel()
    with pytest.raises((StepExecutionError, asyncio.CancelledError)):
        await task
    ended = (await RunHistory(store).trace("r")).ended
    assert ended is not None
    assert ended.duration_ms >= SlowToOpen.SECONDS * 1000


@pytest.mark.parametrize("way", ["execute", "stream"])
async def test_a_run_that_a_scope_of_anyio_cancels_ends_cancelled_on_record(way: str) -> None:
    scope = anyio.CancelScope()

    @step
    async def hangs(ctx: StepContext) -> None:
        scope.cancel()
        await asyncio.Event().wait()

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"hangs": hangs})
    store = MemoryRunStore()
    with scope:
        if way == "execute":
            await pipeline.execute(run_id="r", store=store)
        else:
            async with pipeline.stream(run_id="r", store=store) as stream:
                async for _ in stream:
                    pass
    [run] = await RunHistory(store).list()
    assert run.status == "cancelled"
    assert run.lease_until is None


class Desk(BasePipeline[None, str]):
    def __init__(self) -> None:
        super().__init__("desk")
        self.register_pipeline("one", Pipeline("inner", {"re/ad": works}))

    async def route(self, inputs: Mapping[str, Any], deps: None) -> str:
        return "one"


@pytest.mark.parametrize(
    "door",
    [Desk(), Pipeline("outer", {"write": Desk().as_step()})],
    ids=["a router", "a router in a step"],
)
async def test_facts_inside_of_routers_have_the_path_that_is_on_record(door: Any) -> None:
    store = MemoryRunStore()

    async def paths(given: MemoryRunStore | None) -> list[tuple[str, str, tuple[str, ...]]]:
        async with door.stream({}, run_id="r", store=given) as events:
            return [(fact.kind, fact.pipeline, fact.path) async for fact in events if isinstance(fact, Fact)]

    live, kept = await paths(None), await paths(store)
    followed = [(fact.kind, fact.pipeline, fact.path) async for _, fact in door.follow("r", store=store)]
    inside = [one for one in live if one[0].startswith("step_")]
    assert live == kept
    assert inside == [one for one in followed if one[0].startswith("step_")]
    around = (door.name, "route" if isinstance(door, Desk) else "write")
    assert ("step_finished", "inner", (*around, "inner")) in inside


async def test_a_run_with_a_log_of_its_own_has_its_places_in_that() -> None:
    store, inner = MemoryRunStore(), Pipeline("inner", {"works": works})

    @step
    async def calls(ctx: StepContext) -> int:
        return (await inner.execute(store=store, run_id="own")).output

    outer = Pipeline("outer", {"calls": calls})
    async with outer.stream({}, run_id="around") as events:
        live = [fact async for fact in events if isinstance(fact, StepFinished)]
    kept = [fact async for _, fact in inner.follow("own", store=store) if isinstance(fact, StepFinished)]
    assert [(fact.run_id, fact.place, fact.path) for fact in live] == [
        ("own", "works", ("inner",)),
        ("around", "calls", ("outer",)),
    ]
    assert [(fact.place, fact.path) for fact in kept] == [("works", ("inner",))]
    assert (await inner.resume("own", store=store)).output == 1


@pytest.mark.parametrize("kind", ["pipeline", "graph"])
async def test_a_run_that_a_budget_stops_says_which_budget(kind: str) -> None:
    config = PipelineConfig(budget=Budget(requests=1))
    door: Any = Pipeline("p", {"draft": greedy}, config=config)
    if kind == "graph":
        door = Graph("p", nodes={"draft": greedy}, edges=[], config=config)
    ended = list[RunFinished]()
    with suppress(BudgetExceeded):
        async for event in door.stream({}):
            if isinstance(event, RunFinished):
                ended.append(event)
    assert ended[0].reason_code == "budget_exceeded"
    assert ended[0].reason.startswith("budget of 'p' reached in step 'draft'")


def test_every_fact_has_a_public_name() -> None:
    public = {*pipelines.__all__, *graphs.__all__, *workflows.__all__, *rows.__all__}
    assert {fact.__name__ for fact in FACTS} < public


async def test_facts_have_the_json_of_traces() -> None:
    class Opaque:
        def __repr__(self) -> str:
            return "<opaque>"

    @step
    async def gives(ctx: StepContext) -> Any:
        return {"at": date(2026, 1, 2), "what": Opaque()}

    pipeline = Pipeline("p", {"gives": gives, "greedy": greedy}, output_step="gives")
    store, told = MemoryRunStore(), list[dict[str, Any]]()
    async with pipeline.stream({}) as events:
        told += [fact_to_json(event) async for event in events if isinstance(event, Fact)]
    json.dumps(told)
    finished = next(one for one in told if one["kind"] == "step_finished" and one["step_id"] == "gives")
    assert finished["output"] == {"at": "2026-01-02", "what": "<opaque>"}
    assert next(one for one in told if one["kind"] == "run_finished")["status"] == "finished"

    both = Pipeline("p", {"greedy": greedy, "works": works}, output_step="works")
    await both.execute(store=store, run_id="r")
    followed = [fact_to_json(fact) async for _, fact in RunHistory(store).follow("r")]
    entries = json.loads((await RunHistory(store).trace("r")).to_json())["entries"]
    of_trace = [
        entry | {"run_id": "r", "part": fact["part"]} for entry, fact in zip(entries, followed, strict=True)
    ]
    assert followed == of_trace


async def test_the_part_of_a_fact_is_a_place_as_text_in_live_runs_and_in_those_on_record() -> None:
    inner = Pipeline("inner", {"works": works})
    outer = Pipeline("p", {"first": works, "second": inner.as_step()}, {"second": ["first"]})
    store = MemoryRunStore()
    async with outer.stream({}, store=store, run_id="r") as events:
        live = [fact_to_json(event) async for event in events if isinstance(event, Fact)]
    followed = [fact_to_json(fact) async for _, fact in RunHistory(store).follow("r")]
    for facts in (live, followed):
        assert {fact["run_id"] for fact in facts} == {"r"}
        assert {fact["part"] for fact in facts} == {"", "second@1/inner"}


async def test_a_question_on_record_says_its_id_in_the_inbox() -> None:
    @step
    async def asks(ctx: StepContext) -> bool:
        return await ctx.ask("pay?", bool)

    store = MemoryRunStore()
    pipeline = Pipeline("p", {"asks": asks})
    await pipeline.execute(store=store, run_id="r")
    asked = [fact async for _, fact in pipeline.follow("r", store=store) if isinstance(fact, QuestionAsked)]
    assert [fact.inbox_id for fact in asked] == [one.id for one in await Inbox(store).list()]
    assert await Inbox(store).answer(asked[0].inbox_id, True)

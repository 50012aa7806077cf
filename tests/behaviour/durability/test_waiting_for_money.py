"""Runs that meet a spend limit and wait for its next window."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from support.agents import paid_agent, request_costs, streaming_agent
from support.faulty_store import FaultyStore, Write, gone
from support.interruptions import DyingStore, nth
from support.jobs import JobProvider
from typer.testing import CliRunner

from fastroai import (
    BasePipeline,
    Budget,
    Edge,
    FastroAgent,
    Graph,
    Pipeline,
    PipelineConfig,
    RunHistory,
    SpendLimit,
    SpendLimitExceeded,
    SQLiteRunStore,
    StepConfig,
    StepContext,
    step,
)
from fastroai.cli.app import app
from fastroai.errors import (
    ConfigurationError,
    FlowStopped,
    RunNotFound,
    RunStoreUnavailable,
    StepExecutionError,
)
from fastroai.functions import compute, flow, infer, parallel
from fastroai.pipelines import BudgetRefused, WaitEnded, WaitStarted
from fastroai.runtime.budgets.budget_scopes import budget_scope
from fastroai.runtime.facts import RequestInBatch
from fastroai.steps import spend
from fastroai.store import MemoryRunStore, SQLiteSpendStore
from fastroai.testing import ModelServer, Reply, Usage
from fastroai.usage import SpendBook
from fastroai.workflows import BoundWorkflow, Workflow

EVENING = datetime(2026, 3, 10, 22, 30, tzinfo=UTC)
MIDNIGHT = datetime(2026, 3, 11, tzinfo=UTC)
BY_HAND = {"by": "ada", "reason": "the end of the quarter"}
Tone = Literal["good", "bad"]


class World:
    """The stores of runs and of spending in one folder, by one clock, which tests set."""

    def __init__(self, folder: Path) -> None:
        self.now = EVENING
        self.folder = folder
        self.runs = SQLiteRunStore(folder / "runs.db", clock=lambda: self.now)
        self.spending = SQLiteSpendStore(
            folder / "spend.db", clock=lambda: self.now, steady_clock=lambda: self.now.timestamp()
        )
        self.sent = Counter[str]()

    def limit(self, usd: str = "0.0001", **options: Any) -> SpendLimit:
        known: dict[str, Any] = {"on_limit": "wait", "store": self.spending, "key": "team"}
        return SpendLimit(usd=usd, **(known | options))

    def agent(self, microcents: int = 100, **options: Any) -> FastroAgent[Any, str]:
        async def note(prompt: str) -> None:
            self.sent[prompt] += 1

        return paid_agent(microcents, before=note, **options)

    async def spend(self, microcents: int, key: str = "team", window: Any = "day") -> None:
        """Spend a part of the limit in the open window."""
        limit = SpendLimit(usd=10, store=self.spending, key=key, window=window)
        await paid_agent(microcents).run("?", budget=limit)

    async def aclose(self) -> None:
        await self.runs.aclose()
        await self.spending.aclose()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.aclose()


def letters(world: World, *limits: SpendLimit, **options: Any) -> Pipeline[Any, Any, Any]:
    """A pipeline whose step asks an agent twice."""
    agent = world.agent()

    @step
    async def write(ctx: StepContext) -> str:
        first = await ctx.run(agent, "first")
        second = await ctx.run(agent, "second")
        return f"{first}, {second}"

    config = PipelineConfig(budget=limits or [world.limit()], **options)
    return Pipeline("letters", {"write": write}, config=config)


async def woken(door: Any, world: World) -> Any:
    (outcome,) = (await door.wake(store=world.runs)).values()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def facts(store: Any, kind: type[Any]) -> list[Any]:
    return [fact for fact in (await RunHistory(store).trace("r")).entries if isinstance(fact, kind)]


# --- a run that waits ---


async def test_a_run_that_meets_its_limit_pauses_and_goes_on_in_the_next_window(world: World) -> None:
    door = letters(world)
    paused = await door.execute(run_id="r", store=world.runs)
    assert (paused.status, paused.reason_code, paused.waits_until) == ("paused", "spend_limit", MIDNIGHT)
    assert paused.reason == (
        "'write' waits for spend limit 'team', and looks again at 2026-03-11 00:00:00 UTC: "
        "$0.0001 is needed, and $0.0001 of $0.0001 is spent"
    )
    assert (await RunHistory(world.runs).summary("r")).due_at == MIDNIGHT
    assert (await door.get_state("r", store=world.runs)).waits_until == MIDNIGHT
    status = await world.limit().status()
    assert (status.spent_usd, status.reserved_usd) == (Decimal("0.0001"), 0), "nothing is reserved meanwhile"
    world.now = MIDNIGHT - timedelta(seconds=1)
    assert await door.wake(store=world.runs) == {}
    world.now = MIDNIGHT
    result = await woken(door, world)
    assert result.output == "answer to first, answer to second"
    assert world.sent == {"first": 1, "second": 1}, "what is on record is not paid for again"
    assert result.usage.cost_microcents == 200
    assert result.waits_until is None
    assert result.trace.replay(door) is None
    assert not await facts(world.runs, BudgetRefused), "it was not refused"


async def test_a_run_that_is_woken_too_early_waits_on(world: World) -> None:
    door = letters(world)
    paused = await door.execute(run_id="r", store=world.runs)
    world.now += timedelta(hours=1)
    again = await door.resume("r", store=world.runs)
    assert (again.status, again.waits) == ("paused", paused.waits)
    assert again.waits[0].until == MIDNIGHT
    world.now = MIDNIGHT
    assert (await woken(door, world)).output == "answer to first, answer to second"
    assert len({fact.wait.id for fact in await facts(world.runs, WaitStarted)}) == 1
    assert len(await facts(world.runs, WaitEnded)) == 1


async def test_a_limit_that_is_raised_meanwhile_lets_the_run_go_on_before_the_window_ends(
    world: World,
) -> None:
    door = letters(world)
    await door.execute(run_id="r", store=world.runs)
    await SpendBook(world.spending).set_limit("team", "1", window="day", **BY_HAND)
    result = await door.resume("r", store=world.runs)
    assert (result.status, result.output) == ("finished", "answer to first, answer to second")


async def test_a_window_whose_limit_was_lowered_by_hand_is_waited_for_as_the_next_has_the_old_one(
    world: World,
) -> None:
    door = letters(world, world.limit("1"))
    await world.spend(10)
    await SpendBook(world.spending).set_limit("team", "0.00002", window="day", **BY_HAND)
    assert (await door.execute(run_id="r", store=world.runs)).waits_until == MIDNIGHT
    world.now = MIDNIGHT
    assert (await woken(door, world)).status == "finished"


async def test_a_step_that_meets_the_limit_in_each_window_waits_each_time(world: World) -> None:
    agent = world.agent()

    @step
    async def write(ctx: StepContext) -> int:
        for number in range(3):
            await ctx.run(agent, f"{number}")
        return 3

    door = Pipeline("many", {"write": write}, config=PipelineConfig(budget=[world.limit()]))
    paused = await door.execute(run_id="r", store=world.runs)
    for day in (0, 1):
        world.now = MIDNIGHT + timedelta(days=day)
        assert paused.waits_until == world.now
        paused = await woken(door, world)
    assert paused.output == 3
    assert len({fact.wait.id for fact in await facts(world.runs, WaitEnded)}) == 2


async def test_time_limits_stand_still_while_a_run_waits(world: World) -> None:
    door = letters(world, total_timeout=30, timeout=30)
    timed = Budget(ms=30_000)
    await door.execute(run_id="r", store=world.runs, budget=timed)
    world.now = MIDNIGHT
    assert (await woken(door, world)).status == "finished"


async def test_requests_side_by_side_end_before_their_step_waits_and_share_one_wait(world: World) -> None:
    agent = world.agent()

    @step
    async def write(ctx: StepContext) -> int:
        return len(await ctx.map(agent, ["a", "b", "c", "d"], concurrency=4))

    limit = world.limit("0.0002")
    door = Pipeline("side by side", {"write": write}, config=PipelineConfig(budget=[limit]))
    paused = await door.execute(run_id="r", store=world.runs)
    assert (paused.status, len(paused.waits), sum(world.sent.values())) == ("paused", 1, 2)
    world.now = MIDNIGHT
    assert (await woken(door, world)).output == 4
    assert world.sent == dict.fromkeys("abcd", 1)


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "on_limit": ({"on_limit": "fail"}, {"on_limit": "wait"}),
    "deadline, which is too early": ({}, {"deadline": timedelta(hours=1)}),
    "deadline, in seconds": ({"deadline": 3_600}, {"deadline": 36_000}),
    "window": ({"window": "hour"}, {"window": "day"}),
    "key": ({"key": "team"}, {"key": "other"}),
}


@pytest.mark.parametrize("option", OPTIONS)
async def test_every_option_of_waiting_makes_a_difference(option: str, world: World) -> None:
    await world.spend(100)
    await world.spend(100, window="hour")
    seen = list[object]()
    for number, options in enumerate(OPTIONS[option]):
        door = letters(world, world.limit(**options))
        try:
            result = await door.execute(run_id=f"r{number}", store=world.runs)
            seen.append((result.status, result.waits_until, result.usage.request_count))
        except SpendLimitExceeded as stop:
            seen.append(stop.resets_at)
    assert seen[0] != seen[1]


# --- answers that the money of a window cuts short ---


async def test_an_answer_that_was_cut_is_asked_for_again_in_the_next_window(
    world: World, server: ModelServer
) -> None:
    def reply(request: Any) -> Reply:
        most = request.body.get("max_completion_tokens", 10_000)
        if most < 500:
            return Reply("The begin", usage=Usage(20, most), finish_reason="length")
        return Reply("The whole answer", usage=Usage(20, 500))

    server.rule(None, reply)
    agent = FastroAgent(server.model("openai-chat:gpt-5-mini"))

    @step
    async def write(ctx: StepContext) -> str:
        return (await ctx.run(agent, "Tell me more")).output

    await world.spend(1_999_500)
    door = Pipeline("cut", {"write": write}, config=PipelineConfig(budget=[world.limit("2")]))
    paused = await door.execute(run_id="r", store=world.runs)
    assert (paused.status, paused.waits_until) == ("paused", MIDNIGHT)
    world.now = MIDNIGHT
    assert (await woken(door, world)).output == "The whole answer"
    assert len(server.ledger.entries) == 2


async def test_a_stream_waits_for_the_money_of_a_whole_answer_and_is_not_cut(
    world: World, server: ModelServer
) -> None:
    server.rule(None, Reply("The whole answer", usage=Usage(20, 500)))
    agent = FastroAgent(server.model("openai-chat:gpt-5-mini"))

    @step
    async def write(ctx: StepContext) -> str:
        return "".join([piece.content async for piece in ctx.run_stream(agent, "Tell me more")])

    await world.spend(1_999_000)
    door = Pipeline("streams", {"write": write}, config=PipelineConfig(budget=[world.limit("2")]))
    assert (await door.execute(run_id="r", store=world.runs)).waits_until == MIDNIGHT
    assert not server.ledger.entries
    world.now = MIDNIGHT
    assert (await woken(door, world)).output == "The whole answer"


# --- in runs of every kind ---


Began = tuple[Any, Callable[[], Any]]
"""A front door, and a function that begins a run and returns the time until which it waits."""


def waiting(door: Any, world: World, **inputs: Any) -> Began:
    async def begin() -> datetime | None:
        call = door.run if isinstance(door, Graph | BoundWorkflow) else door.execute
        result = await call(inputs, run_id="r", store=world.runs)
        assert result.status == "paused"
        return result.waits_until

    return door, begin


def of_flow(door: Any, world: World) -> Began:
    async def begin() -> datetime | None:
        with pytest.raises(FlowStopped, match="is paused: 'body' waits for spend limit 'team'") as caught:
            await door.run(run_id="r", store=world.runs)
        return caught.value.waits_until

    return door, begin


def a_graph(world: World, server: ModelServer) -> Began:
    nodes = {"a": world.agent().as_step("one"), "b": world.agent().as_step("two")}
    graph = Graph("g", nodes=nodes, edges=[Edge("a", "b")], config=PipelineConfig(budget=[world.limit()]))
    return waiting(graph, world)


def a_decision_of_a_graph(world: World, server: ModelServer) -> Began:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        choice = ToolCallPart(info.output_tools[0].name, {"reasoning": "so", "target": "left"})
        return ModelResponse(parts=[choice], usage=RequestUsage(input_tokens=1))

    @step
    async def note(ctx: StepContext) -> str:
        return ctx.step_id

    decider: FastroAgent[Any, Any] = FastroAgent(
        FunctionModel(respond, model_name="paid"), cost_calculator=request_costs(100)
    )
    graph = Graph(
        "deciding",
        nodes={"a": note, "left": note, "right": note},
        edges=[
            Edge("a", "left", when="llm_decide"),
            Edge("a", "right", when="llm_decide", fallback=True),
        ],
        decider=decider,
        config=PipelineConfig(budget=[world.limit()]),
    )
    return waiting(graph, world)


def a_router(world: World, server: ModelServer) -> Began:
    class Desk(BasePipeline[Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__("desk")
            self.register_pipeline("only", letters(world))

        async def route(self, inputs: Any, deps: Any) -> str:
            return "only"

    return waiting(Desk(), world)


def a_nested_pipeline(world: World, server: ModelServer) -> Began:
    steps = {"inner": letters(world).as_step(lambda ctx: {})}
    return waiting(Pipeline("outer", steps), world)


def an_agent_in_a_tool(world: World, server: ModelServer) -> Began:
    inner = world.agent()

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            parts: Any = [ToolCallPart("ask", {}, tool_call_id="1")]
            return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=1))
        raise AssertionError("not asked in this test")

    async def ask(ctx: RunContext[Any]) -> str:
        return (await inner.run("inside")).output

    outer: FastroAgent[Any, str] = FastroAgent(
        FunctionModel(respond, model_name="cheap"), cost_calculator=request_costs(1, "cheap"), tools=[ask]
    )

    @step
    async def write(ctx: StepContext) -> str:
        try:
            return (await ctx.run(outer, "go")).output
        except AssertionError:
            return "asked"

    config = PipelineConfig(budget=[world.limit()])
    return waiting(Pipeline("tools", {"write": write}, config=config), world)


def a_stream(world: World, server: ModelServer) -> Began:
    async def chunks(prompt: str) -> AsyncIterator[str]:
        yield "one "
        yield "two"

    agent = streaming_agent(chunks, cost_calculator=request_costs(100))

    @step
    async def write(ctx: StepContext) -> str:
        text = ""
        async for piece in ctx.run_stream(agent, "go"):
            text += piece.content
        return text

    config = PipelineConfig(budget=[world.limit()])
    return waiting(Pipeline("streams", {"write": write}, config=config), world)


def a_step_that_is_not_async(world: World, server: ModelServer) -> Began:
    agent = world.agent()

    @step
    def write(ctx: StepContext) -> str:
        return ctx.run_sync(agent, "go").output

    config = PipelineConfig(budget=[world.limit()])
    return waiting(Pipeline("sync", {"write": write}, config=config), world)


def a_mapped_step(world: World, server: ModelServer) -> Began:
    agent = world.agent()

    @step
    async def one(ctx: StepContext) -> str:
        return (await ctx.run(agent, "go")).output

    @step
    async def write(ctx: StepContext) -> list[str]:
        return await ctx.map(one, ["a"])

    config = PipelineConfig(budget=[world.limit()])
    return waiting(Pipeline("mapped", {"write": write}, config=config), world)


def a_purchase(world: World, server: ModelServer) -> Began:
    @step
    async def write(ctx: StepContext) -> str:
        async with spend("0.00005", model="search") as bought:
            bought.settle()
        return "bought"

    config = PipelineConfig(budget=[world.limit()])
    return waiting(Pipeline("purchases", {"write": write}, config=config), world)


def a_nested_run_that_reserves_its_quote(world: World, server: ModelServer) -> Began:
    inner = Pipeline(
        "inner", {"ask": world.agent().as_step("go")}, step_configs={"ask": StepConfig(retries=0)}
    )

    @step
    async def write(ctx: StepContext) -> str:
        return (await inner.execute(reserve="quote")).output or ""

    config = PipelineConfig(budget=[world.limit("0.001")])
    return waiting(Pipeline("reserving", {"write": write}, config=config), world)


SPEC = """
version: "0.3"
contracts:
  Text: {text: {type: string}}
functions:
  write: {mode: compute, intent: Write a letter, input: {}, output: Text}
flows:
  main:
    input: {}
    output: Text
    steps:
      - {id: a, function: write}
"""


def a_workflow(world: World, server: ModelServer) -> Began:
    agent = world.agent()

    async def write(ctx: StepContext) -> dict[str, str]:
        return {"text": (await ctx.run(agent, "go")).output}

    config = PipelineConfig(budget=[world.limit()])
    return waiting(Workflow.load(SPEC).bind(functions={"write": write}, config=config), world)


def a_flow(world: World, server: ModelServer) -> Began:
    @infer(intent="Say whether the text is good or bad.", model=server.model("openai:gpt-5-mini"))
    async def tone(text: str) -> Tone:
        raise NotImplementedError

    @compute
    async def count_words(text: str) -> int:
        return len(text.split())

    @flow(budget=world.limit("0.5"))
    async def review() -> str:
        words = await count_words("all is well")
        first, second = await parallel(tone("all is well"), tone("all is bad"))
        return f"{words} {first} {second}"

    return of_flow(review, world)


def a_flow_in_a_flow(world: World, server: ModelServer) -> Began:
    agent = world.agent()

    @flow
    async def inner(text: str) -> str:
        return (await agent.run(text)).output

    @flow(budget=world.limit())
    async def outer() -> str:
        return await inner("go")

    return of_flow(outer, world)


KINDS = [
    a_graph,
    a_decision_of_a_graph,
    a_router,
    a_nested_pipeline,
    an_agent_in_a_tool,
    a_stream,
    a_step_that_is_not_async,
    a_mapped_step,
    a_purchase,
    a_workflow,
    a_nested_run_that_reserves_its_quote,
    a_flow,
    a_flow_in_a_flow,
]


@pytest.mark.parametrize("made", KINDS, ids=lambda made: made.__name__)
async def test_runs_of_every_kind_wait_for_the_next_window(
    made: Callable[[World, ModelServer], Began], world: World, server: ModelServer
) -> None:
    await world.spend(1_000_000)
    door, begin = made(world, server)
    assert await begin() == MIDNIGHT
    assert not server.ledger.entries
    assert await door.wake(store=world.runs) == {}
    world.now = MIDNIGHT
    outcome = await woken_to_its_end(door, world)
    assert getattr(outcome, "status", "finished") in ("finished", "complete")
    trace = await RunHistory(world.runs).trace("r")
    assert trace.ended is not None
    assert trace.ended.status == "finished"
    assert "has waited for spend limit 'team'" in trace.explain()


async def woken_to_its_end(door: Any, world: World) -> Any:
    """Take a run up in each window until it ends."""
    for _ in range(5):
        try:
            outcome = await woken(door, world)
        except FlowStopped as stopped:
            due = stopped.waits_until
        else:
            if getattr(outcome, "status", "finished") != "paused":
                return outcome
            due = outcome.waits_until
        assert due is not None
        world.now = due
    raise AssertionError("it waits for ever")


# --- runs that do not wait ---


async def test_a_run_fails_by_default_and_says_when_the_window_opens(world: World) -> None:
    door = letters(world, world.limit(on_limit="fail"))
    with pytest.raises(SpendLimitExceeded) as caught:
        await door.execute(run_id="r", store=world.runs)
    stop = caught.value
    assert (stop.resets_at, stop.resets_in) == (MIDNIGHT, timedelta(minutes=90))
    assert not stop.may_wait
    (refusal,) = await facts(world.runs, BudgetRefused)
    assert (refusal.place, refusal.failure.message) == ("write@1", str(stop))
    trace = await RunHistory(world.runs).trace("r")
    assert f"write@1: refused: fastroai.errors.SpendLimitExceeded: {stop}" in trace.explain()


async def test_a_run_that_no_store_keeps_cannot_wait(world: World) -> None:
    with pytest.raises(StepExecutionError) as caught:
        await letters(world).execute()
    cause = caught.value.__cause__
    assert isinstance(cause, ConfigurationError)
    assert "a store that keeps the run, which waits for spend limit 'team'" in str(cause)
    assert isinstance(cause.__context__, SpendLimitExceeded)
    assert cause.__context__.resets_at == MIDNIGHT


async def test_a_request_outside_of_runs_fails_and_says_when_the_window_opens(world: World) -> None:
    refusals = list[Any]()
    await world.spend(100)
    with pytest.raises(SpendLimitExceeded) as caught:
        await world.agent(budget=world.limit()).run("?")
    assert caught.value.resets_at == MIDNIGHT
    async with budget_scope(world.limit(), on_event=refusals.append):
        with pytest.raises(SpendLimitExceeded):
            await world.agent().run("?")
    assert [type(event) for event in refusals] == [BudgetRefused]


async def test_a_run_that_reserves_its_quote_does_not_begin_and_does_not_wait(world: World) -> None:
    door = Pipeline(
        "reserving",
        {"ask": world.agent().as_step("go")},
        step_configs={"ask": StepConfig(retries=0)},
        config=PipelineConfig(budget=[world.limit("0.001")]),
    )
    await world.spend(1_000)
    with pytest.raises(SpendLimitExceeded, match="it was not started") as caught:
        await door.execute(run_id="r", store=world.runs, reserve="quote")
    assert caught.value.resets_at == MIDNIGHT


async def test_a_limit_that_those_who_wake_the_run_would_not_know_is_refused(world: World) -> None:
    door = letters(world, SpendLimit(usd=1))
    expected = "limits of a call, or of a budget_scope around it, are not stored"
    with pytest.raises(ConfigurationError, match=expected):
        await door.execute(run_id="r", store=world.runs, budget=world.limit())
    async with budget_scope(world.limit()):
        with pytest.raises(ConfigurationError, match=expected):
            await door.execute(run_id="r", store=world.runs)
    await letters(world).execute(run_id="r", store=world.runs)
    with pytest.raises(ConfigurationError, match=expected):
        await letters(world).resume("r", store=world.runs, budget=world.limit())
    assert (await RunHistory(world.runs).summary("r")).status == "paused"


async def test_a_nested_run_is_begun_anew_so_its_caller_may_give_it_such_a_limit(world: World) -> None:
    inner, limit = letters(world, SpendLimit(usd=1)), world.limit()

    @step
    async def call(ctx: StepContext) -> str | None:
        return (await inner.execute(budget=limit)).output

    door = Pipeline("calling", {"call": call})
    assert (await door.execute(run_id="r", store=world.runs)).waits_until == MIDNIGHT
    world.now = MIDNIGHT
    assert (await woken(door, world)).output == "answer to first, answer to second"


async def test_a_request_for_which_even_an_empty_window_has_too_little_does_not_wait(world: World) -> None:
    door = letters(world, world.limit("0.00005"))
    with pytest.raises(SpendLimitExceeded):
        await door.execute(run_id="r", store=world.runs)


async def test_a_run_does_not_wait_longer_than_the_deadline(world: World) -> None:
    door = letters(world, world.limit(deadline=timedelta(hours=1)))
    with pytest.raises(SpendLimitExceeded) as caught:
        await door.execute(run_id="r", store=world.runs)
    assert caught.value.resets_at == MIDNIGHT
    assert [type(fact) for fact in await facts(world.runs, BudgetRefused)] == [BudgetRefused]
    assert not await facts(world.runs, WaitStarted)


async def test_the_deadline_counts_from_when_the_step_first_met_the_limit(world: World) -> None:
    door = letters(world, world.limit(deadline=timedelta(hours=20)))
    await door.execute(run_id="r", store=world.runs)
    world.now = MIDNIGHT
    await world.spend(100)
    with pytest.raises(SpendLimitExceeded):
        await woken(door, world)
    (ended,) = await facts(world.runs, WaitEnded)
    assert ended.outcome == "failed"
    assert (
        "write: has waited for spend limit 'team' in vain"
        in (await RunHistory(world.runs).trace("r")).explain()
    )
    world.now += timedelta(hours=6)
    resumed = await door.resume("r", store=world.runs)
    assert resumed.status == "paused", "a person who resumes it lets it wait anew"


async def test_of_two_limits_one_lets_the_run_wait_and_the_other_fails_it(world: World) -> None:
    patient = world.limit(key="patient", window="hour")
    strict = world.limit("0.0002", key="strict", on_limit="fail")
    door = letters(world, patient, strict)
    paused = await door.execute(run_id="r", store=world.runs)
    assert [wait.name for wait in paused.waits] == ["patient"]
    world.now = EVENING.replace(hour=23, minute=0)
    assert paused.waits_until == world.now
    await world.spend(100, "strict")
    with pytest.raises(SpendLimitExceeded) as caught:
        await woken(door, world)
    assert caught.value.key == "strict"
    status = await patient.status()
    assert (status.spent_usd, status.reserved_usd) == (0, 0)


async def test_a_step_under_a_crossed_limit_waits_before_it_begins(world: World) -> None:
    begun = list[str]()

    @step
    async def record(ctx: StepContext) -> None:
        ctx.record_usage(model="search", cost_usd="0.0005")

    @step
    async def after(ctx: StepContext) -> str:
        begun.append(ctx.step_id)
        return "done"

    door = Pipeline(
        "crossed",
        {"record": record, "after": after},
        {"after": ["record"]},
        config=PipelineConfig(budget=[world.limit()]),
    )
    paused = await door.execute(run_id="r", store=world.runs)
    assert (paused.status, paused.waits_until, begun) == ("paused", MIDNIGHT, [])
    world.now = MIDNIGHT
    assert (await woken(door, world)).output == "done"
    assert begun == ["after"]
    assert len(await facts(world.runs, WaitEnded)) == 1


# --- who goes first ---


async def test_runs_that_have_waited_longest_are_taken_up_first(world: World) -> None:
    door = letters(world)
    await world.spend(100)
    names = ["b", "c", "a"]
    for name in names:
        await door.execute(run_id=name, store=world.runs)
        world.now += timedelta(minutes=1)
    world.now = MIDNIGHT
    assert [run.run_id for run in await RunHistory(world.runs).due("letters")] == names
    outcomes: Any = await door.wake(store=world.runs, max_concurrency=1)
    assert [outcomes[name].usage.cost_microcents for name in names] == [100, 0, 0]


# --- processes that die ---


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are tried as often as they are, with shorter pauses."""
    monkeypatch.setattr("fastroai.store.record.journal.backoff_delay", lambda *_: 0.0)
    monkeypatch.setattr("fastroai.store.record.runs._PAUSES", (0.0, 0.0, None))


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("after", [False, True])
async def test_a_process_that_dies_at_any_write_of_a_waiting_run_loses_and_repeats_nothing(
    after: bool, tmp_path: Path
) -> None:
    for number in count(1):
        (folder := tmp_path / f"{number}").mkdir()
        world, has_died = World(folder), False
        inner = MemoryRunStore(clock=lambda world=world: world.now)  # type: ignore[misc]

        def die(write: Write, number: int = number) -> None:
            nonlocal has_died
            has_died = has_died or write.number >= number
            if has_died:
                raise gone()

        store: Any = FaultyStore(inner)
        store.before, store.after = (None, die) if after else (die, None)
        door = letters(world)
        with suppress(RunStoreUnavailable):
            await door.execute(run_id="r", store=store)
            world.now = MIDNIGHT
            if not has_died:
                await door.wake(store=store)
        result = await to_its_end(door, world, inner)
        assert result.output == "answer to first, answer to second", f"died at write {number}"
        assert all(times <= 2 for times in world.sent.values())
        assert result.trace.replay(door) is None
        status = await world.limit().status()
        assert status.reserved_usd == 0
        await world.aclose()
        if not has_died:
            assert world.sent == {"first": 1, "second": 1}
            break
    assert number > 8, "hardly anything was written"


async def to_its_end(door: Any, world: World, store: Any) -> Any:
    try:
        result = await door.resume("r", store=store)
    except RunNotFound:
        result = await door.execute(run_id="r", store=store)
    for _ in range(4):
        if result.status != "paused":
            return result
        assert result.waits_until is not None
        world.now = max(world.now, result.waits_until)
        result = (await door.wake(store=store))["r"]
    raise AssertionError("it waits for ever")


# --- what people see ---


async def test_the_command_line_shows_what_a_run_waits_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    await letters(world).execute(run_id="r", store=world.runs)

    def call(*words: str) -> str:
        path = str(world.folder / "runs.db")
        result = CliRunner().invoke(app, [*words, "--store", path], prog_name="fastroai")
        assert result.exit_code == 0, result.output
        return result.stdout

    waits = "waits for spend limit 'team', and looks again at 2026-03-11 00:00:00 UTC"
    needed = "$0.0001 is needed, and $0.0001 of $0.0001 is spent"
    assert f"write: {waits}: {needed}" in await asyncio.to_thread(call, "runs", "trace", "r")
    assert waits in await asyncio.to_thread(call, "runs", "show", "r")
    (run,) = json.loads(await asyncio.to_thread(call, "runs", "list", "--json"))
    assert (run["status"], run["due_at"]) == ("paused", "2026-03-11T00:00:00+00:00")


# --- answers that come later ---


async def test_a_background_response_counts_in_the_window_in_which_its_request_was_sent(
    world: World,
) -> None:
    provider, limit = JobProvider(polls=0), world.limit("0.01")
    background: Any = {"openai_background": True, "max_tokens": 100}
    agent = FastroAgent(provider.model(), model_settings=background)

    @step
    async def write(ctx: StepContext) -> str:
        return str(await ctx.run(agent, "first"))

    door = Pipeline("letters", {"write": write}, config=PipelineConfig(budget=[limit]))
    dying: Any = DyingStore(world.runs, nth(RequestInBatch), written=True)
    with pytest.raises(RunStoreUnavailable):
        await door.execute(run_id="r", store=dying)
    status = await limit.status()
    assert status.spent_usd + status.reserved_usd > provider.billed_usd == 0
    world.now = MIDNIGHT
    result = await door.resume("r", store=world.runs)
    assert (result.status, provider.submitted) == ("finished", 1)
    assert result.usage.cost_usd == result.usage.total.committed_usd == provider.billed_usd > 0
    windows = await SpendBook(world.spending).list(closed=True)
    assert [(each.is_open, each.spent_usd) for each in windows] == [(True, 0), (False, provider.billed_usd)]


async def test_a_request_of_a_batch_waits_for_the_window_before_it_is_sent(world: World) -> None:
    provider = JobProvider()
    soon = timedelta(milliseconds=1)
    batches = BatchModelRequests(max_wait=soon, poll_interval=soon, max_poll_interval=soon)
    agent = FastroAgent(provider.model(), capabilities=[batches], max_tokens=100)

    @step
    async def write(ctx: StepContext) -> str:
        return str(await ctx.run(agent, "first"))

    door = Pipeline("letters", {"write": write}, config=PipelineConfig(budget=[world.limit("0.01")]))
    await world.spend(9_999)
    paused = await door.execute(run_id="r", store=world.runs)
    assert (paused.status, paused.waits_until, provider.batches) == ("paused", MIDNIGHT, [])
    world.now = MIDNIGHT
    result = await woken(door, world)
    while result.status == "paused":  # for the answers of the batch, which is sent
        assert result.reason_code == "batch"
        world.now += timedelta(minutes=1)
        result = await woken(door, world)
    assert result.status == "finished"
    assert [len(bodies) for bodies in provider.batches] == [1]
    assert result.usage.cost_usd == provider.billed_usd > 0
    status = await world.limit("0.01").status()
    assert (status.spent_usd, status.reserved_usd) == (provider.billed_usd, 0)

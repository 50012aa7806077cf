"""Random pipelines, graphs and routers inside of each other: killed and cancelled anywhere, then resumed."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import paid_agent
from support.examples import examples
from support.interruptions import RUN, DyingStore
from support.leftovers import assert_no_task_is_left
from support.mixed_plans import (
    Body,
    Choice,
    Failed,
    Interpreter,
    Leaf,
    Line,
    Net,
    Open,
    Part,
    Stage,
    Unit,
    parts,
    told,
)
from support.stored_runs import entries_of
from support.virtual_time import VirtualTimeLoop

from fastroai import BasePipeline, BaseStep, Pipeline, PipelineConfig, StepConfig, StepContext
from fastroai.errors import (
    BudgetExceeded,
    FastroAIError,
    RunNotFound,
    RunStoreUnavailable,
    StepExecutionError,
    trace_source_of,
)
from fastroai.graphs import Edge, Graph
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.facts import AnyFact, ReplayDiverged, RequestEnded, RequestSent, StepFinished
from fastroai.steps.durability import step_place
from fastroai.store import MemoryRunStore, RunHistory, RunTrace

PRICE = 10
"""Microcents of a request."""


@dataclass(frozen=True)
class Interruption:
    """What happens to a process at one of its writes, from 1."""

    write: int
    is_written: bool
    is_cancel: bool


INTERRUPTIONS = st.lists(
    st.builds(Interruption, st.integers(1, 40), st.booleans(), st.booleans()), min_size=1, max_size=3
)
BUDGETS = st.sampled_from([None, None, None, 1, 3, 6])
"""Requests that a run may pay for."""


# --- a plan as FastroAI runs it ---


class World:
    """What all processes of a run do together."""

    def __init__(self) -> None:
        self.served = 0
        self.finished: set[str] = set()
        """The places of steps that had finished when this process began."""
        self.ran_again: set[str] = set()
        self.agent = paid_agent(PRICE, before=self._serve)

    async def _serve(self, prompt: str) -> None:
        self.served += 1
        await asyncio.sleep(0.1)

    def front_door(self, part: Part, requests: int | None) -> Any:
        """The outermost one, as a new process makes it."""
        budget = None if requests is None else requests * PRICE
        return self._part(part, "run", cost_budget=budget)

    def _part(self, part: Part, name: str, **config: Any) -> Any:
        match part:
            case Line():
                return self._line(part, name, PipelineConfig(max_concurrency=part.at_once, **config))
            case Net():
                return self._net(part, name, PipelineConfig(**config))
            case Choice():
                return self._choice(part, name, PipelineConfig(**config))

    def _body(self, body: Body, name: str, *, is_exempt: bool | None = None, turns: int = 1) -> Any:
        on_error = None if is_exempt is None else {"on_error": "continue" if is_exempt else "fail"}
        if not isinstance(body, Leaf):
            config = StepConfig(retries=0, **on_error or {})
            return self._part(body, f"in_{name}").as_step(inputs=_nothing, config=config)
        budget = {"cost_budget": body.asks * PRICE - 1} if body.is_poor else {}
        config = StepConfig(retries=body.retries, retry_delay=0, **on_error or {}, **budget)
        return Work(self, body, name, turns, config)

    def _line(self, line: Line, name: str, config: PipelineConfig) -> Pipeline[Any, Any]:
        units = {f"s{number}": unit for number, unit in enumerate(line.units)}
        return Pipeline(
            name,
            {one: self._body(unit.body, one, is_exempt=unit.is_exempt) for one, unit in units.items()},
            {one: [f"s{need}" for need in unit.needs] for one, unit in units.items()},
            output_step=list(units)[-1],
            config=config,
        )

    def _net(self, net: Net, name: str, config: PipelineConfig) -> Graph[Any, Any]:
        nodes: dict[str, Any] = {}
        edges: list[Edge] = []
        before: list[str] = []
        for number, stage in enumerate(net.stages):
            names = [f"n{number}_{branch}" for branch in range(len(stage.bodies))]
            edges += [_edge(net, one, after) for one in before for after in names]
            for one, body in zip(names, stage.bodies, strict=True):
                nodes[one] = self._body(body, one, turns=stage.turns)
            if stage.turns > 1:
                edges.append(Edge(names[0], names[0], "conditional", condition="again"))
            before = names
            if stage.handler is not None:
                handler = f"n{number}_h"
                nodes[handler] = self._body(stage.handler, handler)
                edges.append(Edge(names[0], handler, "on_failure"))
                before = [*names, handler]
        return Graph(
            name,
            nodes=nodes,
            edges=edges,
            entry="n0_0",
            on_branch_failure=net.policy,
            conversation="isolated",
            config=config,
        )

    def _choice(self, choice: Choice, name: str, config: PipelineConfig) -> BasePipeline[Any, Any, Any]:
        router = First(name, config=config)
        for number, variant in enumerate(choice.variants):
            after = f"v{number + 1}" if number + 1 < len(choice.variants) else None
            router.register_pipeline(f"v{number}", self._part(variant, f"v{number}"), fallback=after)
        return router


class First(BasePipeline[Any, Any, Any]):
    async def route(self, inputs: Any, deps: Any) -> str:
        return "v0"


class Work(BaseStep[Any, Any]):
    """A leaf."""

    def __init__(self, world: World, leaf: Leaf, name: str, turns: int, config: StepConfig) -> None:
        self.world, self.leaf, self.name, self.turns, self.config = world, leaf, name, turns, config

    async def execute(self, context: StepContext[Any]) -> Any:
        place = step_place(_step_scope())
        if place in self.world.finished:
            self.world.ran_again.add(place)
        # No two steps are equally fast: nothing depends on which of two things at one moment comes first.
        await asyncio.sleep(zlib.crc32(f"{place} {context.attempt}".encode()) / 2**32)
        for number in range(self.leaf.asks):
            await context.run(self.world.agent, f"{place} {number}")
        if context.attempt <= self.leaf.fails:
            raise ConnectionError(f"{place}, attempt {context.attempt}")
        given = [context.get_dependency_or_none(one) for one in context.dependencies]
        text = told(self.name, [_text(one) for one in given if one is not None], context.visit)
        return text if self.turns == 1 else {"text": text, "again": context.visit < self.turns}


def _edge(net: Net, one: str, after: str) -> Edge:
    number = int(one[1:].split("_")[0])
    if one.endswith("h") or net.stages[number].turns == 1:
        return Edge(one, after)
    return Edge(one, after, "conditional", condition="not again")


def _nothing(context: StepContext[Any]) -> dict[str, Any]:
    return {}


def _text(given: Any) -> str:
    return str(given["text"] if isinstance(given, dict) else given)


def _step_scope() -> Scope:
    scope = current_scope()
    while scope is not None and scope.kind != "step":
        scope = scope.parent
    assert scope is not None
    return scope


# --- one run, in one process or several ---


async def process(world: World, part: Part, requests: int | None, store: Any) -> str | None:
    """Begin the run or take it up; its output, or `None` where it has none."""
    door = world.front_door(part, requests)
    world.finished = {one.place for one in await log_of(store) if isinstance(one, StepFinished)}
    try:
        try:
            result = await door.resume(RUN, store=store)
        except RunNotFound:
            result = await door.execute({}, run_id=RUN, store=store)
    except (StepExecutionError, BudgetExceeded):
        return None
    return None if result.output is None else _text(result.output)


async def interrupted(
    world: World, part: Part, requests: int | None, store: MemoryRunStore, interruption: Interruption
) -> None:
    """A process that is killed or cancelled, if it comes so far."""
    writes = 0

    def interrupt(entries: Sequence[AnyFact]) -> bool:
        nonlocal writes
        writes += 1
        if writes == interruption.write and interruption.is_cancel:
            running.cancel()
        return writes >= interruption.write and not interruption.is_cancel

    dying = DyingStore(store, interrupt, written=interruption.is_written)
    running = asyncio.create_task(process(world, part, requests, dying))
    with suppress(RunStoreUnavailable, OSError, asyncio.CancelledError):
        await running
    assert_no_task_is_left()


async def log_of(store: Any) -> list[AnyFact]:
    return await entries_of(store, RUN)


async def without_a_store(part: Part, requests: int | None) -> RunTrace:
    door = World().front_door(part, requests)
    try:
        return (await door.execute({}, run_id=RUN)).trace  # type: ignore[no-any-return]
    except FastroAIError as error:
        source = trace_source_of(error)
        assert source is not None
        return source.trace  # type: ignore[return-value]


def expected(part: Part) -> tuple[str | None, Interpreter] | None:
    """What the interpreter says; `None` if that depends on what comes first."""
    interpreter = Interpreter()
    try:
        return interpreter.part(part), interpreter
    except Failed:
        return None, interpreter
    except Open:
        return None


def assert_sound(trace: RunTrace, world: World, part: Part, requests: int | None) -> None:
    """What holds of every run that has ended, whatever has happened to it."""
    entries = trace.entries
    assert not world.ran_again
    finished = Counter(one.place for one in entries if isinstance(one, StepFinished))
    assert not [place for place, count in finished.items() if count > 1]
    assert not any(isinstance(one, ReplayDiverged) for one in entries)
    sent = [one for one in entries if isinstance(one, RequestSent)]
    assert len({one.id for one in sent}) == len(sent) == trace.usage.request_count
    assert world.served <= len(sent)
    assert trace.usage.committed_usd == Decimal(len(sent) * PRICE) / 1_000_000
    if requests is not None:
        assert len(sent) <= requests
    assert trace.replay(world.front_door(part, requests)) is None
    assert trace.diff(trace) == ()


def run(test: Any) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Steps and stores that fail are what this is about."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@given(parts(), BUDGETS)
@settings(max_examples=examples(13))
def test_a_run_with_a_store_is_the_run_without_one_and_does_what_the_interpreter_says(
    part: Part, requests: int | None
) -> None:
    async def check() -> None:
        world, store = World(), MemoryRunStore()
        output = await process(world, part, requests, store)
        trace = await RunHistory(store).trace(RUN)
        assert_sound(trace, world, part, requests)
        assert world.served == trace.usage.request_count
        if requests is None or world.served < requests:
            # Requests that wait for a budget are refused at one moment: any of their steps stops the run.
            different = trace.diff(await without_a_store(part, requests))
            assert not different, [str(one) for one in different]
        if (known := expected(part)) is None:
            return
        text, interpreter = known
        if interpreter.is_calm:
            is_enough = requests is None or interpreter.requests <= requests
            assert output == (text if is_enough else None)
            assert trace.status == ("finished" if is_enough else "failed")
            assert not is_enough or world.served == interpreter.requests
        elif requests is None:
            assert output == text

    run(check())


@given(parts(), BUDGETS, INTERRUPTIONS)
@settings(max_examples=examples(15))
def test_a_run_that_is_killed_or_cancelled_anywhere_ends_as_it_would_have_ended(
    part: Part, requests: int | None, interruptions: list[Interruption]
) -> None:
    async def check() -> None:
        calm, world, store = MemoryRunStore(), World(), MemoryRunStore()
        undisturbed = await process(World(), part, requests, calm)
        for interruption in interruptions:
            await interrupted(world, part, requests, store, interruption)
        output = await process(world, part, requests, store)
        before, trace = await RunHistory(calm).trace(RUN), await RunHistory(store).trace(RUN)
        assert_sound(trace, world, part, requests)
        known = expected(part)
        if known is None or requests is not None:
            return
        assert (output, trace.status) == (undisturbed, before.status)
        if known[1].is_calm:
            ends = [one for one in trace.entries if isinstance(one, RequestEnded)]
            ended = {one.id for one in ends if one.response is not None}
            lost = sum(isinstance(one, RequestSent) and one.id not in ended for one in trace.entries)
            assert trace.usage.request_count == before.usage.request_count + lost

    run(check())


def failing(*bodies: Body) -> Line:
    return Line(units=tuple(Unit(body=body, needs=(), is_exempt=True) for body in bodies), at_once=None)


def test_of_variants_with_one_name_the_one_that_ran_says_what_is_nested_in_it() -> None:
    never = Leaf(fails=99, retries=0, asks=0, is_poor=False)
    graph = Net(stages=(Stage(bodies=(never,), handler=None, turns=1),), policy="fail_all")
    first = Choice(variants=(failing(never, never, graph), failing(never)))
    part = Choice(variants=(first, Choice(variants=(failing(never, never, failing(never)),))))

    async def live() -> None:
        world, store = World(), MemoryRunStore()
        with suppress(FastroAIError):
            await world.front_door(part, None).execute({}, run_id="r", store=store)
        trace = await RunHistory(store).trace("r")
        assert trace.replay(world.front_door(part, None)) is None

    run(live())

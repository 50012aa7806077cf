"""The table of scenarios: live, against the reference, and killed at every write to the log and resumed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import pytest
from support.graph_reference import Ending, Outcome, interpret
from support.graph_scenarios import Scenario, Stage, scenarios
from support.graph_simulation import graph_machines
from support.graph_worlds import Turns, World, nth_write, outcome_of
from support.interruptions import RUN, DyingStore, entries_of
from support.leftovers import assert_no_task_is_left
from support.virtual_time import VirtualTimeLoop

from fastroai import errors
from fastroai.errors import ConfigurationError, RunNotFound, RunStoreUnavailable
from fastroai.graphs import GraphResult
from fastroai.graphs.facts import BranchTimedOut, ValueWritten
from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    QuestionAsked,
    RunFinished,
    RunResumed,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepRetried,
    StepSkipped,
    StepStarted,
)
from fastroai.store import MemoryRunStore
from fastroai.usage import Budget

__all__ = ["graph_machines"]
"""A fixture for all tests here."""

TABLE = scenarios()
STRIDE: Final = 1 if "FASTROAI_KILL_SWEEP" in os.environ else 3
"""A run is killed at each write of a scenario by `make kill-sweep`, and at every third in the suite."""

CHECKPOINTS: dict[type[AnyFact], str] = {
    StepStarted: "start",
    StepFinished: "complete",
    StepFailed: "failed",
    StepRetried: "retry",
    StepSkipped: "skip",
    StepCancelled: "cancelled",
    QuestionAsked: "asked",
    AnswerGiven: "answered",
    ValueWritten: "write",
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Stores that fail are what this is about."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_the_table_is_as_long_as_it_should_be_and_has_no_name_twice() -> None:
    names = [str(scenario) for scenario in TABLE]
    assert len(names) >= 60
    assert len(set(names)) == len(names)


# --- processes ---


def world_of(scenario: Scenario, turns: Turns | None, stage: Stage | None = None) -> World:
    options = dict(scenario.graph)
    if "budget" in options:
        options["budget"] = Budget(usd=str(options["budget"]))
    design = scenario.design if stage is None or stage.design is None else stage.design
    return World(design, turns, **options)


async def begun(scenario: Scenario, world: World, store: Any, *, again: bool = False) -> GraphResult[Any]:
    """Run, or take up, with what happens meanwhile."""
    if again:
        running = asyncio.create_task(taken_up(scenario, world, store))
    else:
        running = asyncio.create_task(world.graph.run(scenario.design.inputs, store=store, run_id=RUN))
    meddling = [asyncio.create_task(meddle(world, word, node)) for word, node in scenario.during.items()]
    try:
        return await running
    finally:
        for one in meddling:
            one.cancel()
        await asyncio.gather(*meddling, return_exceptions=True)


async def taken_up(scenario: Scenario, world: World, store: Any) -> GraphResult[Any]:
    try:
        return await world.graph.resume(RUN, store=store)
    except RunNotFound:
        return await world.graph.run(scenario.design.inputs, store=store, run_id=RUN)


def answers(scenario: Scenario) -> list[Stage]:
    """Where the first thing that is done with a run is to answer its question."""
    return [stage for stage in scenario.then if "input" in stage.resume and "raises" not in stage.expect][:1]


def in_flight(entries: list[AnyFact]) -> set[str]:
    """What had started and was not over when the log ended."""
    started = {entry.place for entry in entries if isinstance(entry, StepStarted)}
    over = StepFinished | StepFailed | StepCancelled | QuestionAsked
    return started - {entry.place for entry in entries if isinstance(entry, over)}


async def meddle(world: World, word: str, node: str) -> None:
    await world.began[node].wait()
    await getattr(world.graph, word)(RUN)


# --- what must be true ---


def assert_as_expected(
    outcome: Outcome, expect: Mapping[str, Any], result: GraphResult[Any] | None = None
) -> None:
    """Of what the table says, `attempts` and `seconds` are only true of a run in one process."""
    assert outcome.status == expect.get("status", "finished"), result and result.reason
    for name in ("quality", "path", "memory", "output", "visits", "errors"):
        if name in expect:
            assert getattr(outcome, name) == expect[name], name
    if "quality" not in expect and outcome.status == "finished":
        assert outcome.quality == "clean"
    if expect.get("cost") is not None:
        assert outcome.cost == Decimal(str(expect["cost"]))
    if result is None:
        return
    assert expect.get("reason", "") in result.reason
    if "resume_at" in expect or outcome.status in ("finished", "paused"):
        assert list(result.resume_at) == expect.get("resume_at", [])
    asked = [{"node": one.node, "question": one.question} for one in result.questions]
    assert asked == expect.get("questions", [])
    if "outputs" in expect:
        assert dict(result.outputs) == expect["outputs"]


def assert_of_one_process(outcome: Outcome, expect: Mapping[str, Any]) -> None:
    made = {name.removesuffix("@1"): count for name, count in outcome.attempts.items()}
    assert {name: made[name] for name in expect.get("attempts", {})} == expect.get("attempts", {})
    if "seconds" in expect:
        assert outcome.at == expect["seconds"]


def checkpoints(entries: list[AnyFact]) -> list[str]:
    """The log, as the table has it: `start a`, `complete a`, `start b#2`, ..."""
    found = []
    for entry in entries:
        if isinstance(entry, BranchTimedOut):
            found.append(f"timed out {entry.branch.split('/')[-1]}")
        elif isinstance(entry, RunFinished):
            found.append(f"ended {entry.status}")
        elif isinstance(entry, RunResumed):
            found.append("resumed")
        elif type(entry) in CHECKPOINTS:
            place = entry.place.split("@")[0]  # type: ignore[union-attr]
            found.append(f"{CHECKPOINTS[type(entry)]} {place}")
    return found


# --- the tests ---


@pytest.mark.parametrize("scenario", TABLE, ids=str)
def test_what_the_table_says_happens(scenario: Scenario) -> None:
    async def check() -> None:
        store, world = MemoryRunStore(), world_of(scenario, None)
        outcome = await one_part(scenario, world, store, scenario.expect)
        if outcome is not None:
            assert_of_one_process(outcome, scenario.expect)
            if "checkpoints" in scenario.expect:
                assert checkpoints(await entries_of(store)) == scenario.expect["checkpoints"]
        for stage in scenario.then:
            await next_part(scenario, stage, store)
        assert_no_task_is_left()

    _run(check())


async def one_part(scenario: Scenario, world: World, store: Any, expect: Mapping[str, Any]) -> Outcome | None:
    if "raises" in expect:
        with pytest.raises(getattr(errors, expect["raises"])):
            await begun(scenario, world, store)
        return None
    result = await begun(scenario, world, store)
    outcome = outcome_of(result, world)
    assert_as_expected(outcome, expect, result)
    return outcome


async def next_part(scenario: Scenario, stage: Stage, store: Any) -> None:
    world = world_of(scenario, None, stage)
    if "raises" in stage.expect:
        with pytest.raises(getattr(errors, stage.expect["raises"])):
            await world.graph.resume(RUN, store=store, **stage.resume)
        return
    result = await world.graph.resume(RUN, store=store, **stage.resume)
    assert_as_expected(outcome_of(result, world), stage.expect, result)
    if "checkpoints" in stage.expect:
        assert checkpoints(await entries_of(store)) == stage.expect["checkpoints"]


@pytest.mark.parametrize("scenario", [one for one in TABLE if one.reference], ids=str)
def test_the_reference_says_what_the_table_says(scenario: Scenario) -> None:
    outcome = interpret(scenario.design)
    assert_as_expected(outcome, scenario.expect)
    assert_of_one_process(outcome, scenario.expect)


@pytest.mark.parametrize("scenario", [one for one in TABLE if one.kill], ids=str)
def test_killed_at_a_write_and_resumed_the_same_happens(scenario: Scenario) -> None:
    """Each write is that of some scenarios."""

    async def check() -> None:
        order = interpret(scenario.design).endings if scenario.reference and not scenario.timed else None
        at = first = 1 + TABLE.index(scenario) % STRIDE
        while await killed(scenario, order, at):
            at += STRIDE
            assert_no_task_is_left()
        if at == first:  # it has fewer writes
            assert await killed(scenario, order, 1), "nothing was killed"

    _run(check())


async def killed(scenario: Scenario, order: list[Ending] | None, at: int) -> bool:
    """Whether the process died at that write to the log; another took up what it left."""
    store = MemoryRunStore()
    world = world_of(scenario, None if order is None else Turns(order))
    try:
        result = await begun(scenario, world, DyingStore(store, nth_write(at)))
    except (RunStoreUnavailable, OSError):
        pass
    else:
        assert_as_expected(outcome_of(result, world), scenario.expect, result)
        return False
    entries = await entries_of(store)
    world = world_of(scenario, None if order is None else Turns(order, entries))
    try:
        result = await begun(scenario, world, store, again=True)
    except ConfigurationError:  # all that is left to do is to answer
        assert not in_flight(entries)
        stage = answers(scenario)[0]
        world = world_of(scenario, None, stage)
        result = await world.graph.resume(RUN, store=store, **stage.resume)
        assert_as_expected(outcome_of(result, world), stage.expect, result)
        return True
    done = {entry.place for entry in entries if isinstance(entry, StepFinished)}
    assert not done & {place.replace("@1", "").replace("@", "#") for place in world.attempts}
    assert_as_expected(outcome_of(result, world), {**scenario.expect, "cost": None}, result)
    if "cost" in scenario.expect:  # the attempt that was interrupted is made again
        dearest = max(Decimal(act.cost) for part in scenario.design.nodes.values() for act in part.acts)
        assert 0 <= result.usage.total.cost_usd - Decimal(scenario.expect["cost"]) <= dearest
    return True


@pytest.mark.parametrize(
    "scenario", [one for one in TABLE if answers(one) and "status" not in answers(one)[0].expect], ids=str
)
def test_killed_at_every_write_after_an_answer_and_resumed_the_same_happens(scenario: Scenario) -> None:
    async def check() -> None:
        at = 1
        while await killed_later(scenario, answers(scenario)[0], at):
            at += 1
            assert_no_task_is_left()

    _run(check())


async def killed_later(scenario: Scenario, stage: Stage, at: int) -> bool:
    """The same, where the second process dies, which had an answer."""
    store = MemoryRunStore()
    await begun(scenario, world_of(scenario, None), store)
    graph = world_of(scenario, None, stage).graph
    try:
        await graph.resume(RUN, store=DyingStore(store, nth_write(at)), **stage.resume)
    except (RunStoreUnavailable, OSError):
        pass
    else:
        return False
    taken = any(isinstance(entry, AnswerGiven) for entry in await entries_of(store))
    world = world_of(scenario, None, stage)
    result = await world.graph.resume(RUN, store=store, **({} if taken else stage.resume))
    assert_as_expected(outcome_of(result, world), stage.expect, result)
    return True


def _run(check: Any) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(check)

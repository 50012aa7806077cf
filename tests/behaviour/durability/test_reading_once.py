"""A resume reads the log of the run once, and tells it to one machine, however often the run has failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from support.counting_store import Counting

from fastroai import Edge, Graph, Pipeline, StepContext, step
from fastroai.errors import StepExecutionError
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.pipelines.machine import PipelineMachine
from fastroai.runtime import facts
from fastroai.store import RunHistory
from fastroai.store.record.memo import Memo

RUN = "r1"


class Failing:
    """A step that fails as often as it is told."""

    def __init__(self, times: int) -> None:
        self.left = times

    def step(self) -> Any:
        @step(retries=0)
        async def work(ctx: StepContext) -> str:
            if self.left:
                self.left -= 1
                raise ValueError("not yet")
            return "done"

        return work


@step
async def quick(ctx: StepContext) -> str:
    return "quick"


def pipeline_of(failing: Failing) -> Pipeline[Any, Any]:
    return Pipeline("p", {"a": quick, "b": failing.step()}, {"b": ["a"]})


def graph_of(failing: Failing) -> Graph[Any, Any]:
    nodes = {"top": quick, "a": failing.step(), "b": failing.step(), "end": quick}
    edges = [Edge("top", "a"), Edge("top", "b"), Edge("a", "end"), Edge("b", "end")]
    return Graph("g", nodes=nodes, edges=edges, on_branch_failure="continue_others")


async def begin_and_fail(door: Any, store: Counting, times: int) -> None:
    begin = door.run if isinstance(door, Graph) else door.execute
    for number in range(times):
        call = door.resume(RUN, store=store) if number else begin({}, run_id=RUN, store=store)
        if isinstance(door, Graph):
            assert (await call).status == "failed"
        else:
            with pytest.raises(StepExecutionError):
                await call
    store.reads.clear()


@pytest.mark.parametrize("of", [pipeline_of, graph_of])
@pytest.mark.parametrize("on_existing", [False, True])
async def test_the_store_is_asked_once_for_the_log(of: Callable[[Failing], Any], on_existing: bool) -> None:
    store, records = Counting(), Counter[str]()
    door = of(Failing(6 if of is graph_of else 3))
    await begin_and_fail(door, store, 3)
    made = Memo.__init__

    def counted(record: Memo, *given: Any) -> None:
        records["made"] += 1
        made(record, *given)

    with patch.object(Memo, "__init__", counted):
        if not on_existing:
            await door.resume(RUN, store=store)
        elif isinstance(door, Graph):
            await door.run({}, run_id=RUN, store=store, on_existing="resume")
        else:
            await door.execute({}, run_id=RUN, store=store, on_existing="resume")
    assert (store.reads["log"], records["made"]) == (1, 1)


async def test_a_finished_run_is_given_again_after_one_reading() -> None:
    store, pipeline = Counting(), pipeline_of(Failing(0))
    await pipeline.execute({}, run_id=RUN, store=store)
    store.reads.clear()
    result = await pipeline.execute({}, run_id=RUN, store=store, on_existing="return")
    assert (result.output, store.reads["log"]) == ("done", 1)


@pytest.mark.parametrize(("of", "kind"), [(pipeline_of, PipelineMachine), (graph_of, GraphMachine)])
async def test_every_fact_is_told_once_to_one_machine(of: Callable[[Failing], Any], kind: Any) -> None:
    store, told, machines = Counting(), Counter[str](), set[int]()
    door = of(Failing(6 if of is graph_of else 3))
    await begin_and_fail(door, store, 3)
    before = (await RunHistory(store).trace(RUN)).entries
    handle: Callable[[Any, Any], Any] = kind.handle

    def counted(machine: Any, fact: facts.AnyFact) -> Any:
        machines.add(id(machine))
        if not machines - {id(machine)} and fact.kind in ("step_failed", "run_resumed"):
            told[fact.kind] += 1
        return handle(machine, fact)

    with patch.object(kind, "handle", counted):
        await door.resume(RUN, store=store)
    assert len(machines) == 1
    assert told["run_resumed"] == 3
    assert told["step_failed"] == sum(isinstance(one, facts.StepFailed) for one in before)

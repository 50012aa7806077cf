"""The state of every machine is plain data: at each fact of a random run it can be copied and compared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.graph_reference import Design, interpret
from support.graph_simulation import Simulation
from support.graph_worlds import World, run_killed
from support.interruptions import RUN
from support.machine_states import copied_at_each_fact, shown, state_of
from support.random_graphs import designs
from support.random_workflows import Drive, Fates, workflows
from support.virtual_time import VirtualTimeLoop

from fastroai.errors import StepExecutionError
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.runtime import facts
from fastroai.store import MemoryRunStore
from fastroai.workflows.plan import WorkflowPlan


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Stores and deciders that fail are what this is about."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@given(designs(size=6))
@settings(max_examples=examples(13))
def test_a_graph(design: Design) -> None:
    with copied_at_each_fact():
        Simulation(design).run()


@given(designs(timed=False, size=6), st.lists(st.integers(1, 12), min_size=1, max_size=2))
@settings(max_examples=examples(5))
def test_a_graph_that_several_processes_have_run(design: Design, deaths: list[int]) -> None:
    expected = interpret(design)
    assume(not expected.is_tied)
    with copied_at_each_fact(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run_killed(design, expected.endings, deaths))


@given(designs(size=6), st.booleans(), st.floats(0.5, 6))
@settings(max_examples=examples(8))
def test_a_graph_that_was_stopped_or_failed_and_is_resumed(
    design: Design, is_cancelled: bool, seconds: float
) -> None:
    async def run() -> None:
        store, world = MemoryRunStore(), World(design)
        begun = asyncio.create_task(world.graph.run(dict(design.inputs), store=store, run_id=RUN))
        await asyncio.sleep(seconds)
        if not begun.done():
            await (world.graph.cancel(RUN) if is_cancelled else world.graph.pause(RUN))
        await begun
        await World(design).graph.resume(RUN, store=store)

    with copied_at_each_fact(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())


@given(st.data(), st.sampled_from([None, 1, 2]))
@settings(max_examples=examples(10))
def test_a_pipeline(data: st.DataObject, limit: int | None) -> None:
    names = [f"s{number}" for number in range(data.draw(st.integers(1, 6)))]
    failing = {name: data.draw(st.sampled_from([0, 0, 1, 2])) for name in names}
    exempt = [name for name in names if data.draw(st.booleans())]
    needs = {
        name: data.draw(st.lists(st.sampled_from(names[:number]), unique=True)) if number else []
        for number, name in enumerate(names)
    }

    @step
    async def work(ctx: StepContext[Any]) -> str:
        await asyncio.sleep(1)
        if failing[ctx.step_id]:
            failing[ctx.step_id] -= 1
            raise ValueError(ctx.step_id)
        return ctx.step_id

    async def run() -> None:
        store = MemoryRunStore()
        pipeline = Pipeline[Any, Any](
            "p",
            dict.fromkeys(names, work),
            needs,
            output_step=names[-1],
            config=PipelineConfig(max_concurrency=limit),
            step_configs={name: StepConfig(on_error="continue") for name in exempt},
        )
        for process in range(3):
            try:
                if process:
                    await pipeline.resume(RUN, store=store)
                else:
                    await pipeline.execute({}, run_id=RUN, store=store)
            except StepExecutionError:
                pass

    with copied_at_each_fact(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())


@given(workflows(), st.data())
@settings(max_examples=examples(8))
def test_a_workflow(drawn: tuple[WorkflowPlan, Fates], data: st.DataObject) -> None:
    with copied_at_each_fact():
        drive = Drive(*drawn, 2)
        drive.tell(facts.RunStarted(inputs={}))
        while not drive.has_ended and len(drive.told) < 30:
            if data.draw(st.integers(0, 4)) == 0:
                drive.running.clear()
                drive.tell(facts.RunResumed())
            if not drive.units:  # with what is on record, the resumed run is over
                assert drive.has_ended
                break
            drive.end(drive.units[data.draw(st.integers(0, len(drive.units) - 1))])


@pytest.mark.parametrize("value", [print, lambda: None, object(), asyncio.Event()])
def test_what_is_no_plain_data_in_a_state_is_found(value: object) -> None:
    machine = GraphMachine(GraphPlan(edges={"a": ()}, conditions={}, entry="a", terminals=("a",)))
    shown(state_of(machine))
    machine.root.failure = "a", value  # type: ignore[assignment]
    with pytest.raises(AssertionError, match="no plain data"):
        shown(state_of(machine))

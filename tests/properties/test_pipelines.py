"""Live runs of random pipelines, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from support.leftovers import assert_no_task_is_left
from support.schedules import Schedule, interpret, schedules
from support.virtual_time import VirtualTimeLoop, now

from fastroai.errors import StepExecutionError
from fastroai.pipelines import BaseStep, Pipeline, PipelineConfig, PipelineResult, StepConfig, StepContext


class Acts(BaseStep[Any, str]):
    """Does what a schedule says, and notes when."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.started: dict[str, float] = {}
        self.finished: dict[str, float] = {}
        self.running = self.most = 0

    async def execute(self, context: StepContext[Any]) -> str:
        name = context.step_id
        assert name not in self.started, "a step runs at most once"
        for before in self.schedule.needs[name]:
            assert context.get_dependency(before, str) == f"output of {before}"
        self.started[name] = now()
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.schedule.seconds[name])
        finally:
            self.running -= 1
        self.finished[name] = now()
        if name in self.schedule.failing:
            raise ValueError(name)
        return f"output of {name}"


def run(schedule: Schedule) -> tuple[Acts, PipelineResult[Any] | StepExecutionError, float]:
    """The steps, the result, and how long it took."""
    acts = Acts(schedule)
    pipeline = Pipeline[Any, Any](
        "p",
        dict.fromkeys(schedule.needs, acts),
        schedule.needs,
        output_step=next(iter(schedule.needs)),
        config=PipelineConfig(max_concurrency=schedule.limit),
        step_configs=dict.fromkeys(schedule.exempt, StepConfig(on_error="continue")),
    )

    async def main() -> tuple[PipelineResult[Any] | StepExecutionError, float]:
        try:
            result: PipelineResult[Any] | StepExecutionError = await pipeline.execute()
        except StepExecutionError as error:
            result = error
        assert_no_task_is_left()
        return result, now()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return (acts, *runner.run(main()))


live = settings(deadline=None)


@live
@given(schedules(stops=False, limited=False))
def test_a_run_takes_exactly_its_critical_path(schedule: Schedule) -> None:
    acts, result, took = run(schedule)
    expected = interpret(schedule)
    assert acts.started == expected.started
    assert acts.finished == expected.finished
    assert took == expected.makespan
    assert isinstance(result, PipelineResult)
    assert set(result.skipped) == expected.skipped
    assert set(result.errors) == schedule.failing - expected.skipped
    assert result.step_outputs == {
        name: f"output of {name}" for name in expected.finished if name not in schedule.failing
    }


@live
@given(schedules())
def test_whatever_fails_nothing_is_lost_and_nothing_is_left(schedule: Schedule) -> None:
    acts, result, _ = run(schedule)
    assert acts.most <= (schedule.limit or len(schedule.needs))
    outputs = {name: f"output of {name}" for name in acts.finished if name not in schedule.failing}
    assert result.step_outputs == outputs
    if isinstance(result, StepExecutionError):
        assert result.step_id in schedule.stopping
        assert str(result.original_error) == result.step_id
    else:
        assert not schedule.stopping & acts.finished.keys()
        assert acts.started.keys() | result.skipped.keys() == schedule.needs.keys()
        assert not acts.started.keys() & result.skipped.keys()

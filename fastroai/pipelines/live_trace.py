"""The entries of a pipeline run that no store keeps, made of what the run knows when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue

from fastroai.pipelines.machine import SkipStep, Started, StartStep
from fastroai.pipelines.runner import PipelineRunner
from fastroai.places import quoted
from fastroai.runs.live_part import LivePart
from fastroai.runs.on_record import as_json, failure_of, how_it_ended
from fastroai.runtime.facts import (
    AnyFact,
    RunStarted,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from fastroai.steps import ConversationState
from fastroai.store.live_log import LiveLog


class PipelinePart(LivePart):
    """What one pipeline of a run tells of it."""

    def __init__(self, log: LiveLog, runner: PipelineRunner, definition: JsonValue) -> None:
        super().__init__(log, runner.scope, runner.step_scopes.values())
        self._runner, self._definition = runner, definition

    def __call__(self) -> Iterator[AnyFact]:
        """All entries; of those at the same moment, what caused others comes first."""
        if self.is_outermost:
            yield from self._of_run()
        yield from self._decisions()
        yield from self.spending()

    def _of_run(self) -> Iterator[AnyFact]:
        runner = self._runner
        yield RunStarted(
            at=runner.began_at,
            run_id=runner.scope.run_id,
            pipeline=runner.facts.pipeline,
            definition=self._definition,
            inputs={name: as_json(value) for name, value in runner.facts.inputs.items()},
        )
        if runner.ended_at is not None:
            yield how_it_ended(runner.failure, waiting=_is_waiting(runner), at=runner.ended_at)

    def _decisions(self) -> Iterator[AnyFact]:
        runner = self._runner
        for event, commands in runner.machine.journal:
            at = runner.began_at
            if not isinstance(event, Started) and event.step_id in runner.timings:
                at = self._at(runner.timings[event.step_id].finished_ms)
                yield from self._outcome(event.step_id)
            for command in commands:
                if isinstance(command, StartStep):
                    timing = runner.timings.get(command.step_id)
                    started = at if timing is None else self._at(timing.started_ms)
                    yield StepStarted(at=started, place=self._place(command.step_id), cause=command.cause)
                elif isinstance(command, SkipStep):
                    yield StepSkipped(at=at, place=self._place(command.step_id), cause=command.cause)

    def _outcome(self, step_id: str) -> Iterator[AnyFact]:
        runner, place, timing = self._runner, self._place(step_id), self._runner.timings[step_id]
        at, attempt = self._at(timing.finished_ms), runner.step_scopes[step_id].attempt
        if step_id in runner.errors:
            config, scope = runner.configs[step_id], runner.step_scopes[step_id]
            failure = failure_of(step_id, scope, config, runner.errors[step_id])
            yield StepFailed(
                at=at, place=place, attempt=attempt, failure=failure, duration_ms=timing.duration_ms
            )
        elif step_id in runner.facts.outputs.values:
            output = runner.facts.outputs.values[step_id]
            yield StepFinished(
                at=at,
                place=place,
                attempt=attempt,
                output=as_json(output),
                conversation=_status_of(output),
                duration_ms=timing.duration_ms,
            )

    def _place(self, step_id: str) -> str:
        return f"{self.prefix}{quoted(step_id)}"

    def _at(self, milliseconds: float) -> datetime:
        return self._runner.began_at + timedelta(milliseconds=milliseconds)


def _is_waiting(runner: PipelineRunner) -> bool:
    return any(_status_of(output) == "incomplete" for output in runner.facts.outputs.values.values())


def _status_of(output: object) -> Any:
    return output.status.value if isinstance(output, ConversationState) else None

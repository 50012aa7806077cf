"""The entries of a pipeline run that no store keeps, made of what the run knows when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue

from fastroai.pipelines.machine import SkipStep, Started, StartStep
from fastroai.pipelines.on_record import as_json, failure_of, how_it_ended
from fastroai.pipelines.runner import PipelineRunner
from fastroai.places import quoted
from fastroai.runtime import Charge
from fastroai.steps import ConversationState
from fastroai.store.entries import (
    AnyEntry,
    RequestEnded,
    RequestPlace,
    RequestSent,
    RunOpened,
    SpendingRecorded,
    StepFailure,
    StepOutput,
    StepRetry,
    StepSkip,
    StepStart,
)
from fastroai.store.live_log import LiveLog


class LivePart:
    """What one pipeline of a run tells of it; the outermost one tells of the run as well."""

    def __init__(self, log: LiveLog, runner: PipelineRunner, definition: JsonValue) -> None:
        self._log, self._runner, self._definition = log, runner, definition
        around = runner.scope.place_within(log.scope)
        self._prefix = f"{around}/" if around else ""

    def __call__(self) -> Iterator[AnyEntry]:
        """All entries; of those at the same moment, what caused others comes first."""
        if self._runner.scope is self._log.scope:
            yield from self._of_run()
        yield from self._decisions()
        told = self._told_by_nested()
        for step_id in self._runner.step_scopes:
            yield from self._spending(step_id, told)

    def _of_run(self) -> Iterator[AnyEntry]:
        runner = self._runner
        yield RunOpened(
            at=runner.began_at,
            run_id=runner.scope.run_id,
            pipeline=runner.facts.pipeline,
            definition=self._definition,
            inputs={name: as_json(value) for name, value in runner.facts.inputs.items()},
        )
        if runner.ended_at is not None:
            yield how_it_ended(runner.failure, waiting=_is_waiting(runner), at=runner.ended_at)

    def _decisions(self) -> Iterator[AnyEntry]:
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
                    yield StepStart(at=started, place=self._place(command.step_id), cause=command.cause)
                elif isinstance(command, SkipStep):
                    yield StepSkip(at=at, place=self._place(command.step_id), cause=command.cause)

    def _outcome(self, step_id: str) -> Iterator[AnyEntry]:
        runner, place, timing = self._runner, self._place(step_id), self._runner.timings[step_id]
        at, attempt = self._at(timing.finished_ms), runner.step_scopes[step_id].attempt
        if step_id in runner.errors:
            config, scope = runner.configs[step_id], runner.step_scopes[step_id]
            failure = failure_of(step_id, scope, config, runner.errors[step_id])
            yield StepFailure(
                at=at, place=place, attempt=attempt, failure=failure, duration_ms=timing.duration_ms
            )
        elif step_id in runner.facts.outputs.values:
            output = runner.facts.outputs.values[step_id]
            yield StepOutput(
                at=at,
                place=place,
                attempt=attempt,
                output=as_json(output),
                conversation=_status_of(output),
                duration_ms=timing.duration_ms,
            )

    def _told_by_nested(self) -> set[int]:
        """What pipelines inside of these steps tell themselves."""
        return {
            id(charge)
            for part in self._log.parts
            if isinstance(part, LivePart) and part._prefix.startswith(self._prefix) and part is not self
            for scope in part._runner.step_scopes.values()
            for charge in scope.charges
        }

    def _spending(self, step_id: str, told: set[int]) -> Iterator[AnyEntry]:
        place = self._place(step_id)
        failed_at = [
            note.at for note in self._log.notes if isinstance(note, StepRetry) and note.place == place
        ]
        for charge in self._runner.step_scopes[step_id].charges:
            if id(charge) not in told:
                yield from _request(charge, place, failed_at)

    def _place(self, step_id: str) -> str:
        return f"{self._prefix}{quoted(step_id)}"

    def _at(self, milliseconds: float) -> datetime:
        return self._runner.began_at + timedelta(milliseconds=milliseconds)


def _request(charge: Charge, place: str, failed_at: Sequence[datetime]) -> Iterator[AnyEntry]:
    record = charge.record
    began = record.started_at
    assert began is not None
    where = f"{place}@{1 + sum(at <= began for at in failed_at)}"
    ended = began + timedelta(milliseconds=record.duration_ms)
    if record.agent is None:
        yield SpendingRecorded(at=ended, place=where, record=record)
        return
    model = f"{record.provider}:{record.model}"
    request = RequestPlace(place=where, call=record.agent, attempt=1, model=model, fingerprint="")
    yield RequestSent(at=began, id=str(id(charge)), request=request, record=record)
    yield RequestEnded(at=ended, id=str(id(charge)), record=record)


def _is_waiting(runner: PipelineRunner) -> bool:
    return any(_status_of(output) == "incomplete" for output in runner.facts.outputs.values.values())


def _status_of(output: object) -> Any:
    return output.status.value if isinstance(output, ConversationState) else None

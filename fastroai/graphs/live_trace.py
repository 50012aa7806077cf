"""The entries of a run of a graph that no store keeps, made when they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from pydantic import JsonValue

from fastroai.graphs.entries import GraphEntries, decision_as_json
from fastroai.graphs.events import BranchTimedOut, Cancelled, Decided, Event, Failed, Succeeded, Visit
from fastroai.graphs.fields import fields_of
from fastroai.graphs.runner import GraphRunner
from fastroai.graphs.visits import VisitRecord
from fastroai.runs.live_part import LivePart
from fastroai.runs.on_record import as_json, failure_of, how_it_ended
from fastroai.runtime import Scope
from fastroai.runtime.facts import (
    AnyFact,
    RunFinished,
    RunStarted,
    ValueWritten,
)
from fastroai.store.live_log import LiveLog


class GraphPart(LivePart):
    """What one graph of a run tells of it."""

    def __init__(
        self, log: LiveLog, runner: GraphRunner, inputs: Mapping[str, object], definition: JsonValue
    ) -> None:
        super().__init__(log, runner.scope, _Scopes(runner.visits, runner.decisions))
        self._runner, self._inputs, self._definition = runner, inputs, definition
        self._entries = GraphEntries(self.prefix.removesuffix("/"))

    def __call__(self) -> Iterator[AnyFact]:
        """All entries; of those at the same moment, what caused others comes first."""
        if self.is_outermost:
            yield from self._opened()
        runner = self._runner
        for (event, commands), at in zip(runner.machine.journal, runner.times, strict=False):
            yield from self._of_event(event, at)
            yield from self._entries.of_commands(commands, at)
        if self.is_outermost:
            yield from self._ended()
        yield from self.spending()

    def _opened(self) -> Iterator[AnyFact]:
        yield RunStarted(
            at=self._runner.began_at,
            run_id=self._runner.scope.run_id,
            pipeline=self._runner.setup.name,
            definition=self._definition,
            inputs={name: as_json(value) for name, value in self._inputs.items()},
        )

    def _ended(self) -> Iterator[AnyFact]:
        at, finish = self._runner.ended_at, self._runner.finish
        if at is None:
            return
        if self._runner.failure is None and finish is not None and finish.status in ("paused", "cancelled"):
            yield RunFinished(at=at, status="waiting" if finish.status == "paused" else "cancelled")
        else:
            yield how_it_ended(self._runner.failure, waiting=False, at=at)

    def _of_event(self, event: Event, at: datetime) -> Iterator[AnyFact]:
        match event:
            case Succeeded(visit, output, written):
                record = self._runner.visits[visit]
                yield from self._written(visit, written, output, at)
                is_question = visit.node in self._runner.setup.plan.pauses
                make = self._entries.asked if is_question else self._entries.succeeded
                yield make(visit, record.scope.attempt, as_json(output), record.duration_ms, at)
            case Failed(visit, error, written):
                yield from self._written(visit, written, None, at)
                yield self._failed(visit, error, at)
            case Cancelled(visit, written) if visit in self._runner.visits:
                yield from self._written(visit, written, None, at)
                is_decision = visit in self._runner.decisions
                records = self._runner.decisions if is_decision else self._runner.visits
                attempt, cause = records[visit].scope.attempt, self._runner.machine.cancelled_for[visit]
                yield self._entries.cancelled(event, attempt, cause, at, is_decision=is_decision)
            case Decided(visit, decision):
                record = self._runner.decisions[visit]
                stored = decision_as_json(decision)
                yield self._entries.decided(event, record.scope.attempt, stored, record.duration_ms, at)
            case BranchTimedOut():
                yield self._entries.timed_out(event, at)
            case _:
                pass

    def _written(
        self, visit: Visit, written: Mapping[str, object], output: object, at: datetime
    ) -> Iterator[AnyFact]:
        """What a node put into memory before its end, which its output does not say."""
        place = f"{self._entries.place(visit)}@{self._runner.visits[visit].scope.attempt}"
        fields = fields_of(output) or {}
        for key, value in written.items():
            if value is not output and key not in fields:
                yield ValueWritten(at=at, place=place, key=key, value=as_json(value))

    def _failed(self, visit: Visit, error: BaseException, at: datetime) -> AnyFact:
        record = self._runner.visits[visit]
        failure = failure_of(visit.node, record.scope, self._runner.setup.configs[visit.node], error)
        return self._entries.failed(
            visit, record.scope.attempt, failure, record.duration_ms, at, stopped=False
        )


class _Scopes(Collection[Scope]):
    """Those of all visits and decisions, when they are asked for."""

    def __init__(self, visits: Mapping[Visit, VisitRecord], decisions: Mapping[Visit, VisitRecord]) -> None:
        self._parts = (visits, decisions)

    def __iter__(self) -> Iterator[Scope]:
        return (record.scope for part in self._parts for record in part.values())

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __contains__(self, scope: object) -> bool:
        return any(scope is one for one in self)

"""What a graph writes down of its visits, in a run that is on record, and what it finds there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fastroai.graphs.entries import GraphEntries, decision_as_json
from fastroai.graphs.events import BranchTimedOut, Cancelled, Command, Decided, Visit
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.thread import Phase
from fastroai.runtime import RetriesUsed, Scope
from fastroai.runtime.facts import (
    AnyFact,
    BranchTimedOut,
    FailureFacts,
    MessagesAdded,
    QuestionAsked,
    StepCancelled,
    StepFailed,
    StepFinished,
    ValueWritten,
)
from fastroai.steps.durability import restore_spending
from fastroai.store.payloads import seal
from fastroai.store.runs import DurableRun, current_durable_run
from fastroai.store.values import value_to_json


class VisitsOnRecord:
    """The visits of one graph of a run, the outermost or a nested one."""

    def __init__(self, run: DurableRun, scope: Scope, setup: GraphSetup) -> None:
        """In `scope`, that of the graph."""
        self.run, self._setup = run, setup
        self.place = scope.place_within(run.scope)
        self._entries = GraphEntries(self.place, shows_values=run.codec is None)

    @classmethod
    def nested(cls, scope: Scope, setup: GraphSetup) -> VisitsOnRecord | None:
        """Those of a graph inside a run that is on record; `None` outside of any."""
        run = current_durable_run.get()
        if run is None:
            return None
        restore_spending(scope)
        return cls(run, scope, setup)

    # --- what is there ---

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, perhaps in another process."""
        return max(0.0, (datetime.now(UTC) - self.run.recorded.opened.at).total_seconds())

    def milliseconds(self, at: datetime) -> float:
        """From the start of the run to a moment."""
        return max(0.0, (at - self.run.recorded.opened.at).total_seconds() * 1000)

    def retries_used(self, visit: Visit, *, is_decision: bool) -> RetriesUsed:
        """Which attempt at a visit, or at the decision after it, comes next."""
        place = self._entries.decision(visit) if is_decision else self._entries.place(visit)
        return self.run.recorded.progress(place)

    # --- what is written ---

    def wrote(self, visit: Visit, attempt: int, key: str, value: object) -> None:
        """A node has put a value into memory before its end. Raises `ValueNotStorable`."""
        stored = value_to_json(value, None, f"{key!r}, which node {visit.node!r} wrote,")
        place = f"{self._entries.place(visit)}@{attempt}"
        self.run.journal.note(ValueWritten(place=place, key=key, value=seal(stored, self.run.codec)))

    def said(self, visit: Visit, attempt: int, phase: Phase) -> MessagesAdded:
        """What an attempt has said. Raises `ValueNotStorable`."""
        place = f"{self._entries.place(visit)}@{attempt}"
        return MessagesAdded(place=place, messages=seal(phase.to_json(), self.run.codec))

    def succeeded(
        self, visit: Visit, scope: Scope, output: object, duration_ms: float
    ) -> StepFinished | QuestionAsked:
        """The output of a node, or its question. Raises `ValueNotStorable`."""
        is_question = visit.node in self._setup.plan.pauses
        what = f"the {'question' if is_question else 'output'} of node {visit.node!r}"
        declared = self._setup.declared.get(visit.node)
        stored = seal(value_to_json(output, declared, what), self.run.codec)
        make = self._entries.asked if is_question else self._entries.succeeded
        entry = make(visit, scope.attempt, stored, duration_ms, datetime.now(UTC))
        return replace(entry, degraded=True) if scope.degraded and isinstance(entry, StepFinished) else entry

    def failed(
        self,
        visit: Visit,
        attempt: int,
        failure: FailureFacts,
        duration_ms: float,
        *,
        stopped: bool,
    ) -> StepFailed:
        """A visit failed, after its retries; `stopped` if it was not by itself, so that it goes on later."""
        at = datetime.now(UTC)
        return self._entries.failed(visit, attempt, failure, duration_ms, at, stopped=stopped)

    def cancelled(
        self, event: Cancelled, attempt: int, cause: str, *, is_decision: bool = False
    ) -> StepCancelled:
        """A visit was cancelled, or the decision after it, and others go on."""
        return self._entries.cancelled(event, attempt, cause, datetime.now(UTC), is_decision=is_decision)

    def decided(self, event: Decided, attempt: int, duration_ms: float) -> StepFinished:
        """A decision was made."""
        stored = seal(decision_as_json(event.decision), self.run.codec)
        return self._entries.decided(event, attempt, stored, duration_ms, datetime.now(UTC))

    def timed_out(self, event: BranchTimedOut) -> BranchTimedOut:
        """A branch took too long."""
        return self._entries.timed_out(event, datetime.now(UTC))

    def of_commands(self, commands: Sequence[Command]) -> list[AnyFact]:
        """What was decided."""
        return list(self._entries.of_commands(commands, datetime.now(UTC)))

    def note(self, entries: Sequence[AnyFact]) -> None:
        """Write them soon."""
        for entry in entries:
            self.run.journal.note(entry)

    async def commit(self, entries: Sequence[AnyFact]) -> None:
        """Write them, and wait until they are stored. Raises `RunStoreUnavailable`, `RunTakenOver`."""
        *before, last = entries
        self.note(before)
        await self.run.journal.commit(last)

"""What steps have spent, as entries of a run that no store keeps, made when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from fastroai.runtime import Charge, Scope
from fastroai.runtime.facts import (
    AnyFact,
    RequestEnded,
    RequestPlace,
    RequestSent,
    SpendingRecorded,
    StepRetried,
)
from fastroai.store.live_log import LiveLog


class LivePart(ABC):
    """What one pipeline or graph of a run tells of it; the outermost one tells of the run as well."""

    def __init__(self, log: LiveLog, scope: Scope, step_scopes: Collection[Scope]) -> None:
        """Of what runs in `scope`. `step_scopes` are those of its steps, when the entries are asked for."""
        self._log, self.scope, self.step_scopes = log, scope, step_scopes
        around = scope.place_within(log.scope)
        self.prefix = f"{around}/" if around else ""
        """Of the places of its steps."""

    @abstractmethod
    def __call__(self) -> Iterator[AnyFact]:
        """All entries; of those at the same moment, what caused others comes first."""

    @property
    def is_outermost(self) -> bool:
        """Whether the run is its own."""
        return self.scope is self._log.scope

    def spending(self) -> Iterator[AnyFact]:
        """The requests of its steps, without what parts inside of these steps tell themselves."""
        told = self._told_by_nested()
        failed_at: defaultdict[str, list[datetime]] = defaultdict(list)
        for note in self._log.notes:
            if isinstance(note, StepRetried):
                failed_at[note.place].append(note.at)
        for step in self.step_scopes:
            place = f"{self.prefix}{step.own_place}"
            for charge in step.charges:
                if charge.first not in told:
                    yield from _request(charge, place, failed_at.get(place, ()))

    def _told_by_nested(self) -> set[Charge]:
        return {
            charge.first
            for part in self._log.parts
            if isinstance(part, LivePart) and part.prefix.startswith(self.prefix) and part is not self
            for step in part.step_scopes
            for charge in step.charges
        }


def _request(charge: Charge, place: str, failed_at: Sequence[datetime]) -> Iterator[AnyFact]:
    record = charge.record
    began = record.started_at
    assert began is not None
    where = f"{place}@{1 + sum(at <= began for at in failed_at)}"
    ended = began + timedelta(milliseconds=record.duration_ms)
    if record.agent is None or record.kind == "spend":
        yield SpendingRecorded(at=ended, place=where, record=record)
        return
    model = f"{record.provider}:{record.model}"
    request = RequestPlace(place=where, call=record.agent, attempt=1, model=model, fingerprint="")
    yield RequestSent(at=began, id=str(id(charge)), request=request, record=record)
    yield RequestEnded(at=ended, id=str(id(charge)), record=record)

"""Calls of agents and of typed functions as rows of a timeline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fastroai.places import split_attempt, step_name
from fastroai.records import RequestRecord, Usage
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Fact, RunFact
from fastroai.store.reading.timeline_rows import RowKind, TimelineBar, TimelineRow
from fastroai.store.record.attempts import AttemptStatus
from fastroai.store.record.payloads import masked


@dataclass(slots=True)
class _Call:
    """A call, as far as the log is read."""

    kind: RowKind
    name: str
    started_at: datetime
    records: dict[str, RequestRecord] = field(default_factory=dict)
    """The records of its requests, by their ids; unmeasured while they have no end."""
    open: set[str] = field(default_factory=set)
    """The ids of requests that have no end."""
    status: AttemptStatus = "running"
    ended_at: datetime | None = None
    attempt: int = 1

    def end(self, status: AttemptStatus, at: datetime) -> None:
        self.status, self.ended_at = status, at
        self.open.clear()


def calls_in(entries: Iterable[Fact], steps: Collection[str]) -> Iterator[TimelineRow]:
    """Yield the calls in the order in which they began. `steps` are the places of all steps."""
    calls: dict[tuple[str, str], _Call] = {}
    sent: dict[str, _Call] = {}
    for entry in entries:
        if isinstance(entry, facts.RequestSent):
            sent[entry.id] = _call_of(calls, entry, steps)
        elif isinstance(entry, facts.RequestEnded):
            _end_request(sent.get(entry.id), entry)
        elif isinstance(entry, facts.CallEnded):
            _end_function(calls, entry)
        elif isinstance(entry, facts.RunFinished) or (isinstance(entry, RunFact) and entry.reopens):
            # A process that dies leaves no end of its requests.
            status: AttemptStatus = "cancelled" if isinstance(entry, facts.RunFinished) else "interrupted"
            for call in calls.values():
                if call.open:
                    call.end(status, entry.at)
    for (place, name), call in calls.items():
        yield TimelineRow(
            kind=call.kind,
            place=place,
            call=name,
            name=call.name,
            status=call.status,
            bars=(TimelineBar(call.attempt, call.status, call.started_at, call.ended_at),),
            usage=Usage.of(list(call.records.values())),
        )


def _call_of(calls: dict[tuple[str, str], _Call], entry: facts.RequestSent, steps: Collection[str]) -> _Call:
    """Return the call that a request belongs to: of an agent in a step, or else of a function."""
    place, number = split_attempt(entry.request.place)
    if not place or place in steps:
        key = entry.request.place, masked(entry.request.call)
        found = calls.setdefault(key, _Call("agent", entry.record.agent or entry.record.model, entry.at))
        found.attempt = entry.request.attempt
    else:
        found = calls.setdefault((place, ""), _Call("function", step_name(place), entry.at))
        found.attempt = number or 1
    found.records[entry.id] = entry.record
    found.open.add(entry.id)
    found.status, found.ended_at = "running", None
    return found


def _end_request(call: _Call | None, entry: facts.RequestEnded) -> None:
    if call is None:  # a trace can come from a file, with the end of something that never began
        return
    call.records[entry.id] = entry.record
    call.open.discard(entry.id)
    if not call.open:
        call.end("failed" if entry.outcome == "failed" else "succeeded", entry.at)


def _end_function(calls: dict[tuple[str, str], _Call], entry: facts.CallEnded) -> None:
    record = entry.call if isinstance(entry.call, dict) else {}  # it is sealed text without the codec
    duration = record.get("duration_ms")
    began = entry.at - timedelta(milliseconds=duration if isinstance(duration, int | float) else 0)
    made = _Call("function", step_name(entry.place), began)
    call = calls.setdefault((entry.place, ""), made)
    call.started_at, call.attempt = min(call.started_at, began), entry.attempt
    call.end("succeeded" if entry.failure is None else "failed", entry.at)

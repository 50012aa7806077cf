"""The spending of a run without a store, as facts, which are made when somebody asks for its trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from fastroai.runtime import Charge, Scope
from fastroai.runtime.facts import (
    AnyFact,
    RequestEnded,
    RequestPlace,
    RequestSent,
    SpendingRecorded,
    StepRetried,
)


def with_spending(facts: Iterable[AnyFact], scope: Scope) -> list[AnyFact]:
    """Return the facts of a run in order, with its requests and other spending among them."""
    told = list(facts)
    failed_at: defaultdict[str, list[float]] = defaultdict(list)
    for fact in told:
        if isinstance(fact, StepRetried) and fact.unit == "step":
            failed_at[fact.place].append(fact.timestamp)
    spent = [
        fact
        for charge in scope.charges
        if (place := _place(charge, scope)) is not None
        for fact in _of_charge(charge, place, failed_at.get(place, ()), told[-1].at)
    ]
    if not spent:
        return told
    # Sorted by time. The sort is stable, so at the same moment a cause stays before its effects.
    return sorted([*told, *spent], key=attrgetter("timestamp"))


def _place(charge: Charge, outer: Scope) -> str | None:
    """Return the innermost step in which it was spent; `None` outside of steps."""
    for scope in charge.where.lineage() if isinstance(charge.where, Scope) else ():
        if scope is outer:
            return None
        if scope.kind == "step":
            assert scope.parent is not None
            around = scope.parent.place_within(outer)
            return f"{around}/{scope.own_place}" if around else scope.own_place
    return None


def _of_charge(charge: Charge, place: str, failed_at: Sequence[float], latest: datetime) -> Iterator[AnyFact]:
    """Return the facts of a charge. One that does not say when it began comes at the end."""
    record = charge.record
    began = record.started_at or latest
    where = f"{place}@{1 + sum(at <= began.timestamp() for at in failed_at)}"
    ended = (began + timedelta(milliseconds=record.duration_ms)).timestamp()
    if record.agent is None or record.kind == "spend":
        yield SpendingRecorded(timestamp=ended, place=where, record=record)
        return
    model = f"{record.provider}:{record.model}"
    request = RequestPlace(place=where, call=record.agent, attempt=1, model=model, fingerprint="")
    yield RequestSent(timestamp=began.timestamp(), id=str(id(charge)), request=request, record=record)
    yield RequestEnded(timestamp=ended, id=str(id(charge)), record=record)

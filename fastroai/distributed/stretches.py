"""The one rule that repairs everything, as pure functions: which runs need a stretch, and what they get.

A run with something due, no living lease, and no stretch that a living worker can run, gets a new one. The
header of the run names the stretch that carries it; any other one does nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from fastroai.distributed.engine import Row
from fastroai.distributed.roster import Roster
from fastroai.store.record.entries import Routing, RunHeader
from fastroai.store.record.headers import FoundHeader

LONGEST_PAUSE: Final = 300.0
"""Most seconds between two stretches that cannot take a run up."""

Fate: TypeAlias = Literal["has one", "enqueue", "renew"]
"""What becomes of a run: it has a stretch, the one that its header names is enqueued, or it gets another."""


@dataclass(frozen=True, slots=True)
class Next:
    """The needs of a run, and a version of the code that can carry it, if any worker has one."""

    fate: Fate
    version: str | None = None


def is_due(found: FoundHeader, app: str) -> bool:
    """Return whether a run is due, has no process, and belongs to the workers of an application."""
    routing = found.header.routing
    if routing is None or routing.app != app or routing.is_set_aside or found.is_running:
        return False
    return found.header.status == "running" or found.is_due


def is_mine(found: FoundHeader, app: str, epoch: str, number: int) -> bool:
    """Return whether a stretch may take a run up."""
    header, routing = found.header, found.header.routing
    is_named = routing is not None and header.epoch == epoch and routing.stretch == number
    return is_named and is_due(found, app)


def next_of(found: FoundHeader, row: Row | None, roster: Roster, lost: Collection[str] = ()) -> Next:
    """Decide what a run needs that is due.

    `row` is that of the stretch that its header names. `lost` are stretches that a worker has begun and
    knows nothing of.
    """
    header, routing = found.header, _routing(found.header)
    if row is not None and row.state == "waiting" and roster.serves(row.version, routing.queue):
        return Next("has one")
    if row is not None and row.state == "running" and roster.is_living(row.executor) and row.id not in lost:
        return Next("has one")
    version = roster.version_for(header.pipeline, routing.definition, routing.queue)
    return Next("enqueue" if row is None else "renew", version)


def renewed(found: FoundHeader, row: Row, done: int | None, most_deaths: int) -> RunHeader:
    """Return the header of a run that gets another stretch, or is set aside.

    `done` is how much the run has finished, if its worker died with it; else `None`.
    """
    routing = _routing(found.header)
    failures = routing.failures + (row.state == "failed")
    changed = replace(routing, stretch=routing.stretch + 1, failures=failures)
    if done is not None:
        deaths = 1 if done > routing.done else routing.deaths + 1
        changed = replace(changed, deaths=deaths, done=done, is_set_aside=deaths >= most_deaths)
    return replace(found.header, routing=changed)


def died_with(found: FoundHeader) -> bool:
    """Return whether the process that had a run has died, or been cut off, and has not handed it over."""
    return found.is_interrupted and found.header.lease_until is not None


def delay_of(found: FoundHeader, header: RunHeader) -> float:
    """Return the seconds before which the stretch that the header of a run names does not begin."""
    routing = _routing(header)
    delay = min(2.0**routing.failures, LONGEST_PAUSE) if routing.failures else 0.0
    if routing.starts_at is not None:
        delay = max(delay, (routing.starts_at - found.now) / timedelta(seconds=1))
    return delay


def _routing(header: RunHeader) -> Routing:
    assert header.routing is not None
    return header.routing

"""A timeline drawn to scale: the attempts and waits of its rows as rectangles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fastroai.store.reading.timeline_rows import TimelineBar, TimelineRow, TimelineWait

WIDTH: Final = 1000.0
"""The width of the timeline, in units of its images."""
_LEAST: Final = 3.0
"""The width of the shortest rectangle."""
_PEOPLE: Final = frozenset({"question", "message"})


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle of the timeline, and what it is."""

    kind: str
    """The status of an attempt, or `retry`, `limit`, `people` or `wait`."""
    x: float
    width: float
    told: str

    @property
    def is_wait(self) -> bool:
        """Whether it is a wait, and no attempt."""
        return self.kind in ("retry", "limit", "people", "wait")


@dataclass(frozen=True, slots=True)
class TimelineScale:
    """The times that the left and the right edge of a timeline stand for."""

    starts_at: datetime
    ends_at: datetime

    @property
    def took(self) -> timedelta:
        """The time between the edges."""
        return max(self.ends_at - self.starts_at, timedelta(0))

    def took_by(self, row: TimelineRow) -> timedelta | None:
        """Return how long all attempts of a row took together; `None` if there was none in this run."""
        return worked(row, self.ends_at)

    def rectangles(self, row: TimelineRow) -> Sequence[Rectangle]:
        """Return the waits and the attempts of a row."""
        return [*map(self._wait, row.waits), *map(self._bar, row.bars)]

    def _bar(self, bar: TimelineBar) -> Rectangle:
        told = f"attempt {bar.attempt}: {bar.status}"
        return self._rectangle(bar.status, bar.started_at, bar.ended_at, told)

    def _wait(self, wait: TimelineWait) -> Rectangle:
        kind = "people" if wait.what in _PEOPLE else wait.what if wait.what in ("retry", "limit") else "wait"
        told = f"waited before a retry: {wait.why}" if wait.what == "retry" else wait.why
        return self._rectangle(kind, wait.started_at, wait.ended_at, told)

    def _rectangle(self, kind: str, start: datetime, end: datetime | None, told: str) -> Rectangle:
        whole = self.took.total_seconds() or 1.0
        left = (start - self.starts_at).total_seconds() / whole * WIDTH
        right = (self._until(end) - self.starts_at).total_seconds() / whole * WIDTH
        left = min(max(left, 0.0), WIDTH - _LEAST)
        width = min(max(right - left, _LEAST), WIDTH - left)
        return Rectangle(kind, round(left, 1), round(width, 1), told)

    def _until(self, end: datetime | None) -> datetime:
        return self.ends_at if end is None else end


def worked(row: TimelineRow, now: datetime) -> timedelta | None:
    """Return how long all attempts took together; `None` if there was none in this run."""
    if row.started_at is None or row.status == "reused":
        return None
    return sum(((bar.ended_at or now) - bar.started_at for bar in row.bars), timedelta(0))

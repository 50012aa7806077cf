"""The rows of a timeline, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from fastroai.places import quoted
from fastroai.records import Usage
from fastroai.store.reading.step_summaries import StepStatus
from fastroai.store.record.attempts import AttemptStatus

RowKind: TypeAlias = Literal["step", "function", "agent"]
"""A step or a visit to a node, a call of a typed function, or a call of an agent."""


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """The time of one attempt."""

    attempt: int
    """Number of the attempt, from 1. One that was interrupted is made again under the same number."""
    status: AttemptStatus
    started_at: datetime
    ended_at: datetime | None
    """`None` if it goes on. Of an attempt that was interrupted, the last fact before its process died."""


@dataclass(frozen=True, slots=True)
class TimelineWait:
    """A time in which a step or a call waited."""

    what: str
    """`retry`, `limit` (a budget, a spend limit or a provider limit), or as in `Wait.what`: `question`,
    `message`, `sleep`, …
    """
    why: str
    """The reason, for people."""
    started_at: datetime
    ended_at: datetime | None
    """`None` while it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """A step, an agent call, or a call of a typed function, and when it worked and waited."""

    kind: RowKind
    place: str
    """The place of the step or function; of an agent call, the attempt at the step that makes it."""
    call: str = ""
    """The agent call in that attempt: its number, or its name. Empty for steps and functions."""
    name: str
    """The id of the step; the name of the function, of the agent or, if it has none, of the model."""
    depth: int = 0
    """Number of rows around it."""
    status: StepStatus
    bars: tuple[TimelineBar, ...] = ()
    """Its attempts, in the order in which they started."""
    waits: tuple[TimelineWait, ...] = ()
    usage: Usage
    """Spending of all attempts, at any depth."""
    is_critical: bool = False
    """Whether it is on the critical path, as in `RunTrace.critical_path`."""

    @property
    def key(self) -> tuple[str, str]:
        """The place and the call, which identify the row."""
        return self.place, self.call

    @property
    def id(self) -> str:
        """The place and the call as one text: `write`, `write@1:1`."""
        return f"{self.place}:{quoted(self.call)}" if self.call else self.place

    @property
    def started_at(self) -> datetime | None:
        """When it first started; `None` if it has not."""
        return self.bars[0].started_at if self.bars else None

    @property
    def ended_at(self) -> datetime | None:
        """When its last attempt ended; `None` if it goes on, or has not started."""
        return self.bars[-1].ended_at if self.bars else None

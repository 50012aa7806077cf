"""What runs in a run: steps and visits, with their scopes and times."""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.runtime import Scope
from fastroai.runtime.facts import StepStarted


@dataclass(slots=True)
class BegunUnit:
    """A step, or a visit to a node, that was started, in this process or an earlier one."""

    scope: Scope
    started_ms: float
    """From the start of the run."""
    finished_ms: float | None = None
    error: BaseException | None = None
    """What it failed of."""

    @property
    def duration_ms(self) -> float:
        """Wall time, retries included; 0 while it goes on."""
        return 0.0 if self.finished_ms is None else self.finished_ms - self.started_ms


@dataclass(frozen=True, slots=True)
class Past:
    """A unit that was over in an earlier process."""

    started: StepStarted
    ended_at: float
    """In seconds since 1970."""
    duration_ms: float = 0.0
    error: BaseException | None = None
    degraded: bool = False

"""What runs in a run: steps and visits, with their scopes and times."""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.records import Usage
from fastroai.runtime import Scope
from fastroai.runtime.facts import StepStarted
from fastroai.steps import StepUsage


@dataclass(slots=True)
class BegunUnit:
    """A step, or a visit to a node, that was started, in this process or an earlier one."""

    scope: Scope | None
    """`None` once it has ended, if nothing was spent in it: most units of a large run spend nothing."""
    started_ms: float
    """From the start of the run."""
    duration_ms: float = 0.0
    """Wall time, retries included; 0 while it goes on."""
    attempt: int = 1
    """The last attempt at it, once it has ended."""
    degraded: bool = False
    """Whether something inside failed, and it went on; known once it has ended."""
    is_over: bool = False
    error: BaseException | None = None
    """What it failed of."""

    @property
    def finished_ms(self) -> float:
        """From the start of the run."""
        return self.started_ms + self.duration_ms

    @property
    def usage(self) -> StepUsage:
        """What was spent in it so far."""
        if self.scope is None:
            return StepUsage(processing_time_ms=self.duration_ms)
        return StepUsage.of_scope(self.scope, self.duration_ms)

    def spent(self) -> Usage:
        """Return a snapshot of what was spent in it so far."""
        return Usage() if self.scope is None else self.scope.spent()


@dataclass(frozen=True, slots=True)
class Past:
    """A unit that was over in an earlier process."""

    started: StepStarted
    ended_at: float
    """In seconds since 1970."""
    duration_ms: float = 0.0
    error: BaseException | None = None
    degraded: bool = False

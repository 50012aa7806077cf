"""What runs in a run: steps and visits, with their scopes and times."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fastroai.records import Usage
from fastroai.runs.machine import Unit
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

    @property
    def is_plain(self) -> bool:
        """Whether it is over, and there is nothing to say of it but its times."""
        is_clean = self.error is None and not self.degraded and self.attempt == 1
        return self.is_over and is_clean and self.scope is None


PACKED_AFTER: Final = 1_000
"""Units of a run after which those that are plain are packed."""


class BegunUnits:
    """The units that a run has begun. Of most that are over, only the times are kept: 24 bytes for each."""

    def __init__(self) -> None:
        """Begin with no units."""
        self.open: dict[Unit, BegunUnit] = {}
        """Those that are not packed. Call `pack` when there are more than `pack_above`."""
        self.pack_above = PACKED_AFTER
        self._steps: dict[str, int] = {}
        self._packed = array("I"), array("I")
        """The number of the step in `_steps`, and that of the visit, of each that is packed."""
        self._times = array("d")
        """When each of these started, and how long it took."""

    def pack(self) -> None:
        """Keep only the times of units that are plain."""
        steps, visits = self._packed
        for unit in [unit for unit, begun in self.open.items() if begun.is_plain]:
            begun = self.open.pop(unit)
            steps.append(self._steps.setdefault(unit[0], len(self._steps)))
            visits.append(unit[1])
            self._times.extend((begun.started_ms, begun.duration_ms))
        self.pack_above = len(self.open) + PACKED_AFTER

    def __getitem__(self, unit: Unit) -> BegunUnit:
        found = self.open.get(unit)
        return dict(self._unpacked())[unit] if found is None else found

    def items(self) -> Iterator[tuple[Unit, BegunUnit]]:
        """Yield all units, in the order in which they started."""
        yield from sorted((*self._unpacked(), *self.open.items()), key=lambda one: one[1].started_ms)

    def _unpacked(self) -> Iterator[tuple[Unit, BegunUnit]]:
        names, times = [*self._steps], iter(self._times)
        for step, visit in zip(*self._packed, strict=True):
            yield (names[step], visit), BegunUnit(None, next(times), next(times), is_over=True)


@dataclass(frozen=True, slots=True)
class Past:
    """A unit that was over in an earlier process."""

    started: StepStarted
    ended_at: float
    """In seconds since 1970."""
    duration_ms: float = 0.0
    error: BaseException | None = None
    degraded: bool = False

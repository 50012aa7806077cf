"""The units of a run, which are steps and visits, with their scopes and times."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fastroai.records import Usage
from fastroai.runs.running.machine import Unit
from fastroai.runtime import Scope
from fastroai.runtime.facts import StepStarted
from fastroai.steps import StepUsage


@dataclass(slots=True)
class BegunUnit:
    """A step, or a visit to a node, that was started, in this process or an earlier one.

    Its scope opens when somebody asks for it, in any thread. One that spends nothing needs no scope.
    """

    name: str
    """The id of the step."""
    visit: int
    around: Scope | None
    """The scope in which that of the unit opens; `None` for a packed unit, which has none."""
    started_ms: float
    """Milliseconds from the start of the run to the start of the unit."""
    duration_ms: float = 0.0
    """Wall time in milliseconds, retries included; 0 while the unit goes on."""
    attempt: int = 1
    """Number of the present attempt, or of the last one."""
    degraded: bool = False
    """Whether something inside failed and the unit went on; known once the unit has ended."""
    is_over: bool = False
    error: BaseException | None = None
    """The exception with which the unit ended, if one did."""
    opened: Scope | None = None
    """The scope, if it is open. Most units of a large run end without one."""
    worker: asyncio.Task[None] | None = None
    """The task that runs the unit, while it does."""

    @property
    def scope(self) -> Scope:
        """The scope of the unit, which opens now if it is not open; after the end, it is closed."""
        if self.opened is not None:
            return self.opened
        around = self.around
        assert around is not None
        with around.tree.locked():
            if self.opened is None:
                scope = Scope("step", self.name, parent=around, ordinal=self.visit)
                scope.attempt, scope.closed = self.attempt, self.is_over
                self.opened = scope
            return self.opened

    @property
    def finished_ms(self) -> float:
        """Milliseconds from the start of the run to the end of the unit."""
        return self.started_ms + self.duration_ms

    @property
    def usage(self) -> StepUsage:
        """The usage of the unit so far."""
        if self.opened is None:
            return StepUsage(processing_time_ms=self.duration_ms)
        return StepUsage.of_scope(self.opened, self.duration_ms)

    def spent(self) -> Usage:
        """Return a snapshot of the usage so far."""
        return Usage() if self.opened is None else self.opened.spent()

    @property
    def is_plain(self) -> bool:
        """Whether the unit is over, and only its times are worth keeping."""
        is_clean = self.error is None and not self.degraded and self.attempt == 1
        return self.is_over and is_clean and self.opened is None


PACKED_AFTER: Final = 1_000
"""Number of open units of a run above which the plain ones are packed."""


class BegunUnits:
    """The units that a run has begun. Of most units that are over, only the times are kept, in 24 bytes."""

    def __init__(self) -> None:
        """Begin with no units."""
        self.open: dict[Unit, BegunUnit] = {}
        """The units that are not packed. Call `pack` when there are more than `pack_above`."""
        self.pack_above = PACKED_AFTER
        self._packed: _Packed | None = None

    def pack(self) -> None:
        """Pack the plain units: keep only their times."""
        if self._packed is None:
            self._packed = _Packed()
        for unit in [unit for unit, begun in self.open.items() if begun.is_plain]:
            self._packed.add(self.open.pop(unit))
        self.pack_above = len(self.open) + PACKED_AFTER

    def __getitem__(self, unit: Unit) -> BegunUnit:
        found = self.open.get(unit)
        return dict(self._unpacked())[unit] if found is None else found

    def items(self) -> Iterator[tuple[Unit, BegunUnit]]:
        """Yield all units, in the order in which they started."""
        yield from sorted((*self._unpacked(), *self.open.items()), key=lambda one: one[1].started_ms)

    def _unpacked(self) -> Iterator[tuple[Unit, BegunUnit]]:
        for begun in () if self._packed is None else self._packed.units():
            yield (begun.name, begun.visit), begun


class _Packed:
    """The times of units that are over."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}
        self._numbers, self._visits = array("I"), array("I")
        """For each unit, the number of its step in `_steps`, and the number of the visit."""
        self._times = array("d")
        """For each unit, its start and its duration, in milliseconds."""

    def add(self, begun: BegunUnit) -> None:
        self._numbers.append(self._steps.setdefault(begun.name, len(self._steps)))
        self._visits.append(begun.visit)
        self._times.extend((begun.started_ms, begun.duration_ms))

    def units(self) -> Iterator[BegunUnit]:
        names, times = [*self._steps], iter(self._times)
        for number, visit in zip(self._numbers, self._visits, strict=True):
            yield BegunUnit(names[number], visit, None, next(times), next(times), is_over=True)


@dataclass(frozen=True, slots=True)
class Past:
    """A unit that was over in an earlier process."""

    started: StepStarted
    ended_at: float
    """Time of the end, in seconds since 1970."""
    duration_ms: float = 0.0
    error: BaseException | None = None
    degraded: bool = False

"""The circuit of a provider that processes share: the rules of its value, as pure code.

Times are seconds of a clock that all processes share.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from fastroai.runtime.providers.circuit import Circuit, CircuitMemory, CircuitOptions, Health, Pass


@dataclass(slots=True)
class CircuitRow:
    """A circuit, as it was when it was last changed."""

    clock: float
    """Time of that change."""
    memory: CircuitMemory = field(default_factory=CircuitMemory)
    probes: dict[str, float] = field(default_factory=dict)
    """Probes in flight by id, each with the time after which it does not count: its process may be dead."""
    failed: list[str] = field(default_factory=list)
    """Ids of the requests that have failed last, so that a failure that is told twice counts once."""


@dataclass(frozen=True, slots=True)
class SeenCircuit:
    """What a process sees of a circuit."""

    memory: CircuitMemory
    """A copy of what it remembers."""
    now: float
    taken: Pass | None = None
    """The pass, if one was asked for and no circuit is in the way."""
    has_turned: bool = False
    """Whether the circuit has opened or closed because of what was told."""


class OpenCircuit:
    """A circuit at one moment, for what processes ask and tell then."""

    def __init__(self, row: CircuitRow | None, now: float) -> None:
        """Bring the circuit up to date. `row` is changed; `None` is a new circuit."""
        self.row = CircuitRow(now) if row is None else row
        self.is_changed = False
        """Whether the circuit must be written."""
        self._now = now
        if (ahead := self.row.clock - now) > 0:
            self.row.memory.move(-ahead)
            self.is_changed = True
            self.row.probes = {probe: until - ahead for probe, until in self.row.probes.items()}
        self.row.clock = now
        self.row.probes = {probe: until for probe, until in self.row.probes.items() if until > now}
        self.row.memory.probing = len(self.row.probes)

    def look(self) -> SeenCircuit:
        """Return what the circuit remembers."""
        return SeenCircuit(deepcopy(self.row.memory), self._now)

    def enter(self, options: CircuitOptions, request: str) -> SeenCircuit:
        """Let a request pass, if that is possible."""
        if request in self.row.probes:  # the answer to this was lost
            taken: Pass | None = Pass(self.row.memory.period, is_probe=True)
        else:
            taken = Circuit(options, self.row.memory).enter(self._now)
        if taken is not None and taken.is_probe:
            self.row.probes[request], self.is_changed = self._now + options.cooldown, True
        return SeenCircuit(deepcopy(self.row.memory), self._now, taken)

    def end(
        self, options: CircuitOptions, request: str, period: int, health: Health, failure: str = ""
    ) -> SeenCircuit:
        """Take in what became of a request that passed in this period."""
        circuit, is_probe = Circuit(options, self.row.memory), request in self.row.probes
        taken, has_turned = Pass(period, is_probe=is_probe), False
        if health == "well":
            has_turned = circuit.succeed(taken)
        elif health == "ill" and request not in self.row.failed:
            has_turned = circuit.fail(taken, self._now, failure)
            self.row.failed = [*self.row.failed, request][-options.failures :]
            self.is_changed = True
        if is_probe:
            del self.row.probes[request]
            self.is_changed = True
        if has_turned:
            self.row.probes.clear()
        self.row.memory.probing = len(self.row.probes)
        return SeenCircuit(deepcopy(self.row.memory), self._now, taken, has_turned)

"""A circuit, which decides whether requests may go to a provider: a state machine without clock or I/O.

Times are seconds of one clock that never goes back. The caller of a circuit holds its lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

CircuitState = Literal["closed", "open", "half-open"]
Health = Literal["well", "ill", "unknown"]
"""What the end of a request says of its provider."""

SEVERITY: Final[tuple[CircuitState, ...]] = ("closed", "half-open", "open")


class CircuitOptions(NamedTuple):
    """The settings of a circuit."""

    failures: int
    """The failures that open it, if they happen within `window` seconds."""
    window: float
    cooldown: float
    """Seconds for which it is open."""
    probes: int
    """The most requests that may try at one time when the cooldown is over."""


@dataclass(slots=True, eq=False)
class Pass:
    """The permission of a circuit for one request."""

    period: int
    is_probe: bool
    request: str = ""
    """The id of the request, if processes share the circuit."""


@dataclass(slots=True)
class CircuitMemory:
    """Everything that a circuit remembers."""

    failed_at: list[float] = field(default_factory=list)
    """Times of the failures in the present period, at most as many as open the circuit."""
    opened_at: float | None = None
    period: int = 0
    probing: int = 0
    """Number of probes in flight."""
    last_failure: str = ""
    """The message of the last failure."""

    def move(self, seconds: float) -> None:
        """Move all times, because they are to be those of another clock."""
        self.failed_at = [at + seconds for at in self.failed_at]
        if self.opened_at is not None:
            self.opened_at += seconds


class Circuit:
    """Closed: all requests pass. Open: none does. Half-open, after the cooldown: a few probes do, and decide.

    Each opening and closing begins a new period. Results of requests that passed in an earlier period change
    nothing in the present one.
    """

    __slots__ = ("_options", "memory")

    def __init__(self, options: CircuitOptions, memory: CircuitMemory | None = None) -> None:
        self._options = options
        self.memory = CircuitMemory() if memory is None else memory

    def state(self, now: float) -> CircuitState:
        """Return the state at this time."""
        opened_at = self.memory.opened_at
        if opened_at is None:
            return "closed"
        return "open" if now < opened_at + self._options.cooldown else "half-open"

    def refuses_for(self, now: float) -> float | None:
        """Return the seconds until a request may try; 0 while probes are in flight; `None` if one may now."""
        opened_at = self.memory.opened_at
        if opened_at is None:
            return None
        left = opened_at + self._options.cooldown - now
        if left > 0:
            return left
        return None if self.memory.probing < self._options.probes else 0.0

    def enter(self, now: float) -> Pass | None:
        """Let a request through and return its pass; `None` if no request may pass now."""
        if self.refuses_for(now) is not None:
            return None
        is_probe = self.memory.opened_at is not None
        self.memory.probing += is_probe
        return Pass(self.memory.period, is_probe=is_probe)

    def succeed(self, taken: Pass) -> bool:
        """Note that the provider answered. Returns True if that closes the circuit."""
        if not taken.is_probe or taken.period != self.memory.period:
            return False
        self._begin(None)
        taken.period, taken.is_probe = self.memory.period, False
        return True

    def fail(self, taken: Pass, now: float, failure: str) -> bool:
        """Note that the provider failed. Returns True if that opens the circuit."""
        memory = self.memory
        if taken.period != memory.period:
            return False
        memory.last_failure = failure
        if not taken.is_probe:
            memory.failed_at.append(now)
            del memory.failed_at[: -self._options.failures]
            if (
                len(memory.failed_at) < self._options.failures
                or memory.failed_at[0] <= now - self._options.window
            ):
                return False
        self._begin(now)
        return True

    def give_back(self, taken: Pass) -> None:
        """End a pass whose request says nothing about the health of the provider."""
        if taken.is_probe and taken.period == self.memory.period:
            self.memory.probing -= 1

    def _begin(self, opened_at: float | None) -> None:
        self.memory.opened_at = opened_at
        self.memory.period += 1
        self.memory.probing = 0
        self.memory.failed_at.clear()

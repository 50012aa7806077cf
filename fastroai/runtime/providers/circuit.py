"""A circuit, which decides whether requests may go to a provider: a state machine without clock or I/O.

Times are seconds of one clock that never goes back. The caller of a circuit holds its lock.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

CircuitState = Literal["closed", "open", "half-open"]

SEVERITY: Final[tuple[CircuitState, ...]] = ("closed", "half-open", "open")


class Pass:
    """The permission of a circuit for one request."""

    __slots__ = ("is_probe", "period")

    def __init__(self, period: int, *, is_probe: bool) -> None:
        self.period, self.is_probe = period, is_probe


class Circuit:
    """Closed: all requests pass. Open: none does. Half-open, after the cooldown: a few probes do, and decide.

    Each opening and closing begins a new period. Results of requests that passed in an earlier period change
    nothing in the present one.
    """

    __slots__ = (
        "_cooldown",
        "_failed_at",
        "_failures",
        "_opened_at",
        "_period",
        "_probes",
        "_probing",
        "_window",
        "last_failure",
    )

    def __init__(self, failures: int, window: float, cooldown: float, probes: int) -> None:
        """Open after `failures` failures in `window` seconds; allow `probes` after `cooldown` seconds."""
        self._failures, self._window, self._cooldown, self._probes = failures, window, cooldown, probes
        self._failed_at: deque[float] = deque(maxlen=failures)
        self._opened_at: float | None = None
        self._period = 0
        self._probing = 0
        self.last_failure = ""

    def state(self, now: float) -> CircuitState:
        """Return the state at this time."""
        if self._opened_at is None:
            return "closed"
        return "open" if now < self._opened_at + self._cooldown else "half-open"

    def refuses_for(self, now: float) -> float | None:
        """Return the seconds until a request may try; 0 while probes are in flight; `None` if one may now."""
        if self._opened_at is None:
            return None
        left = self._opened_at + self._cooldown - now
        if left > 0:
            return left
        return None if self._probing < self._probes else 0.0

    def enter(self, now: float) -> Pass | None:
        """Let a request through and return its pass; `None` if no request may pass now."""
        if self.refuses_for(now) is not None:
            return None
        is_probe = self._opened_at is not None
        self._probing += is_probe
        return Pass(self._period, is_probe=is_probe)

    def succeed(self, taken: Pass) -> bool:
        """Note that the provider answered. Returns True if that closes the circuit."""
        if not taken.is_probe or taken.period != self._period:
            return False
        self._begin(None)
        taken.period, taken.is_probe = self._period, False
        return True

    def fail(self, taken: Pass, now: float, failure: str) -> bool:
        """Note that the provider failed. Returns True if that opens the circuit."""
        if taken.period != self._period:
            return False
        self.last_failure = failure
        if not taken.is_probe:
            self._failed_at.append(now)
            if len(self._failed_at) < self._failures or self._failed_at[0] <= now - self._window:
                return False
        self._begin(now)
        return True

    def give_back(self, taken: Pass) -> None:
        """End a pass whose request says nothing about the health of the provider."""
        if taken.is_probe and taken.period == self._period:
            self._probing -= 1

    def _begin(self, opened_at: float | None) -> None:
        self._opened_at = opened_at
        self._period += 1
        self._probing = 0
        self._failed_at.clear()

"""A clock for stores that stands still until a test sets it."""

from datetime import UTC, datetime, timedelta

from fastroai.testing.replies import Duration, in_seconds


class ManualClock:
    """A clock for stores that stands still until a test sets it: `MemoryRunStore(clock=clock)`.

        clock = ManualClock()
        store = MemoryRunStore(clock=clock)
        clock.advance(timedelta(days=14))

    It begins at 2026-01-01, 0:00 UTC, or at the time that you give, and calling it returns its time. Only the
    stores that have it follow it: `asyncio.sleep`, timeouts and the system clock do not. The pytest fixture
    `run_clock` is a manual clock, and the fixtures `run_store` and `spend_store` follow it.

    Raises:
        ValueError: the time has no time zone.
    """

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        """Set the clock to a time, which needs its time zone."""
        self.set(now)

    def __call__(self) -> datetime:
        """Return the time."""
        return self._now

    def __repr__(self) -> str:
        return f"ManualClock({self._now.isoformat()})"

    def set(self, now: datetime) -> None:
        """Set the clock to a time with a time zone. It may be earlier than the clock's time before.

        Raises:
            ValueError: the time has no time zone.
        """
        if now.tzinfo is None:
            raise ValueError(f"ManualClock: {now!r} has no time zone; expected datetime(..., tzinfo=UTC)")
        self._now = now

    def advance(self, duration: Duration) -> datetime:
        """Advance the clock by some seconds, or by a `timedelta`, and return the new time.

        Raises:
            ValueError: the duration is negative; `set` sets the clock back.
        """
        seconds = in_seconds(duration)
        if seconds < 0:
            raise ValueError(
                f"ManualClock.advance({duration!r}): expected 0 seconds or more; set() goes back"
            )
        self._now += timedelta(seconds=seconds)
        return self._now

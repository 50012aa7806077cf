"""Clocks of stores without a clock of their own, and ages before a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from fastroai.errors import ConfigurationError

EPOCH: Final = datetime.fromtimestamp(0, UTC)
MICROSECOND: Final = timedelta(microseconds=1)
CLOCKS_DIFFER: Final = timedelta(hours=1)
"""Most by which the clock of a process may differ from the store's, which says when a process had a run."""


def utc_now() -> datetime:
    """Return the time in UTC by the clock of this machine."""
    return datetime.now(UTC)


def check_clock(clock: object) -> None:
    """Refuse a clock that cannot be called. Raises `ConfigurationError`."""
    if not callable(clock):
        raise ConfigurationError("clock", clock, "a function that returns a datetime with a time zone")


def ago(now: datetime, age: timedelta) -> datetime:
    """Return the time that is `age` before `now`; at the earliest 1970, because no run began before."""
    return now - age if age < now - EPOCH else EPOCH

"""Clocks of stores without a clock of their own, and ages before a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from fastroai.records import Duration, in_seconds

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def utc_now() -> datetime:
    """Return the time in UTC by the clock of this machine."""
    return datetime.now(UTC)


def ago(now: datetime, age: Duration) -> datetime:
    """Return the time that is `age` before `now`; at the earliest 1970, because no run began before."""
    seconds = in_seconds(age)
    return now - timedelta(seconds=seconds) if seconds < (now - _EPOCH).total_seconds() else _EPOCH

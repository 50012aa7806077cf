"""Clocks of stores without a clock of their own, and ages before a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def utc_now() -> datetime:
    """The clock of this machine."""
    return datetime.now(UTC)


def ago(now: datetime, age: timedelta) -> datetime:
    """Return the time so long before `now`, but not before 1970, when no run began."""
    return now - age if age < now - _EPOCH else _EPOCH

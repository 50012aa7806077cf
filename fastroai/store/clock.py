"""The time as stores tell it that have no clock of their own, and times before it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def utc_now() -> datetime:
    """The clock of this machine."""
    return datetime.now(UTC)


def ago(now: datetime, age: timedelta) -> datetime:
    """The time so long before now, but not before 1970, when no run began."""
    return now - age if age < now - _EPOCH else _EPOCH

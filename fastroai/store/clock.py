"""The time as stores tell it that have no clock of their own."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The clock of this machine."""
    return datetime.now(UTC)

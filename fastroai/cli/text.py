"""Text from runs, made fit for a terminal."""

from __future__ import annotations

from datetime import datetime

from fastroai.durations import duration
from fastroai.records import Usage, dollars


def local(moment: datetime | None) -> str:
    """Return a time in the time zone of this machine, as text."""
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def took(start: datetime | None, end: datetime | None) -> str:
    """Return the time between two moments as text; empty if one is missing."""
    return "" if start is None or end is None else duration((end - start).total_seconds())


def cost(usage: Usage) -> str:
    """Return the cost as text, with a plus if a part of it is unknown."""
    if not (usage.request_count or usage.cost_usd):
        return ""
    if not (usage.cost_usd or usage.cost_complete):
        return "unknown"
    return f"{dollars(usage.cost_usd)}{'' if usage.cost_complete else ' +'}"

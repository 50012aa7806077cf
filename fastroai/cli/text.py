"""Text from runs, made fit for a terminal."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

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
    return known_cost(usage.cost_usd, is_complete=usage.cost_complete)


def known_cost(usd: Decimal, *, is_complete: bool) -> str:
    """Return what is known of a cost as text, with a plus if it is not the whole cost."""
    if not (usd or is_complete):
        return "unknown"
    return at_least(dollars(usd), is_all=is_complete)


def at_least(text: str, *, is_all: bool) -> str:
    """Return a count, cost or duration as text, with a plus if there can be more."""
    return text if is_all or not text else f"{text} +"

"""Text from runs, made fit for a terminal."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal

from fastroai.contracts.brief import SHOWN_AS_IT_IS
from fastroai.contracts.brief import plain as plain
from fastroai.records import Usage


def plain_json(text: str) -> str:
    """Return the same JSON, with control characters written as JSON escapes."""
    return "".join(
        char if char.isprintable() or char in SHOWN_AS_IT_IS else json.dumps(char)[1:-1] for char in text
    )


def local(moment: datetime | None) -> str:
    """Return a time in the time zone of this machine, as text."""
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def seconds(value: float) -> str:
    """Return a duration, given in seconds, as text."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def took(start: datetime | None, end: datetime | None) -> str:
    """Return the time between two moments as text; empty if one is missing."""
    return "" if start is None or end is None else seconds((end - start).total_seconds())


def dollars(usd: Decimal) -> str:
    """Return an exact amount as text."""
    return f"${usd:f}"


def cost(usage: Usage) -> str:
    """Return the cost as text, with a plus if a part of it is unknown."""
    if not (usage.request_count or usage.cost_usd):
        return ""
    if not (usage.cost_usd or usage.cost_complete):
        return "unknown"
    return f"${usage.cost_usd}{'' if usage.cost_complete else ' +'}"

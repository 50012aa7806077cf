"""Bars whose lengths are shares, for charts that are SVG, and the tables under them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Final

from fastroai.records import Usage, ratio
from fastroai.usage import format_cost

_MOST_DAYS: Final = 92
"""Most days of a chart: earlier ones are in the table only."""
_FEWEST_DAYS: Final = 7
_MOST_BARS: Final = 12
OTHERS: Final = "all others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a chart."""

    label: str
    cost: str
    percent: float
    """Its length, of that of the longest bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingOf:
    """What was spent under one name, or on one day; a row of a table."""

    name: str | None
    usage: Usage


def columns(rows: Iterable[SpendingOf], first: date | None, last: date) -> Sequence[Bar]:
    """Return a bar for each day of a period, those without spending included; none if nothing was spent.

    Without a `first` day, the period begins with the spending.
    """
    by_day = {date.fromisoformat(one.name): one.usage for one in rows if one.name is not None}
    if not by_day:
        return ()
    begins = min(first or min(by_day), last - timedelta(days=_FEWEST_DAYS - 1))
    begins = max(begins, last - timedelta(days=_MOST_DAYS - 1))
    days = (begins + timedelta(days=index) for index in range((last - begins).days + 1))
    return _bars([(day.isoformat(), by_day.get(day, Usage())) for day in days])


def bars(rows: Sequence[SpendingOf], unnamed: str) -> Sequence[Bar]:
    """Return bars for the names with the highest costs, and one for all others. `unnamed` is for no name."""
    spent = [(unnamed if one.name is None else one.name, one.usage) for one in rows]
    shown, others = spent[:_MOST_BARS], [usage for _, usage in spent[_MOST_BARS:]]
    return _bars([*shown, *([(OTHERS, reduce(add, others))] if others else [])])


def _bars(spent: Sequence[tuple[str, Usage]]) -> Sequence[Bar]:
    longest = max((usage.cost_usd for _, usage in spent), default=Decimal(0))
    return [
        Bar(
            label=label,
            cost=format_cost(usage),
            percent=round(float(ratio(usage.cost_usd, longest)) * 100, 3) if longest else 0.0,
        )
        for label, usage in spent
    ]

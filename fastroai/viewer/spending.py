"""The page of spending: by day and by name, the spend limits, and the runs that a limit has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Final, cast

from starlette.responses import Response

from fastroai.errors import ConfigurationError
from fastroai.records import Usage, ratio
from fastroai.store.reading.history import RunSummary
from fastroai.store.reading.run_queries import RunQuery
from fastroai.store.record.headers import UNREADABLE
from fastroai.usage import format_cost
from fastroai.viewer.access import Refused
from fastroai.viewer.visit import PageRoute, Visit

if TYPE_CHECKING:
    from fastroai.store.reading.run_index import Dimension
    from fastroai.store.reading.spending import SpendingRow
    from fastroai.usage.shared.spend_store import SpendStatus

_MOST_DAYS: Final = 92
"""Most days of a chart: earlier ones are in the table only."""
_FEWEST_DAYS: Final = 7
_MOST_BARS: Final = 12
OTHERS: Final = "all others"
PERIODS: Final = {"7": "7 days", "30": "30 days", "90": "90 days", "all": "All time"}
NAMES: Final = {
    "pipeline": "no pipeline",
    "step": "outside of steps",
    "model": "no model",
    "tenant": "no tenant",
    "tag": "no tag",
}
"""What spending is broken down by, and the label of spending that has none of these."""
_STOPS: Final = ("CostBudgetExceeded", "SpendLimitExceeded", "BudgetExceeded", "TokenBudgetExceeded")
_STOPPED_AMONG: Final = 200
"""The newest failed runs among which those are looked for that a limit has stopped."""
_MOST_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class Limit:
    """A spend limit in its open window, with the shares of it as percents of a bar."""

    status: SpendStatus

    @property
    def spent(self) -> float:
        """The share that is spent."""
        return self._percent(float(self.status.spent_usd))

    @property
    def reserved(self) -> float:
        """The share that requests in flight have reserved."""
        return min(self._percent(float(self.status.reserved_usd)), 100 - self.spent)

    @property
    def is_set(self) -> bool:
        """Whether a person has set the limit in this window."""
        changes = [one.changes for one in self.status.adjustments]
        return "limit" in changes

    def _percent(self, usd: float) -> float:
        limit = float(self.status.limit_usd)
        return round(min(100 * usd / limit, 100.0), 3) if limit else 100.0


async def show(visit: Visit) -> Response:
    """Show what was spent in a period."""
    asked = visit.request.query_params
    period, by = asked.get("period", "30"), asked.get("by", "pipeline")
    if period not in PERIODS:
        raise ConfigurationError("period", period, f"one of {', '.join(PERIODS)}")
    if by not in NAMES:
        raise ConfigurationError("by", by, f"one of {', '.join(NAMES)}")
    since = None if period == "all" else _midnight() - timedelta(days=int(period) - 1)
    days = await _spent(visit, since, "day")
    named = sorted(
        await _spent(visit, since, cast("Dimension", by)), key=lambda one: one.usage.cost_usd, reverse=True
    )
    return visit.page(
        "spending.html",
        period=period,
        periods=PERIODS,
        by=by,
        names=NAMES,
        total=reduce(add, (one.usage for one in days), Usage()),
        days=list(reversed(days))[:_MOST_ROWS],
        columns=columns(days, None if since is None else since.date(), _midnight().date()),
        named=named[:_MOST_ROWS],
        left_off=max(0, len(named) - _MOST_ROWS),
        bars=bars(named, NAMES[by]),
        has_book=visit.site.book is not None,
        limits=await _limits(visit),
        stopped=await _stopped(visit, since),
        stopped_among=_STOPPED_AMONG,
    )


def _midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


async def _spent(visit: Visit, since: datetime | None, by: Dimension) -> Sequence[SpendingOf]:
    """Return the spending that a visitor may see, by one field."""
    tenants = visit.visitor.tenants
    fields: tuple[Dimension, ...] = (by,) if tenants is None or by == "tenant" else (by, "tenant")
    try:
        rows = await visit.site.history.spending(since=since, by=fields)
    except UNREADABLE:
        if tenants is None:
            raise
        raise Refused(409, "The spending is not known", "A run in this period cannot be read.") from None
    return _of_each((row for row in rows if tenants is None or visit.visitor.sees(row.tenant)), by)


def _of_each(rows: Iterable[SpendingRow], by: Dimension) -> Sequence[SpendingOf]:
    """Return one sum for each value of a field, in the order of the rows."""
    sums: dict[str | None, Usage] = {}
    for row in rows:
        value = getattr(row, by)
        name = None if value is None else str(value)
        sums[name] = sums[name] + row.usage if name in sums else row.usage
    return [SpendingOf(name=name, usage=usage) for name, usage in sums.items()]


async def _limits(visit: Visit) -> Sequence[Limit]:
    """Return the open windows of the spend limits; of a visitor for some tenants, those of the tenants."""
    if visit.site.book is None:
        return ()
    tenants = visit.visitor.tenants
    found = await visit.site.book.list()
    keys = None if tenants is None else {f"tenant:{tenant}" for tenant in tenants}
    return [Limit(one) for one in found if keys is None or one.key in keys]


async def _stopped(visit: Visit, since: datetime | None) -> Sequence[RunSummary]:
    """Return the newest runs that a budget or a spend limit has stopped."""
    query = RunQuery(status="failed", started_since=since, tenants=visit.visitor.tenants)
    page = await visit.site.history.page(query, limit=_STOPPED_AMONG)
    return [run for run in page.items if _error_type(run) in _STOPS][:20]


def _error_type(run: RunSummary) -> str:
    return (run.error or "").partition(":")[0].rpartition(".")[2]


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


ROUTES: Final = (PageRoute("/spending", show, "spending"),)

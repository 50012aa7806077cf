"""Spending by time, over all runs of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any, Final, Literal, TypeAlias, get_args

from fastroai.errors import ConfigurationError, RunNotFound
from fastroai.records import Usage
from fastroai.store.reading.index import Find, Indexed, held_later, held_run, indexed
from fastroai.store.record.attempts import Attempts
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import header_key, read_log, utc_day
from fastroai.store.record.memo import ChargeOnRecord
from fastroai.store.run_store import RunStore
from fastroai.usage.reports.report_rows import model_of

Dimension: TypeAlias = Literal["day", "pipeline", "model", "tenant", "tag"]
"""Field by which spending can be broken down."""

_DIMENSIONS: Final = get_args(Dimension)
_EARLIEST: Final = datetime(1970, 1, 2, tzinfo=UTC)
"""Time before the start of every run."""
_CLOCKS_DIFFER: Final = timedelta(hours=1)
"""Most by which the clock of a process may differ from the store's, which says when a process had a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRow:
    """The spending of all runs that have these fields in common. Fields not asked for are `None`."""

    day: date | None = None
    """The day in UTC."""
    pipeline: str | None = None
    """The name of the outermost pipeline or graph."""
    model: str | None = None
    """`provider:model`, or the name that `record_usage` or `spend` was given."""
    tenant: str | None = None
    tag: str | None = None
    usage: Usage
    """Requests, tokens and cost. `agent_calls` is not counted."""


def check_period(since: object, until: object, by: object) -> None:
    """Raise `ConfigurationError` for an invalid period or an invalid breakdown."""
    for option, at in (("since", since), ("until", until)):
        if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
            raise ConfigurationError(option, at, "a time with a time zone: datetime(2026, 3, 1, tzinfo=UTC)")
    if isinstance(since, datetime) and isinstance(until, datetime) and since > until:
        raise ConfigurationError("until", until, f"a time after since, {since}")
    known = [one for one in _DIMENSIONS if isinstance(by, Sequence) and one in by]
    if isinstance(by, str) or not isinstance(by, Sequence) or len(by) != len(known):
        raise ConfigurationError(
            "by", by, f"some of {', '.join(_DIMENSIONS)}, each once: by=('day', 'model')"
        )


async def spending(
    store: RunStore, since: datetime | None, until: datetime | None, by: Sequence[Dimension]
) -> tuple[SpendingRow, ...]:
    """Return the spending in a period. The arguments are checked already. See `RunHistory.spending`."""
    usages: dict[tuple[Any, ...], Usage] = {}
    async for entry in _active(store, since, until):
        held = await held_run(store, entry)
        if held is None or (since is not None and held.header.updated_at + _CLOCKS_DIFFER < since):
            continue  # the run is gone, or ended before the period
        try:
            entries = await read_log(store, held.header)
        except RunNotFound:
            continue  # it was deleted meanwhile
        for spent in Attempts(entries).spent:
            if (since is None or since <= spent.begins.at) and (until is None or spent.begins.at < until):
                for key in _keys(held.header, spent, by):
                    usages.setdefault(key, Usage()).add(spent.record)
    in_order = sorted(usages, key=lambda key: [("" if one is None else str(one)) for one in key])
    return tuple(
        SpendingRow(usage=usages[key], **dict[str, Any](zip(by, key, strict=True))) for key in in_order
    )


def _keys(header: RunHeader, spent: ChargeOnRecord, by: Sequence[Dimension]) -> Iterator[tuple[Any, ...]]:
    values: dict[Dimension, Sequence[Any]] = {
        "day": (utc_day(spent.begins.at),),
        "pipeline": (header.pipeline,),
        "model": (model_of(spent.record),),
        "tenant": (spent.record.tenant or header.tenant,),
        "tag": spent.record.tags or header.tags or (None,),
    }
    return product(*(values[one] for one in by))


async def _active(store: RunStore, since: datetime | None, until: datetime | None) -> AsyncIterator[Indexed]:
    """Yield each run that a process had on a day of the period, once."""
    now = (await store.read(header_key(""))).now
    latest = (now if until is None else min(until, now)) + _CLOCKS_DIFFER
    first = utc_day(_EARLIEST if since is None else max(since, _EARLIEST) - _CLOCKS_DIFFER)
    known: set[tuple[str, str]] = set()
    async for entry in indexed(store, Find(), until=latest):
        if utc_day(entry.started_at) < first:
            break
        known.add((entry.run_id, entry.epoch))
        yield entry
    async for entry in held_later(store, first, utc_day(latest)):
        if (entry.run_id, entry.epoch) not in known:
            known.add((entry.run_id, entry.epoch))
            yield entry

"""Spending by time, over all runs of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import product
from typing import Any, Final, get_args

from fastroai.errors import ConfigurationError, RunNotFound
from fastroai.records import Usage
from fastroai.store.clock import CLOCKS_DIFFER
from fastroai.store.reading.index import Indexed, held_later, indexed, store_time
from fastroai.store.reading.run_index import Dimension, SpendingSum, indexes_runs
from fastroai.store.reading.run_queries import RunQuery, check_time
from fastroai.store.reading.run_spending import SpendingOnRecord, Spent, SpentPart
from fastroai.store.record.headers import read_header, read_log, utc_day
from fastroai.store.run_store import RunStore

_DIMENSIONS: Final = get_args(Dimension)
_EARLIEST: Final = datetime(1970, 1, 2, tzinfo=UTC)
"""Time before the start of every run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRow:
    """The spending of all runs that have these fields in common. Fields not asked for are `None`."""

    day: date | None = None
    """The day in UTC."""
    pipeline: str | None = None
    """The name of the outermost pipeline or graph."""
    step: str | None = None
    """Id of the step or node that spent it; `None` for spending outside of steps."""
    model: str | None = None
    """`provider:model`, or the name that `record_usage` or `spend` was given."""
    tenant: str | None = None
    tag: str | None = None
    usage: Usage
    """Requests, tokens and cost. `agent_calls` is not counted."""


def check_period(since: object, until: object, by: object) -> None:
    """Raise `ConfigurationError` for an invalid period or an invalid breakdown."""
    for option, at in (("since", since), ("until", until)):
        check_time(option, at)
    if isinstance(since, datetime) and isinstance(until, datetime) and since > until:
        raise ConfigurationError("until", until, f"a time after since, {since}")
    known = [one for one in _DIMENSIONS if isinstance(by, Sequence) and one in by]
    if isinstance(by, str) or not isinstance(by, Sequence) or len(by) != len(known):
        raise ConfigurationError("by", by, f"a sequence of {', '.join(_DIMENSIONS)}, each at most once")


async def spending(
    store: RunStore, since: datetime | None, until: datetime | None, by: Sequence[Dimension]
) -> tuple[SpendingRow, ...]:
    """Return the spending in a period. The arguments are checked already. See `RunHistory.spending`."""
    rows = _Rows(store, since, until, by)
    own = indexes_runs(store)
    if own is None:
        async for entry in rows.active():
            await rows.read_run(entry.run_id, entry.epoch)
    else:
        found = await own.sum_spending(since, until, by)
        for one in found.sums:
            rows.add(one, one.pipeline)
        for run_id in found.unread:
            await rows.read_run(run_id, None)
    return rows.in_order()


class _Rows:
    """Sums of what runs have spent in a period, by the fields that were asked for."""

    def __init__(
        self, store: RunStore, since: datetime | None, until: datetime | None, by: Sequence[Dimension]
    ) -> None:
        self._store, self._since, self._until, self._by = store, since, until, by
        self._usages: dict[tuple[Any, ...], Usage] = {}

    async def active(self) -> AsyncIterator[Indexed]:
        """Yield each run that a process had on a day of the period, once."""
        since, until, now = self._since, self._until, await store_time(self._store)
        latest = (now if until is None else min(until, now)) + CLOCKS_DIFFER
        first = utc_day(_EARLIEST if since is None else max(since, _EARLIEST) - CLOCKS_DIFFER)
        known: set[tuple[str, str]] = set()
        async for entry in indexed(self._store, RunQuery(started_until=latest)):
            if utc_day(entry.started_at) < first:
                break
            known.add((entry.run_id, entry.epoch))
            yield entry
        async for entry in held_later(self._store, first, utc_day(latest)):
            if (entry.run_id, entry.epoch) not in known:
                known.add((entry.run_id, entry.epoch))
                yield entry

    async def read_run(self, run_id: str, epoch: str | None) -> None:
        """Add what a run has spent. A run that is gone, or has another epoch by now, adds nothing."""
        since, until = self._since, self._until
        try:
            header = (await read_header(self._store, run_id)).header
            if epoch not in (None, header.epoch) or (since and header.updated_at + CLOCKS_DIFFER < since):
                return  # it is another run, or ended before the period
            parts = self._parts_in(header.spent)
            if parts is None:
                on_record = SpendingOnRecord(await read_log(self._store, header))
                parts = on_record.parts(tenant=header.tenant, tags=header.tags, since=since, until=until)
        except RunNotFound:
            return
        for part in parts:
            self.add(part, header.pipeline)

    def _parts_in(self, spent: Spent | None) -> Sequence[SpentPart] | None:
        """Return what a run has spent, if its header says so much; `None` if only its log does."""
        if spent is None or ("step" in self._by and not spent.has_steps):
            return None
        if spent.since is None or spent.until is None:
            return ()
        first, last = self._since or spent.since, self._until or datetime.max.replace(tzinfo=UTC)
        if spent.until < first or spent.since >= last:
            return ()
        return spent.parts if first <= spent.since and spent.until < last else None

    def add(self, one: SpendingSum | SpentPart, pipeline: str | None) -> None:
        """Add a sum to the row that has its fields; to that of each tag, if tags were asked for."""
        several = {"tag": one.tags or (None,), "pipeline": (pipeline,)}
        values = (several[name] if name in several else (getattr(one, name),) for name in self._by)
        for key in product(*values):
            self._usages[key] = self._usages[key] + one.usage if key in self._usages else one.usage

    def in_order(self) -> tuple[SpendingRow, ...]:
        """Return the rows, sorted by their fields."""
        in_order = sorted(self._usages, key=lambda key: ["" if one is None else str(one) for one in key])
        return tuple(
            SpendingRow(usage=self._usages[key], **dict[str, Any](zip(self._by, key, strict=True)))
            for key in in_order
        )

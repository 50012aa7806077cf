"""The index of runs in an SQL database: a table of headers, one of spending, and the queries to both.

SQLite and PostgreSQL differ in little: each gives its `Dialect`. Texts are kept as UTF-8 bytes, which have
the order of code points in any encoding of a database.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

from fastroai.records import EXACT, Usage
from fastroai.store.clock import CLOCKS_DIFFER, MICROSECOND
from fastroai.store.reading.run_index import Dimension, FoundRun, FoundRuns, SpendingFound, SpendingSum
from fastroai.store.reading.run_queries import (
    NOT_KNOWN,
    Place,
    RunQuery,
    microseconds,
    order_values,
    search_text,
)
from fastroai.store.reading.run_spending import SpentPart
from fastroai.store.record.entries import RunHeader, entry_in_store
from fastroai.store.record.headers import KINDS_OF_KEYS, UNREADABLE, decode_header, header_key, run_of

Rows: TypeAlias = Sequence[tuple[Any, ...]]

HEADERS: Final = header_key("")
"""The beginning of the keys of headers."""
STALE_AT_ONCE: Final = 500
"""Most headers that are read into the index in one transaction."""

_COUNTS: Final = tuple(
    one.name for one in fields(Usage) if one.type == "int" and one.name != "agent_call_count"
)
_AMOUNTS: Final = ("cost_usd", "uncertain_usd")
_PLACES: Final = 21
"""Decimal places of an amount in US dollars, of which a row has the first nine and the others apart."""
_FINE_IN_COARSE: Final = 10**12
_LARGEST: Final = 2**63 // 1_000
"""Most of a number in a row, so that sums of many rows fit into 64 bits, too."""
_DIMENSIONS: Final[dict[Dimension, str]] = {
    "day": "day",
    "pipeline": "pipeline",
    "step": "step",
    "model": "model",
    "tenant": "spent_for",
    "tag": "tags",
}
"""The columns of what spending can be broken down by."""
_IN_LOG, _IN_PARTS, _BY_STEP = 0, 1, 2
"""Where the spending of a run is found: only in its log; in its header; there for each step, too."""

HEADER_COLUMNS: Final = (
    "stale",
    "readable",
    "run_id",
    "status",
    "pipeline",
    "tenant",
    "tag_lines",
    "search",
    "started",
    "updated",
    "duration",
    "cost",
    "due",
    "questions",
    "summed",
    "spent_since",
    "spent_until",
)
"""The columns of the table of headers, after the number of the key."""
SPENT_COLUMNS: Final = (
    "day",
    "step",
    "model",
    "spent_for",
    "tags",
    "units",
    *_COUNTS,
    *(f"{name}_{size}" for name in _AMOUNTS for size in ("coarse", "fine")),
)
"""The columns of the table of spending, after the number of the key: amounts are sums of whole numbers."""
_SUMS: Final = ", ".join(f"SUM({name})" for name in SPENT_COLUMNS[6:])


@dataclass(frozen=True)
class Dialect:
    """What is not the same in all SQL databases."""

    headers: str
    """Name of the table of headers."""
    spent: str
    """Name of the table of spending."""
    contains: str
    """The condition that the bytes of a column contain a parameter, with the column as `{}`."""
    is_lost: str
    """The condition that the value of a header is gone, whose row is still there."""
    headers_of: str
    """A query for the id, the place, the header and the revision of runs. The runs are those of the query
    `{found}` for the keys' numbers (`id`), ids and places, in the order of places (`{way}`) and ids."""


class IndexedHeader(NamedTuple):
    """The rows of one run in the index."""

    header: tuple[Any, ...]
    """The values of `HEADER_COLUMNS`."""
    spent: Sequence[tuple[Any, ...]]
    """The values of `SPENT_COLUMNS`, in rows."""


def index_of(key: str, stored: bytes) -> IndexedHeader | None:
    """Return the rows of a run; `None` if its header cannot be read."""
    run_id = key.removeprefix(HEADERS)
    try:
        header = decode_header(run_id, stored)
    except UNREADABLE:
        return None
    rows = None if header.spent is None else [_spent_row(part) for part in header.spent.parts]
    whole = [row for row in rows or () if row is not None]
    is_summed = rows is not None and len(whole) == len(rows)
    return IndexedHeader(_header_row(header, is_summed=is_summed), whole if is_summed else ())


def unreadable(key: str) -> tuple[Any, ...]:
    """Return the row of a header that cannot be read, if there is none from when it could be read."""
    run_id = key.removeprefix(HEADERS).encode()
    empty = (b"", b"", None, b"", run_id.decode().casefold().encode())
    return (0, 0, run_id, *empty, *[NOT_KNOWN] * 4, None, 0, 0, None, None)


def keys_of_orphan(key: str, entry: bytes | None, before: datetime) -> tuple[str, ...]:
    """Return the keys of a run that has a log and no header, if its first entry is older than a time."""
    run_id, epoch = run_of(key)
    with suppress(*UNREADABLE):
        if epoch and entry is not None and entry_in_store(run_id, 1, entry).at < before:
            return tuple(f"{kind}:{run_id}:{epoch}" for kind in KINDS_OF_KEYS)
    return ()


def _header_row(header: RunHeader, *, is_summed: bool) -> tuple[Any, ...]:
    order, spent = order_values(header), header.spent
    since, until = (None, None) if spent is None else (spent.since, spent.until)
    return (
        0,
        1,
        header.run_id.encode(),
        header.status.encode(),
        header.pipeline.encode(),
        _bytes(header.tenant),
        b"".join(map(_line, header.tags)),
        search_text(header).encode(),
        order["started"],
        order["updated"],
        order["duration"],
        min(order["cost"], _LARGEST),
        None if header.due_at is None else microseconds(header.due_at),
        len(header.questions),
        _IN_LOG if spent is None or not is_summed else _BY_STEP if spent.has_steps else _IN_PARTS,
        None if since is None else microseconds(since),
        None if until is None else microseconds(until),
    )


def _spent_row(part: SpentPart) -> tuple[Any, ...] | None:
    """Return the row of a part of spending; `None` if an amount is too large or too exact for it."""
    usage = part.usage
    numbers = [getattr(usage, name) for name in _COUNTS]
    for name in _AMOUNTS:
        amount: Decimal = getattr(usage, name)
        scaled = amount.scaleb(_PLACES, EXACT)
        whole = int(scaled)
        if whole != scaled:
            return None
        numbers += divmod(whole, _FINE_IN_COARSE)
    if any(not 0 <= number <= _LARGEST for number in numbers):
        return None
    tags, units = (json.dumps(one).encode() for one in (part.tags, usage.unpriced_units))
    names = (_bytes(part.step), part.model.encode(), _bytes(part.tenant))
    return (part.day.toordinal(), *names, tags, units, *numbers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _line(tag: str) -> bytes:
    """Return a tag as a line of its own: one that contains no other line."""
    return b"\n%b\n" % tag.replace("\\", "\\\\").replace("\n", "\\n").encode()


# --- queries ---


class FindsRunsInSql(ABC):
    """A base class of stores that find runs with the index of this module."""

    _dialect: Dialect

    @abstractmethod
    async def _look(self, questions: Sequence[Statement]) -> tuple[Sequence[Rows], datetime] | None:
        """Ask the index, as of one moment. Return the answers, and the time by the clock of the store.

        It is `None` if headers have changed that were not read into the index again.
        """

    @abstractmethod
    async def _catch_up(self) -> None:
        """Read some of the headers that have changed into the index."""

    async def find_runs(self, query: RunQuery, *, after: Place | None, limit: int) -> FoundRuns:
        """Return at most `limit` runs whose headers match a query, in its order, from the index of the store.

        With `after`, they are the runs behind that place in the order; `None` is the beginning. Each run
        comes with its stored header (a summary of the run), the revision of that, and its place. `now` of the
        result is the time by the clock of the store. Headers do not tell `queued`, `interrupted` and
        `set_aside` from `running`: for these, runs with any of the four statuses are returned.

        Raises:
            RunStoreUnavailable: the store cannot be reached, read or written.
        """
        (rows,), now = await self._ask_index(_find(self._dialect, query, after, limit))
        runs = [
            FoundRun(place=Place(order, run_id.decode()), value=value, revision=revision)
            for run_id, order, value, revision in rows
        ]
        return FoundRuns(runs=runs, now=now)

    async def count_runs(self, query: RunQuery) -> int:
        """Return the number of runs whose headers match a query, from the index of the store.

        Headers do not tell `queued`, `interrupted` and `set_aside` from `running`: for these, runs with any
        of the four statuses are counted.

        Raises:
            RunStoreUnavailable: the store cannot be reached, read or written.
        """
        (((number,),),), _ = await self._ask_index(_matching(self._dialect, query, "COUNT(*)"))
        return int(number)

    async def sum_spending(
        self, since: datetime | None, until: datetime | None, by: Collection[Dimension]
    ) -> SpendingFound:
        """Return sums of the spending in a period, from the index of the store.

        The period is from `since` on and before `until`; `None` is no limit. The sums include only runs whose
        whole spending is in the period. `unread` of the result has the ids of other runs that may have spent
        something in the period: the caller reads their records. There is a sum for each combination of the
        fields in `by`, in which all tags of the spending are one value; several sums can have the same
        fields.

        Raises:
            RunStoreUnavailable: the store cannot be reached, read or written.
        """
        questions = _sums(self._dialect, since, until, by), *_unread(self._dialect, since, until, by)
        (summed, *others), _ = await self._ask_index(*questions)
        return SpendingFound(
            sums=[_spending_sum(by, row) for row in summed],
            unread=[run_id.decode() for rows in others for (run_id,) in rows],
        )

    async def _ask_index(self, *questions: Statement) -> tuple[Sequence[Rows], datetime]:
        while (answers := await self._look(questions)) is None:
            await self._catch_up()
        return answers


class Statement:
    """A query that is put together: SQL with `?` for each parameter, and the parameters."""

    def __init__(self, select: str) -> None:
        """Begin with a query without conditions."""
        self.sql, self.parameters = select, list[Any]()
        self._word = " WHERE "

    def where(self, condition: str, *values: object) -> None:
        """Add a condition that must hold, too."""
        self.sql += self._word + condition
        self.parameters += values
        self._word = " AND "

    def then(self, clause: str, *values: object) -> Statement:
        """Add what comes after the conditions."""
        self.sql += clause
        self.parameters += values
        return self


def _find(dialect: Dialect, query: RunQuery, after: Place | None, limit: int) -> Statement:
    """Return a query for the headers of runs, in order."""
    column = query.sort
    found = _matching(dialect, query, f"key_id AS id, run_id, {column} AS place")
    if after is not None:
        beyond = ">" if query.ascending else "<"
        found.where(f"{column} {beyond}= ?", after.order)
        found.where(f"({column} {beyond} ? OR run_id > ?)", after.order, after.run_id.encode())
    way = "" if query.ascending else "DESC"
    found.then(f" ORDER BY {column} {way}, run_id LIMIT ?", limit)
    found.sql = dialect.headers_of.replace("{found}", found.sql).replace("{way}", way)
    return found


def _matching(dialect: Dialect, query: RunQuery, columns: str) -> Statement:
    found = Statement(f"SELECT {columns} FROM {dialect.headers}")
    found.where("run_id IS NOT NULL")
    if query.asks:
        found.where("questions > 0")
    if query.status == "unreadable":
        found.where(f"(readable = 0 OR {dialect.is_lost})")
    names = (("status", query.recorded_status), ("pipeline", query.pipeline), ("tenant", query.tenant))
    for column, name in names:
        if name is not None:
            found.where(f"{column} = ?", name.encode())
    if query.tenants is not None:
        wanted = [name.encode() for name in sorted(query.tenants)]
        found.where(f"tenant IN ({', '.join('?' * len(wanted)) or 'NULL'})", *wanted)
    if query.tag:
        found.where(dialect.contains.format("tag_lines"), _line(query.tag))
    elif query.tag is not None:  # no run has an empty tag, but there are empty lines between two tags
        found.where("1 = 0")
    for word in query.words:
        found.where(dialect.contains.format("search"), word.encode())
    for condition, at in (
        ("started >= ?", query.started_since),
        ("started BETWEEN 0 AND ? - 1", query.started_until),
        ("updated >= ?", query.updated_since),
        ("updated BETWEEN 0 AND ? - 1", query.updated_until),
        ("due < ?", query.due_until),
    ):
        if at is not None:
            found.where(condition, microseconds(at))
    return found


def _sums(
    dialect: Dialect, since: datetime | None, until: datetime | None, by: Collection[Dimension]
) -> Statement:
    """Return a query for the spending of the runs that have spent all within a period, by dimension."""
    grouped = ", ".join([*(_DIMENSIONS[one] for one in sorted(by)), "units"])
    found = Statement(f"SELECT {grouped}, {_SUMS} FROM {dialect.spent} JOIN {dialect.headers} USING (key_id)")
    found.where(_says(by))
    if since is not None:
        found.where("spent_since >= ?", microseconds(since))
    if until is not None:
        found.where("spent_until < ?", microseconds(until))
    return found.then(f" GROUP BY {grouped}")


def _unread(
    dialect: Dialect, since: datetime | None, until: datetime | None, by: Collection[Dimension]
) -> Sequence[Statement]:
    """Return queries for the ids of the other runs that may have spent something in a period."""
    silent = Statement(f"SELECT run_id FROM {dialect.headers}")
    silent.where(f"NOT ({_says(by)})")
    partly = Statement(f"SELECT run_id FROM {dialect.headers}")
    partly.where(_says(by))
    outside, slack = list[str](), CLOCKS_DIFFER // MICROSECOND
    for at, difference, condition, overlaps, ends_outside in (
        (since, -slack, "updated >= ?", "spent_until >= ?", "spent_since < ?"),
        (until, slack, "started < ?", "spent_since < ?", "spent_until >= ?"),
    ):
        if at is not None:
            silent.where(f"({condition} OR readable = 0)", microseconds(at) + difference)
            partly.where(overlaps, microseconds(at))
            outside.append(ends_outside)
    if not outside:
        return (silent,)
    partly.where(f"({' OR '.join(outside)})", *(microseconds(at) for at in (since, until) if at is not None))
    return silent, partly


def _says(by: Collection[Dimension]) -> str:
    """Return the condition that a header says what was spent, as exactly as it is asked for."""
    return f"summed >= {_BY_STEP if 'step' in by else _IN_PARTS}"


def _spending_sum(by: Collection[Dimension], row: Sequence[Any]) -> SpendingSum:
    """Return a row that `_sums` has found."""
    values = dict(zip(sorted(by), row, strict=False))
    units, *numbers = row[len(values) :]
    counts: dict[str, Any] = dict(zip(_COUNTS, map(int, numbers), strict=False))
    amounts: dict[str, Any] = {
        name: Decimal(int(coarse) * _FINE_IN_COARSE + int(fine)).scaleb(-_PLACES, EXACT).normalize(EXACT)
        for name, (coarse, fine) in zip(
            _AMOUNTS, zip(*[iter(numbers[len(counts) :])] * 2, strict=True), strict=True
        )
    }
    day, tags = values.get("day"), values.get("tag")
    return SpendingSum(
        day=None if day is None else date.fromordinal(int(day)),
        pipeline=_text(values.get("pipeline")),
        step=_text(values.get("step")),
        model=_text(values.get("model")),
        tenant=_text(values.get("tenant")),
        tags=None if tags is None else tuple(json.loads(bytes(tags))),
        usage=Usage(**counts, **amounts, unpriced_units=tuple(json.loads(bytes(units)))),
    )


def _text(found: bytes | None) -> str | None:
    return None if found is None else bytes(found).decode()

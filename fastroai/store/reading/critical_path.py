"""The critical path of a run: the chain of steps and calls that decided how long it took."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from fastroai.store.reading.timeline_rows import TimelineRow
from fastroai.store.record.definitions import definition_at, steps_before

_Key = tuple[str, str]


def critical_path(inside: Mapping[_Key | None, Sequence[TimelineRow]], definition: JsonValue) -> set[_Key]:
    """Return the keys of the rows on the path; `inside` has the rows by the key of the row around them.

    The path ends with the row that ended last. Before each row is the one that the row had to wait for: of
    those that its definition puts before it or, if there is none, of all, the last to end before its start.
    The rows inside of a row on the path have a path of their own.
    """
    found: set[_Key] = set()
    waiting: list[_Key | None] = [None]
    while waiting:
        rows = [row for row in inside.get(waiting.pop(), ()) if row.started_at is not None]
        keys = [row.key for row in _chain(rows, definition)] if rows else []
        found.update(keys)
        waiting += keys
    return found


def _chain(rows: Sequence[TimelineRow], definition: JsonValue) -> Iterator[TimelineRow]:
    """Yield the rows of the path through some rows that are inside of the same one, the last first."""
    by_end = sorted(rows, key=_end)
    by_name: defaultdict[tuple[str, str], list[TimelineRow]] = defaultdict(list)
    for one in by_end:
        by_name[_part(one), one.name].append(one)
    row: TimelineRow | None = by_end[-1]
    seen: set[_Key] = set()
    before: dict[str, Mapping[str, Sequence[str]]] = {}
    while row is not None and row.key not in seen:
        seen.add(row.key)
        yield row
        part = _part(row)
        if part not in before:
            before[part] = steps_before(definition_at(definition, row.place))
        names = before[part].get(row.name, ()) if row.kind == "step" else ()
        named = [_last_before(by_name.get((part, name), ()), row) for name in names]
        known = [one for one in named if one is not None]
        row = max(known, key=_end) if known else _last_before(by_end, row)


def _last_before(by_end: Sequence[TimelineRow], row: TimelineRow) -> TimelineRow | None:
    """Return the last row to end before the start of a row."""
    assert row.started_at is not None
    count = bisect_right(by_end, row.started_at.timestamp(), key=_end)
    return next((by_end[at] for at in reversed(range(count)) if by_end[at] is not row), None)


def _part(row: TimelineRow) -> str:
    """Return the place of the pipeline or graph around a step."""
    return row.place.rpartition("/")[0]


def _end(row: TimelineRow) -> float:
    return float("inf") if row.ended_at is None else row.ended_at.timestamp()

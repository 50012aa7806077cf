"""The timeline of a run: its steps and calls, with their attempts and waits, and its critical path."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import TypeAlias

from pydantic import JsonValue

from fastroai.places import attempt_around, outwards
from fastroai.records import Usage
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Fact
from fastroai.store.reading.step_summaries import StepSummary
from fastroai.store.reading.timeline_calls import calls_in
from fastroai.store.reading.timeline_rows import TimelineBar, TimelineRow
from fastroai.store.reading.timeline_waits import retries, waits_in
from fastroai.store.record.attempts import StepAttempt
from fastroai.store.record.definitions import definition_at, steps_before

_Key: TypeAlias = tuple[str, str]


def timeline(
    entries: Sequence[Fact],
    definition: JsonValue,
    steps: Iterable[StepSummary],
    attempts: Iterable[StepAttempt],
) -> tuple[TimelineRow, ...]:
    """Return all rows: by the time of their start, each before the rows inside of it."""
    rows = _rows_of_steps(steps, attempts, tuple(_deaths(entries)))
    rows |= {row.key: row for row in calls_in(entries, {place for place, _ in rows})}
    rows = _with_waits(rows, entries)
    inside: defaultdict[_Key | None, list[TimelineRow]] = defaultdict(list)
    for row in rows.values():
        inside[_around(row, rows)].append(row)
    critical = _critical_path(inside, definition)

    def in_order(outer: _Key | None, depth: int) -> Iterator[TimelineRow]:
        for row in sorted(inside[outer], key=_start):
            yield replace(row, depth=depth, is_critical=row.key in critical)
            yield from in_order(row.key, depth + 1)

    return tuple(in_order(None, 0))


def _start(row: TimelineRow) -> tuple[bool, float]:
    return row.started_at is None, 0 if row.started_at is None else row.started_at.timestamp()


def _deaths(entries: Sequence[Fact]) -> Iterator[datetime]:
    """Yield when each process that the run has outlived last showed life: its last fact."""
    for before, entry in pairwise(entries):
        if isinstance(entry, facts.RunResumed) and not isinstance(before, facts.RunFinished):
            yield before.at


def _bar(attempt: StepAttempt, deaths: Sequence[datetime]) -> TimelineBar:
    started, ended = attempt.started_at, attempt.ended_at
    if ended is None and attempt.status == "interrupted":
        ended = next((at for at in deaths if at >= started), None)
    return TimelineBar(attempt.attempt, attempt.status, started, ended)


def _rows_of_steps(
    steps: Iterable[StepSummary], attempts: Iterable[StepAttempt], deaths: Sequence[datetime]
) -> dict[_Key, TimelineRow]:
    made: defaultdict[str, list[StepAttempt]] = defaultdict(list)
    for attempt in attempts:
        made[attempt.place].append(attempt)
    rows = {
        (step.place, ""): TimelineRow(
            kind="step", place=step.place, name=step.step, status=step.status, usage=step.usage
        )
        for step in steps
    }
    for place, attempts_there in made.items():
        bars = tuple(_bar(one, deaths) for one in attempts_there)
        # Summaries leave out what was nested in earlier attempts.
        row = rows.get((place, "")) or TimelineRow(
            kind="step",
            place=place,
            name=attempts_there[0].step,
            status=bars[-1].status,
            usage=Usage.of([record for one in attempts_there for record in one.records]),
        )
        rows[row.key] = replace(row, bars=bars, waits=tuple(retries(attempts_there)))
    return rows


def _with_waits(rows: Mapping[_Key, TimelineRow], entries: Sequence[Fact]) -> dict[_Key, TimelineRow]:
    found = dict(rows)
    for place, call, wait in waits_in(entries):
        keys = [(place, call), *((one, "") for one in outwards(place))]
        if (key := next((key for key in keys if key in found), None)) is not None:
            found[key] = replace(found[key], waits=(*found[key].waits, wait))
    return found


def _around(row: TimelineRow, rows: Mapping[_Key, TimelineRow]) -> _Key | None:
    """Return the key of the row around a row: the agent whose tool made the call, or the step around it."""
    outer = row.call.rpartition("/")[0]
    if outer and (row.place, outer) in rows:
        return row.place, outer
    around = row.place if row.call else attempt_around(row.place) or ""
    return next(((place, "") for place in outwards(around) if (place, "") in rows), None)


# --- the critical path: the chain of steps and calls that decided how long the run took ---


def _critical_path(inside: Mapping[_Key | None, Sequence[TimelineRow]], definition: JsonValue) -> set[_Key]:
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
    by_name: defaultdict[_Key, list[TimelineRow]] = defaultdict(list)
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

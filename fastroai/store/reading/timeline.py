"""The timeline of a run: its steps and the calls in them, with the times of their attempts and waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

from pydantic import JsonValue

from fastroai.places import attempt_around, outwards
from fastroai.records import Usage
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Fact
from fastroai.store.reading.critical_path import critical_path
from fastroai.store.reading.step_summaries import StepSummary
from fastroai.store.reading.timeline_calls import calls_in
from fastroai.store.reading.timeline_rows import TimelineBar, TimelineRow
from fastroai.store.reading.timeline_waits import retries, waits_in
from fastroai.store.record.attempts import StepAttempt


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
    inside: defaultdict[tuple[str, str] | None, list[TimelineRow]] = defaultdict(list)
    for row in rows.values():
        inside[_around(row, rows)].append(row)
    critical = critical_path(inside, definition)

    def in_order(outer: tuple[str, str] | None, depth: int) -> Iterator[TimelineRow]:
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
) -> dict[tuple[str, str], TimelineRow]:
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


def _with_waits(
    rows: Mapping[tuple[str, str], TimelineRow], entries: Sequence[Fact]
) -> dict[tuple[str, str], TimelineRow]:
    found = dict(rows)
    for place, call, wait in waits_in(entries):
        keys = [(place, call), *((one, "") for one in outwards(place))]
        if (key := next((key for key in keys if key in found), None)) is not None:
            found[key] = replace(found[key], waits=(*found[key].waits, wait))
    return found


def _around(row: TimelineRow, rows: Mapping[tuple[str, str], TimelineRow]) -> tuple[str, str] | None:
    """Return the key of the row around a row: the agent whose tool made the call, or the step around it."""
    outer = row.call.rpartition("/")[0]
    if outer and (row.place, outer) in rows:
        return row.place, outer
    around = row.place if row.call else attempt_around(row.place) or ""
    return next(((place, "") for place in outwards(around) if (place, "") in rows), None)

"""Runs and steps as tables, for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastroai.cli.opened import default_place
from fastroai.cli.text import at_least, cost, known_cost, local, took
from fastroai.durations import duration
from fastroai.plain_text import plain
from fastroai.records import dollars

if TYPE_CHECKING:
    from fastroai.store.open_questions import Question
    from fastroai.store.reading.history import RunSummary
    from fastroai.store.reading.spending import SpendingRow
    from fastroai.store.reading.step_summaries import StepSummary
    from fastroai.store.reading.trace import RunTrace
    from fastroai.usage.shared.spend_store import SpendAdjustment, SpendStatus

_COLORS: Final = {
    "finished": "green",
    "complete": "green",
    "approve": "green",
    "succeeded": "green",
    "reused": "green",
    "running": "cyan",
    "in_progress": "cyan",
    "open": "cyan",
    "paused": "yellow",
    "revise": "yellow",
    "incomplete": "yellow",
    "retried": "yellow",
    "interrupted": "magenta",
    "cancelled": "magenta",
    "kill": "magenta",
    "killed": "magenta",
    "failed": "red",
    "unreadable": "red",
}
_WIDE: Final = 240
"""Width of the output in columns when it is not a terminal."""


def console() -> Console:
    """Return the console that prints tables."""
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, soft_wrap=False)


def runs_table(runs: Iterable[RunSummary]) -> Table:
    """Return a table with a line for each run. It has a column of rows if a run is one of rows."""
    found = list(runs)
    has_rows = any(run.rows is not None for run in found)
    named = ("rows",) if has_rows else ()
    table = columns("run", "pipeline", "status", "started", "took", "requests", "cost", *named, "error")
    for run in found:
        counts = "" if run.rows is None else str(run.rows).replace(" rows", "")
        requests = at_least(str(run.requests or ""), is_all=run.counts_complete)
        has_spent = run.requests or run.cost_usd or not run.cost_complete
        spent = known_cost(run.cost_usd, is_complete=run.cost_complete) if has_spent else ""
        took_all = run.status not in ("interrupted", "set_aside")
        length = "" if run.duration is None else duration(run.duration.total_seconds())
        table.add_row(
            text_cell(run.run_id),
            text_cell(run.pipeline or ""),
            status_cell(run.status),
            Text(local(run.started_at)),
            Text(at_least(length, is_all=took_all)),
            Text(requests, justify="right"),
            Text(spent, justify="right"),
            *([Text(counts)] if has_rows else []),
            text_cell(run.error or "", "red", one_line=True),
        )
    return table


def questions_table(questions: Iterable[Question]) -> Table:
    """Return a table with a line for each question."""
    table = columns("id", "pipeline", "step", "to", "asked", "question")
    for asked in questions:
        text = asked.question if isinstance(asked.question, str) else json.dumps(asked.question)
        table.add_row(
            text_cell(asked.id),
            text_cell(asked.pipeline),
            text_cell(asked.node + ("" if asked.visit == 1 else f"#{asked.visit}")),
            text_cell(asked.to),
            Text(local(asked.asked_at)),
            text_cell(text, one_line=True),
        )
    return table


def spending_table(rows: Iterable[SpendingRow], by: Sequence[str]) -> Table:
    """Return a table with a line for each row of spending."""
    table = columns(*by, "requests", "tokens in", "tokens out", "cost")
    for row in rows:
        names = (getattr(row, one) for one in by)
        usage = row.usage
        table.add_row(
            *(text_cell("(none)" if name is None else str(name), "" if name else "dim") for name in names),
            *(
                Text(text, justify="right")
                for text in (
                    f"{usage.request_count:,}",
                    f"{usage.input_tokens:,}",
                    f"{usage.output_tokens:,}",
                    cost(usage),
                )
            ),
        )
    return table


def limits_table(statuses: Iterable[SpendStatus]) -> Table:
    """Return a table with a line for each window of a spend limit."""
    table = columns("key", "window", "state", "limit", "spent", "reserved", "left", "ends", "by hand")
    for status in statuses:
        amounts = status.limit_usd, status.spent_usd, status.reserved_usd, status.remaining_usd
        table.add_row(
            text_cell(status.key),
            Text(status.window),
            Text("open" if status.is_open else "closed", "green" if status.is_open else "dim"),
            *(Text(dollars(usd), justify="right") for usd in amounts),
            Text(local(status.resets_at)),
            Text(str(len(status.adjustments) or ""), justify="right"),
        )
    return table


def adjustments_table(made: Iterable[tuple[SpendStatus, SpendAdjustment]]) -> Table:
    """Return a table with a line for each change by hand."""
    table = columns("at", "key", "window", "changes", "from", "to", "by", "reason")
    for status, one in made:
        table.add_row(
            Text(local(one.at)),
            text_cell(status.key),
            Text(status.window),
            Text(one.changes),
            Text(dollars(one.from_usd), justify="right"),
            Text(dollars(one.to_usd), justify="right"),
            text_cell(one.by, one_line=True),
            text_cell(one.reason, one_line=True),
        )
    return table


def run_lines(run: RunSummary, trace: RunTrace) -> Iterable[Text]:
    """Yield a few lines that sum up a run."""
    yield Text.assemble(
        text_cell(run.run_id, "bold"),
        f" of {trace.kind} ",
        text_cell(run.pipeline or ""),
        ": ",
        status_cell(run.status),
    )
    if trace.version is not None:
        yield Text.assemble("version ", text_cell(trace.version))
    usage = run.spent(trace)
    requests = usage.request_count
    has_spent = trace.records or cost(usage)
    spent = f", {requests} request{'s'[requests == 1 :]}, {cost(usage)}" if has_spent else ""
    length = run.duration
    if run.status in ("interrupted", "set_aside"):  # the log knows more than the header
        length = trace.entries[-1].at - trace.started_at
    lasted = "" if length is None else f", took {duration(length.total_seconds())}"
    yield Text(f"started {local(run.started_at)}{lasted}{spent}")
    for wait in () if trace.ended is None else trace.ended.waits:
        question = f" to question {run.run_id}:{wait.id}" if wait.what == "question" else ""
        yield text_cell(f"{wait}{question}", "yellow")
    if run.rows is not None:
        yield Text(str(run.rows))
    if run.forked_from:
        yield Text.assemble("forked from ", text_cell(run.forked_from))
    if run.error:
        yield text_cell(run.error, "red")


def steps_table(trace: RunTrace) -> Table:
    """Return a table of the steps, each after the steps that it needs, and nested ones below their step."""
    table = columns("step", "needs", "status", "attempts", "started", "took", "requests", "cost", "")
    steps = trace.steps
    for number, step in enumerate(steps):
        began = None if step.status == "reused" else step.started_at
        started = took(trace.started_at, began)
        table.add_row(
            Text.assemble(_branch(steps, number), text_cell(step.step + _visit(step.place))),
            text_cell(", ".join(step.needs)),
            status_cell(step.status),
            Text(str(step.attempts or ""), justify="right"),
            Text(f"+{started}" if started else "", justify="right"),
            Text(took(began, step.ended_at), justify="right"),
            Text(str(step.usage.request_count or ""), justify="right"),
            Text(cost(step.usage), justify="right"),
            _why(step),
        )
    return table


def _branch(steps: Sequence[StepSummary], number: int) -> str:
    """Return the lines of a tree before a nested step, by whether it is the last of its siblings."""
    depth = steps[number].depth
    marks: list[str] = []
    for level in range(1, depth + 1):
        rest = (step.depth for step in steps[number + 1 :])
        goes_on = next((below == level for below in rest if below <= level), False)
        at_own = ("├─ ", "└─ ") if level == depth else ("│  ", "   ")
        marks.append(at_own[0] if goes_on else at_own[1])
    return "".join(marks)


def _visit(place: str) -> str:
    """Return the number of a visit if a node was visited several times, such as `#2`; otherwise nothing."""
    _, mark, number = place.rpartition("/")[2].partition("#")
    return mark + number


def _why(step: StepSummary) -> Text:
    if step.failure is not None:
        return text_cell(f"{step.failure.error_type}: {step.failure.message}", "red", one_line=True)
    return text_cell(step.cause or "", "dim") if step.status == "skipped" else Text()


def columns(*headings: str) -> Table:
    """Return a table without lines."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def nothing(said: str, place: str | None) -> Text:
    """Return a line in place of a table without rows, with the name of the store: it may be the wrong one."""
    from fastroai.store.opening import shown_place

    store = shown_place(default_place() if place is None else place)
    return Text(plain(f"{said} in {store}"), no_wrap=True, overflow="ignore")


def status_cell(status: str) -> Text:
    """Return a status in its color."""
    return Text(status, _COLORS.get(status, "dim"))


def text_cell(text: str, style: str = "", *, one_line: bool = False) -> Text:
    """Return text from outside, which is never taken for markup."""
    return Text(plain(" ".join(text.split()) if one_line else text), style)

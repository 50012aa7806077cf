"""Runs and steps as tables, for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastroai.cli.text import cost, dollars, local, plain, took

if TYPE_CHECKING:
    from fastroai.store.history import RunSummary
    from fastroai.store.open_questions import Question
    from fastroai.store.spending import SpendingRow
    from fastroai.store.step_summaries import StepSummary
    from fastroai.store.trace import RunTrace
    from fastroai.usage.spend_store import SpendAdjustment, SpendStatus

_COLORS: Final = {
    "finished": "green",
    "succeeded": "green",
    "reused": "green",
    "running": "cyan",
    "paused": "yellow",
    "incomplete": "yellow",
    "retried": "yellow",
    "interrupted": "magenta",
    "cancelled": "magenta",
    "failed": "red",
    "unreadable": "red",
}
_WIDE: Final = 240
"""Columns where it is no terminal that reads."""


def console() -> Console:
    """Where tables are printed."""
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, soft_wrap=False)


def runs_table(runs: Iterable[RunSummary]) -> Table:
    """A line for each run."""
    table = _table("run", "pipeline", "status", "started", "took", "requests", "cost", "error")
    for run in runs:
        table.add_row(
            _text(run.run_id),
            _text(run.pipeline or ""),
            _status(run.status),
            Text(local(run.started_at)),
            Text(took(run.started_at, run.updated_at)),
            Text(str(run.requests or ""), justify="right"),
            Text(f"${run.cost_usd}" if run.requests else "", justify="right"),
            _text(run.error or "", "red", one_line=True),
        )
    return table


def questions_table(questions: Iterable[Question]) -> Table:
    """A line for each question."""
    table = _table("id", "pipeline", "step", "to", "asked", "question")
    for asked in questions:
        text = asked.question if isinstance(asked.question, str) else json.dumps(asked.question)
        table.add_row(
            _text(asked.id),
            _text(asked.pipeline),
            _text(asked.node + ("" if asked.visit == 1 else f"#{asked.visit}")),
            _text(asked.to),
            Text(local(asked.asked_at)),
            _text(text, one_line=True),
        )
    return table


def spending_table(rows: Iterable[SpendingRow], by: Sequence[str]) -> Table:
    """A line for each row of spending."""
    table = _table(*by, "requests", "tokens in", "tokens out", "cost")
    for row in rows:
        names = (getattr(row, one) for one in by)
        usage = row.usage
        table.add_row(
            *(_text("(none)" if name is None else str(name), "" if name else "dim") for name in names),
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
    """A line for each window of a spend limit."""
    table = _table("key", "window", "state", "limit", "spent", "reserved", "left", "ends", "by hand")
    for status in statuses:
        amounts = status.limit_usd, status.spent_usd, status.reserved_usd, status.remaining_usd
        table.add_row(
            _text(status.key),
            Text(status.window),
            Text("open" if status.is_open else "closed", "green" if status.is_open else "dim"),
            *(Text(dollars(usd), justify="right") for usd in amounts),
            Text(local(status.resets_at)),
            Text(str(len(status.adjustments) or ""), justify="right"),
        )
    return table


def adjustments_table(made: Iterable[tuple[SpendStatus, SpendAdjustment]]) -> Table:
    """A line for each change by hand."""
    table = _table("at", "key", "window", "changes", "from", "to", "by", "reason")
    for status, one in made:
        table.add_row(
            Text(local(one.at)),
            _text(status.key),
            Text(status.window),
            Text(one.changes),
            Text(dollars(one.from_usd), justify="right"),
            Text(dollars(one.to_usd), justify="right"),
            _text(one.by, one_line=True),
            _text(one.reason, one_line=True),
        )
    return table


def run_lines(run: RunSummary, trace: RunTrace) -> Iterable[Text]:
    """A run in a few lines."""
    yield Text.assemble(
        _text(run.run_id, "bold"), f" of {trace.kind} ", _text(run.pipeline or ""), ": ", _status(run.status)
    )
    if trace.version is not None:
        yield Text.assemble("version ", _text(trace.version))
    requests = trace.usage.request_count
    spent = f", {requests} request{'s'[requests == 1 :]}, {cost(trace.usage)}" if trace.records else ""
    yield Text(f"started {local(run.started_at)}, took {took(run.started_at, run.updated_at)}{spent}")
    for wait in () if trace.ended is None else trace.ended.waits:
        question = f" to question {run.run_id}:{wait.id}" if wait.what == "question" else ""
        yield _text(f"{wait}{question}", "yellow")
    if run.forked_from:
        yield Text.assemble("forked from ", _text(run.forked_from))
    if run.error:
        yield _text(run.error, "red")


def steps_table(trace: RunTrace) -> Table:
    """A line for each step, in an order that respects what they need; nested ones are beneath their step."""
    table = _table("step", "needs", "status", "attempts", "started", "took", "requests", "cost", "")
    steps = trace.steps
    for number, step in enumerate(steps):
        began = None if step.status == "reused" else step.started_at
        started = took(trace.started_at, began)
        table.add_row(
            Text.assemble(_branch(steps, number), _text(step.step + _visit(step.place))),
            _text(", ".join(step.needs)),
            _status(step.status),
            Text(str(step.attempts or ""), justify="right"),
            Text(f"+{started}" if started else "", justify="right"),
            Text(took(began, step.ended_at), justify="right"),
            Text(str(step.usage.request_count or ""), justify="right"),
            Text(cost(step.usage), justify="right"),
            _why(step),
        )
    return table


def _branch(steps: Sequence[StepSummary], number: int) -> str:
    """The lines of a tree before a nested step: it is the last of its siblings, or not."""
    depth = steps[number].depth
    marks: list[str] = []
    for level in range(1, depth + 1):
        rest = (step.depth for step in steps[number + 1 :])
        goes_on = next((below == level for below in rest if below <= level), False)
        at_own = ("├─ ", "└─ ") if level == depth else ("│  ", "   ")
        marks.append(at_own[0] if goes_on else at_own[1])
    return "".join(marks)


def _visit(place: str) -> str:
    """Which one it is, of a node of a graph that was visited several times: `#2`."""
    _, mark, number = place.rpartition("/")[2].partition("#")
    return mark + number


def _why(step: StepSummary) -> Text:
    if step.failure is not None:
        return _text(f"{step.failure.error_type}: {step.failure.message}", "red", one_line=True)
    return _text(step.cause or "", "dim") if step.status == "skipped" else Text()


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _status(status: str) -> Text:
    return Text(status, _COLORS.get(status, "dim"))


def _text(text: str, style: str = "", *, one_line: bool = False) -> Text:
    """Text from outside: never markup."""
    return Text(plain(" ".join(text.split()) if one_line else text), style)

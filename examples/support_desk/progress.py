"""What one sees while it runs: a bar for each ticket on a terminal, and a line for each that is done."""

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Self

from desk import Classification
from documents import Document, Ticket, printable
from pipelines import Reply
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from fastroai import BudgetExceeded, format_cost
from fastroai.pipelines import (
    RunEvent,
    RunFinished,
    RunStarted,
    StepFailed,
    StepFinished,
    StepRetried,
    StepStarted,
    TextChunk,
)

LONGEST_NAME = 30


@dataclass
class _Row:
    """One ticket in progress."""

    task: TaskID
    running: dict[str, int] = field(default_factory=dict)
    """Steps at work, with the characters that each has streamed."""
    outputs: list[object] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)
    """Failed ones that were followed by another, by step."""

    @property
    def doing(self) -> str:
        return ", ".join(
            f"{step} ({size} characters)" if size else step for step, size in self.running.items()
        )

    def summary(self) -> str:
        """The parts of the outputs that a person wants to see."""
        parts: list[str] = []
        for output in self.outputs:
            match output:
                case Ticket(notes=notes):
                    parts += notes
                case Classification(category=category, urgency=urgency, language=language):
                    parts.insert(0, f"{category}, {urgency}, {language}")
                case Reply(issues=issues) if issues:
                    parts.append(f"revised: {', '.join(issues)}")
                case _:
                    pass
        return "; ".join(parts + self.problems) or "no text: asked for it"


class Display:
    """Shows the events of the pipelines. Where there is no terminal it only writes lines."""

    def __init__(self, console: Console, documents: int) -> None:
        self._console = console
        self._rows: dict[str, _Row] = {}
        self._spent = Decimal(0)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[doing]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._all = self._progress.add_task("all".ljust(LONGEST_NAME), total=documents, doing="")

    def __enter__(self) -> Self:
        self._write("ticket", "requests", "cost", "time", "what it is")
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def on_event(self, document: Document, event: RunEvent) -> None:
        """Take in what happened to a document."""
        match event:
            case RunStarted(steps=steps):
                task = self._progress.add_task(_fit(document.title), total=len(steps), doing="")
                self._rows[document.name] = _Row(task)
                return
            case RunFinished():
                self._finish(document, event)
                return
            case _:
                pass
        row = self._rows[document.name]
        match event:
            case StepStarted(step_id=step):
                row.running[step] = 0
            case TextChunk(step_id=step, text=text):
                row.running[step] += len(text)
            case StepRetried(step_id=step):
                row.attempts[step] += 1
                row.running[step] = 0
            case StepFinished(step_id=step, output=output):
                self._end_step(row, step, event)
                row.outputs.append(output)
                if retries := row.attempts[step]:
                    row.problems.append(f"{step} succeeded at attempt {retries + 1}")
            case StepFailed(step_id=step, error=BudgetExceeded()):
                self._end_step(row, step, event)
                row.problems.append(f"stopped at {step} by the budget")
            case StepFailed(step_id=step, error=error):
                self._end_step(row, step, event)
                row.problems.append(
                    f"{step} failed at attempt {row.attempts[step] + 1}: {type(error).__name__}"
                )
            case _:
                pass
        self._progress.update(row.task, doing=row.doing)

    def _end_step(self, row: _Row, step: str, event: StepFinished | StepFailed) -> None:
        del row.running[step]
        self._progress.advance(row.task)
        self._spent += event.usage.cost_usd
        self._progress.update(self._all, doing=f"{format_cost(self._spent)} so far")

    def _finish(self, document: Document, event: RunFinished) -> None:
        row = self._rows.pop(document.name)
        self._progress.remove_task(row.task)
        self._progress.advance(self._all)
        usage, seconds = event.usage, f"{event.duration_ms / 1000:.2f} s"
        self._write(_fit(document.title), usage.request_count, format_cost(usage), seconds, row.summary())

    def _write(self, *cells: object) -> None:
        name, requests, cost, time, what = map(str, cells)
        line = printable(f"{name:{LONGEST_NAME}} {requests:>8} {cost:>9} {time:>7}  {what}")
        self._console.print(
            Text(line),
            no_wrap=True,
            overflow="ellipsis" if self._console.is_terminal else "ignore",
            crop=False,
        )


def _fit(name: str) -> str:
    """A file name in the width of its column."""
    return name.ljust(LONGEST_NAME) if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."

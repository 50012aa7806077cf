"""A line for each ticket that is done. How far the others are, FastroAI shows by itself on a terminal."""

from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from desk import Classification
from documents import Document, Ticket, printable
from pipelines import Reply
from rich.console import Console
from rich.text import Text

from fastroai import BudgetExceeded, format_cost
from fastroai.pipelines import (
    RunEvent,
    RunFinished,
    StepFailed,
    StepFinished,
    StepRetried,
)

LONGEST_NAME = 30


@dataclass
class _Row:
    """One ticket in progress."""

    outputs: list[object] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)
    """Failed ones that were followed by another, by step."""

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


class Lines:
    """Writes the lines: as tickets are done, or at the end, if a terminal shows progress meanwhile."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, _Row] = {}
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        self._write("ticket", "requests", "cost", "time", "what it is")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._print()

    def on_event(self, document: Document, event: RunEvent) -> None:
        """Take in what happened to a document."""
        row = self._rows.setdefault(document.name, _Row())
        match event:
            case StepRetried(step_id=step):
                row.attempts[step] += 1
            case StepFinished(step_id=step, output=output):
                row.outputs.append(output)
                if retries := row.attempts[step]:
                    row.problems.append(f"{step} succeeded at attempt {retries + 1}")
            case StepFailed(step_id=step, error=BudgetExceeded()):
                row.problems.append(f"stopped at {step} by the budget")
            case StepFailed(step_id=step, error=error):
                attempt = row.attempts[step] + 1
                row.problems.append(f"{step} failed at attempt {attempt}: {type(error).__name__}")
            case RunFinished():
                usage, seconds = event.usage, f"{event.duration_ms / 1000:.2f} s"
                cost, what = format_cost(usage), self._rows.pop(document.name).summary()
                self._write(_fit(document.title), usage.request_count, cost, seconds, what)
            case _:
                pass

    def _write(self, *cells: object) -> None:
        name, requests, cost, time, what = map(str, cells)
        self._lines.append(printable(f"{name:{LONGEST_NAME}} {requests:>8} {cost:>9} {time:>7}  {what}"))
        if not self._console.is_terminal:
            self._print()

    def _print(self) -> None:
        overflow: Literal["ellipsis", "ignore"] = "ellipsis" if self._console.is_terminal else "ignore"
        for line in self._lines:
            self._console.print(Text(line), no_wrap=True, overflow=overflow, crop=False)
        self._lines.clear()


def _fit(name: str) -> str:
    """A file name in the width of its column."""
    return name.ljust(LONGEST_NAME) if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."

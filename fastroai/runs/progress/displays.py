"""The displays of progress: a terminal, a notebook, and lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from fastroai.errors import MissingExtraError
from fastroai.plain_text import plain_line
from fastroai.runs.progress.lines import cost_of, count_of, line_of, pace_of, summary_of
from fastroai.runs.progress.progress import Progress
from fastroai.runtime.fact_base import RunEvent
from fastroai.runtime.facts import StepFailed, StepRetried

Labelled = tuple[str, Progress]

_MOST_SHOWN: Final = 8
"""Runs that are shown at once."""
_BAR: Final = 16
_WIDEST: Final = 32
"""Widths of bars, and of the widest names, in a terminal."""
_LONGEST: Final = 100
"""Most characters of a cell in a notebook."""
_COLOURS: Final = {"finished": "green", "failed": "red", "cancelled": "yellow", "paused": "yellow"}


class Display:
    """A place where people see progress. Its methods are called one at a time, from any thread.

    By default, they do nothing.
    """

    every: float
    """Seconds between two drawings."""

    def told(self, label: str, event: RunEvent, seconds: float) -> None:
        """Tell an event of a run, `seconds` after the run began."""

    def draw(self, running: Sequence[Labelled], ended: Sequence[Labelled]) -> None:
        """Show the runs that go on, and the last ones that have ended, each with its label."""

    def ended(self, label: str, progress: Progress) -> None:
        """Show for good how a run has ended."""

    def close(self) -> None:
        """Show nothing more."""


class LogDisplay(Display):
    """A line on standard error for each thing that happens to a step, and now and then one for each run."""

    every = 10.0

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        """The last count of each run."""

    def told(self, label: str, event: RunEvent, seconds: float) -> None:
        """Write what happened to a step."""
        if (line := line_of(label, event)) is not None:
            print(f"{seconds:9.3f} s  {line}", file=sys.stderr, flush=True)

    def draw(self, running: Sequence[Labelled], ended: Sequence[Labelled]) -> None:
        """Write how far the runs are that got further since the last time."""
        for label, progress in running:
            count = count_of(progress)
            if progress.seconds >= self.every and self._said.get(label) != count:
                self._said[label] = count
                self._write(label, progress)

    def ended(self, label: str, progress: Progress) -> None:
        """Write how a run has ended."""
        self._said.pop(label, None)
        self._write(label, progress)

    def _write(self, label: str, progress: Progress) -> None:
        print(f"{progress.seconds:9.3f} s  {summary_of(label, progress)}", file=sys.stderr, flush=True)


class TerminalDisplay(Display):
    """A table on a terminal that moves with the runs. Failures and ended runs stay above it."""

    every = 0.125

    def __init__(self) -> None:
        """Raise `MissingExtraError` if rich is not installed."""
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError as error:
            raise MissingExtraError("progress=True in a terminal", "cli", "rich") from error
        self._console = Console(stderr=True, highlight=False)
        # Output that is redirected to a file must not come to the terminal.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )

    def told(self, label: str, event: RunEvent, seconds: float) -> None:
        """Write failures above the table."""
        from rich.text import Text

        if isinstance(event, StepFailed | StepRetried) and (line := line_of(label, event)) is not None:
            self._console.print(Text(line, style="yellow" if isinstance(event, StepRetried) else "red"))

    def draw(self, running: Sequence[Labelled], ended: Sequence[Labelled]) -> None:
        """Draw the runs that go on."""
        self._live.update(self._table(running), refresh=True)
        if not self._live.is_started:
            self._live.start(refresh=True)

    def ended(self, label: str, progress: Progress) -> None:
        """Write how a run has ended above the table."""
        from rich.text import Text

        line = Text(summary_of(label, progress))
        status = len(plain_line(label)) + 2
        line.stylize("bold", 0, status - 2)
        line.stylize(_COLOURS.get(progress.status, ""), status, status + len(progress.status))
        self._console.print(line)

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()

    def _table(self, running: Sequence[Labelled]) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        shown = running[:_MOST_SHOWN]
        columns: list[Sequence[Any]] = [
            [_cut(Text(plain_line(label), style="bold")) for label, _ in shown],
            [Text(count_of(one), style="red" if one.failed else "") for _, one in shown],
            [Text(cost_of(one), style="green") for _, one in shown],
            [
                ProgressBar(
                    one.total,
                    one.ended,
                    _BAR,
                    pulse=one.total is None,
                    complete_style="cyan",
                    finished_style="green",
                )
                for _, one in shown
            ],
            [Text(pace_of(one)) for _, one in shown],
            [_cut(Text(plain_line(", ".join(one.running)), style="dim")) for _, one in shown],
        ]
        table, left = Table.grid(padding=(0, 2, 0, 0)), self._console.width
        fitting = list[Sequence[Any]]()
        for column in columns:  # the most important first: a narrow terminal leaves out the last ones
            width = max((cell.cell_len if isinstance(cell, Text) else _BAR for cell in column), default=0)
            if width + 2 <= left:
                table.add_column(no_wrap=True, min_width=width)
                fitting.append(column)
                left -= width + 2
        for row in zip(*fitting, strict=True):
            table.add_row(*row)
        more = len(running) - _MOST_SHOWN
        return Group(table, *([Text(f"and {more} more", style="dim")] if more > 0 else []))


def _cut(text: Any) -> Any:
    text.truncate(_WIDEST, overflow="ellipsis")
    return text


class NotebookDisplay(Display):
    """A table below a cell of a notebook, which is replaced while the runs go on. It needs no widgets.

    The table says how many steps have failed, and the error or the trace says why. The last drawing stays.
    """

    every = 0.25

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, running: Sequence[Labelled], ended: Sequence[Labelled]) -> None:
        """Show the runs that go on, and the last ones that have ended."""
        import IPython.display

        shown = _Table([*ended, *running[:_MOST_SHOWN]], len(running) - _MOST_SHOWN)
        if self._handle is None:
            show: Any = IPython.display.display  # it has no types
            self._handle = show(shown, display_id=True)
        else:
            self._handle.update(shown)


class _Table:
    """Runs as a table, for a notebook."""

    def __init__(self, runs: Sequence[Labelled], more: int) -> None:
        self._runs, self._more = runs, more

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from fastroai.drawing.pages import escaped, page  # late: only notebooks show pages

        rows = "".join(_row(label, progress, escaped) for label, progress in self._runs)
        more = f"<p>and {self._more} more</p>" if self._more > 0 else ""
        text = "\n".join(summary_of(label, progress) for label, progress in self._runs)
        return page(f'<table class="progress">{rows}</table>{more}', text)


def _row(label: str, progress: Progress, escaped: Callable[..., str]) -> str:
    total, is_over = progress.total, progress.status != "running"
    at = "" if total is None else f' value="{progress.ended}" max="{max(total, 1)}"'
    bar = "" if total is None and is_over else f"<progress{at}></progress>"
    cells = (count_of(progress), cost_of(progress), pace_of(progress), ", ".join(progress.running))
    return (
        f'<tr class="{progress.status}"><th>{escaped(label)}</th><td>{bar}</td>'
        f'<td class="state">{escaped(progress.status)}</td>'
        f"{''.join(f'<td>{escaped(cell, _LONGEST)}</td>' for cell in cells)}</tr>"
    )


def is_notebook() -> bool:
    """Return whether the code runs in a notebook, and not in IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None

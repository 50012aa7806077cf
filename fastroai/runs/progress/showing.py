"""Showing progress: which display there is, and the runs that share it."""

from __future__ import annotations

import contextvars
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from threading import Event, Lock, Thread
from typing import Final, Literal, TypeAlias

from fastroai.errors import ConfigurationError
from fastroai.forks import in_forked_process
from fastroai.runs.progress.displays import Display, LogDisplay, NotebookDisplay, TerminalDisplay, is_notebook
from fastroai.runs.progress.progress import OnProgress, Progress, RunProgress
from fastroai.runtime import Scope
from fastroai.runtime.events import SpendRecorded, both, harmless, on_this_loop
from fastroai.runtime.fact_base import RunEvent

logger = logging.getLogger("fastroai.runs")

ShowProgress: TypeAlias = bool | Literal["auto"]
"""Whether to show progress. `"auto"`: if a person is likely to look, in a terminal or a notebook."""

_MOST_ENDED: Final = 5
"""Runs that have ended and that a display gets, besides those that go on."""


class _Shared:
    """The display of this process, from the start of the first run on it to the end of the last."""

    def __init__(self) -> None:
        self._start()
        in_forked_process(self._start)  # the thread that draws is in the parent process

    def _start(self) -> None:
        self._lock = Lock()
        self._display: Display | None = None
        self._runs: list[RunProgress] = []
        self._ended: deque[tuple[str, Progress]] = deque(maxlen=_MOST_ENDED)
        self._over = Event()
        self._is_broken = False

    def add(self, run: RunProgress, display: Display) -> None:
        """Show a run on the display that is open already, otherwise on this one."""
        with self._lock:
            run.label = self._free_label(run)
            self._runs.append(run)
            if self._display is None:
                self._display, self._over, self._is_broken = display, Event(), False
                self._ended.clear()
                self._draw()
                # In a notebook, the context says which cell the output belongs to.
                drawing = contextvars.copy_context().run
                Thread(
                    target=drawing,
                    args=(self._keep_drawing, self._over, display.every),
                    name="fastroai progress",
                    daemon=True,
                ).start()

    def _free_label(self, run: RunProgress) -> str:
        """Return a label that no other run has: with the id of the run, or a number where they share one."""
        taken, run_id = {one.label for one in self._runs}, run.now().run_id
        if run.label not in taken:
            return run.label
        if all(one.now().run_id != run_id for one in self._runs):
            return f"{run.label} {_short(run_id)}"
        return next(label for number in count(2) if (label := f"{run.label} {number}") not in taken)

    def tell(self, run: RunProgress, event: RunEvent) -> None:
        """Tell the display an event of a run."""
        with self._lock:
            if self._display is not None:
                seconds = run.now().seconds
                self._try(lambda display: display.told(run.label, event, seconds))

    def remove(self, run: RunProgress) -> None:
        """Show how a run has ended."""
        with self._lock:
            self._runs.remove(run)
            last = run.now()
            self._ended.append((run.label, last))
            self._try(lambda display: display.ended(run.label, last))
            self._draw()
            if not self._runs:
                self._over.set()
                self._try(lambda display: display.close())
                self._display = None

    def _keep_drawing(self, over: Event, every: float) -> None:
        while not over.wait(every):
            with self._lock:
                if not over.is_set():
                    self._draw()

    def _draw(self) -> None:
        running = [(run.label, run.now()) for run in self._runs]
        self._try(lambda display: display.draw(running, tuple(self._ended)))

    def _try(self, show: Callable[[Display], None]) -> None:
        """Show something. A display that fails, such as a terminal that is gone, ends, and not the run."""
        if self._display is not None and not self._is_broken:
            try:
                show(self._display)
            except Exception:
                self._is_broken = True
                logger.exception("the progress display failed; the run is not affected")


def _short(run_id: str) -> str:
    """Return a run id as people tell it from others: of one that was made up, the beginning."""
    return run_id[:8] if re.fullmatch("[0-9a-f]{32}", run_id) else run_id


_shared: Final = _Shared()


def display_for(progress: ShowProgress) -> Display | None:
    """Return the display that fits where the process runs; `None` if no person looks, or if none is wanted.

    Raises:
        ConfigurationError: `progress` is not one of its values.
        MissingExtraError: rich is not installed (the extra `cli`), and standard error is a terminal.
    """
    if not isinstance(progress, bool) and progress != "auto":
        raise ConfigurationError("progress", progress, "True, False or 'auto'")
    if progress is False:
        return None
    if is_notebook():
        return NotebookDisplay()
    stream = sys.stderr
    if stream is None or stream.closed:  # without a console, there is none
        return None
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return TerminalDisplay()
    return None if progress == "auto" else LogDisplay()


@dataclass(frozen=True, slots=True)
class Watching:
    """How a caller watches a run: on a display, with a function, or both."""

    display: Display | None
    on_progress: OnProgress | None

    @classmethod
    def of(cls, progress: ShowProgress, on_progress: OnProgress | None) -> Watching | None:
        """Read the options of a run; `None` if it is not watched. Raises as `display_for` does."""
        display = display_for(progress)
        if on_progress is not None and not callable(on_progress):
            raise ConfigurationError("on_progress", on_progress, "a function that takes a Progress")
        return None if display is None and on_progress is None else cls(display, on_progress)

    @contextmanager
    def during(self, run: RunProgress, scope: Scope) -> Iterator[None]:
        """Show a run until the block ends. `scope` is that of the run, and has no scopes in it yet."""
        on_progress = self.on_progress
        tell = None if on_progress is None else harmless(lambda _: on_progress(run.now()), "on_progress")

        async def listen(event: RunEvent) -> None:
            has_changed = run.count(event) or isinstance(event, SpendRecorded)
            if self.display is not None:
                _shared.tell(run, event)
            if has_changed and tell is not None:
                await tell(event)

        scope.listener = both(on_this_loop(listen), scope.listener)
        if self.display is not None:
            _shared.add(run, self.display)
        try:
            yield
        except BaseException as error:
            run.end("failed" if isinstance(error, Exception) else "cancelled")
            raise
        finally:
            run.end("finished")
            if self.display is not None:
                _shared.remove(run)

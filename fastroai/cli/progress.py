"""The progress of a run, printed line by line while it goes on."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TypeVar

from fastroai.cli.text import cost, seconds
from fastroai.plain_text import plain
from fastroai.runtime import (
    RunEvent,
    Scope,
    StepFailed,
    StepFinished,
    StepRetried,
    StepSkipped,
    StepStarted,
)

T = TypeVar("T")


async def with_progress(run: Callable[[], Awaitable[T]]) -> T:
    """Await a run, and print its events on standard error."""
    started = perf_counter()

    async def tell(event: RunEvent) -> None:
        line = _line(event)
        if line is not None:
            print(f"{perf_counter() - started:9.3f} s  {plain(line)}", file=sys.stderr, flush=True)

    async with Scope("budget", "command", parent=None, listener=tell):
        return await run()


def _line(event: RunEvent) -> str | None:
    match event:
        case StepStarted():
            return f"{_place(event, event.step_id)}: started, because {event.cause}"
        case StepSkipped():
            return f"{_place(event, event.step_id)}: skipped, because {event.cause}"
        case StepRetried():
            why = f"attempt {event.attempt} failed: {_error(event.error)}"
            return f"{_place(event, event.step_id)}: {why}; tried again after {seconds(event.delay)}"
        case StepFailed():
            return f"{_place(event, event.step_id)}: failed: {_error(event.error)}"
        case StepFinished():
            spent = cost(event.usage)
            return f"{_place(event, event.step_id)}: finished{f' ({spent})' if spent else ''}"
        case _:
            return None


def _place(event: RunEvent, step_id: str) -> str:
    """Return the names from the run inwards, without that of the outermost pipeline."""
    return "/".join([*event.path[1:], step_id])


def _error(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())

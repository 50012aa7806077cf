"""Find the line of the user's code that a warning is about, across the tasks and threads of libraries.

Find the names, too, that annotations can use there.

Nothing is recorded for this while a run goes on; the line is searched only when there is a warning.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final, NamedTuple


class Caller(NamedTuple):
    """The thread that waits in a sync call for the running code, which the loop of another thread runs."""

    thread: int = 0
    """The identifier of the waiting thread."""
    depth: int = 0
    """The number of threads, one inside the other, that wait for the running code."""
    loop: asyncio.AbstractEventLoop | None = None
    """The loop that the call was handed to."""
    process: int = 0
    """The process of that loop."""


_NOBODY: Final = Caller()
CALLER: Final[ContextVar[Caller]] = ContextVar("fastroai_caller", default=_NOBODY)

_LIBRARIES: Final = sys.stdlib_module_names | {"anyio", "fastroai", "pydantic_ai", "pydantic_graph"}


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that led here, or at the caller of this function if there is none.

    `skip_file_prefixes` of `warnings.warn` does less, and does not exist before Python 3.12.
    """
    frame = next(filter(_is_of_a_user, _frames_outward()), None) or sys._getframe(1)
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=_module(frame),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def names_around() -> dict[str, object]:
    """Return the local names at the line of the user's code that led here: an annotation may use them."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_of_a_user(frame):
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)


def _frames_outward() -> Iterator[FrameType]:
    """Yield all frames that wait for this call, nearest first, across tasks and threads."""
    rest: FrameType | None = sys._getframe(2)
    while rest is not None and not _is_of_an_event_loop(rest):
        yield rest
        rest = rest.f_back
    for task in _tasks_around():
        yield from reversed(list(_suspended(task.get_coro())))
    yield from _stack(sys._current_frames().get(CALLER.get().thread))
    yield from _stack(rest)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _tasks_around() -> Iterator[asyncio.Task[Any]]:
    """Yield the task that waits for this one, as anyio knows it, then the next one outwards, and so on."""
    import anyio  # imported late, because warnings are rare

    try:
        tasks = {id(task): task for task in asyncio.all_tasks()}
        parent = anyio.get_current_task().parent_id
    except RuntimeError:  # no event loop runs in this thread
        return
    while parent is not None and (task := tasks.pop(parent, None)) is not None:
        yield task
        parent = next((info.parent_id for info in anyio.get_running_tasks() if info.id == id(task)), None)


def _suspended(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of everything that it awaits, outermost first."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        inner = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        if frame is not None:
            yield frame
            # A coroutine with a context of its own is driven by hand: see `runtime.isolation`.
            inner = inner or frame.f_locals.get("coroutine")
        awaited = inner


def _is_of_a_user(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] not in _LIBRARIES


def _is_of_an_event_loop(frame: FrameType) -> bool:
    return _module(frame) == "asyncio.events"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "<unknown>"))

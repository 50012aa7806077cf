"""The line that a warning is about: the user's, however many tasks and threads of libraries are in between.

Nothing is kept for this while a run goes on; the line is looked for when there is something to say.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

CALLING_THREAD: Final[ContextVar[int | None]] = ContextVar("fastroai_calling_thread", default=None)
"""The thread that waits for what runs here: a sync call is run by the event loop of another thread."""

_LIBRARIES: Final = sys.stdlib_module_names | {"anyio", "fastroai", "pydantic_ai", "pydantic_graph"}


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that led here; at the one that calls this, if there is none.

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


def _frames_outward() -> Iterator[FrameType]:
    """All frames that wait for this call, the nearest first: of this task, of tasks and threads around it."""
    rest: FrameType | None = sys._getframe(2)
    while rest is not None and not _is_of_an_event_loop(rest):
        yield rest
        rest = rest.f_back
    for task in _tasks_around():
        yield from reversed(list(_suspended(task.get_coro())))
    yield from _stack(sys._current_frames().get(CALLING_THREAD.get() or 0))
    yield from _stack(rest)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _tasks_around() -> Iterator[asyncio.Task[Any]]:
    """The task that waits for this one, as anyio knows it, the one that waits for that, and so on."""
    import anyio  # there is something to say once in a while only

    try:
        tasks = {id(task): task for task in asyncio.all_tasks()}
        parent = anyio.get_current_task().parent_id
    except RuntimeError:  # no event loop runs in this thread
        return
    while parent is not None and (task := tasks.pop(parent, None)) is not None:
        yield task
        parent = next((info.parent_id for info in anyio.get_running_tasks() if info.id == id(task)), None)


def _suspended(awaited: Any) -> Iterator[FrameType]:
    """The frames of what is awaited, and of what that awaits, the outermost first."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        inner = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        if frame is not None:
            yield frame
            # What steps in a context of its own is driven by hand: see `runtime.isolation`.
            inner = inner or getattr(frame.f_locals.get("self"), "coroutine", None)
        awaited = inner


def _is_of_a_user(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] not in _LIBRARIES


def _is_of_an_event_loop(frame: FrameType) -> bool:
    return _module(frame) == "asyncio.events"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "<unknown>"))

"""SIGINT and SIGTERM for a service that has the process to itself."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Never, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def catching_termination(heed: Callable[[int], None]) -> Generator[None]:
    """Call `heed` on the running event loop with each SIGINT and SIGTERM, until the block ends.

    Signals that somebody else handles, such as uvicorn, are left alone. Python takes signals in the main
    thread only, so in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, before = asyncio.get_running_loop(), dict[signal.Signals, Handler]()

    def pass_on(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(heed, number)  # this also wakes a loop that waits for nothing else

    for number in _SIGNALS:
        if _is_free(handler := signal.getsignal(number)):
            before[number] = handler
            signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is pass_on:
                signal.signal(number, handler)


async def end_by(number: int) -> Never:
    """End the program as the signal would have ended it, but let `finally` blocks run.

    Raises:
        KeyboardInterrupt: for SIGINT, as Ctrl-C does; in a program of `asyncio.run`, its main task is
            cancelled, and with it this.
        SystemExit: for SIGTERM.
    """
    if number == signal.SIGTERM:
        raise SystemExit(128 + number)
    signal.raise_signal(number)
    await asyncio.get_running_loop().create_future()  # until the main task ends, and cancels this
    raise KeyboardInterrupt


def _is_free(handler: Handler) -> bool:
    """Return whether a handler is that of Python or of `asyncio.run`, which cancels the main task."""
    if isinstance(handler, functools.partial):
        return getattr(handler.func, "__module__", "") == asyncio.Runner.__module__
    return handler is signal.SIG_DFL or handler is signal.default_int_handler

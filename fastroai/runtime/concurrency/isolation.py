"""Running a coroutine inside the current task, with context variables of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine as awaitable
from typing import Any, TypeVar

T = TypeVar("T")


def _nothing() -> None: ...


@awaitable
def in_context(
    coroutine: Coroutine[Any, Any, T], context: Context, on_wait: Callable[[], None] = _nothing
) -> Generator[Any, Any, T]:
    """Await a coroutine, whose context variables stay in `context`, as if it had a task of its own.

    A task costs as much as a step that does nothing; this costs a fraction. `on_wait` is called when the
    coroutine waits for something for the first time, before anything else can run.
    """
    run = context.run
    try:
        waits_for = run(coroutine.send, None)
        on_wait()
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as thrown:
                waits_for = run(coroutine.throw, thrown)
            else:
                waits_for = run(coroutine.send, sent)
    except StopIteration as end:
        result: T = end.value
        return result

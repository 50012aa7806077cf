"""Running a coroutine inside the current task, with context variables of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _nothing() -> None: ...


class InContext(Generic[T]):
    """`await InContext(coroutine, context)`: what it sets stays in `context`, as if it had a task of its own.

    A task costs as much as a step that does nothing; this costs a fraction. `on_wait` is called when the
    coroutine waits for something for the first time, before anything else can run.
    """

    __slots__ = ("_context", "_on_wait", "coroutine")

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], context: Context, on_wait: Callable[[], None] = _nothing
    ) -> None:
        self.coroutine, self._context, self._on_wait = coroutine, context, on_wait

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, run = self.coroutine, self._context.run
        try:
            waits_for = run(coroutine.send, None)
            self._on_wait()
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

"""Running a coroutine inside the current task, with context variables of its own; who has cancelled it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from types import CoroutineType
from types import coroutine as awaitable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_OF_TASK: Final = "__fastroai_of_task__"


async def in_context(coroutine: Coroutine[Any, Any, T], context: Context) -> T:
    """Await a coroutine, whose context variables stay in `context`, as if it had a task of its own.

    A task costs as much as a step that does nothing; this costs a fraction.
    """
    try:
        waits_for = context.run(coroutine.send, None)
    except StopIteration as end:
        result: T = end.value
        return result
    return await going_on(coroutine, context.run, waits_for)


@awaitable
def going_on(
    coroutine: Coroutine[Any, Any, T], run: Callable[..., Any], waits_for: object
) -> Generator[Any, Any, T]:
    """Await the rest of a coroutine that has begun, and waits for something. `run` is that of its context."""
    try:
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as thrown:
                _note_cancellation(thrown)
                waits_for = run(coroutine.throw, thrown)
            else:
                waits_for = run(coroutine.send, sent)
    except StopIteration as end:
        result: T = end.value
        return result


@awaitable
def noting_cancellations(work: Awaitable[T]) -> Generator[Any, Any, T]:
    """Await something whose errors `is_of_task` is asked about."""
    steps = work if isinstance(work, CoroutineType) else _awaited(work)
    try:
        waits_for = steps.send(None)
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:
                _note_cancellation(thrown)
                waits_for = steps.throw(thrown)
            else:
                waits_for = steps.send(sent)
    except StopIteration as end:
        result: T = end.value
        return result


def is_of_task(error: BaseException) -> bool:
    """Return whether an error came because the running task was cancelled, and not what it awaited.

    Task groups of anyio take back more cancellations than they made, those of their child tasks too. So
    `Task.cancelling()` is read where the error is thrown into the task, by the functions of this module.
    """
    link: BaseException | None = error
    while link is not None:
        if _OF_TASK in link.__dict__:
            return True
        link = link.__cause__ or link.__context__
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def _note_cancellation(thrown: BaseException) -> None:
    task = asyncio.current_task() if isinstance(thrown, asyncio.CancelledError) else None
    if task is not None and task.cancelling():
        thrown.__dict__[_OF_TASK] = True

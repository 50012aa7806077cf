"""Side effects that happen once in a run, and keys by which others can tell that they have."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, TypeVar, cast

import anyio.to_thread

from fastroai.errors import OnceInterrupted
from fastroai.store.entries import OnceDone, OnceStarted
from fastroai.store.payloads import seal, unseal
from fastroai.store.runs import DurableRun
from fastroai.store.values import value_from_json, value_to_json

T = TypeVar("T")

_current: Final[ContextVar[OnceRegister | None]] = ContextVar("fastroai_once", default=None)

IfInterrupted = Literal["repeat", "fail"]
"""What to do with a side effect whose process died before it was on record that it had happened."""


def idempotency_key(run_id: str, place: str, name: str = "") -> str:
    """The same for every attempt at a step of a run, in every process: 32 hexadecimal digits."""
    return hashlib.sha256("\0".join((run_id, place, name)).encode()).hexdigest()[:32]


class OnceRegister:
    """The side effects of one run, and of what is nested in it, that have happened in this process."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str, str], asyncio.Future[object]] = {}

    @classmethod
    @contextmanager
    def of_run(cls) -> Iterator[OnceRegister]:
        """That of the run around this one, else a new one: what is nested may be repeated, its effects not."""
        if (around := _current.get()) is not None:
            yield around
            return
        token = _current.set(register := cls())
        try:
            yield register
        finally:
            _current.reset(token)

    async def run(
        self,
        effect: Callable[[], Awaitable[T] | T],
        *,
        durable: DurableRun | None,
        run_id: str,
        place: str,
        name: str,
        step_id: str,
        returns: type[T] | None,
        if_interrupted: IfInterrupted,
    ) -> T:
        """Its result, now or as it was. Who asks while it happens waits; one that fails is repeated."""
        key = (run_id, place, name)
        while (running := self._results.get(key)) is not None:
            await asyncio.wait([running])
            if not running.cancelled() and running.exception() is None:
                return cast("T", running.result())
            if self._results.get(key) is running:
                del self._results[key]
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._results[key] = future
        try:
            result = await _perform(effect, durable, place, name, step_id, returns, if_interrupted)
        except BaseException as error:
            future.cancel() if isinstance(error, asyncio.CancelledError) else future.set_exception(error)
            if not future.cancelled():
                future.exception()  # seen: the caller has it
            self._results.pop(key, None)
            raise
        future.set_result(result)
        return result


async def _perform(
    effect: Callable[[], Awaitable[T] | T],
    durable: DurableRun | None,
    place: str,
    name: str,
    step_id: str,
    returns: type[T] | None,
    if_interrupted: IfInterrupted,
) -> T:
    if durable is None:
        return await _call(effect)
    known = durable.recorded.once(place, name)
    if isinstance(known, OnceDone):
        return cast("T", value_from_json(unseal(known.result, durable.codec), returns))
    if known is not None and if_interrupted == "fail":
        raise OnceInterrupted(step_id, name)
    await durable.journal.commit(OnceStarted(place=place, name=name))
    result = await _call(effect)
    stored = value_to_json(result, returns, f"the result of once({name!r}) in step {step_id!r}")
    await durable.journal.commit(OnceDone(place=place, name=name, result=seal(stored, durable.codec)))
    return result


async def _call(effect: Callable[[], Awaitable[T] | T]) -> T:
    """A coroutine function on the loop, any other in a worker thread, as steps are."""
    result = effect() if inspect.iscoroutinefunction(effect) else await anyio.to_thread.run_sync(effect)
    return await result if inspect.isawaitable(result) else result

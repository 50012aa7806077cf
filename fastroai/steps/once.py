"""Side effects that happen once in a run, and keys by which others can tell that they have."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, Final, Literal, TypeVar, cast

from pydantic import ValidationError

from fastroai.errors import ConfigurationError, OnceInterrupted, RunCorrupt
from fastroai.forks import in_forked_process
from fastroai.runtime.facts import (
    OnceDone,
    OnceFailed,
    OnceStarted,
)
from fastroai.runtime.scope import Scope
from fastroai.runtime.threads import depth, work_for
from fastroai.store.log import Log, run_of
from fastroai.store.payloads import seal, unseal
from fastroai.store.runs import DurableRun
from fastroai.store.values import value_from_json, value_to_json

T = TypeVar("T")

_threads: Final[dict[int, ThreadPoolExecutor]] = {}
"""Its own, since what is left running here has to come to its end: nobody may do it again meanwhile. By the
depth of what waits, as side effects may run agents and pipelines that have side effects."""

in_forked_process(_threads.clear)  # the threads are those of the parent

logger = logging.getLogger("fastroai.steps")

IfInterrupted = Literal["repeat", "fail"]
"""What to do with a side effect whose process died before it was on record that it had happened."""


def idempotency_key(run_id: str, place: str) -> str:
    """The same for every attempt at a step of a run, in every process: 32 hexadecimal digits."""
    return hashlib.sha256("\0".join((run_id, place)).encode()).hexdigest()[:32]


def is_on_record(scope: Scope, place: str, name: str) -> bool:
    """Whether an earlier process of the run has done a side effect."""
    run = run_of(scope)
    return run is not None and isinstance(run.recorded.once(place, name), OnceDone)


class OnceRegister:
    """The side effects of one run, and of what is nested in it, that have happened in this process."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str, str], asyncio.Future[object]] = {}
        self._interrupted: set[tuple[str, str, str]] = set()

    @classmethod
    def of(cls, scope: Scope) -> OnceRegister:
        """That of the run around a scope, else a new one: what is nested may be repeated, effects not."""
        if not isinstance(scope.once, cls):
            scope.once = cls()
        return scope.once

    async def run(
        self,
        effect: Callable[[], Awaitable[T] | T],
        *,
        log: Log,
        run_id: str,
        place: str,
        name: str,
        step_id: str,
        returns: type[T] | None,
        if_interrupted: IfInterrupted,
    ) -> T:
        """Its result, now or as it was. Who asks while it happens waits; one that fails is repeated."""
        if if_interrupted not in ("repeat", "fail"):
            raise ConfigurationError("if_interrupted", if_interrupted, "'repeat' or 'fail'")
        key = (run_id, place, name)
        while (running := self._results.get(key)) is not None:
            await asyncio.wait([running])
            if not running.cancelled() and running.exception() is None:
                return cast("T", running.result())
            if self._results.get(key) is running:
                del self._results[key]
        if key in self._interrupted and if_interrupted == "fail":
            raise OnceInterrupted(step_id, name)
        future = self._results[key] = asyncio.get_running_loop().create_future()
        one = _Effect(log, place, name, step_id, returns, if_interrupted, future)
        try:
            return cast("T", await one.perform(effect))
        except asyncio.CancelledError:
            self._interrupted.add(key)  # where its result comes all the same, nobody asks for this
            raise
        finally:
            if not one.goes_on and not future.done():
                future.cancel()


@dataclass(slots=True)
class _Effect:
    """A side effect that nobody else performs now."""

    log: Log
    place: str
    name: str
    step_id: str
    returns: type[Any] | None
    if_interrupted: IfInterrupted
    result: asyncio.Future[object]
    """For others who ask; cancelled if it came to nothing."""
    goes_on: bool = False
    """Whether a thread is still busy with it after whoever waited for it was cancelled."""

    async def perform(self, effect: Callable[[], Awaitable[object] | object]) -> object:
        """Its result: the recorded one, or that of `effect`, which is on record when this returns."""
        log, run = self.log, self.log.run
        if run is not None:
            await run.check_held()
        known = None if run is None else run.recorded.once(self.place, self.name)
        if run is not None and isinstance(known, OnceDone):
            self.result.set_result(self._recorded(known, run))
            return self.result.result()
        if isinstance(known, OnceStarted) and self.if_interrupted == "fail":
            raise OnceInterrupted(self.step_id, self.name)
        await log.announce(OnceStarted(place=self.place, name=self.name))
        try:
            result = await self._call(effect)
        except Exception:
            log.note(OnceFailed(place=self.place, name=self.name))
            raise
        done = self._done(result)  # where this fails, it stays on record as begun: it has happened
        try:
            await log.commit(done)
        except asyncio.CancelledError:
            self.result.set_result(result)  # it is written all the same
            raise
        self.result.set_result(result)
        return result

    async def _call(self, effect: Callable[[], Awaitable[object] | object]) -> object:
        """A coroutine function on the loop, any other in a worker thread, as steps are."""
        if inspect.iscoroutinefunction(effect):
            return await effect()
        loop, here = asyncio.get_running_loop(), depth()
        if here not in _threads:
            _threads[here] = ThreadPoolExecutor(32, thread_name_prefix="fastroai-once")
        here_and_now = copy_context()
        thread = loop.run_in_executor(_threads[here], lambda: here_and_now.run(work_for, loop, effect))
        try:
            await asyncio.wait([thread])
        except asyncio.CancelledError:
            self.goes_on = True
            thread.add_done_callback(self._end_unattended)
            raise
        result = thread.result()
        return await result if inspect.isawaitable(result) else result

    def _end_unattended(self, thread: asyncio.Future[object]) -> None:
        """The thread has ended that could not be stopped: it has happened, for whoever asks next."""
        try:
            result = thread.result()
            if inspect.isawaitable(result):
                cast("CoroutineType[Any, Any, Any]", result).close()
                raise TypeError("there is nobody left to await it")
            self.log.note(self._done(result))
        except Exception as error:
            logger.warning("step %r: once(%r) failed unattended: %s", self.step_id, self.name, error)
            self.result.cancel()
        else:
            self.result.set_result(result)

    def _done(self, result: object) -> OnceDone:
        if (run := self.log.run) is not None:
            what = f"the result of once({self.name!r}) in step {self.step_id!r}"
            result = seal(value_to_json(result, self.returns, what), run.codec)
        return OnceDone(place=self.place, name=self.name, result=result)

    def _recorded(self, known: OnceDone, durable: DurableRun) -> object:
        try:
            return value_from_json(unseal(known.result, durable.codec), self.returns)
        except ValidationError as error:
            what = f"the result of once({self.name!r}) in {self.place!r} is not of the type that is declared"
            raise RunCorrupt(durable.run_id, 0, f"{what}: {error}") from error

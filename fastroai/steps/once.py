"""Side effects that happen once in a run, and keys by which services recognise repeated requests."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any, Final, Generic, Literal, TypeVar, cast
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from fastroai.errors import ConfigurationError, OnceInterrupted, RunCorrupt
from fastroai.forks import in_forked_process
from fastroai.places import quoted
from fastroai.runtime.concurrency.threads import depth, work_for
from fastroai.runtime.fact_base import Begins, Ends
from fastroai.runtime.facts import OnceDone, OnceFailed, OnceStarted
from fastroai.runtime.scope import Scope, current_tool_calls
from fastroai.store.record.effect import effect
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.record.payloads import unseal
from fastroai.store.record.values import value_from_json

T = TypeVar("T")

_threads: Final[dict[int, ThreadPoolExecutor]] = {}
"""Threads for side effects, apart from others, because an effect that was left running has to come to its
end: nobody may repeat it meanwhile. By depth of waiting, because side effects may run agents and pipelines
that have side effects."""

in_forked_process(_threads.clear)  # the threads are those of the parent

_registers: Final = WeakKeyDictionary[Scope, "OnceRegister"]()

logger = logging.getLogger("fastroai.steps")

IfInterrupted = Literal["repeat", "fail"]
"""How to treat a side effect whose process died before the end of the effect was on record."""


def idempotency_key(run_id: str, place: str) -> str:
    """Return a key that is the same for all attempts at a step of a run: 32 hexadecimal digits."""
    return hashlib.sha256("\0".join((run_id, place)).encode()).hexdigest()[:32]


def is_on_record(scope: Scope, place: str, name: str) -> bool:
    """Return whether an earlier process of the run has done a side effect."""
    run = run_of(scope)
    return run is not None and run.recorded.last(("once", place, name), OnceDone) is not None


class OnceRegister:
    """The side effects of one run, and of nested runs, that have happened in this process."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str, str], asyncio.Future[object]] = {}
        self._interrupted: set[tuple[str, str, str]] = set()

    @classmethod
    def of(cls, scope: Scope) -> OnceRegister:
        """Return the register of the outermost run around a scope. Repeated nested runs share it.

        Outside of runs, each scope has its own.
        """
        run = next((one for one in reversed(scope.lineage()) if one.log is not None), scope)
        return _registers.setdefault(run, cls())

    async def run(self, one: SideEffect[T]) -> T:
        """Return the result of an effect: a recorded one, or that of a call now.

        Callers that ask while the effect happens wait for it. An effect that failed is repeated.
        """
        key = (one.run_id, one.place, one.name)
        while (running := self._results.get(key)) is not None:
            await asyncio.wait([running])
            if not running.cancelled() and running.exception() is None:
                return cast("T", running.result())
            if self._results.get(key) is running:
                del self._results[key]
        if key in self._interrupted:
            one.check_repeatable()
        one.result = self._results[key] = asyncio.get_running_loop().create_future()
        try:
            return await one.perform()
        except asyncio.CancelledError:
            self._interrupted.add(key)  # not looked at if its result comes all the same
            raise
        finally:
            if not one.goes_on and not one.result.done():
                one.result.cancel()


@dataclass(slots=True, kw_only=True)
class SideEffect(Generic[T]):
    """A side effect that a step asks for."""

    effect: Callable[[], Awaitable[T] | T]
    scope: Scope
    """The scope of the code that asks, whose budgets pay for what the effect buys."""
    log: Log
    run_id: str
    place: str
    name: str
    step_id: str
    returns: type[T] | None
    if_interrupted: IfInterrupted
    result: asyncio.Future[T] = field(init=False)
    """The result for other callers; cancelled if the effect failed."""
    made: tuple[T] | None = None
    """The result, once it is about to be put on record."""
    goes_on: bool = False
    """Whether a thread is still busy with the effect after its caller was cancelled."""

    def __post_init__(self) -> None:
        if self.if_interrupted not in ("repeat", "fail"):
            raise ConfigurationError("if_interrupted", self.if_interrupted, "'repeat' or 'fail'")

    def check_repeatable(self) -> None:
        """Raise `OnceInterrupted` if nobody knows whether the effect has happened, and that matters."""
        if self.if_interrupted == "fail":
            raise OnceInterrupted(self.step_id, self.name)

    async def perform(self) -> T:
        """Return the recorded result, or that of the effect, which is on record when this returns."""
        begins = OnceStarted(place=self.place, name=self.name)
        try:
            result = await effect(
                self.log,
                begins.about,
                self._do,
                begins=begins,
                given=self._given,
                done=self._done,
                failed=lambda error: OnceFailed(place=self.place, name=self.name),
            )
        except asyncio.CancelledError:
            if self.made is not None:
                self.result.set_result(self.made[0])  # the commit goes on all the same
            raise
        self.result.set_result(result)
        return result

    def _given(self, known: Begins | Ends) -> tuple[T] | None:
        """Return the result on record; `None` if the effect has failed, or may be repeated."""
        if isinstance(known, OnceStarted):
            self.check_repeatable()
        if not isinstance(known, OnceDone):
            return None
        assert self.log.run is not None
        requests = self.log.run.recorded.requests
        inside = requests.in_effect(self.log.place(self.scope), self._key)
        self.scope.recount(inside, requests.agent_calls(inside))
        try:
            return (cast("T", value_from_json(unseal(known.result, self.log.run.codec), self.returns)),)
        except ValidationError as error:
            what = f"the result of once({self.name!r}) in {self.place!r} is not of the type that is declared"
            raise RunCorrupt(self.run_id, 0, f"{what}: {error}") from error

    @property
    def _key(self) -> str:
        """Key of the effect among those of the run."""
        return f"{self.place}/{quoted(self.name)}"

    async def _do(self) -> T:
        token = current_tool_calls.set(current_tool_calls.get().inside_effect(self._key))
        try:
            return await self._call()
        finally:
            current_tool_calls.reset(token)

    async def _call(self) -> T:
        """Call the effect like a step: a coroutine function on the loop, any other in a worker thread."""
        if inspect.iscoroutinefunction(self.effect):
            return cast("T", await self.effect())
        loop, here = asyncio.get_running_loop(), depth()
        if here not in _threads:
            _threads[here] = ThreadPoolExecutor(32, thread_name_prefix="fastroai-once")
        here_and_now = copy_context()
        thread = loop.run_in_executor(_threads[here], lambda: here_and_now.run(work_for, loop, self.effect))
        try:
            await asyncio.wait([thread])
        except asyncio.CancelledError:
            self.goes_on = True
            thread.add_done_callback(self._end_unattended)
            raise
        result = thread.result()
        return cast("T", await result if inspect.isawaitable(result) else result)

    def _end_unattended(self, thread: asyncio.Future[Any]) -> None:
        """Record the effect of a thread that could not be stopped: it has happened, for whoever asks next."""
        try:
            result = thread.result()
            if inspect.isawaitable(result):
                cast("CoroutineType[Any, Any, Any]", result).close()
                raise TypeError("its run has ended, so nothing can await it")
            self.log.note(self._done(result))
        except Exception as error:
            logger.warning(
                "step %r: once(%r) failed after its step had ended: %s", self.step_id, self.name, error
            )
            self.result.cancel()
        else:
            self.result.set_result(result)

    def _done(self, result: T) -> OnceDone:
        what = f"the result of once({self.name!r}) in step {self.step_id!r}"
        stored = self.log.stored(result, self.returns, what)
        self.made = (result,)
        return OnceDone(place=self.place, name=self.name, result=stored)

"""Waits in the middle of a step, such as for a time or a message: the wait goes on record, the step halts."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import Any, ClassVar, Final, Generic, Literal, cast

from pydantic import JsonValue
from typing_extensions import TypeVar, override

from fastroai.errors import ConfigurationError, MessageTimedOut
from fastroai.human.asking import check_deadline, json_schema_of, kept_log
from fastroai.human.halting import Halted
from fastroai.human.messages import check_name
from fastroai.records import Duration, NotGiven, in_seconds
from fastroai.runtime import Scope
from fastroai.runtime.facts import Wait, WaitEnded, WaitStarted, wait_id
from fastroai.runtime.options import check_seconds
from fastroai.store.mailbox import Message
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import log_of
from fastroai.store.record.payloads import PayloadCodec, unseal
from fastroai.store.record.values import value_from_json, value_to_json

_END_OF_DATES: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""A later time may be rounded to one in the year 10000, which has no date in Python."""
SHORT_SLEEP: Final = 10.0
"""Seconds that a sleep may have left without halting its step."""

logger = logging.getLogger("fastroai.human")

T_co = TypeVar("T_co", covariant=True, default=Any)
FactT = TypeVar("FactT", WaitStarted, WaitEnded)


class Awaited(ABC, Generic[T_co]):
    """Something that a step waits for with `ctx.wait_for`. A subclass adds a kind of wait.

    It sets `what` and implements `look`, which says whether the wait is over:

        @dataclass(frozen=True, kw_only=True)
        class FileAppears(Awaited[str]):
            name: str
            what = "file"

            async def look(self, wait: StepWait) -> WaitEnded | None:
                if Path(self.name).exists():
                    return wait.over(Path(self.name).read_text())
                wait.look_again(timedelta(minutes=1))
                return None

    If the wait is not over, the step halts and the run pauses, so a store must keep the run; `wake` runs the
    step again. The value is stored before the step gets it, so `look` is not called again after the end.
    """

    what: ClassVar[str]
    """The kind of wait, in one word. It is also the `reason_code` of a run that waits for it."""
    name: str = ""
    """A name that distinguishes this wait from others of its kind, for people and in the record."""
    value_type: Any = Any
    """The type of the value that the wait gives; by default, the value is any JSON."""

    @abstractmethod
    async def look(self, wait: StepWait) -> WaitEnded | None:
        """Look whether the wait is over. Return `wait.over(value)` if it is, and otherwise `None`.

        After `None`, the step halts. `ctx.wait_for` calls this method when the step first waits, and each
        time that the step runs again until the wait is over. Subclasses implement it.

        Call `wait.look_again` in each look that returns `None`: `wake` resumes the run when that time has
        come. After a look without this call, the time that the first look set counts. That time is past, so
        every `wake` resumes the run. If the first look set no time, only `resume` continues the run.
        """

    def result(self, ended: WaitEnded, wait: StepWait) -> T_co:
        """Return the value that the step gets from `ctx.wait_for` when the wait is over.

        This is the value of `wait.over`, read from its JSON as `value_type`. A subclass can return another
        value. `ended` may come from the store, so it can be that of an earlier process.

        Raises:
            ValueError: the value on record is not of the `value_type`.
        """
        return cast("T_co", value_from_json(unseal(ended.value, wait._codec), self.value_type))

    async def waited(self, scope: Scope, place: str, visit: int, ordinal: str) -> T_co:
        """Return the result of the wait if it is over, otherwise halt the step. Called by `ctx.wait_for`.

        If the end of the wait is on record, it is used; otherwise `look` is called. The end, or the beginning
        of the wait, is put on record. Do not call or override this method.

        Raises:
            Halted: the wait is not over, and a store keeps the run. This `BaseException` ends the step.
            ConfigurationError: the wait is not over, and no store keeps the run; or `look` returned a value
                that is neither `wait.over(...)` nor `None`.
        """
        wait = _wait_of(self, scope, place, visit, ordinal)
        log = wait._log
        known = log.waited.setdefault(("wait", wait.id), [])
        ended = next((one for one in reversed(known) if isinstance(one, WaitEnded)), None)
        if ended is None:
            ended = await self.look(wait)
            if not isinstance(ended, WaitEnded | None):
                expected = "wait.over(value) when the wait is over, otherwise None"
                raise ConfigurationError(f"{type(self).__name__}.look", ended, expected)
            if ended is None:
                started = wait._started()
                log, run = kept_log(scope, started.wait.thing)
                known.append(started)
                log.halt(run, started, place)
                raise Halted
            known.append(ended)
            await log.commit(ended)
        return self.result(ended, wait)


@dataclass(slots=True, eq=False, repr=False)
class StepWait:
    """One wait of a step, which `Awaited.look` gets as its argument.

    `now`, `began` and `deadline` are times in seconds since 1970. `look_again` sets the time of the next
    look, and `over` ends the wait. `why` can be set to the reason of the wait, for people.
    """

    _scope: Scope
    _log: Log
    _visit: int
    _awaited: Awaited[Any]
    id: str
    deadline: float | None = None
    """Time at which the step looks again, in seconds since 1970: at first, as it is on record; `None` if none
    is set."""
    began: float | None = None
    """Time at which the step first waited, in seconds since 1970; `None` if it does so now."""
    why: str = ""
    """The reason for the wait, for people. It is on record, so it must be safe to show."""
    _value_schema: dict[str, JsonValue] | None = None
    _seen: int = 0

    @property
    def now(self) -> float:
        """The present time, in seconds since 1970, by the clock of the store if one keeps the run."""
        return time() if self._log.run is None else self._log.run.now

    @property
    def _codec(self) -> PayloadCodec | None:
        """The codec of the run."""
        return None if self._log.run is None else self._log.run.codec

    def look_again(self, after: Duration) -> None:
        """Set the time of the next look, from which `wake` resumes the run: `after` from now.

        `after` is a `timedelta`, or seconds, zero or more. This sets `deadline`, returns at once and does not
        wait.

        Raises:
            ConfigurationError: `after` is not such a time, or is longer than 1,000 years.
        """
        check_seconds("after", after, zero=True)
        self.deadline = self.now + in_seconds(after)

    def over(self, value: object = None) -> WaitEnded:
        """Return the end of the wait, with its value, for `look` to return. Alone, it ends nothing.

        Raises:
            ValueNotStorable: the value is not of the `value_type`, or JSON cannot hold it.
        """
        what = f"the {self._awaited.what} that step {self._scope.name!r} has waited for"
        known = value_to_json(value, self._awaited.value_type, what)
        return self._ended(self._log.stored(known, JsonValue, what))

    def _started(self) -> WaitStarted:
        """Return the beginning of the wait."""
        return self._fact(WaitStarted, value_schema=self._value_schema, seen=self._seen)

    def _ended(self, value: object, number: int = 0, *, in_vain: bool = False) -> WaitEnded:
        """Return the end of the wait. `value` is as the log keeps it."""
        return self._fact(WaitEnded, number=number, value=value, in_vain=in_vain)

    def _fact(self, kind: Callable[..., FactT], **fields: object) -> FactT:
        scope, awaited = self._scope, self._awaited
        wait = Wait(
            what=awaited.what,
            id=self.id,
            name=awaited.name,
            deadline=self.deadline,
            began=self.now if self.began is None else self.began,
            why=self.why,
        )
        where = {"part": scope.part, "visit": self._visit, "attempt": scope.attempt}
        return kind(scope.name, wait, **where, **fields)


def _wait_of(awaited: Awaited[Any], scope: Scope, place: str, visit: int, ordinal: str) -> StepWait:
    """Return a wait of the step at a place, with what is on record of it."""
    log = log_of(scope) or Log(scope)  # outside of runs, as in a unit test of a step
    names = (ordinal, awaited.what, awaited.name) if awaited.name else (ordinal, awaited.what)
    wait = StepWait(scope, log, visit, awaited, wait_id(place, *names))
    if known := log.waited.get(("wait", wait.id)):
        wait.deadline, wait.began = known[0].wait.deadline, known[0].wait.began
    return wait


def state_of(awaited: Awaited[Any], scope: Scope, place: str, ordinal: str) -> Literal["new", "open", "over"]:
    """Return whether the step at a place waits for something, or has done so."""
    wait = _wait_of(awaited, scope, place, scope.ordinal, ordinal)
    known = wait._log.waited.get(("wait", wait.id), ())
    return "new" if not known else "over" if any(isinstance(one, WaitEnded) for one in known) else "open"


def end_wait(awaited: Awaited[Any], scope: Scope, place: str, ordinal: str, *, in_vain: bool = False) -> None:
    """Note that the step at a place waits no longer for something without a value, such as a batch.

    `in_vain` says that it has not come.
    """
    wait = _wait_of(awaited, scope, place, scope.ordinal, ordinal)
    ended = wait._ended(None, in_vain=in_vain)
    wait._log.waited["wait", wait.id].append(ended)
    wait._log.note(ended)


def deadline_of(until: Duration | datetime, now: float) -> float:
    """Return the end of a sleep that begins now, in seconds since 1970. Raises `ConfigurationError`."""
    if isinstance(until, datetime):
        if until.tzinfo is None:
            expected = "a time with a time zone, such as datetime.now(UTC) + timedelta(hours=1)"
            raise ConfigurationError("until", until, expected)
        if until >= _END_OF_DATES:
            raise ConfigurationError("until", until, "a time before the last day of the year 9999")
        return until.timestamp()
    check_seconds("until", until, zero=True)
    return now + in_seconds(until)


@dataclass(frozen=True)
class Sleep(Awaited[None]):
    """A wait for a time. It halts the step, unless no store keeps the run or little time is left."""

    what = "sleep"
    until: Duration | datetime

    def __post_init__(self) -> None:
        deadline_of(self.until, time())

    @override
    async def look(self, wait: StepWait) -> WaitEnded | None:
        is_new, now = wait.deadline is None, wait.now
        deadline = deadline_of(self.until, now) if wait.deadline is None else wait.deadline
        wait.deadline, left = deadline, deadline - now
        if wait._log.run is not None and left > SHORT_SLEEP:
            return None
        if is_new:
            wait._log.note(wait._started())
        with wait._scope.time.in_line():
            await asyncio.sleep(max(0.0, left))
        return wait._ended(None)


@dataclass(frozen=True, kw_only=True)
class Receive(Awaited[Any]):
    """A wait for a message."""

    what = "message"
    name: str
    """The name of the message."""
    value_type: Any
    timeout: Duration | None
    """Seconds from the time when the step first waits for the message."""
    on_timeout: object
    """The value to receive when the time is over; `NOT_GIVEN` raises `MessageTimedOut`."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_deadline("ctx.receive", self.timeout, self.on_timeout)

    @override
    def result(self, ended: WaitEnded, wait: StepWait) -> Any:
        if ended.number:
            return super().result(ended, wait)
        if not isinstance(self.on_timeout, NotGiven):
            return self.on_timeout
        deadline = datetime.fromtimestamp(ended.wait.deadline or 0.0, UTC)
        raise MessageTimedOut(wait._scope.run_id, self.name, deadline)

    @override
    async def look(self, wait: StepWait) -> WaitEnded | None:
        log, run = kept_log(wait._scope, f"message {self.name!r}")
        wait._value_schema = json_schema_of("value_type", self.value_type)
        if self.timeout is not None and not log.waited["wait", wait.id]:
            wait.look_again(self.timeout)
        deadline, wait._seen = wait.deadline, log.received.get(self.name, 0)
        is_over = deadline is not None and run.now >= deadline  # checked before the mail, to miss no message
        for number, message in await run.mail(after=wait._seen):
            wait._seen = number
            is_taken = message.name != self.name or number <= log.received.get(self.name, 0)
            is_late = deadline is not None and message.sent_at.timestamp() >= deadline
            if not is_taken and not is_late and self._fits(message, number, wait):
                log.received[self.name] = number
                return wait._ended(message.value, number)
        return wait._ended(None, in_vain=True) if is_over else None

    def _fits(self, message: Message, number: int, wait: StepWait) -> bool:
        try:
            value_from_json(unseal(message.value, wait._codec), self.value_type)
        except ValueError as error:
            logger.warning(
                "run %r skips message %r (number %d), which step %r cannot take: %s",
                *(wait._scope.run_id, self.name, number, wait._scope.name, error),
            )
            return False
        return True

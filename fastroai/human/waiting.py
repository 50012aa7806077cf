"""Waits in the middle of a step, for a time or a message: the wait goes on record, and the step halts."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import Any, Final

from fastroai.errors import ConfigurationError, MessageTimedOut
from fastroai.human.asking import Halted, check_deadline, json_schema_of, kept_log
from fastroai.human.messages import check_name
from fastroai.records import Duration, NotGiven, in_seconds
from fastroai.runtime import Scope
from fastroai.runtime.facts import Wait, WaitEnded, WaitStarted, wait_id
from fastroai.runtime.options import check_seconds
from fastroai.store.log import Log, log_of
from fastroai.store.mailbox import Message
from fastroai.store.payloads import PayloadCodec, unseal
from fastroai.store.runs import DurableRun
from fastroai.store.unsealing import seal_payloads
from fastroai.store.values import value_from_json

SHORT_SLEEP: Final = 10.0
"""Seconds that a sleep may have left without halting its step."""

_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()

logger = logging.getLogger("fastroai.human")


def deadline_of(until: Duration | datetime, now: float) -> float:
    """Return the end of a sleep that begins now, in seconds since 1970. Raises `ConfigurationError`."""
    if isinstance(until, datetime):
        if until.tzinfo is None:
            expected = "a time with a time zone, such as datetime.now(UTC) + timedelta(hours=1)"
            raise ConfigurationError("until", until, expected)
        return until.timestamp()
    check_seconds("until", until, zero=True)
    deadline = now + in_seconds(until)
    if deadline > _LATEST:
        raise ConfigurationError("until", until, "a time before the year 9999")
    return deadline


async def sleep(scope: Scope, place: str, visit: int, name: str, until: Duration | datetime) -> None:
    """Sleep in the step at a place. Halt the step, unless no store keeps the run or little time is left.

    Raises:
        Halted: the time is not over.
        ConfigurationError: `until` is no time.
    """
    log, key = log_of(scope), wait_id(place, name, "sleep")
    now = time() if log is None or log.run is None else log.run.now
    deadline = deadline_of(until, now)
    if log is None:  # outside of runs, as in a unit test of a step
        await asyncio.sleep(max(0.0, deadline - now))
        return
    if key in log.waited:
        return
    if (before := log.waiting.get(key)) is not None and before.wait.deadline is not None:
        deadline = before.wait.deadline
    wait = Wait(what="sleep", id=key, deadline=deadline)
    started = _started(scope, wait, visit)
    left = deadline - now
    if log.run is not None and left > SHORT_SLEEP:
        log.halt(started, None, place)
        raise Halted
    if before is None:
        log.waiting[key] = started
        log.note(started)
    with scope.in_line():
        await asyncio.sleep(max(0.0, left))
    log.waited[key] = ended = _ended(scope, wait, visit)
    log.note(ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """A wait of a step for a message."""

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

    async def received(self, scope: Scope, place: str, visit: int, ordinal: str) -> object:
        """Return the recorded message for the step at a place, or else the next message of its name.

        Raises:
            Halted: there is no message yet.
            MessageTimedOut: there is no message, the time is over, and `on_timeout` is not given.
            ConfigurationError: no store keeps the run, or there is no JSON Schema of the value.
        """
        log, run = kept_log(scope, f"message {self.name!r}")
        key = wait_id(place, ordinal, "message", self.name)
        ended = log.waited.get(key)
        if ended is None:
            ended = await self._taken(scope, place, visit, key, log, run)
        if ended.number:
            return value_from_json(unseal(ended.value, run.codec), self.value_type)
        if not isinstance(self.on_timeout, NotGiven):
            return self.on_timeout
        deadline = datetime.fromtimestamp(ended.wait.deadline or 0.0, UTC)
        raise MessageTimedOut(scope.run_id, self.name, deadline)

    async def _taken(
        self, scope: Scope, place: str, visit: int, key: str, log: Log, run: DurableRun
    ) -> WaitEnded:
        schema, before = json_schema_of("value_type", self.value_type), log.waiting.get(key)
        deadline = None if self.timeout is None else run.now + in_seconds(self.timeout)
        if before is not None:
            deadline = before.wait.deadline
        wait = Wait(what="message", id=key, name=self.name, deadline=deadline)
        seen = log.received.get(self.name, 0)
        is_over = deadline is not None and run.now >= deadline  # checked before the mail, to miss no message
        ended = _ended(scope, wait, visit) if is_over else None
        for number, message in await run.mail(after=seen):
            seen = number
            is_taken = message.name != self.name or number <= log.received.get(self.name, 0)
            is_late = deadline is not None and message.sent_at.timestamp() >= deadline
            if not is_taken and not is_late and self._fits(message, number, scope, run.codec):
                log.received[self.name] = number
                ended = _ended(scope, wait, visit, number, message.value)
                break
        if ended is None:
            started = _started(scope, wait, visit)
            started.value_schema, started.seen = schema, seen
            log.waiting[key] = started
            log.halt(started, seal_payloads(started, run.codec), place)
            raise Halted
        log.waited[key] = ended
        await log.commit(ended)
        return ended

    def _fits(self, message: Message, number: int, scope: Scope, codec: PayloadCodec | None) -> bool:
        try:
            value_from_json(unseal(message.value, codec), self.value_type)
        except ValueError as error:
            logger.warning(
                "run %r passes over message %r (number %d), which step %r cannot take: %s",
                *(scope.run_id, self.name, number, scope.name, error),
            )
            return False
        return True


def _started(scope: Scope, wait: Wait, visit: int) -> WaitStarted:
    return WaitStarted(scope.name, wait, part=scope.part, visit=visit, attempt=scope.attempt)


def _ended(scope: Scope, wait: Wait, visit: int, number: int = 0, value: object = None) -> WaitEnded:
    return WaitEnded(
        scope.name, wait, part=scope.part, visit=visit, attempt=scope.attempt, number=number, value=value
    )

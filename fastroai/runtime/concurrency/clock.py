"""The one kind of time limit: a deadline that can pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Final

from fastroai.errors import TimeLimitExceeded
from fastroai.runtime.concurrency.wakeup import running_loop


class Clock:
    """Bounds the time spent inside `async with clock:`, in seconds; `None` bounds nothing.

    Time inside `with clock.paused():` does not count; pauses nest and may overlap. When the time runs out,
    the clock cancels the code inside and raises `TimeLimitExceeded`. The cancellation of an outer clock
    passes through an inner one unchanged.
    """

    __slots__ = ("_left", "_loop", "_pauses", "_timeout", "of_attempt", "seconds", "what")

    def __init__(self, seconds: float | None, what: str, *, of_attempt: bool = False) -> None:
        """Bound the work that errors call `what`.

        A clock `of_attempt` bounds the time of work, and pauses while the work waits for its turn.
        """
        self.seconds, self.what, self.of_attempt = seconds, what, of_attempt
        self._timeout: asyncio.Timeout | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pauses = 0
        self._left = 0.0

    async def __aenter__(self) -> Clock:
        if self.seconds is not None:
            self._loop = asyncio.get_running_loop()
            self._timeout = asyncio.timeout(self.seconds)
            await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        timeout, self._timeout = self._timeout, None
        if timeout is None:
            return
        try:
            await timeout.__aexit__(exc_type, exc, traceback)
        except TimeoutError as error:
            raise self.exceeded() from error.__cause__

    @property
    def is_running(self) -> bool:
        """Whether the code is inside of `async with clock:`, and the clock bounds its time."""
        return self._timeout is not None

    @property
    def ran_out(self) -> bool:
        """Whether the time has run out, and the clock has cancelled the code inside."""
        return self._timeout is not None and self._timeout.expired()

    def exceeded(self) -> BaseException:
        """Return the exception to raise when the time has run out."""
        assert self.seconds is not None
        return TimeLimitExceeded(self.what, self.seconds)

    def remaining(self) -> float | None:
        """Return the seconds until the clock runs out; `None` if it bounds nothing now, or is paused."""
        if self._timeout is None or self._pauses or (deadline := self._timeout.when()) is None:
            return None
        assert self._loop is not None
        return deadline - self._loop.time()

    def paused(self) -> AbstractContextManager[None]:
        """Stop counting for a while. Works in worker threads too."""
        return _BOUNDS_NOTHING if self.seconds is None else _Paused(self)

    def pause(self) -> None:
        """Stop counting until `resume`, which must be called as often as this."""
        self._on_its_loop(self._pause)

    def resume(self) -> None:
        """Go on counting."""
        self._on_its_loop(self._resume)

    def _on_its_loop(self, change: Callable[[], None]) -> None:
        """Make a change in the thread of the clock's loop, to which its timeout belongs."""
        if self._loop is None or self._loop is running_loop():
            change()
        else:
            self._loop.call_soon_threadsafe(change)

    def _pause(self) -> None:
        self._pauses += 1
        timeout = self._timeout
        if self._pauses > 1 or timeout is None or timeout.expired():
            return
        deadline = timeout.when()
        assert deadline is not None
        assert self._loop is not None
        self._left = deadline - self._loop.time()
        timeout.reschedule(None)

    def _resume(self) -> None:
        self._pauses -= 1
        timeout = self._timeout
        if self._pauses or timeout is None or timeout.expired():
            return
        assert self._loop is not None
        timeout.reschedule(self._loop.time() + self._left)


class _Paused:
    """The context manager that `Clock.paused` returns; a cheap class, as streams pause for every chunk."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._clock.pause()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._clock.resume()


_BOUNDS_NOTHING: Final = nullcontext()


class WorkClock(Clock):
    """Bounds the time, in seconds, in which at least one of several workers works on a shared task.

    The clock counts while at least one worker is inside `with clock.at_work(who):` and not inside
    `with clock.at_rest(who):`. When the time runs out, nothing is cancelled: the clock calls `on_end`, once.
    """

    __slots__ = ("_alarm", "_has_rung", "_on_end", "_rests", "_working")

    def __init__(self, seconds: float, what: str, on_end: Callable[[], None]) -> None:
        """Bound the work that errors call `what`. The clock belongs to the loop that runs now."""
        super().__init__(seconds, what)
        self._loop, self._left, self._on_end = asyncio.get_running_loop(), seconds, on_end
        self._alarm: asyncio.TimerHandle | None = None
        self._has_rung = False
        self._rests: dict[object, int] = {}
        """The workers, each with the number of `at_rest` blocks that it is inside."""
        self._working = 0
        """Number of workers that are not at rest."""

    @property
    def ran_out(self) -> bool:
        """Whether the time has run out."""
        return self._has_rung

    def remaining(self) -> float | None:
        """Return the seconds until the clock runs out; `None` while nobody works."""
        if self._alarm is None:
            return None
        assert self._loop is not None
        return self._alarm.when() - self._loop.time()

    @contextmanager
    def at_work(self, who: object) -> Iterator[None]:
        """Count the time inside the `with` block, in which `who` works."""
        self._rests[who] = 0
        self._count(1)
        try:
            yield
        finally:
            if not self._rests.pop(who):
                self._count(-1)

    @contextmanager
    def at_rest(self, who: object) -> Iterator[None]:
        """Let `who` rest inside the `with` block, while it waits. Works in worker threads too."""
        self._on_its_loop(lambda: self._rest(who, 1))
        try:
            yield
        finally:
            self._on_its_loop(lambda: self._rest(who, -1))

    def _rest(self, who: object, reasons: int) -> None:
        if who not in self._rests:
            return  # the work has ended; the call comes from a thread that it left behind
        waited = bool(self._rests[who])
        self._rests[who] += reasons
        if bool(self._rests[who]) != waited:
            self._count(1 if waited else -1)

    def _count(self, more: int) -> None:
        self._working += more
        assert self._loop is not None
        if self._working and self._alarm is None and not self.ran_out:
            self._alarm = self._loop.call_later(self._left, self._ring)
        elif not self._working and self._alarm is not None:
            self._left = self._alarm.when() - self._loop.time()
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm, self._has_rung = None, True
        self._on_end()

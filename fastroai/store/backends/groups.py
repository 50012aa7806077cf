"""Groups of requests for work on a key, which are worked on one group after the other."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from fastroai.forks import in_forked_process
from fastroai.runtime.concurrency.sync import background_loop, in_background

KeyT = TypeVar("KeyT")
AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")

_Waiting: TypeAlias = tuple[AskedT, concurrent.futures.Future[AnswerT]]


class Groups(Generic[KeyT, AskedT, AnswerT]):
    """Put the requests for work on a key into groups: all that come while one group is at work are the next.

    The work is done on the background loop, because the loop of one caller may be blocked or closed while
    other callers wait, each on a loop of their own.
    """

    def __init__(
        self, work: Callable[[KeyT, Sequence[AskedT]], Awaitable[Sequence[AnswerT | Exception]]]
    ) -> None:
        """`work` returns an answer to each thing that was asked: a result, or an exception to raise there.

        An exception that `work` raises itself is raised in the whole group, and in all that wait behind it.
        """
        self._work = work
        self._start()
        in_forked_process(self._start)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[KeyT, list[_Waiting[AskedT, AnswerT]]] = {}
        """What waits for the next group, by key. A key is here while a group of it is at work."""

    async def ask(self, key: KeyT, asked: AskedT) -> AnswerT:
        """Have something done in the next group of a key.

        If this is cancelled before that group is at work, it is not done; later, it is done all the same.
        """
        answer: concurrent.futures.Future[AnswerT] = concurrent.futures.Future()
        background_loop()  # if its thread cannot start, this raises before anybody is in line
        with self._lock:
            is_first = key not in self._lines
            self._lines.setdefault(key, []).append((asked, answer))
        if is_first:
            in_background(self._serve(key))
        return await asyncio.wrap_future(answer)

    async def _serve(self, key: KeyT) -> None:
        while (group := self._next(key)) is not None:
            answers: Sequence[AnswerT | BaseException]
            try:
                answers = await self._work(key, [asked for asked, _ in group])
            except BaseException as error:  # it is raised where it can be handled: with those who asked
                group += self._taken(key)
                answers = [error] * len(group)
            for (_, future), answer in zip(group, answers, strict=True):
                if isinstance(answer, BaseException):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _next(self, key: KeyT) -> list[_Waiting[AskedT, AnswerT]] | None:
        """Return the next group of a key; `None` if nobody waits, and then the key has none at work."""
        with self._lock:
            if not self._lines[key]:
                del self._lines[key]
                return None
        return self._taken(key)

    def _taken(self, key: KeyT) -> list[_Waiting[AskedT, AnswerT]]:
        """Take all that wait out of the line, without what was cancelled."""
        with self._lock:
            line, self._lines[key] = self._lines[key], []
        return [waiting for waiting in line if waiting[1].set_running_or_notify_cancel()]

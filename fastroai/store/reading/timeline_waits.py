"""What steps and calls waited for, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fastroai.runtime import facts
from fastroai.runtime.fact_base import Fact, Key, RequestInLine
from fastroai.store.reading.explanation import LEAST_WAIT
from fastroai.store.reading.timeline_rows import TimelineWait
from fastroai.store.record.attempts import StepAttempt
from fastroai.store.record.payloads import masked

TOLD_AFTER: Final = timedelta(seconds=1)
"""Time after which a run tells that a request waits."""


def retries(attempts: Sequence[StepAttempt]) -> Iterator[TimelineWait]:
    """Yield the waits between the attempts at a step."""
    for attempt, following in zip(attempts, [*attempts[1:], None], strict=True):
        if attempt.delay is not None and attempt.ended_at is not None:
            why = "" if attempt.failure is None else str(attempt.failure)
            until = None if following is None else following.started_at
            yield TimelineWait("retry", why, attempt.ended_at, until)


def waits_in(entries: Iterable[Fact]) -> Iterator[tuple[str, str, TimelineWait]]:
    """Yield all waits but those between attempts, each with its place and the agent call that waited.

    They come in the order of their ends; waits that have not ended come last.
    """
    reader = _Waits()
    for entry in entries:
        yield from reader.read(entry)
    yield from reader.open.values()


class _Waits:
    """Reads the waits from the facts of a log."""

    def __init__(self) -> None:
        self.open: dict[Key, tuple[str, str, TimelineWait]] = {}
        self._sent: dict[str, facts.RequestSent] = {}
        self._why: dict[str, str] = {}
        """What requests have waited for, by place."""

    def read(self, entry: Fact) -> Iterator[tuple[str, str, TimelineWait]]:
        match entry:
            case facts.QuestionAsked() | facts.WaitStarted():
                self.open.setdefault(entry.about, (entry.place, "", _wait(entry.wait, entry.at)))
            case facts.AnswerGiven() | facts.WaitEnded():
                yield from self._end(entry.about, entry.at)
            case RequestInLine(has_waited=False):
                wait = TimelineWait("limit", entry.waits_for, entry.at - TOLD_AFTER, None)
                self.open[entry.about] = (entry.place, "", wait)
            case RequestInLine():
                self.open.pop(entry.about, None)
                self._why[entry.place] = entry.waits_for
            case facts.RequestSent():
                self._sent[entry.id] = entry
            case facts.RequestEnded() if (sent := self._sent.pop(entry.id, None)) is not None:
                yield from self._before(sent, entry)
            case facts.RunFinished(status="paused"):
                pass
            case facts.RunFinished():
                for about in list(self.open):
                    yield from self._end(about, entry.at)
            case _:
                pass

    def _end(self, about: Key, at: datetime) -> Iterator[tuple[str, str, TimelineWait]]:
        if (found := self.open.pop(about, None)) is not None:
            place, call, wait = found
            yield place, call, replace(wait, ended_at=at)

    def _before(
        self, sent: facts.RequestSent, ended: facts.RequestEnded
    ) -> Iterator[tuple[str, str, TimelineWait]]:
        """Yield the wait of a request for budgets and limits, if it was long enough."""
        why = self._why.pop(sent.where, "a budget or a limit")
        waited = timedelta(milliseconds=ended.record.waited_ms)
        if waited.total_seconds() >= LEAST_WAIT:
            at = ended.record.started_at or sent.at
            wait = TimelineWait("limit", why, at - waited, at)
            yield sent.where, masked(sent.request.call), wait


def _wait(wait: facts.Wait, at: datetime) -> TimelineWait:
    return TimelineWait(wait.what, wait.in_full, at, None)

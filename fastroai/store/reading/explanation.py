"""A run told in sentences, one a line: those of its facts, with costs and times."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from fastroai.records import dollars
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Fact, RunFact
from fastroai.store.record.attempts import StepAttempt
from fastroai.store.record.definitions import version_of, word_for
from fastroai.store.record.payloads import is_sealed_definition, masked

LEAST_WAIT: Final = 0.1
"""Seconds. A shorter wait of requests for budgets and limits is not mentioned."""


def explain(
    entries: Sequence[Fact], attempts: Iterable[StepAttempt], told: Collection[int] | None = None
) -> str:
    """Return the sentences, one a line, each with its time in seconds from the first entry.

    `told` has the `id()` of the entries to tell; `None` means all of them.
    """
    start = entries[0].at
    return "\n".join(
        f"{max(0.0, (entry.at - start).total_seconds()):9.3f} s  {masked(' '.join(sentence.splitlines()))}"
        for entry, sentence in _Told(attempts).sentences(entries)
        if told is None or id(entry) in told
    )


class _Told:
    """The log as far as it has been told: the `Telling` of its facts."""

    def __init__(self, attempts: Iterable[StepAttempt]) -> None:
        self.running: dict[str, None] = {}
        self._ended: dict[tuple[str, datetime], tuple[int, StepAttempt]] = {}
        """Attempts by place and by the time at which they ended, with their numbers from 1 at each place."""
        numbers = Counter[str]()
        self._interrupted: defaultdict[str, deque[StepAttempt]] = defaultdict(deque)
        """Attempts that never ended, by place, in the order in which they were made."""
        for attempt in attempts:
            numbers[attempt.place] += 1
            if attempt.ended_at is not None:
                self._ended[attempt.place, attempt.ended_at] = numbers[attempt.place], attempt
            elif attempt.status == "interrupted":
                self._interrupted[attempt.place].append(attempt)

    def sentences(self, entries: Iterable[Fact]) -> Iterator[tuple[Fact, str]]:
        for entry in entries:
            for sentence in entry.sentences(self):
                yield entry, sentence
            self._update_running(entry)

    def _update_running(self, entry: Fact) -> None:
        if isinstance(entry, facts.RunFinished) or (isinstance(entry, RunFact) and entry.reopens):
            self.running.clear()
        elif isinstance(entry, facts.StepStarted):
            self.running[entry.place] = None
        elif isinstance(entry, facts.StepEnds) or (
            isinstance(entry, facts.QuestionAsked | facts.AnswerGiven) and not entry.name
        ):
            self.running.pop(entry.place, None)  # a pause node ends with its question, a gate may without one

    def attempt(self, place: str, ended_at: datetime) -> tuple[int, str]:
        number, attempt = self._ended.get((place, ended_at), (1, None))
        return number, _cost(attempt)

    def cost_until(self, place: str, by: datetime) -> str:
        attempts, last = self._interrupted.get(place, deque()), None
        while attempts and attempts[0].started_at < by:
            last = attempts.popleft()
        return _cost(last)

    def shape(self, definition: JsonValue) -> str:
        return word_for(definition)

    def version(self, definition: JsonValue) -> str:
        version = version_of(definition)
        return "" if version is None else f" (version {version!r})"

    def unread(self, definition: JsonValue) -> str:
        if not is_sealed_definition(definition):
            return ""
        return "; texts are sealed: read them with RunHistory(store, codec=...), or --codec"


def _cost(attempt: StepAttempt | None) -> str:
    if attempt is None or not (attempt.usage.request_count or attempt.usage.failed_requests):
        return ""
    more = "" if attempt.usage.cost_complete else " and what is not known"
    seconds = sum(record.waited_ms for record in attempt.records) / 1000
    waited = f" that waited {seconds:.3g} s for budgets and limits" if seconds >= LEAST_WAIT else ""
    return f" ({_count(attempt.usage.request_count)}{waited}, {dollars(attempt.usage.cost_usd)}{more})"


def _count(requests: int) -> str:
    return f"{requests} request" if requests == 1 else f"{requests} requests"

"""The attempts at each step of a run, read from its log entry by entry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pydantic import JsonValue

from fastroai.places import attempt_around, quoted, split_attempt, step_name
from fastroai.records import RequestRecord, Usage
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Begins, Ends, Fact, FailureFacts, PlacedFact, RunFact
from fastroai.store.record.definitions import definition_at, needs_of
from fastroai.store.record.requests_on_record import ChargeOnRecord, ChargesOnRecord

AttemptStatus = Literal[
    "running", "succeeded", "incomplete", "retried", "failed", "interrupted", "cancelled", "reused"
]
"""How an attempt ended.

`incomplete`: with a `ConversationState` that asks for more, or with a question to a person. `retried`: it
failed and another followed. `interrupted`: its process died. `cancelled`: the run, or the step around it,
ended first. `reused`: its output is that of the run which this one was forked from.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A request that was sent, with its record, which is unmeasured if the end is not on record."""

    call: str
    """The agent call that sent the request: its ordinal in the attempt, or its name."""
    fingerprint: str
    """Hash of the request as it was sent."""
    record: RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAttempt:
    """One attempt at a step."""

    place: str
    """The step, as in `write` or `write@1/inner/check`."""
    step: str
    """The id of the step."""
    attempt: int
    """Number of the attempt, from 1. An attempt that was interrupted is made again under the same number."""
    status: AttemptStatus
    cause: str | None
    """Why the attempt was started. Only the first attempt, and those that began with a resume, have a cause.
    """
    started_at: datetime
    ended_at: datetime | None
    input: dict[str, JsonValue]
    """`{"inputs": …, "outputs": …}`: the run's inputs and the outputs of the direct dependencies, by step id.

    `inputs` is missing in a nested pipeline, whose inputs are not on record.
    """
    output: JsonValue = None
    failure: FailureFacts | None = None
    delay: float | None = None
    """Seconds to wait before the next attempt, if one followed."""
    usage: Usage
    """Spending of the attempt, at any depth."""
    records: tuple[RequestRecord, ...]
    """Spending of the attempt, request by request, at any depth."""
    requests: tuple[SentRequest, ...] = ()
    """Requests that the attempt sent itself, without those of nested steps, in order."""
    call_retries: tuple[facts.StepRetried, ...] = ()
    """Failures of agent calls in the attempt that were followed by another try."""


@dataclass(slots=True)
class _Draft:
    """An attempt that is built up while the log is read."""

    place: str
    attempt: int
    started_at: datetime
    input: dict[str, JsonValue]
    cause: str | None = None
    status: AttemptStatus = "running"
    ended_at: datetime | None = None
    output: JsonValue = None
    failure: FailureFacts | None = None
    delay: float | None = None
    spent: list[ChargeOnRecord] = field(default_factory=list)
    call_retries: list[facts.StepRetried] = field(default_factory=list)

    def finished(self) -> StepAttempt:
        records = [spent.record for spent in self.spent]
        return StepAttempt(
            place=self.place,
            step=step_name(self.place),
            attempt=self.attempt,
            status=self.status,
            cause=self.cause,
            started_at=self.started_at,
            ended_at=self.ended_at,
            input=self.input,
            output=self.output,
            failure=self.failure,
            delay=self.delay,
            usage=Usage.of(records),
            records=tuple(records),
            requests=tuple(
                SentRequest(call=sent.request.call, fingerprint=sent.request.fingerprint, record=spent.record)
                for spent in self.spent
                if isinstance(sent := spent.begins, facts.RequestSent)
                and split_attempt(sent.where)[0] == self.place
            ),
            call_retries=tuple(self.call_retries),
        )


class Attempts:
    """Reads the attempts of a run from its whole log, in time linear in entries and dependencies."""

    def __init__(self, entries: Iterable[Fact]) -> None:
        self._waiting: dict[str, tuple[int, datetime]] = {}
        """Steps that wait for their next attempt, with the number of that attempt and its time."""
        self._drafts: list[_Draft] = []
        self._open: dict[str, _Draft] = {}
        self._open_inside: defaultdict[str, set[str]] = defaultdict(set)
        """Places of open steps, by the attempt around them."""
        self._last: dict[str, _Draft] = {}
        self._charges = ChargesOnRecord()
        self.inputs: dict[str, JsonValue] = {}
        """The inputs of the run, with those that were given anew."""
        self.definition: JsonValue = None
        """The last definition."""
        self._outputs: dict[str, JsonValue] = {}
        for entry in entries:
            self._read(entry)

    def finished(self) -> tuple[StepAttempt, ...]:
        """Return all attempts, in the order in which they started."""
        return tuple(draft.finished() for draft in self._drafts)

    def _read(self, entry: Fact) -> None:
        match entry:
            case facts.RunStarted():
                self.inputs, self.definition = dict(entry.inputs), entry.definition
            case facts.RunResumed():
                self._end_all("interrupted", None)
                self.inputs = {**self.inputs, **entry.inputs}
                self.definition = entry.definition or self.definition
            case RunFact() if entry.reopens or isinstance(entry, facts.RunFinished):
                self._end_all("cancelled", entry.at)
            case facts.StepStarted():
                self._start(entry)
            case facts.StepRetried(unit="call"):
                if (draft := self._at(entry.place, entry.at)) is not None:
                    draft.call_retries.append(entry)
            case facts.StepRetried() | facts.StepFinished() | facts.StepFailed():
                self._end_attempt(entry)
            case facts.StepEnds():
                self._end_open(entry, "incomplete" if entry.outcome == "incomplete" else "cancelled")
            case facts.QuestionAsked(name=""):  # of a pause node, which ends with it
                self._end_open(entry, "incomplete", entry.question)
            case facts.AnswerGiven(name=""):
                self._read_answer(entry)
            case Begins() | Ends() if entry.spending is not None:
                with suppress(KeyError):  # the end of what never began
                    spent = self._charges.read(entry, entry.spending, 0)  # no attempt asks for positions
                    if spent is not None:
                        self._spend(spent)
            case PlacedFact() if not isinstance(entry, facts.CallEnded):
                self._at(entry.place, entry.at)  # the attempt has begun, if it was waited for
            case _:
                pass

    def _end_open(self, entry: facts.StepFact, status: AttemptStatus, output: JsonValue = None) -> None:
        if (draft := self._open.get(entry.place)) is not None:
            draft.output = output
            self._end(draft, status, entry.at)

    def _read_answer(self, entry: facts.AnswerGiven) -> None:
        if (asked := self._last.get(entry.place)) is not None:
            if entry.place in self._open:  # a gate that was not asked, because of its policy
                self._end(asked, "succeeded", entry.at)
            self._outputs[entry.place] = asked.output = entry.answer
            asked.status, asked.ended_at = "succeeded", entry.at

    # --- attempts begin ---

    def _start(self, entry: facts.StepStarted) -> None:
        if (around := attempt_around(entry.place)) is not None:
            self._at(around, entry.at)
        if (before := self._open.get(entry.place)) is not None:
            self._end(before, "interrupted", None)
        number = self._waiting.pop(entry.place, (0, entry.at))[0] or self._next_number(entry.place)
        self._begin(entry.place, number, entry.at).cause = entry.cause

    def _next_number(self, place: str) -> int:
        last = self._last.get(place)
        if last is None:
            return 1
        return last.attempt if last.status in ("interrupted", "cancelled") else last.attempt + 1

    def _begin(self, place: str, number: int, at: datetime) -> _Draft:
        draft = _Draft(place, number, at, self._input_of(place))
        self._drafts.append(draft)
        self._open[place] = self._last[place] = draft
        if (around := attempt_around(place)) is not None:
            self._open_inside[around].add(place)
        return draft

    def _at(self, place: str, at: datetime) -> _Draft | None:
        """Return the attempt that a fact belongs to, if any. An attempt that was waited for begins now."""
        step, number = split_attempt(place)
        draft = self._open.get(step)
        if draft is not None and number is not None:
            draft.attempt = number
        if draft is None and step in self._waiting:
            number, due = self._waiting.pop(step)
            return self._begin(step, number, min(due, at))
        return draft or self._last.get(step)

    def _input_of(self, place: str) -> dict[str, JsonValue]:
        parent, slash, _ = place.rpartition("/")
        needs = needs_of(definition_at(self.definition, place), step_name(place))
        outputs = {
            before: self._outputs[key]
            for before in needs
            if (key := f"{parent}{slash}{quoted(before)}") in self._outputs
        }
        return {"outputs": outputs} if slash else {"inputs": self.inputs, "outputs": outputs}

    # --- attempts end ---

    def _end_attempt(self, entry: facts.StepRetried | facts.StepFinished | facts.StepFailed) -> None:
        draft = self._at(f"{entry.place}@{entry.attempt}", entry.at)
        status: AttemptStatus = "reused" if draft is None else "succeeded"
        if draft is None or draft.status != "running":
            draft = self._begin(entry.place, entry.attempt, entry.at)
        if isinstance(entry, facts.StepRetried):
            draft.failure, draft.delay, status = entry.failure, entry.delay, "retried"
            self._waiting[entry.place] = entry.attempt + 1, entry.at + timedelta(seconds=entry.delay)
        elif isinstance(entry, facts.StepFailed):
            draft.failure, draft.output, status = entry.failure, entry.output, "failed"
        else:
            self._outputs[entry.place] = draft.output = entry.output
            status = "incomplete" if entry.outcome == "incomplete" else status
        self._end(draft, status, entry.at)

    def _end(self, draft: _Draft, status: AttemptStatus, at: datetime | None) -> None:
        """End an attempt and those still open inside: interrupted if it was interrupted, else cancelled."""
        ending = [(draft, status)]
        inside: AttemptStatus = "interrupted" if status == "interrupted" else "cancelled"
        while ending:
            draft, draft.status = ending.pop()
            draft.ended_at = at
            del self._open[draft.place]
            if (around := attempt_around(draft.place)) is not None:
                self._open_inside[around].discard(draft.place)
            nested = self._open_inside.pop(f"{draft.place}@{draft.attempt}", ())
            ending += [(self._open[place], inside) for place in nested]

    def _end_all(self, status: AttemptStatus, at: datetime | None) -> None:
        for draft in list(self._open.values()):
            if draft.place in self._open:
                self._end(draft, status, at)

    # --- spending ---

    def _spend(self, spent: ChargeOnRecord) -> None:
        """Add a charge to the spending of the attempt that made it, and of all attempts around that one."""
        around: str | None = spent.begins.where
        while around:
            if (draft := self._at(around, spent.begins.at)) is not None:
                draft.spent.append(spent)
            around = attempt_around(around)

"""A run told in sentences: what happened and why, from the causes on record."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from pydantic import JsonValue

from fastroai.runtime import facts
from fastroai.store.attempts import StepAttempt
from fastroai.store.definitions import version_of, word_for
from fastroai.store.payloads import is_sealed_definition, masked

LEAST_WAIT: Final = 0.1
"""Seconds. A shorter wait of requests is not mentioned."""

_ByEnd: TypeAlias = Mapping[tuple[str, datetime], StepAttempt]
"""Attempts by step and by the time at which they ended."""
_Interrupted: TypeAlias = Mapping[str, deque[StepAttempt]]
"""Attempts that never ended, by step, in the order in which they were made."""

_ENDINGS: Final = {
    "finished": "the run finished",
    "paused": "the run paused",
    "failed": "the run failed",
    "cancelled": "the run was cancelled",
}


def explain(entries: Sequence[facts.AnyFact], attempts: Iterable[StepAttempt]) -> str:
    """Return the sentences, one a line, each with its time in seconds from the first entry."""
    ended: dict[tuple[str, datetime], StepAttempt] = {}
    interrupted: defaultdict[str, deque[StepAttempt]] = defaultdict(deque)
    for attempt in attempts:
        if attempt.ended_at is not None:
            ended[attempt.place, attempt.ended_at] = attempt
        elif attempt.status == "interrupted":
            interrupted[attempt.place].append(attempt)
    start = entries[0].at
    lines = [
        f"{max(0.0, (entry.at - start).total_seconds()):9.3f} s  {masked(' '.join(sentence.splitlines()))}"
        for entry, sentence in _sentences(entries, ended, interrupted)
    ]
    return "\n".join(lines)


def _sentences(
    entries: Sequence[facts.AnyFact], ended: _ByEnd, interrupted: _Interrupted
) -> Iterator[tuple[facts.AnyFact, str]]:
    running: dict[str, None] = {}
    for entry in entries:
        match entry:
            case facts.RunStarted():
                yield entry, _opened(entry)
            case facts.RunResumed():
                yield entry, _resumed(entry, running, interrupted)
                running.clear()
            case facts.RunFinished():
                yield entry, _ended(entry, running, ended)
                running.clear()
            case facts.StepStarted():
                running[entry.place] = None
                yield entry, f"{entry.place}: started, because {entry.cause}"
            case facts.StepSkipped():
                yield entry, f"{entry.place}: skipped, because {entry.cause}"
            case facts.StepRetried(unit="step"):
                yield entry, _retried(entry, ended)
            case facts.StepRetried():
                call = f"agent call {entry.call}, attempt {entry.attempt}"
                yield entry, f"{entry.place}: {call}, {_failed(entry.failure)}; {_wait(entry.delay)}"
            case facts.StepFinished() if entry.place not in running:
                yield entry, f"{entry.place}: its output is taken over, and it does not run"
            case facts.StepFinished():
                running.pop(entry.place, None)
                yield entry, f"{entry.place}: {_output(entry)}{_cost(ended.get((entry.place, entry.at)))}"
            case facts.StepFailed():
                running.pop(entry.place, None)
                failed = f"attempt {entry.attempt} {_failed(entry.failure)}"
                yield entry, f"{entry.place}: {failed}{_cost(ended.get((entry.place, entry.at)))}"
            case facts.StepCancelled():
                running.pop(entry.place, None)
                yield entry, f"{entry.place}: cancelled, because {entry.cause}"
            case facts.EdgesResolved():
                for edge in entry.edges:
                    taken = "taken" if edge.taken else "not taken"
                    yield (
                        entry,
                        f"{entry.place}: the {edge.when} edge to {edge.target!r} is {taken}: {edge.why}",
                    )
            case facts.BranchTimedOut():
                yield entry, f"branch {entry.branch!r} {_failed(entry.failure)}"
            case facts.StepHalted():
                running.pop(entry.place, None)
                halted = _cost(ended.get((entry.place, entry.at)))
                waits = ", ".join(f"and {wait}" for wait in entry.waits)
                why = waits or "because a pause was requested"
                yield entry, f"{entry.place}: halted, {why}{halted}"
            case facts.QuestionAsked(name=name) if name:
                yield entry, f"{entry.place}: asks a person (question {entry.id})"
            case facts.QuestionAsked():
                running.pop(entry.place, None)
                asked = _cost(ended.get((entry.place, entry.at)))
                yield entry, f"{entry.place}: asks a person, and waits for the answer{asked}"
            case facts.AnswerGiven():
                who = entry.reviewer or "a person"
                why = f", because {entry.rationale}" if entry.rationale else ""
                yield entry, f"{entry.place}: {who} has answered{why}"
            case facts.WaitStarted(wait=wait):
                yield entry, f"{entry.place}: {wait}"
            case facts.WaitEnded(wait=wait, number=number):
                what = "has slept" if wait.what == "sleep" else f"message {wait.name!r} has not come in time"
                received = f"has received message {wait.name!r} (number {number})"
                yield entry, f"{entry.place}: {received if number else what}"
            case facts.CallEnded():
                ended_so = "returned" if entry.failure is None else _failed(entry.failure)
                yield entry, f"{entry.place}: the call, attempt {entry.attempt}, {ended_so}"
            case facts.ReplayDiverged():
                what = "sends another request than the one on record, which is paid for"
                yield entry, f"{entry.place}: agent call {entry.call} {what}"
            case facts.OnceStarted():
                yield entry, f"{entry.place}: does {entry.name!r}, once in this run"
            case facts.SkipRequested():
                running.pop(entry.place, None)
                why = f", because {entry.reason}" if entry.reason else ""
                yield entry, f"{entry.place}: somebody skipped it{why}"
            case facts.IterationStarted():
                yield entry, f"{entry.place}: a loop of iterations began"
            case facts.IterationReported():
                yield entry, f"{entry.place}: an iteration has given a result"
            case facts.IterationAborted():
                why = f", because {entry.reason}" if entry.reason else ""
                yield entry, f"{entry.place}: the loop was aborted{why}"
            case facts.CheckpointSet():
                yield entry, f"checkpoint {entry.label!r} was set"
            case facts.CheckpointRestored():
                running.clear()
                yield entry, f"the run went back to checkpoint {entry.label!r}"
            case (
                facts.PauseRequested()
                | facts.StopRequested()
                | facts.ValueWritten()
                | facts.MessagesAdded()
                | facts.RequestSent()
            ):
                pass
            case (
                facts.RequestEnded()
                | facts.SpendingRecorded()
                | facts.ToolEnded()
                | facts.OnceDone()
                | facts.OnceFailed()
            ):
                pass
            case _:
                assert_never(entry)


def _opened(entry: facts.RunStarted) -> str:
    source = f", forked from {entry.forked_from!r}" if entry.forked_from else ""
    what = f"{word_for(entry.definition)} {entry.pipeline!r}{_version(entry.definition)}"
    unread = "; texts are sealed: read them with RunHistory(store, codec=...), or --codec"
    sealed = unread if is_sealed_definition(entry.definition) else ""
    return f"run {entry.run_id!r} of {what} began{source}{sealed}"


def _version(definition: JsonValue) -> str:
    version = version_of(definition)
    return "" if version is None else f" (version {version!r})"


def _resumed(entry: facts.RunResumed, running: Iterable[str], interrupted: _Interrupted) -> str:
    stopped = ", ".join(f"{place}{_cost(_cut_off(place, entry.at, interrupted))}" for place in running)
    found = f"; its process had died or stopped in {stopped}" if stopped else ""
    given = f"; inputs given anew: {', '.join(entry.inputs)}" if entry.inputs else ""
    changed = (
        f"; the {word_for(entry.definition)} had changed{_version(entry.definition)}"
        if entry.definition
        else ""
    )
    return f"the run was resumed{found}{given}{changed}"


def _cut_off(place: str, by: datetime, interrupted: _Interrupted) -> StepAttempt | None:
    """Return the last attempt at a step that was interrupted before a time; `None` if the step waited."""
    attempts, last = interrupted.get(place, deque()), None
    while attempts and attempts[0].started_at < by:
        last = attempts.popleft()
    return last


def _ended(entry: facts.RunFinished, running: Iterable[str], ended: _ByEnd) -> str:
    stopped = ", ".join(f"{place}{_cost(ended.get((place, entry.at)))}" for place in running)
    why = f": {_error(entry.failure)}" if entry.failure is not None else ""
    cancelled = f"; cancelled with it: {stopped}" if stopped else ""
    return f"{_ENDINGS.get(entry.status, entry.status)}{why}{cancelled}"


def _retried(entry: facts.StepRetried, ended: _ByEnd) -> str:
    failed = f"attempt {entry.attempt} {_failed(entry.failure)}{_cost(ended.get((entry.place, entry.at)))}"
    return f"{entry.place}: {failed}; {_wait(entry.delay)}"


def _wait(delay: float) -> str:
    return f"tried again after {delay:.3g} s" if delay else "tried again at once"


def _output(entry: facts.StepFinished) -> str:
    what = "asked for more from the user" if entry.conversation == "incomplete" else "finished"
    return f"{what} at attempt {entry.attempt}"


def _failed(failure: facts.FailureFacts) -> str:
    return f"failed ({failure.failure_class}): {_error(failure)}"


def _error(failure: facts.FailureFacts) -> str:
    message = " ".join(failure.message.split())
    return f"{failure.error_type}: {message}" if message else failure.error_type


def _cost(attempt: StepAttempt | None) -> str:
    if attempt is None or not (attempt.usage.request_count or attempt.usage.failed_requests):
        return ""
    more = "" if attempt.usage.cost_complete else " and what is not known"
    seconds = sum(record.waited_ms for record in attempt.records) / 1000
    waited = f" that waited {seconds:.3g} s for budgets and limits" if seconds >= LEAST_WAIT else ""
    return f" ({_count(attempt.usage.request_count)}{waited}, ${attempt.usage.cost_usd}{more})"


def _count(requests: int) -> str:
    return f"{requests} request" if requests == 1 else f"{requests} requests"

"""A run as sentences: why each thing in it happened, from the causes that are on record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from fastroai.records import Usage
from fastroai.store.attempts import StepAttempt
from fastroai.store.entries import (
    AnyEntry,
    CallRetry,
    FailureFacts,
    OnceStarted,
    ReplayDiverged,
    RunEnded,
    RunOpened,
    RunResumed,
    StepFailure,
    StepOutput,
    StepRetry,
    StepSkip,
    StepStart,
)

_ENDINGS: Final = {
    "finished": "the run finished",
    "waiting": "the run waits: a step needs more from the user",
    "failed": "the run failed",
    "cancelled": "the run was cancelled",
}


def explain(entries: Sequence[AnyEntry], attempts: Iterable[StepAttempt]) -> str:
    """The lines, each with its time in seconds from the first entry."""
    spent: dict[tuple[str, datetime], Usage] = {
        (attempt.place, attempt.ended_at): attempt.usage
        for attempt in attempts
        if attempt.ended_at is not None
    }
    start = entries[0].at
    lines = [
        f"{max(0.0, (entry.at - start).total_seconds()):9.3f} s  {' '.join(sentence.splitlines())}"
        for entry, sentence in _sentences(entries, spent)
    ]
    return "\n".join(lines)


def _sentences(
    entries: Sequence[AnyEntry], spent: Mapping[tuple[str, datetime], Usage]
) -> Iterator[tuple[AnyEntry, str]]:
    running: dict[str, None] = {}
    for entry in entries:
        match entry:
            case RunOpened():
                yield entry, _opened(entry)
            case RunResumed():
                yield entry, _resumed(entry, running)
                running.clear()
            case RunEnded():
                yield entry, _ended(entry, running)
                running.clear()
            case StepStart():
                running[entry.place] = None
                yield entry, f"{entry.place}: started, because {entry.cause}"
            case StepSkip():
                yield entry, f"{entry.place}: skipped, because {entry.cause}"
            case StepRetry():
                yield entry, _retried(entry, spent)
            case CallRetry():
                call = f"agent call {entry.call}, attempt {entry.attempt}"
                yield entry, f"{entry.place}: {call}, {_failed(entry.failure)}; {_wait(entry.delay)}"
            case StepOutput() if entry.place not in running:
                yield entry, f"{entry.place}: its output is taken over, and it does not run"
            case StepOutput():
                running.pop(entry.place, None)
                yield entry, f"{entry.place}: {_output(entry)}{_cost(entry, spent)}"
            case StepFailure():
                running.pop(entry.place, None)
                failed = f"attempt {entry.attempt} {_failed(entry.failure)}"
                yield entry, f"{entry.place}: {failed}{_cost(entry, spent)}"
            case ReplayDiverged():
                what = "sends another request than the one on record, which is paid for"
                yield entry, f"{entry.place}: agent call {entry.call} {what}"
            case OnceStarted():
                yield entry, f"{entry.place}: does {entry.name!r}, once in this run"
            case _:
                pass


def _opened(entry: RunOpened) -> str:
    source = f", forked from {entry.forked_from!r}" if entry.forked_from else ""
    return f"run {entry.run_id!r} of pipeline {entry.pipeline!r} began{source}"


def _resumed(entry: RunResumed, running: Iterable[str]) -> str:
    interrupted = ", ".join(running)
    found = f"; its process had died or stopped in {interrupted}" if interrupted else ""
    given = f"; inputs given anew: {', '.join(entry.inputs)}" if entry.inputs else ""
    changed = "; the pipeline had changed, and it was resumed by force" if entry.definition else ""
    return f"the run was resumed{found}{given}{changed}"


def _ended(entry: RunEnded, running: Iterable[str]) -> str:
    stopped = ", ".join(running)
    why = f": {_error(entry.failure)}" if entry.failure is not None else ""
    cancelled = f"; cancelled with it: {stopped}" if stopped else ""
    return f"{_ENDINGS.get(entry.status, entry.status)}{why}{cancelled}"


def _retried(entry: StepRetry, spent: Mapping[tuple[str, datetime], Usage]) -> str:
    failed = f"attempt {entry.attempt} {_failed(entry.failure)}{_cost(entry, spent)}"
    return f"{entry.place}: {failed}; {_wait(entry.delay)}"


def _wait(delay: float) -> str:
    return f"tried again after {delay:.3g} s" if delay else "tried again at once"


def _output(entry: StepOutput) -> str:
    what = "asked for more from the user" if entry.conversation == "incomplete" else "finished"
    return f"{what} at attempt {entry.attempt}"


def _failed(failure: FailureFacts) -> str:
    return f"failed ({failure.failure_class}): {_error(failure)}"


def _error(failure: FailureFacts) -> str:
    message = " ".join(failure.message.split())
    return f"{failure.error_type}: {message}" if message else failure.error_type


def _cost(entry: StepRetry | StepOutput | StepFailure, spent: Mapping[tuple[str, datetime], Usage]) -> str:
    usage = spent.get((entry.place, entry.at))
    if usage is None or not (usage.request_count or usage.failed_requests):
        return ""
    more = "" if usage.cost_complete else " and what is not known"
    return f" ({_count(usage.request_count)}, ${usage.cost_usd}{more})"


def _count(requests: int) -> str:
    return f"{requests} request" if requests == 1 else f"{requests} requests"

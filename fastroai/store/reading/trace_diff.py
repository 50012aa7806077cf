"""Comparison of two runs, ignoring ids and times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from fastroai.places import without_attempts
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import RunStatus
from fastroai.store.reading.step_summaries import StepSummary
from fastroai.store.record.attempts import StepAttempt
from fastroai.store.record.definitions import steps_in

DifferenceKind = Literal["definition", "inputs", "ran", "attempts", "output", "failure", "requests", "end"]
"""The aspect in which two runs differ.

`ran`: whether and how far a step ran. `requests`: the requests that a step sent. `end`: how the run ended.
"""

_LONGEST: Final = 80
"""Most characters of a value in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two runs. As text, it is a sentence."""

    kind: DifferenceKind
    place: str
    """The step, as in `write/inner/check`; empty for the run as a whole."""
    what: str
    """The value that is compared, for people; empty if the values need no name."""
    first: JsonValue
    second: JsonValue

    def __str__(self) -> str:
        about = "".join(f"{part}: " for part in (self.place, self.what) if part)
        return f"{about}{_shown(self.first)} in the first, {_shown(self.second)} in the second"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """The data of a run that is compared."""

    run_id: str
    pipeline: str
    definition: JsonValue
    inputs: Mapping[str, JsonValue]
    status: RunStatus
    failure: FailureFacts | None
    steps: Mapping[str, StepSummary]
    """Summaries of steps, by place without attempts."""
    attempts: Sequence[StepAttempt]


def differences(first: TraceFacts, second: TraceFacts) -> tuple[Difference, ...]:
    """Return all differences: of the whole runs first, then step by step in order."""
    found = [*_of_definitions(first, second), *_of_inputs(first.inputs, second.inputs)]
    sent, also_sent = _requests(first.attempts), _requests(second.attempts)
    for place in dict.fromkeys([*first.steps, *second.steps]):
        steps = first.steps.get(place), second.steps.get(place)
        found += _of_steps(place, *steps, ids=(first.run_id, second.run_id))
        if all(step is not None and step.attempts for step in steps):
            found += _of_requests(place, sent.get(place, []), also_sent.get(place, []))
    found += _differing("end", "", "the run", first.status, second.status)
    ends = [_failure(facts.failure, facts.run_id) for facts in (first, second)]
    if first.status == second.status:
        found += _differing("end", "", "failure", *ends)
    return tuple(found)


def _of_definitions(first: TraceFacts, second: TraceFacts) -> Iterator[Difference]:
    yield from _differing("definition", "", "pipeline", first.pipeline, second.pipeline)
    waiting: list[tuple[str, JsonValue, JsonValue]] = [("", first.definition, second.definition)]
    while waiting:
        place, *pair = waiting.pop()
        one, other = (_without_steps(definition) for definition in pair)
        for option in _keys(one, other):
            if place or option != "name":
                yield from _differing("definition", place, option, one.get(option), other.get(option))
        steps, others = (steps_in(definition) for definition in pair)
        for step_id in _keys(steps, others):
            inner = f"{place}/{step_id}" if place else step_id
            if step_id not in steps or step_id not in others:
                known = ["a step" if step_id in one else "no step" for one in (steps, others)]
                yield from _differing("definition", inner, "", *known)
                continue
            before, after = _mapping(steps[step_id]), _mapping(others[step_id])
            for option in _keys(before, after):
                if option != "runs":
                    yield from _differing("definition", inner, option, before.get(option), after.get(option))
            runs = before.get("runs"), after.get("runs")
            if isinstance(runs[0], dict) and isinstance(runs[1], dict):
                waiting.append((inner, *runs))
            else:
                yield from _differing("definition", inner, "runs", *map(_name, runs))


def _of_inputs(first: Mapping[str, JsonValue], second: Mapping[str, JsonValue]) -> Iterator[Difference]:
    for name in _keys(first, second):
        if name not in first or name not in second:
            given = ["given" if name in inputs else "not given" for inputs in (first, second)]
            yield from _differing("inputs", "", f"input {name!r}", *given)
        else:
            yield from _differing("inputs", "", f"input {name!r}", first[name], second[name])


def _of_steps(
    place: str, first: StepSummary | None, second: StepSummary | None, *, ids: tuple[str, str]
) -> Iterator[Difference]:
    statuses = [_status(step) for step in (first, second)]
    yield from _differing("ran", place, "", *statuses)
    if first is None or second is None:
        return
    if first.status == second.status == "skipped":
        yield from _differing("ran", place, "skipped because", first.cause, second.cause)
    if first.attempts and second.attempts:
        yield from _differing("attempts", place, "attempts", first.attempts, second.attempts)
        failures = [_failure(step.failure, run_id) for step, run_id in zip((first, second), ids, strict=True)]
        yield from _differing("failure", place, "failure", *failures)
        if statuses[0] == statuses[1]:
            yield from _differing("output", place, "output", first.output, second.output)


def _status(step: StepSummary | None) -> str:
    """Return the status of a step for the comparison. A reused output is as good as a new one."""
    if step is None:
        return "not started"
    return "succeeded" if step.status == "reused" else step.status


def _requests(attempts: Sequence[StepAttempt]) -> Mapping[str, list[str]]:
    """Return the requests of each step itself: the model and the hash."""
    requests: dict[str, list[str]] = {}
    for attempt in attempts:
        for sent in attempt.requests:
            model = f"{sent.record.provider}:{sent.record.model}"
            requests.setdefault(without_attempts(attempt.place), []).append(f"{model} {sent.fingerprint}")
    return requests


def _of_requests(place: str, first: list[str], second: list[str]) -> Iterator[Difference]:
    if len(first) != len(second):
        yield from _differing("requests", place, "requests sent", len(first), len(second))
    for number, pair in enumerate(zip(first, second, strict=False), 1):
        yield from _differing("requests", place, f"request {number}", *pair)


def _failure(failure: FailureFacts | None, run_id: str) -> JsonValue:
    if failure is None:
        return None
    message = failure.message.replace(run_id, "<run id>")
    return f"{failure.error_type} ({failure.failure_class}): {message}"


def _differing(
    kind: DifferenceKind, place: str, what: str, first: JsonValue, second: JsonValue
) -> Iterator[Difference]:
    if not same_json(first, second):
        yield Difference(kind=kind, place=place, what=what, first=first, second=second)


def same_json(first: JsonValue, second: JsonValue) -> bool:
    """Return whether two values are the same JSON, where 1 is not true."""
    if isinstance(first, str) and isinstance(second, str):
        return first == second  # nearly all values are texts
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def _without_steps(definition: JsonValue) -> Mapping[str, JsonValue]:
    return {key: value for key, value in _mapping(definition).items() if key != "steps"}


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _name(definition: JsonValue) -> JsonValue:
    return definition.get("name") if isinstance(definition, dict) else definition


def _keys(first: Mapping[str, JsonValue], second: Mapping[str, JsonValue]) -> list[str]:
    return list(dict.fromkeys([*first, *second]))


def _shown(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

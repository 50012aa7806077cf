"""Summaries of the steps of a run: nested steps come after the step that runs them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from pydantic import JsonValue

from fastroai.places import attempt_around, quoted, step_name
from fastroai.records import Usage
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import StepSkipped
from fastroai.store.record.attempts import AttemptStatus, StepAttempt
from fastroai.store.record.definitions import kind_of, needs_of, nested_definition, steps_in

StepStatus = AttemptStatus | Literal["not started", "skipped"]
"""Status of the last attempt, if there was any. `retried`: the step waits for its next attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """A step: how far it is, and what it has spent so far."""

    place: str
    step: str
    depth: int
    """Number of steps around this step."""
    needs: tuple[str, ...]
    """Ids of the steps that this step needs."""
    status: StepStatus
    attempts: int
    """Number of attempts, interrupted ones included."""
    started_at: datetime | None = None
    """Start of the first attempt."""
    ended_at: datetime | None = None
    """End of the last attempt."""
    output: JsonValue = None
    failure: FailureFacts | None = None
    """Failure of the last attempt."""
    cause: str | None = None
    """Why the step was skipped, or why it was last started."""
    usage: Usage
    """Spending of all attempts, at any depth."""


def summarize(
    definition: JsonValue, attempts: Iterable[StepAttempt], skips: Iterable[StepSkipped]
) -> tuple[StepSummary, ...]:
    """Return summaries of all steps, defined or on record, in an order that respects the needs of steps."""
    return tuple(_Summaries(attempts, skips).of_pipeline("", definition, 0))


class _Summaries:
    def __init__(self, attempts: Iterable[StepAttempt], skips: Iterable[StepSkipped]) -> None:
        self._attempts: defaultdict[str, list[StepAttempt]] = defaultdict(list)
        self._skips = {skip.place: skip for skip in skips}
        self._inside: defaultdict[str | None, dict[str, dict[str, None]]] = defaultdict(dict)
        """Places by the attempt around them and, in that, by pipeline."""
        for attempt in attempts:
            self._attempts[attempt.place].append(attempt)
        for place in [*self._attempts, *self._skips]:
            pipeline = place.rpartition("/")[0]
            self._inside[attempt_around(place)].setdefault(pipeline, {})[place] = None

    def of_pipeline(self, pipeline: str, definition: JsonValue, depth: int) -> Iterator[StepSummary]:
        """Yield summaries of the steps of one pipeline. `pipeline` is its place, empty for the outermost."""
        front = f"{pipeline}/" if pipeline else ""
        places = {f"{front}{quoted(step_id)}": step_id for step_id in _in_order(definition)}
        observed = {place: step_name(place) for place in self._observed(pipeline)}
        # The order of steps in a graph or workflow, and how often they run, is known only from the run.
        is_pipeline = kind_of(definition) == "pipeline"
        places = {**places, **observed} if is_pipeline else {**observed, **places}
        for place, step_id in places.items():
            yield self._summary(place, step_id, needs_of(definition, step_id), depth)
            yield from self._nested(place, steps_in(definition).get(step_id), depth + 1)

    def _observed(self, pipeline: str) -> Iterable[str]:
        around = None if not pipeline else attempt_around(f"{pipeline}/step")
        return self._inside[around].get(pipeline, ())

    def _nested(self, place: str, step: JsonValue, depth: int) -> Iterator[StepSummary]:
        """Yield the steps nested in the last attempt that ran any, with those that have not started."""
        for attempt in reversed(self._attempts.get(place, ())):
            pipelines = self._inside.get(f"{place}@{attempt.attempt}")
            if pipelines:
                for pipeline in pipelines:
                    inner = pipeline.removeprefix(f"{place}@{attempt.attempt}/")
                    yield from self.of_pipeline(pipeline, nested_definition(step, inner), depth)
                return

    def _summary(self, place: str, step_id: str, needs: tuple[str, ...], depth: int) -> StepSummary:
        attempts, skip = self._attempts.get(place, []), self._skips.get(place)
        spent = Usage.of([sent for attempt in attempts for sent in attempt.records])
        summary = StepSummary(
            place=place,
            step=step_id,
            depth=depth,
            needs=needs,
            status="not started" if skip is None else "skipped",
            attempts=len(attempts),
            cause=None if skip is None else skip.cause,
            usage=spent,
        )
        if not attempts:
            return summary
        last = attempts[-1]
        return replace(
            summary,
            status=last.status,
            started_at=attempts[0].started_at,
            ended_at=last.ended_at,
            output=last.output,
            failure=last.failure,
            cause=next((attempt.cause for attempt in reversed(attempts) if attempt.cause), None),
        )


def _in_order(definition: JsonValue) -> Iterable[str]:
    """Return the ids of the steps, each after those that the step needs."""
    steps: Mapping[str, JsonValue] = steps_in(definition)
    needs = {step_id: [n for n in needs_of(definition, step_id) if n in steps] for step_id in steps}
    try:
        return tuple(TopologicalSorter(needs).static_order())
    except CycleError:
        return steps

"""What is written down of steps, in a run that is on record, and what is found there."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from fastroai.errors import BudgetExceeded, FastroAIError, StepExecutionError, ValueNotStorable, error_chain
from fastroai.places import quoted
from fastroai.runtime import FailureContext, RetriesUsed, Scope, classify
from fastroai.runtime.facts import (
    FailureFacts,
    RunFinished,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from fastroai.runtime.failures import leaves
from fastroai.steps import ConversationState, ResolvedConfig
from fastroai.steps.conversation import state_in
from fastroai.steps.durability import failure_facts, restore_spending, stored_output
from fastroai.store.payloads import PayloadCodec, seal
from fastroai.store.runs import DurableRun, current_durable_run
from fastroai.store.values import value_to_json

LAST_WORDS: Final = 5.0
"""Seconds that a run which has failed or is cancelled takes to put that on record."""

logger = logging.getLogger("fastroai.runs")


class StepsOnRecord:
    """The steps of one pipeline or graph of a run, the outermost or a nested one."""

    def __init__(self, run: DurableRun, scope: Scope, declared: Mapping[str, Any]) -> None:
        """In `scope`, that of the pipeline or graph. `declared` are the types of outputs, by step id."""
        self.run, self._declared = run, declared
        around = scope.place_within(run.scope)
        self._prefix = f"{around}/" if around else ""
        self._order = {place: number for number, place in enumerate(run.recorded.outputs)}
        self._places: dict[str, str] = {}
        self._reused: list[tuple[int, str]] = []

    @classmethod
    def nested(cls, scope: Scope, declared: Callable[[], Mapping[str, Any]]) -> StepsOnRecord | None:
        """Those of what is nested in a run that is on record; `None` outside of any."""
        run = current_durable_run.get()
        if run is None:
            return None
        restore_spending(scope)
        return cls(run, scope, declared())

    def place(self, step_id: str) -> str:
        """Where a step is."""
        place = self._places.get(step_id)
        if place is None:
            place = self._places[step_id] = f"{self._prefix}{quoted(step_id)}"
        return place

    # --- what is there ---

    def has_finished(self, step_id: str) -> bool:
        """Whether its output is on record, so that it does not run."""
        return self.place(step_id) in self._order

    def reuse(self, step_id: str) -> None:
        """Such a step is due: `next_reused` gives it when its turn comes."""
        heapq.heappush(self._reused, (self._order[self.place(step_id)], step_id))

    def next_reused(self) -> str | None:
        """Of those that are due, the one that finished first."""
        return heapq.heappop(self._reused)[1] if self._reused else None

    def output(self, step_id: str) -> object:
        """The output that is on record. Raises `RunCorrupt` where it is not of the declared type."""
        recorded, place = self.run.recorded, self.place(step_id)
        if place in recorded.values:
            return recorded.values[place]
        known = recorded.outputs[place]
        return stored_output(recorded, known, self._declared.get(step_id), self.run.codec)

    def timing(self, step_id: str) -> tuple[float, float]:
        """When it ran, in milliseconds from the beginning of the run, as far as that was in this one."""
        known = self.run.recorded.outputs[self.place(step_id)]
        finished = max(0.0, (known.at - self.run.recorded.opened.at).total_seconds() * 1000)
        return max(0.0, finished - known.duration_ms), finished

    def was_degraded(self, step_id: str) -> bool:
        """Whether something inside of it failed, and it went on."""
        return self.run.recorded.outputs[self.place(step_id)].degraded

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, perhaps in another process."""
        return max(0.0, (datetime.now(UTC) - self.run.recorded.opened.at).total_seconds())

    def retries_used(self, step_id: str) -> RetriesUsed:
        """Which attempt at a step comes next."""
        return self.run.recorded.progress(self.place(step_id))

    # --- what is written ---

    def started(self, step_id: str, cause: str) -> None:
        """A step starts."""
        self.run.journal.note(StepStarted(place=self.place(step_id), cause=cause))

    def skipped(self, step_id: str, cause: str) -> None:
        """A step never will."""
        self.run.journal.note(StepSkipped(place=self.place(step_id), cause=cause))

    def entry_of(
        self, step_id: str, scope: Scope, output: object, duration_ms: float, *, nested: bool
    ) -> StepFinished:
        """An output as it will be stored; `nested` if of a `NestedStep`. Raises `ValueNotStorable`."""
        place, codec, attempt = self.place(step_id), self.run.codec, scope.attempt
        if nested and isinstance(output, ConversationState) and output.is_incomplete:
            # For people: the step inside that has given it finds it under its own place.
            shown = seal(as_json(output), codec)
            entry = StepFinished(place=place, attempt=attempt, output=shown, conversation="incomplete")
        else:
            entry = output_entry(place, step_id, output, self._declared.get(step_id), codec)
        return replace(entry, attempt=attempt, degraded=scope.degraded, duration_ms=duration_ms)

    async def finished(self, entry: StepFinished) -> None:
        """A step is done for good as soon as this returns. Raises `RunStoreUnavailable`, `RunTakenOver`."""
        await self.run.journal.commit(entry)
        if entry.conversation == "incomplete":
            self.run.ends_as = "waiting"

    def failed(
        self, step_id: str, scope: Scope, config: ResolvedConfig, error: BaseException, duration_ms: float
    ) -> None:
        """A step has failed, after its retries."""
        self.run.journal.note(
            StepFailed(
                place=self.place(step_id),
                attempt=scope.attempt,
                failure=failure_of(step_id, scope, config, error),
                stopped=any(isinstance(leaf, BudgetExceeded) for leaf in leaves(error)),
                duration_ms=duration_ms,
            )
        )


def output_entry(
    place: str, step_id: str, output: object, declared: Any, codec: PayloadCodec | None
) -> StepFinished:
    """An output of the first attempt at a step, as it is stored. Raises `ValueNotStorable`."""
    conversation: Literal["complete", "incomplete"] | None = None
    if isinstance(output, ConversationState):
        conversation = "incomplete" if output.is_incomplete else "complete"
        declared = state_in(declared)
    what = f"the output of step {step_id!r}"
    try:
        stored = value_to_json(output, declared, what)
    except ValueNotStorable:
        if conversation != "incomplete":
            raise
        stored = value_to_json(output, ConversationState, what)  # what it gathered so far need not fit
    return StepFinished(place=place, attempt=1, output=seal(stored, codec), conversation=conversation)


def as_json(value: object) -> JsonValue:
    """As JSON for people: what has no form in JSON is shown by its `repr`."""
    try:
        shown: JsonValue = to_jsonable_python(value, fallback=repr, inf_nan_mode="constants")
    except Exception:  # a cycle, bytes that are no text, a `repr` that fails
        return _safe_repr(value)
    return shown


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)


def failure_of(step_id: str, scope: Scope, config: ResolvedConfig, error: BaseException) -> FailureFacts:
    """What is written down of the failure of a step."""
    context = FailureContext(
        step_id=step_id, attempt=scope.attempt, run_id=scope.run_id, chain=tuple(error_chain(error))
    )
    return failure_facts(error, classify(error, context, config.classifiers))


def how_it_ended(error: BaseException | None, *, waiting: bool, at: datetime) -> RunFinished:
    """The last entry of a run."""
    if error is None:
        return RunFinished(at=at, status="waiting" if waiting else "finished")
    if not isinstance(error, Exception) or isinstance(error, asyncio.CancelledError):
        return RunFinished(at=at, status="cancelled")
    original = error.original_error if isinstance(error, StepExecutionError) else error
    return RunFinished(at=at, status="failed", failure=failure_facts(error, classify(original)))


@asynccontextmanager
async def kept_on_record(run: DurableRun, scope: Scope) -> AsyncGenerator[DurableRun]:
    """Have everything inside put on record, and how it ends; it goes on from what was spent before."""
    run.scope, scope.on_record = scope, True
    scope.restore(run.recorded.charges(), run.recorded.agent_calls())
    token = current_durable_run.set(run)
    try:
        try:
            yield run
        finally:
            await scope.end_inside()  # streams that were left open belong to it
    except BaseException as error:
        await _end(run, scope, error)
        raise
    else:
        await run.end(RunFinished(status=run.ends_as), scope.spent())
    finally:
        current_durable_run.reset(token)


async def _end(run: DurableRun, scope: Scope, error: BaseException) -> None:
    """Put a failure on record, unless that is what fails, or there is no time for it."""
    if run.journal.failure is not None or not isinstance(error, Exception | asyncio.CancelledError):
        await run.release()
        return
    ended = how_it_ended(scope.out_of_time or error, waiting=False, at=datetime.now(UTC))
    try:
        await asyncio.wait_for(run.end(ended, scope.spent()), LAST_WORDS)
    except (FastroAIError, TimeoutError) as failure:
        logger.warning("run %r: how it ended could not be put on record: %s", run.run_id, failure)
        await run.release()

"""One call of a typed function: its scope, its place on record, its `CallRecord`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast

from pydantic import JsonValue

from fastroai.errors import (
    CallChangedError,
    RunCorrupt,
    ValueNotStorable,
)
from fastroai.functions.configuring import configuration
from fastroai.functions.flow_runs.flow_run import CallsOfBody, FlowRun, flow_run_of
from fastroai.functions.flow_runs.on_record import CallsOnRecord
from fastroai.functions.kept_calls import (
    NOTHING_SPENT,
    CallDraft,
    FunctionCall,
    Sums,
    keep,
    names_of,
    open_drafts,
    outcome_of,
    sums_of,
)
from fastroai.human.halting import Halted, is_halt
from fastroai.records import CallOutcome, Usage
from fastroai.runtime import NO_RETRIES_USED, RetriesUsed, Scope, current_scope
from fastroai.runtime.concurrency.isolation import noting_cancellations
from fastroai.runtime.facts import CallEnded, FailedAgentCall
from fastroai.runtime.labels import current_row
from fastroai.runtime.retrying.failures import leaves, note_agent_call
from fastroai.steps import BaseStep, StepContext
from fastroai.steps.context import RunData, StepData, scope_of
from fastroai.steps.durability import (
    failure_facts,
    failure_of,
    restore_spending,
    step_place,
    stored_value,
    why_unread,
)
from fastroai.steps.execution import run_step
from fastroai.steps.outputs import Outputs
from fastroai.steps.shared import Shared
from fastroai.store.reading.as_json import as_json
from fastroai.store.record.changes import call_changed, keeps_answer
from fastroai.store.record.declarations import changed_parts
from fastroai.store.record.exceptions import exception_from_json, exception_to_json, stand_in_for
from fastroai.store.record.log_of_scope import log_of, run_of
from fastroai.store.record.payloads import seal, unseal
from fastroai.store.record.runs import DurableRun
from fastroai.store.record.values import value_to_json
from fastroai.tracing import NoOpTracer, Tracer, attributes, log_metrics
from fastroai.usage import CostCalculator

T = TypeVar("T")


_NO_TRACER: Final = NoOpTracer()
_LIST_PRICES: Final = CostCalculator()


Body: TypeAlias = Callable[[StepContext[Any], CallDraft], Awaitable[T]]
"""The work of a call. It gets a context for its agent calls, and the draft of the record."""


def perform(
    call: FunctionCall[T], body: Body[T], *, around: StepContext[Any] | None = None
) -> Coroutine[Any, Any, T]:
    """Run a call in a scope of its own, and return its output; or return the output that is on record.

    `around` is the context if the function is a step. The body gets the deps and shared values of that step.

    Raises:
        FlowDiverged: the flow around the call made other calls before it was resumed.
        CallChangedError: it is declared differently than on record, with `on_changed="fail"`; or the answer
            that it keeps does not fit any more.
    """
    outer = current_scope()
    if outer is None:  # then it is in no run, whose record could have it
        return _Performance(call, body, _scope_of(call, around, outer)).perform(around)
    return _perform_inside(call, body, around, outer)


async def _perform_inside(
    call: FunctionCall[T], body: Body[T], around: StepContext[Any] | None, outer: Scope
) -> T:
    scope = _scope_of(call, around, outer)
    restore_spending(scope)
    place, run, flow = step_place(scope), run_of(scope), flow_run_of(scope)
    ended = None if run is None else run.recorded.last(("call", place), CallEnded)
    calls = None if flow is None else flow.calls_in(outer)
    if calls is not None:
        calls.make(place, call.name, call.inputs)
        if ended is not None:
            await calls.turn(place)
    try:
        if run is not None and ended is not None and ended.failure is not None:
            failure = _failure_on_record(call, ended, run)
            if failure is not None:
                return await _raised_again(failure, scope, flow, ended)
        if run is not None and ended is not None and ended.failure is None and ended.is_stored:
            changed = changed_parts(ended.declared, call.declares()) if ended.declared else ()
            if not changed or keeps_answer(run, scope, place, changed, attempt=ended.attempt):
                return _given_back(call, ended, changed, run)
            CallsOnRecord.of(run.recorded).attempts[place] = ended.attempt + 1
        restored = 0 if run is None or not scope.has_spent else len(scope.spending.charges)
        return await _Performance(call, body, scope, place, flow, calls, ended, restored).perform(around)
    finally:
        if calls is not None:
            calls.made(place)


def _scope_of(call: FunctionCall[Any], around: StepContext[Any] | None, outer: Scope | None) -> Scope:
    config = call.config
    tracer = configuration().tracer if outer is None else None  # else that of the scope around it
    return Scope(
        "step",
        call.name,
        parent=outer,
        limits=config.limits,
        deps=None if around is None else around.deps,
        tracer=tracer if config.trace else _NO_TRACER,
        key=call.key,
    )


def _given_back(call: FunctionCall[T], ended: CallEnded, changed: tuple[str, ...], run: DurableRun) -> T:
    """Return the output on record. The process keeps no record of this, because no call is made.

    `changed` is what has changed of the declaration, although the output is to be kept.
    """
    try:
        return cast("T", stored_value(ended.output, call.returns, run.codec))
    except ValueError as error:
        if changed:
            raise call_changed(run, ended.place, "", changed, str(error)) from error
        reason = (
            f"the output of call {ended.place!r} is not of the type that {call.name!r} returns: {error}; "
            "declare the type that it had"
        )
        position = run.recorded.position_of(ended)
        raise RunCorrupt(run.run_id, position, why_unread(error, reason)) from error


def _failure_on_record(call: FunctionCall[Any], ended: CallEnded, run: DurableRun) -> Exception | None:
    """Return the exception of a call whose caller has handled it; `None` if the call is made again.

    A call that asks a model is made again if its exception is not on record as it was. It then gets the
    answers and failures that are on record, so it fails in the same way.
    """
    is_same = not (ended.declared and changed_parts(ended.declared, call.declares()))
    if ended.failure is None or not is_same or not CallsOnRecord.of(run.recorded).gives_back(ended):
        return None
    known = exception_from_json(ended.failure, unseal(ended.exception, run.codec))
    return known if known is not None or call.kind == "infer" else stand_in_for(ended.failure)


async def _raised_again(failure: Exception, scope: Scope, flow: FlowRun | None, ended: CallEnded) -> NoReturn:
    """Raise the failure of an earlier process as if the call had been made. It is on record already."""
    if flow is not None:
        note_agent_call(failure, FailedAgentCall(f"{ended.place}@{ended.attempt}", "", 1))
    async with scope:
        raise failure


class _Performance(BaseStep[Any, T]):
    """A call that runs now, with its body as a step."""

    checks_output_itself = True
    opens_span = False  # `_in_span` opens one around the step and its record

    def __init__(
        self,
        call: FunctionCall[T],
        body: Body[T],
        scope: Scope,
        place: str = "",
        flow: FlowRun | None = None,
        calls: CallsOfBody | None = None,
        ended_before: CallEnded | None = None,
        restored: int = 0,
    ) -> None:
        """Prepare a call.

        `flow` is the innermost flow around it, `calls` are the calls of the body that makes it,
        `ended_before` is its last end on record, and `restored` is the number of charges from before the run
        was resumed.
        """
        self.call, self.body, self.scope, self.place = call, body, scope, place
        self.flow, self.calls, self.ended_before, self.restored = flow, calls, ended_before, restored
        self.draft = CallDraft(call, scope.run_id, datetime.now(UTC), names_of(flow))
        self.draft.labels, self.draft.row = scope.bounds.labels, current_row.get()
        self.began = perf_counter()

    def perform(self, around: StepContext[Any] | None) -> Coroutine[Any, Any, T]:
        """Run the body, and put its end on record."""
        tracer = self.scope.tracer
        return self._to_its_end(around) if tracer is None else self._in_span(tracer, around)

    async def _in_span(self, tracer: Tracer, around: StepContext[Any] | None) -> T:
        call = self.call
        described = attributes.call_attributes(
            kind=call.kind,
            function=call.name,
            run_id=self.scope.run_id,
            flow_id="" if self.flow is None else self.flow.id,
        )
        async with tracer.span(attributes.call_span(call.kind, call.name), **described) as trace_id:
            self.draft.trace_id = trace_id
            try:
                return await self._to_its_end(around)
            finally:
                log_metrics(tracer, trace_id, attributes.usage_attributes(self.scope.spent()))

    async def _to_its_end(self, around: StepContext[Any] | None) -> T:
        scope = self.scope
        async with scope:
            # Here, because a call can wait until it may enter its scope.
            if self.flow is not None and (log := log_of(scope)) is not None and log.is_pausing:
                raise Halted
            open_drafts[scope] = self.draft
            try:
                output = await self._step(around)
            except BaseException as error:
                if not is_halt(error):
                    await self._ended_with(error)
                raise
            else:
                await self._returned(output)
                return output
            finally:
                del open_drafts[scope]

    def _step(self, around: StepContext[Any] | None) -> Awaitable[T]:
        scope, call = self.scope, self.call
        run, part = run_of(scope), scope.part
        shared = Shared() if around is None else around.shared
        used = NO_RETRIES_USED
        if run is not None:
            used = RetriesUsed(attempt=CallsOnRecord.of(run.recorded).attempts.get(self.place, 1))
        made = run_step(
            self,
            scoped=scope,
            data=StepData(RunData(part.name, part.path, shared), call.inputs, Outputs({call.name: ()})),
            deps=None if around is None else around.deps,
            config=call.config,
            used=used,
        )
        return noting_cancellations(made)

    def execute(self, context: StepContext[Any]) -> Awaitable[T]:
        """Run the body."""
        if self.flow is None:
            return self.body(context, self.draft)
        return self._followed(self.flow, context)

    async def _followed(self, flow: FlowRun, context: StepContext[Any]) -> T:
        with flow.following(scope_of(context)):
            return await self.body(context, self.draft)

    async def _returned(self, output: T) -> None:
        stored: JsonValue = None
        run, is_stored = run_of(self.scope), True
        if run is not None and not self.call.is_end_kept:
            try:
                stored = value_to_json(output, self.call.returns, f"the output of {self.call.name!r}")
            except ValueNotStorable:
                is_stored = False
            stored = seal(stored, run.codec)
        self.draft.output = output
        await self._end("cache_hit" if self.draft.is_cache_hit else "success", stored, is_stored=is_stored)

    async def _ended_with(self, raised: BaseException) -> None:
        # The time limit of a scope around has cancelled this call, and raises where that scope ends.
        clock = self.scope.time.ran_out
        error = raised if clock is None else clock.exceeded()
        has_changed = any(isinstance(leaf, CallChangedError) for leaf in leaves(error))
        if (
            self.flow is not None and not has_changed
        ):  # then this call is made anew, and not an agent call around it
            note_agent_call(error, FailedAgentCall(f"{self.place}@{self.scope.attempt}", "", 1))
        outcome = outcome_of(error)
        if isinstance(error, Exception):
            self.draft.failure = failure_of(self.scope, self.call.config, error)
        else:
            self.draft.failure = failure_facts(error, "terminal")
        goes_on = has_changed or outcome in ("budget_exceeded", "cancelled")
        await self._end(outcome, None, goes_on=goes_on, raised=error)

    async def _end(
        self,
        outcome: CallOutcome,
        stored: JsonValue,
        *,
        is_stored: bool = True,
        goes_on: bool = False,
        raised: BaseException | None = None,
    ) -> None:
        scope, draft = self.scope, self.draft
        draft.outcome, draft.duration_ms = outcome, (perf_counter() - self.began) * 1000
        if scope.has_spent:
            draft.spent = scope.spent() if not self.restored else self._spent_since(self.restored)
        keep(draft, self.flow)
        if (tracer := scope.tracer) is not None:
            log_metrics(tracer, draft.trace_id, attributes.ended_call_attributes(draft.record))
        log = log_of(scope)
        if scope.listener is None and (log is None or self.call.is_end_kept):
            return
        ended = CallEnded(
            part=scope.part,
            place=self.place,
            attempt=scope.attempt,
            call=replace(draft.record, output=None, **self._sums_for_log()),
            output=draft.output,
            failure=draft.failure,
            goes_on=goes_on,
            is_code=self.call.kind == "compute",
            in_line=self.calls is None or self.calls.is_in_line(),
            is_stored=is_stored,
            declared={} if log is None or log.run is None else self.call.declares(),
        )
        if log is not None and not self.call.is_end_kept and not self._is_on_record(ended):
            if log.run is None:
                log.note(ended)
            else:
                kept = replace(ended, call=seal(as_json(ended.call), log.run.codec), output=stored)
                if raised is not None and not goes_on:
                    kept.exception = seal(exception_to_json(raised), log.run.codec)
                if outcome == "cancelled":
                    log.note(kept)  # a cancelled task awaits nothing more
                else:
                    await log.commit(kept)
        if scope.listener is not None and outcome != "cancelled":
            await scope.emit(ended)

    def _spent_since(self, charge: int) -> Usage:
        """Return the spending from the charge with this index on."""
        return Usage.of(self.scope.spending.records[charge:])

    def _sums_for_log(self) -> Sums:
        """Return the sums of all spending that no earlier end of the call on record says."""
        run = run_of(self.scope)
        if not self.restored or run is None:
            return sums_of(self.draft.spent or NOTHING_SPENT)
        last_end = 0 if self.ended_before is None else run.recorded.position_of(self.ended_before)
        charges = run.recorded.requests.charges(self.place)
        return sums_of(self._spent_since(sum(charge.position < last_end for charge in charges)))

    def _is_on_record(self, ended: CallEnded) -> bool:
        """Return whether the same end is on record.

        A call that has failed is made again when its run is resumed, and may fail in the same way.
        """
        before = self.ended_before
        if before is None or before.failure is None or ended.failure is None:
            return False
        return (before.attempt, before.failure.error_type) == (ended.attempt, ended.failure.error_type)

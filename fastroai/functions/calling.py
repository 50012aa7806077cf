"""One call of a typed function: its scope, its place on record, its `CallRecord`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from time import perf_counter
from typing import Any, Final, Generic, Literal, NoReturn, TypeAlias, TypedDict, TypeVar, cast

from pydantic import JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.errors import (
    BudgetExceeded,
    CallChangedError,
    RunCorrupt,
    TimeLimitExceeded,
    ValueNotStorable,
)
from fastroai.functions.configuring import configuration
from fastroai.functions.errors import (
    ConsensusFailure,
    ConvergenceFailure,
    ParseFailure,
    PostconditionFailed,
    PreconditionFailed,
)
from fastroai.functions.flow_runs.flow_run import CallsOfBody, FlowRun, flow_run_of
from fastroai.functions.flow_runs.on_record import CallsOnRecord
from fastroai.human.asking import Halted, is_halt
from fastroai.records import CallOutcome, CallRecord, Usage
from fastroai.runtime import NO_RETRIES_USED, RetriesUsed, Scope, current_scope
from fastroai.runtime.concurrency.isolation import noting_cancellations
from fastroai.runtime.facts import CallEnded, FailedAgentCall, FailureFacts
from fastroai.runtime.labels import NO_LABELS, Labels, current_row
from fastroai.runtime.retrying.failures import leaves, note_agent_call
from fastroai.steps import BaseStep, StepContext
from fastroai.steps.config import ResolvedConfig
from fastroai.steps.context import RunData, StepData, scope_of
from fastroai.steps.durability import failure_facts, failure_of, restore_spending, step_place, stored_value
from fastroai.steps.execution import run_step
from fastroai.steps.outputs import Outputs
from fastroai.steps.shared import Shared
from fastroai.store.reading.as_json import as_json
from fastroai.store.record.changes import call_changed, keeps_answer
from fastroai.store.record.declarations import changed_parts
from fastroai.store.record.exceptions import exception_from_json, exception_to_json, stand_in_for
from fastroai.store.record.log import log_of, run_of
from fastroai.store.record.payloads import seal, unseal
from fastroai.store.record.runs import DurableRun
from fastroai.store.record.values import value_to_json
from fastroai.tracing import NoOpTracer, Tracer, attributes, log_metrics
from fastroai.usage import CostCalculator

T = TypeVar("T")

KEPT: Final = 10_000
"""Number of records that this process keeps: the last ones."""

_records: Final[deque[tuple[CallDraft, object, object]]] = deque(maxlen=KEPT)
"""Records with the signatures of the function and the innermost flow, because several can have one name."""
_numbers: Final = count(1)
_open: Final[dict[Scope, CallDraft]] = {}
"""The drafts of the calls that are running."""
_NO_TRACER: Final = NoOpTracer()
_LIST_PRICES: Final = CostCalculator()
_NOTHING_SPENT: Final = Usage()


@dataclass(slots=True, kw_only=True)
class FunctionCall(Generic[T]):
    """A call of a function, with its arguments. Nobody changes it; a frozen one takes longer to make."""

    signature: object
    """Signature of the function, by which its records are found."""
    name: str
    """The name of the function."""
    kind: Literal["infer", "compute"]
    inputs: Mapping[str, JsonValue]
    """The arguments as records show them: opaque values are elided."""
    key: str
    """Hash of all arguments; empty for a call outside of any scope, which has no place."""
    returns: Annotation
    """The type by which the output is stored and read."""
    config: ResolvedConfig
    """Budget, time limits, retries of transport failures."""
    is_end_kept: bool = False
    """Whether the caller puts the end on record, as a run of rows does."""
    declares: Callable[[], Mapping[str, str]] = dict
    """Function that returns hashes of what is declared for the call; nothing for a function with a body."""


@dataclass(slots=True)
class CallDraft:
    """Notes about a call while it runs. Its record is made from them when somebody asks for the record."""

    call: FunctionCall[Any]
    run_id: str
    started_at: datetime
    flow: tuple[str, str, str]
    """The name and the id of the innermost flow around the call, and the id of the flow around that."""
    trace_id: str = ""
    """Id of the trace that has the span of the call, for `Tracer.log_error`; empty without a tracer."""
    prompt_hash: str = ""
    contract_hash: str = ""
    model: str = ""
    attempts: int = 1
    retry_reasons: list[str] = field(default_factory=list)
    is_cache_hit: bool = False
    review_id: str = ""
    members: list[Any] = field(default_factory=list)
    iterations: list[Any] = field(default_factory=list)
    outcome: CallOutcome = "failed"
    output: object = None
    failure: FailureFacts | None = None
    duration_ms: float = 0.0
    spent: Usage | None = None
    labels: Labels = NO_LABELS
    row: int | None = None
    index: int = 0
    """The number of the call among those that have ended in this process."""
    _record: CallRecord | None = None

    @property
    def record(self) -> CallRecord:
        """The record of the call, once it has ended."""
        if self._record is None:
            self._record = self._made()
        return self._record

    def _made(self) -> CallRecord:
        call, failure = self.call, self.failure
        flow, flow_id, parent_flow_id = self.flow
        return CallRecord(
            function=call.name,
            kind=call.kind,
            outcome=self.outcome,
            inputs=dict(call.inputs),
            output=self.output,
            error_type="" if failure is None else failure.error_type,
            error=None if failure is None else failure.message,
            model=self.model,
            prompt_hash=self.prompt_hash,
            contract_hash=self.contract_hash,
            attempts=self.attempts,
            retry_reasons=tuple(self.retry_reasons),
            members=tuple(self.members),
            iterations=tuple(self.iterations),
            review_id=self.review_id,
            started_at=self.started_at,
            duration_ms=self.duration_ms,
            run_id=self.run_id,
            flow=flow,
            flow_id=flow_id,
            parent_flow_id=parent_flow_id,
            **_sums(self.spent or _NOTHING_SPENT),
        )


class _Sums(TypedDict):
    cost_usd: Decimal
    cost_complete: bool
    requests: int
    input_tokens: int
    output_tokens: int


def _sums(spent: Usage) -> _Sums:
    """Return the fields of a record that say what was spent."""
    return _Sums(
        cost_usd=spent.cost_usd,
        cost_complete=spent.cost_complete,
        requests=spent.request_count,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
    )


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


def _is_pausing(scope: Scope) -> bool:
    log = log_of(scope)
    return log is not None and log.is_pausing


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
        raise RunCorrupt(run.run_id, run.recorded.position_of(ended), reason) from error


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
        self.draft = CallDraft(call, scope.run_id, datetime.now(UTC), _names_of(flow))
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
            if self.flow is not None and _is_pausing(scope):
                raise Halted
            _open[scope] = self.draft
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
                del _open[scope]

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
        _keep(draft, self.flow)
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

    def _sums_for_log(self) -> _Sums:
        """Return the sums of all spending that no earlier end of the call on record says."""
        run = run_of(self.scope)
        if not self.restored or run is None:
            return _sums(self.draft.spent or _NOTHING_SPENT)
        last_end = 0 if self.ended_before is None else run.recorded.position_of(self.ended_before)
        charges = run.recorded.charges(self.place)
        return _sums(self._spent_since(sum(charge.position < last_end for charge in charges)))

    def _is_on_record(self, ended: CallEnded) -> bool:
        """Return whether the same end is on record.

        A call that has failed is made again when its run is resumed, and may fail in the same way.
        """
        before = self.ended_before
        if before is None or before.failure is None or ended.failure is None:
            return False
        return (before.attempt, before.failure.error_type) == (ended.attempt, ended.failure.error_type)


_OUTCOMES: Final[Mapping[type[BaseException], CallOutcome]] = {
    PreconditionFailed: "precondition_failed",
    PostconditionFailed: "postcondition_failed",
    ParseFailure: "parse_failure",
    ConvergenceFailure: "convergence_failure",
    ConsensusFailure: "consensus_failure",
    TimeLimitExceeded: "timed_out",
}


def outcome_of(error: BaseException) -> CallOutcome:
    """Return the outcome of a call that raised this error."""
    for leaf in leaves(error):
        if isinstance(leaf, BudgetExceeded):
            return "budget_exceeded"
        if isinstance(leaf, asyncio.CancelledError):
            return "cancelled"
    for kind, outcome in _OUTCOMES.items():
        if isinstance(error, kind):
            return outcome
    return "failed"


def note_review(scope: Scope, review_id: str) -> None:
    """Note that the innermost call around a scope has waited for a person."""
    draft = next((_open[one] for one in scope.lineage() if one in _open), None)
    if draft is not None:
        draft.review_id = review_id


def _names_of(flow: FlowRun | None) -> tuple[str, str, str]:
    """Return the name and the id of a flow, and the id of the flow around it."""
    if flow is None:
        return "", "", ""
    return flow.name, flow.id, "" if flow.outer is None else flow.outer.id


def _keep(draft: CallDraft, flow: FlowRun | None) -> None:
    """Keep the record of a call in this process. `flow` is the innermost flow around the call."""
    draft.index = next(_numbers)
    _records.append((draft, draft.call.signature, None if flow is None else flow.signature))


def kept_records(signature: object = None) -> tuple[CallRecord, ...]:
    """Return the last 10,000 records of this process, oldest first, also of calls outside of flows.

    With a signature, return only the records of one function, or of the calls that one flow has made.
    """
    records = tuple(_records)
    if signature is not None:
        records = tuple([record for record in records if record[1] is signature or record[2] is signature])
    return tuple([draft.record for draft, _, _ in records])


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call of a typed function that this process has made, and what tells it from the others."""

    index: int
    """Number of the call among those that have ended in this process, from 1."""
    row: int | None
    """Number, from 0, of the item of `ctx.map`, or of the coroutine of `parallel` or `race`, that made the
    call; `None` outside of these."""
    tags: tuple[str, ...]
    """The tags of the runs and budget scopes around the call: your own labels."""
    tenant: str | None
    record: CallRecord
    """What the call was, and how it ended."""


def call_records(*, after: int = 0) -> tuple[KeptCall, ...]:
    """Return the last 10,000 calls of typed functions in this process, in the order of their ends.

    Outputs on record that a resumed run gives back are no calls.

    Args:
        after: Return only calls with a higher index: those that have ended since you looked last.
    """
    drafts = [draft for draft, _, _ in tuple(_records) if draft.index > after]
    return tuple([KeptCall(draft.index, draft.row, *draft.labels, draft.record) for draft in drafts])

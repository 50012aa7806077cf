"""What steps put on record, in runs that are, and what they find there."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from fastroai.calls.call import AgentCall
from fastroai.errors import RunCorrupt
from fastroai.records import RequestRecord
from fastroai.runtime import NO_RETRIES_USED, RetriesUsed, Retry, Scope
from fastroai.runtime.facts import (
    AnyFact,
    FailureFacts,
    SpendingRecorded,
    StepFinished,
    StepRetried,
)
from fastroai.runtime.scope import RUNS
from fastroai.steps.conversation import ConversationState, state_in
from fastroai.store.live_log import current_live_log
from fastroai.store.payloads import PayloadCodec, is_sealed, unseal
from fastroai.store.recorded import RecordedRun
from fastroai.store.runs import DurableRun, current_durable_run
from fastroai.store.values import value_from_json
from fastroai.tracing import attributes


def step_place(scope: Scope) -> str:
    """Where a step is, whatever the attempt; in the run on record, else the outermost pipeline or graph."""
    durable = current_durable_run.get()
    outer = None if durable is None else durable.scope
    if outer is None:
        outer = next((around for around in reversed(scope.lineage()) if around.kind in RUNS), None)
    assert scope.parent is not None
    around = scope.parent.place_within(outer)
    return f"{around}/{scope.own_place}" if around else scope.own_place


def restore_spending(scope: Scope) -> None:
    """Count in a step, or a nested pipeline or graph, what it has spent in earlier processes."""
    durable = current_durable_run.get()
    if durable is not None and durable.recorded.charges():
        place = step_place(scope)
        charges, agent_calls = durable.recorded.charges(place), durable.recorded.agent_calls(place)
        scope.restore(charges, agent_calls)
        if scope.parent is not None:  # routers, and agents whose tools run pipelines
            scope.parent.recount(charges, agent_calls)


def restore_call(scope: Scope, step: Scope, call: AgentCall) -> None:
    """Count in the scope of an agent call what earlier attempts at it have spent in earlier processes."""
    durable = current_durable_run.get()
    if durable is not None and call.call is not None:
        place, used = durable.place(step), calls_used(step, call)
        scope.recount(durable.recorded.charges_before(place, call.call, used.attempt))


def attempts_used(scope: Scope) -> RetriesUsed:
    """Which attempt at a mapped step comes next."""
    durable = current_durable_run.get()
    return NO_RETRIES_USED if durable is None else durable.recorded.progress(step_place(scope))


def calls_used(scope: Scope, call: AgentCall) -> RetriesUsed:
    """Which attempt at an agent call comes next."""
    durable = current_durable_run.get()
    if durable is None or call.call is None:
        return NO_RETRIES_USED
    return durable.recorded.call_progress(durable.place(scope), call.call)


def record_call_retry(scope: Scope, call: AgentCall, retry: Retry) -> None:
    """An attempt at an agent call failed, and another follows."""
    if call.call is None:
        return
    durable = current_durable_run.get()
    if durable is not None:  # what it has replayed is not among what is new in the scope
        durable.recorded.mark_call_retried(durable.place(scope), call.call, retry.failed_attempt)
    _note(
        StepRetried(
            place=f"{step_place(scope)}@{scope.attempt}",
            call=call.call,
            attempt=retry.failed_attempt,
            failure=failure_facts(retry.error, retry.failure_class),
            delay=retry.delay,
            used=retry.used.to_json(),
        )
    )


def record_step_retry(scope: Scope, retry: Retry) -> None:
    """An attempt at a step failed, and another follows."""
    durable = current_durable_run.get()
    if durable is not None:
        durable.recorded.mark_step(step_place(scope), retry.failed_attempt, "retried")
    _note(
        StepRetried(
            place=step_place(scope),
            attempt=retry.failed_attempt,
            failure=failure_facts(retry.error, retry.failure_class),
            delay=retry.delay,
            used=retry.used.to_json(),
        )
    )


def _note(entry: AnyFact) -> None:
    """In the log of the run, wherever that is."""
    durable, live = current_durable_run.get(), current_live_log.get()
    if durable is not None:
        durable.journal.note(entry)
    elif live is not None:
        live.notes.append(entry)


def record_own_spending(scope: Scope, record: RequestRecord) -> None:
    """A step spent something without an agent."""
    durable = current_durable_run.get()
    if durable is not None:
        durable.journal.note(SpendingRecorded(place=durable.place(scope), record=record))


@dataclass(frozen=True, slots=True)
class SpendingOnRecord:
    """Spending that is on record before it happens, in a run that is."""

    run: DurableRun
    place: str
    id: str

    @classmethod
    async def begin(cls, scope: Scope, record: RequestRecord) -> SpendingOnRecord | None:
        """Put on record what counts if nothing more is heard of it. `None` outside of any run on record.

        Raises:
            RunStoreUnavailable: the store fails, and has failed each time.
            RunTakenOver: another process has taken up the run.
            ScopeClosedError: the run has ended.
        """
        durable = current_durable_run.get()
        if durable is None:
            return None
        spending = cls(durable, durable.place(scope), uuid.uuid4().hex)
        await durable.journal.commit(spending._entry(record))
        return spending

    def ended(self, record: RequestRecord) -> None:
        """It has ended in the account. Written soon, as until then its bound counts."""
        self.run.journal.note(self._entry(record))

    def _entry(self, record: RequestRecord) -> SpendingRecorded:
        return SpendingRecorded(place=self.place, record=record, id=self.id)


def failure_facts(error: BaseException, failure_class: str) -> FailureFacts:
    """What is written down of an exception."""
    return FailureFacts(
        error_type=attributes.error_type(error), message=_message(error), failure_class=failure_class
    )


def _message(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as failed:  # the exception is somebody else's
        message = f"its message cannot be read: {type(failed).__name__}"
    return message.encode(errors="replace").decode()  # half a surrogate pair cannot be stored


def last_conversation(durable: DurableRun, scope: Scope, declared: Any) -> ConversationState[Any] | None:
    """The last state that a step has returned in an earlier process."""
    known = durable.recorded.conversations.get(step_place(scope))
    if known is None:
        return None
    state = stored_output(durable.recorded, known, declared, durable.codec)
    return state if isinstance(state, ConversationState) else None


def stored_output(
    recorded: RecordedRun, entry: StepFinished, declared: Any, codec: PayloadCodec | None
) -> object:
    """The output of a step that is on record.

    Raises:
        RunCorrupt: it is not of the type that the step declares now, or the codec cannot decode it.
    """
    if entry.conversation is not None:
        declared = state_in(declared)
    try:
        return stored_value(entry.output, declared, codec)
    except ValueError as error:
        if entry.conversation == "incomplete" and declared is not ConversationState:
            return stored_output(recorded, entry, None, codec)
        reason = f"the output of {entry.place!r} is not of the type that it declares: {error}"
        raise RunCorrupt(recorded.opened.run_id, recorded.position_of(entry), reason) from error


def stored_value(stored: JsonValue, declared: Any, codec: PayloadCodec | None) -> object:
    """What was stored, as it was.

    Raises:
        ValueError: it is not of the declared type (pydantic's `ValidationError`), or cannot be decoded.
    """
    if codec is None and is_sealed(stored):
        raise ValueError("it went through a codec, which PipelineConfig(codec=...) does not name now")
    try:
        value = unseal(stored, codec)
    except Exception as error:  # the codec is the user's
        raise ValueError(f"the codec cannot decode it: {type(error).__name__}: {error}") from error
    return value_from_json(value, declared)

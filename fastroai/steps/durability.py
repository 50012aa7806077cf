"""Facts that steps put on record, and data that they find there when a run is resumed."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb, format_list
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue, ValidationError

from fastroai.calls.call import AgentCall
from fastroai.errors import RunCorrupt, RunStoreUnavailable
from fastroai.records import RequestRecord
from fastroai.runtime import (
    NO_RETRIES_USED,
    FailureClass,
    RetriesUsed,
    Retry,
    Scope,
)
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import SpendingRecorded, StepFinished, StepRetried
from fastroai.runtime.retrying.failures import noted_class
from fastroai.runtime.retrying.retry_rules import classify_in
from fastroai.runtime.scope import RUNS, ToolCalls, current_scope, current_tool_calls
from fastroai.steps.conversation import ConversationState, state_in
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import log_of, run_of
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec, is_sealed, unseal
from fastroai.store.record.requests_on_record import agent_call_key
from fastroai.store.record.runs import DurableRun
from fastroai.store.record.values import value_from_json
from fastroai.tracing import attributes

if TYPE_CHECKING:  # plain agents use this module, and have no settings of steps
    from fastroai.steps.config import ResolvedConfig

_LONGEST_MESSAGE: Final = 10_000
"""Most characters that are kept of the message of an exception, which can hold a whole answer."""
_MOST_FRAMES: Final = 20
"""Most frames of a traceback on record."""
_PACKAGE: Final = str(Path(__file__).parents[1])
"""The folder of FastroAI, whose own frames tell users nothing."""


def step_place(scope: Scope) -> str:
    """Return the place of a step in its run, without the step's own attempt.

    Without a log, the place is in the outermost run around the step.
    """
    outer = None if scope.log is None else scope.log.scope
    if outer is None:
        outer = next((around for around in reversed(scope.lineage()) if around.kind in RUNS), None)
    around = "" if scope.parent is None else scope.parent.place_within(outer)
    return f"{around}/{scope.own_place}" if around else scope.own_place


def restore_spending(scope: Scope) -> None:
    """Count in a step, a nested run or a call of a typed function its spending in earlier processes."""
    durable = run_of(scope)
    if durable is None or not durable.recorded.resumptions:
        return
    place = step_place(scope)
    durable.recorded.come_again(("call", place))
    if durable.recorded.requests.charges():
        charges = durable.recorded.requests.charges(place)
        agent_calls = durable.recorded.requests.agent_calls(charges)
        scope.restore(charges, agent_calls)
        if scope.parent is not None:  # routers, and agents whose tools run pipelines
            scope.parent.recount(charges, agent_calls)


def restore_call(scope: Scope, step: Scope, call: AgentCall) -> None:
    """Count in the scope of an agent call the spending of its earlier attempts in earlier processes."""
    durable = run_of(scope)
    if durable is not None and call.call is not None:
        key, used = agent_call_key(durable.place(step), call.call), calls_used(step, call)
        for attempt in range(1, used.attempt):
            scope.recount(durable.recorded.requests.charges_of(key, attempt))


def attempts_used(scope: Scope) -> RetriesUsed:
    """Return the retries that a mapped step has used, with the number of its next attempt."""
    durable = run_of(scope)
    return NO_RETRIES_USED if durable is None else durable.recorded.used(("step", step_place(scope)))


def calls_used(scope: Scope, call: AgentCall) -> RetriesUsed:
    """Return the retries that an agent call has used, with the number of its next attempt."""
    durable = run_of(scope)
    if durable is None or call.call is None:
        return NO_RETRIES_USED
    return durable.recorded.used_in_call(durable.place(scope), call.call)


async def tell_not_accepted(scope: Scope, call: str, error: Exception) -> None:
    """Tell that the answer of an agent call is not good enough, so that another call asks for a better one.

    This is told only once: a run that is resumed may come by here again.
    """
    durable = run_of(scope)
    if durable is None or not durable.recorded.was_retried(agent_call_key(durable.place(scope), call)):
        retry = Retry(error, FailureClass.TERMINAL, 0.0, 1, NO_RETRIES_USED)
        await scope.emit(step_retried(scope, retry, call))


def step_retried(scope: Scope, retry: Retry, call: str | None = None) -> StepRetried:
    """Log that an attempt at a step, or at an agent call in it, failed, and that another one follows.

    Return that fact.
    """
    place = step_place(scope)
    fact = StepRetried(
        part=scope.part,
        place=place if call is None else f"{place}@{scope.attempt}",
        attempt=retry.failed_attempt,
        failure=failure_facts(retry.error, retry.failure_class),
        delay=retry.delay,
        used=retry.used,
        call=call or "",
        unit="step" if call is None else "call",
        raised=retry.error,
    )
    if (log := log_of(scope)) is not None:
        if log.run is not None:  # replayed requests are not among the new ones
            log.run.recorded.requests.mark(fact.about, fact.attempt, "retried")
        log.note(fact)
    return fact


def record_own_spending(scope: Scope, record: RequestRecord) -> None:
    """Log spending of a step that did not go through an agent."""
    if (log := log_of(scope)) is not None:
        log.note(SpendingOnRecord(log, log.place(scope), "", _tool_calls(scope)).fact(record))


def _tool_calls(scope: Scope) -> ToolCalls:
    """Return the calls and effects inside which a scope spends; no tool calls if a tool spends in the name
    of its step.
    """
    around, calls = current_scope(), current_tool_calls.get()
    agent = None if around is None else next((one for one in around.lineage() if one.kind == "agent"), None)
    return calls if agent in scope.lineage() else ToolCalls(effects=calls.effects)


@dataclass(frozen=True, slots=True)
class SpendingOnRecord:
    """Spending that was put on record before it happens."""

    log: Log
    place: str
    id: str
    calls: ToolCalls

    @classmethod
    def of(cls, scope: Scope) -> SpendingOnRecord | None:
        """Return the place of new spending in the log of its run; `None` outside of runs."""
        log = log_of(scope)
        return None if log is None else cls(log, log.place(scope), secrets.token_hex(16), _tool_calls(scope))

    async def begin(self, record: RequestRecord) -> None:
        """Put on record the charge that counts if the spending never ends.

        Raises:
            RunStoreUnavailable: the store fails, and has failed each time.
            RunTakenOver: another process has taken up the run.
            ScopeClosedError: the run has ended.
        """
        await self.log.begin(self.fact(record))

    def ended(self, record: RequestRecord) -> None:
        """Log the final record. It is written soon, because the bound counts until then."""
        self.log.note(self.fact(record))

    def fact(self, record: RequestRecord) -> SpendingRecorded:
        """Return the fact of a record."""
        calls = self.calls
        return SpendingRecorded(
            place=self.place,
            record=record,
            id=self.id,
            call=calls.agent_call,
            attempt=calls.attempt,
            tools=calls.names,
            effects=calls.effects,
        )


def failure_of(scope: Scope, config: ResolvedConfig, error: BaseException) -> FailureFacts:
    """Return the facts about the failure of a step, for the log."""
    failure_class = noted_class(error)
    if failure_class is None:
        failure_class = classify_in(scope, error, scope.attempt, config.classifiers)
    return failure_facts(error, failure_class)


def failure_facts(error: BaseException, failure_class: str) -> FailureFacts:
    """Return the facts about an exception, for the log."""
    return FailureFacts(
        error_type=attributes.error_type(error),
        message=_message(error),
        failure_class=failure_class,
        traceback=_traceback(error),
    )


def _traceback(error: BaseException) -> str:
    """Return the innermost frames of an exception, without those of this package."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(_PACKAGE)][
        -_MOST_FRAMES:
    ]
    return "".join(format_list(frames)).encode(errors="replace").decode()


def _message(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as failed:  # `__str__` of somebody else's exception
        message = f"its message cannot be read: {type(failed).__name__}"
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}... ({len(message):,} characters in all)"
    return message.encode(errors="replace").decode()  # half a surrogate pair cannot be stored


def last_conversation(durable: DurableRun, scope: Scope, declared: Any) -> ConversationState[Any] | None:
    """Return the last conversation state that a step has returned in an earlier process."""
    ends = reversed(durable.recorded.about(("step", step_place(scope))))
    known = next(
        (one for one in ends if isinstance(one, StepFinished) and one.conversation is not None), None
    )
    if known is None:
        return None
    state = stored_output(durable.recorded, known, declared, durable.codec)
    return state if isinstance(state, ConversationState) else None


def stored_output(recorded: Memo, entry: StepFinished, declared: Any, codec: PayloadCodec | None) -> object:
    """Return the output of a step that is on record.

    Raises:
        RunCorrupt: the output is not of the type that the step declares now, or the codec cannot decode it.
    """
    if entry.conversation is not None:
        declared = state_in(declared)
    try:
        return stored_value(entry.output, declared, codec)
    except ValueError as error:
        if entry.conversation == "incomplete" and declared is not ConversationState:
            return stored_output(recorded, entry, None, codec)
        reason = (
            f"the output of {entry.place!r} is not of the type that it declares: {error}; declare the type "
            "that it had, or fork the run before that step"
        )
        position = recorded.position_of(entry)
        raise RunCorrupt(recorded.opened.run_id, position, why_unread(error, reason)) from error


def stored_value(stored: JsonValue, declared: Any, codec: PayloadCodec | None) -> object:
    """Return a stored value as it was.

    Raises:
        ValueError: the value is not of the declared type (pydantic's `ValidationError`), or cannot be
            decoded.
    """
    if codec is None and is_sealed(stored):
        raise ValueError("it was written with a codec; set PipelineConfig(codec=...) as it was then")
    try:
        value = unseal(stored, codec)
    except RunStoreUnavailable as error:
        raise ValueError(f"the codec cannot decode it: {error.reason}; {error.advice}") from error
    return value_from_json(value, declared)


def why_unread(error: ValueError, misfit: str) -> str:
    """Return why `stored_value` has failed: a `misfit` of types, unless it is the codec's fault."""
    return misfit if isinstance(error, ValidationError) else str(error)

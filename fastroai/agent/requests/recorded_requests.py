"""Requests and tool calls of agents as facts of a run: those on record are not paid for twice."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from pydantic import JsonValue, ValidationError
from pydantic_ai import ModelRetry, ToolReturn
from pydantic_ai.capabilities import ValidatedToolArgs, WrapToolExecuteHandler
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError, to_json

from fastroai.agent.declared import AgentDeclaration, has_history, inputs_of
from fastroai.agent.requests.fingerprint import fingerprint
from fastroai.agent.requests.new_messages import NewMessages
from fastroai.agent.requests.request_terms import Terms
from fastroai.calls.call import AgentCall
from fastroai.errors import RunCorrupt, ValueNotStorable
from fastroai.records import RequestRecord
from fastroai.runtime import FailureClass, RetriesUsed, Scope, classify
from fastroai.runtime.fact_base import Begins, Ends
from fastroai.runtime.facts import (
    AgentCallEnded,
    Asked,
    Asks,
    ReplayDiverged,
    RequestEnded,
    RequestInBatch,
    RequestPlace,
    RequestSent,
    ToolEnded,
)
from fastroai.runtime.retrying.failures import noted_class
from fastroai.runtime.scope import current_tool_calls
from fastroai.steps.durability import failure_facts
from fastroai.store.reading.as_json import as_json
from fastroai.store.record.changes import call_changed, keeps_answer
from fastroai.store.record.declarations import digest
from fastroai.store.record.effect import effect
from fastroai.store.record.exceptions import exception_from_json, exception_to_json, stand_in_for
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.record.payloads import seal, unseal
from fastroai.store.record.requests_on_record import ChargeOnRecord, KnownCall, agent_call_key
from fastroai.store.record.runs import DurableRun


@dataclass(frozen=True, slots=True)
class KnownResponse:
    """A response that is on record."""

    response: ModelResponse
    sent: ChargeOnRecord
    """The request, perhaps of another agent call, if calls have changed places."""
    is_pending: bool = False
    """Whether the answer is still to be collected: the response says where it will be."""


@dataclass(slots=True)
class CallOnRecord:
    """One attempt at an agent call, compared with what is on record of it when it sends its first request.

    A call that has finished is found by what is declared for it and by its inputs. It gets the responses on
    record in order, whatever its requests say. Any other call is found request by request.
    """

    asks: Asks
    has_history: bool
    """Whether the call goes on with a conversation."""
    anew: str = ""
    """A text that tells the tool calls of a call that is asked anew from those on record; else empty."""
    _known: KnownCall | None = None
    """The call on record whose responses are given, in order."""
    _is_compared: bool = False
    _is_on_record: bool = False

    @classmethod
    def of(cls, agent_name: str, declaration: AgentDeclaration, call: AgentCall) -> CallOnRecord:
        """Return what a call of the agent with this name and declaration asks for."""
        asks = call.asks or Asks(declared=declaration.of(call), inputs=inputs_of(agent_name, call))
        return cls(asks, has_history(call))

    def take(self, run: DurableRun, scope: Scope, request: RequestPlace) -> list[ChargeOnRecord]:
        """Return what is on record for a request, as `Memo.take_requests` does.

        Raises:
            CallChangedError: the call has changed, with `on_changed="fail"`; or it keeps an answer that does
                not fit any more.
        """
        charges: list[ChargeOnRecord] = []
        if not self._is_compared:
            self._compare(run, scope, request)
            charges = run.recorded.requests.take_requests(request, self.asks)
            if charges and charges[-1].response is not None:
                call = run.recorded.requests.call_of(charges[-1])
                self._known = call if call is not None and call.has_finished else None
                return charges
        if (call := self._known) is None:
            return charges or run.recorded.requests.take_requests(request, self.asks)
        charges += run.recorded.requests.take_next(call, request)
        if not charges and call.changed and call.has_finished:
            misfit = "the model would be asked for another answer"
            raise call_changed(run, request.place, call.name, call.changed, misfit)
        return charges or run.recorded.requests.take_requests(request, self.asks)

    def _compare(self, run: DurableRun, scope: Scope, request: RequestPlace) -> None:
        self._is_compared = True
        recorded = run.recorded
        call = recorded.requests.find_call(request, self.asks)
        if call is not None and call.changed:
            if keeps_answer(run, scope, request.place, call.changed, call=call.name, attempt=call.attempt):
                self.asks, self._known = call.asks, call
        elif call is not None and call.has_finished:
            # The conversation may hold an answer that was asked anew. Then only the requests can tell.
            is_other = self.has_history and recorded.has_asked_anew(request.place)
            self._known = None if is_other else call
        if recorded.requests.was_asked_otherwise(request, self.asks):
            self.anew = digest(*self.asks.declared.values())

    def to_record(self) -> Asks | None:
        """Return what the call asks for, to be put on record with the first request that is sent."""
        is_first, self._is_on_record = not self._is_on_record, True
        return self.asks if is_first else None

    def count(self, scope: Scope, call: str, attempt: int) -> None:
        """Count the start of the call. One that is on record counts already in the steps around it."""
        run, tools, counted = run_of(scope), current_tool_calls.get().names, None
        if run is not None:
            counted = run.recorded.requests.take_agent_call(run.place(scope), call, attempt, tools)
        if counted is None:
            scope.count_agent_call()
        else:
            counted.add(scope.spending.charges)
            scope.recount((), (counted,))

    def note_end(self, scope: Scope, call: str, attempt: int) -> None:
        """Put on record that the call has ended with an answer that calls tools. Any other says so itself."""
        run = run_of(scope)
        if run is None or current_tool_calls.get().names:
            return
        ended = AgentCallEnded(place=run.place(scope), call=call, attempt=attempt)
        if not _is_on_record(run, ended):
            run.journal.note(ended)

    async def put_failure_on_record(self, scope: Scope, call: str, attempt: int, error: Exception) -> None:
        """Put on record that this attempt has failed, before its caller sees that."""
        run = run_of(scope)
        if run is None or current_tool_calls.get().names:
            return
        failure = failure_facts(error, noted_class(error) or classify(error))
        ended = AgentCallEnded(place=run.place(scope), call=call, attempt=attempt, failure=failure)
        if not _is_on_record(run, ended):
            ended.exception = seal(exception_to_json(error), run.codec)
            await run.journal.commit(ended)

    def known_failure(self, scope: Scope, call: str, attempt: int) -> Exception | None:
        """Return the exception of this attempt that its caller has handled before.

        What the attempt has spent is counted in the scope. `None` if the call is made.
        """
        run = run_of(scope)
        if run is None or current_tool_calls.get().names:
            return None
        place = run.place(scope)
        ended = run.recorded.requests.failed_call(place, call, attempt, self.asks)
        if ended is None or ended.failure is None:
            return None
        known = exception_from_json(ended.failure, unseal(ended.exception, run.codec))
        error = known or stand_in_for(ended.failure)
        if error is not None:
            scope.recount(run.recorded.requests.take_charges_of(agent_call_key(place, call), attempt))
        return error


def _is_on_record(run: DurableRun, ended: AgentCallEnded) -> bool:
    known = run.recorded.last(ended.about, AgentCallEnded)
    return known is not None and known.attempt == ended.attempt


@dataclass(slots=True)
class RequestOnRecord:
    """One request of a run: looked up on record first, and put on record when it is sent."""

    log: Log
    scope: Scope
    request: RequestPlace
    rejects: bool
    """Whether it rejects the response before it, and asks again for the same answer."""
    of_call: CallOnRecord | None = None
    """The agent call that sends it; `None` for other code, such as plain agents in tools."""
    used: RetriesUsed = field(default_factory=RetriesUsed)
    """Attempts at this request that are on record and brought no response."""
    cut_at: int | None = None
    """The `max_tokens` of an answer on record that was cut there, as budgets could pay for no more."""
    is_pending: bool = False
    """Whether it is on record where the answer will be: in a batch, or in the background."""
    _asked: Asked = None
    _new: NewMessages | None = None
    """The messages that the request adds, until they are on record."""
    _id: str = ""

    @classmethod
    def of(
        cls,
        log: Log,
        scope: Scope,
        terms: Terms,
        *,
        call: str,
        attempt: int,
        rejects: bool,
        of_call: CallOnRecord | None,
    ) -> RequestOnRecord:
        """Return the request for attempt number `attempt` at the agent call named `call`."""
        asked = partial(fingerprint, [*terms.messages], terms.settings, terms.parameters, terms.asked_for)
        around = current_tool_calls.get()
        request = RequestPlace(
            place=log.place(scope),
            call=call,
            attempt=attempt,
            model=f"{terms.provider}:{terms.model}",
            fingerprint="" if log.run is None else asked(),
            tools=around.names,
            effects=around.effects,
        )
        new = NewMessages.of(terms.messages) if log.records_messages else None
        return cls(log, scope, request, rejects, of_call, _asked=asked if log.run is None else None, _new=new)

    async def replay(self) -> KnownResponse | None:
        """Return the response on record, if there is one, and count its cost in the account of this run.

        Raises:
            RunTakenOver: another process has the run.
            CallChangedError: as raised by `CallOnRecord.take`.
        """
        if (run := self.log.run) is None:
            return None
        await run.check_held()
        if not run.recorded.requests.charges():  # no earlier process has sent anything
            return None
        if self.of_call is None:
            charges = run.recorded.requests.take_requests(self.request)
        else:
            charges = self.of_call.take(run, self.scope, self.request)
        if not charges:
            self._diverge(run)
            return None
        self.scope.recount(charges)
        last = charges[-1]
        if last.response is not None:
            response = _message(run, last.response, f"a response in {self.request.place!r}")
            assert isinstance(response, ModelResponse)
            return KnownResponse(response, last)
        if last.in_batch is not None and last.ends is None:
            pending = _message(
                run, last.in_batch.pending, f"where the answer to a request in {self.request.place!r} will be"
            )
            assert isinstance(pending, ModelResponse)
            assert isinstance(last.begins, RequestSent)
            self._id, self.is_pending = last.begins.id, True
            return KnownResponse(pending, last, is_pending=True)
        last.mark("retried")  # this run asks again
        for sent in charges:
            if sent.record.was_cut_short:
                self.cut_at = sent.record.lowered_to
            elif sent.ends is not None:
                self.used = self.used.after(_failure_of(sent))
        return None

    def count_earlier(self) -> None:
        """Count earlier requests in this place. The request is sent anew, as their answers were not kept."""
        if self.log.run is None:
            return
        charges = self.log.run.recorded.requests.take_requests(self.request)
        for sent in charges:
            sent.mark("retried")
        self.scope.recount(charges)

    def _diverge(self, run: DurableRun) -> None:
        """Count other requests that were sent in this place, whose cost is lost, and note the divergence."""
        asks = None if self.of_call is None else self.of_call.asks
        left, is_sure = run.recorded.requests.left_over(self.request, asks)
        if is_sure:
            self.scope.recount(left)
        if any(sent.response is not None for sent in left):
            run.journal.note(ReplayDiverged(place=self.request.place, call=self.request.call))

    async def sent(self, record: RequestRecord) -> None:
        """Put the request on record before it is sent; `record` counts if nothing more is heard of it.

        Raises:
            ValueNotStorable: its messages are larger than the store takes.
        """
        new, run = self._new, self.log.run
        messages: object = new if new is None or run is None else seal(new.to_json(), run.codec)
        begins = RequestSent(
            id=secrets.token_hex(16),
            request=self.request,
            record=record,
            rejects=self.rejects,
            asks=None if self.of_call is None else self.of_call.to_record(),
            messages=messages,
            history=0 if new is None else new.history,
            asked=self._asked,
        )
        self._id, self._new = begins.id, None
        try:
            await self.log.begin(begins)
        except ValueNotStorable:
            self._id = ""  # it was never put on record as sent
            raise

    async def answered_later(self, pending: ModelResponse, claims: dict[str, str]) -> None:
        """Put on record where the answer will be, before anybody waits for it.

        `pending` is the response that PydanticAI gives meanwhile, `claims` are those of `Reservation`.
        """
        run = self.log.run
        if run is None or self.is_pending or not self._id or run.journal.has_ended:
            return
        self.is_pending = True
        known = seal(_as_json(pending), run.codec)
        await self.log.commit(
            RequestInBatch(place=self.request.place, id=self._id, pending=known, claims=claims)
        )

    @property
    def is_collected_later(self) -> bool:
        """Whether a process that takes the run up can collect the answer, and nobody cancels the run."""
        return self.is_pending and not self.log.is_cancelling

    async def ended(self, record: RequestRecord, response: ModelResponse | None) -> None:
        """Put the end of the request on record.

        After the end of the run, its bound stays on record: a scope around the run has its cost.
        """
        if self.log.run is None or not self.log.run.journal.has_ended:
            await self.log.commit(self._ended(record, response))

    def ended_soon(self, record: RequestRecord, response: ModelResponse | None) -> None:
        """Note the end of the request without waiting, for a task that is cancelled and cannot wait."""
        if self._id:  # else it was never put on record as sent
            self.log.note(self._ended(record, response))

    def _ended(self, record: RequestRecord, response: ModelResponse | None) -> RequestEnded:
        answer: object = None if response is None else _Response(response)
        if response is not None and (run := self.log.run) is not None:
            answer = seal(_as_json(response), run.codec)
        return RequestEnded(id=self._id, record=record, response=answer)


def _as_json(response: ModelResponse) -> JsonValue:
    known: JsonValue = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    return known


@dataclass(frozen=True, slots=True)
class _Response:
    """A response in a log, encoded only when it is read."""

    response: ModelResponse

    def to_json(self) -> JsonValue:
        messages = ModelMessagesTypeAdapter.dump_python([self.response], mode="json", fallback=repr)
        shown: JsonValue = messages[0]
        return shown


@dataclass(frozen=True, slots=True)
class _ToolResult:
    """The result of a tool in a log, encoded only when it is read."""

    tool_name: str
    result: object

    def to_json(self) -> JsonValue:
        try:
            return _stored_result(self.tool_name, self.result)
        except ValueNotStorable:
            return as_json(self.result)


def _message(run: DurableRun, stored: JsonValue, what: str) -> ModelMessage:
    """Return a message that is on record. Raises `RunCorrupt`, which says `what` it is."""
    try:
        (message,) = ModelMessagesTypeAdapter.validate_python([unseal(stored, run.codec)])
    except ValidationError as error:
        raise RunCorrupt(run.run_id, 0, f"{what}: {error}") from error
    return message


def _failure_of(sent: ChargeOnRecord) -> FailureClass:
    """Return the failure class of an attempt on record: recoverable if it was released, else ambiguous."""
    released = sent.record.outcome == "released"
    return FailureClass.RECOVERABLE if released else FailureClass.AMBIGUOUS


async def execute_tool(
    log: Log,
    scope: Scope,
    *,
    agent_call: str,
    attempt: int,
    anew: str,
    call: ToolCallPart,
    tool: ToolDefinition,
    args: ValidatedToolArgs,
    handler: WrapToolExecuteHandler,
) -> Any:
    """Call a tool, unless its result is on record; one that is `repeatable` is called each time.

    `anew` tells the calls of an agent call that is asked anew from those on record.

    Raises:
        ModelRetry: the tool asks the model to try again, or did so on record.
        ToolFailed: it tells the model that it failed, or did so on record.
        ApprovalRequired: it needs approval, or asked for it on record.
        CallDeferred: its result comes from outside.
        ValueNotStorable: its result cannot be stored.
        RunTakenOver: another process has the run.
    """
    key = _tool_call_key(scope, f"{agent_call} {anew}" if anew else agent_call, attempt, call)
    tool_call = _ToolCall(log, scope, log.place(scope), _tool_call_name(call, key), call.tool_name)

    async def call_it() -> Any:
        if log.run is not None:
            scope.recount(log.run.recorded.requests.bought_in_tool(tool_call.place, tool_call.name))
        calls = current_tool_calls.get()
        names = (*calls.names, tool_call.name)
        token = current_tool_calls.set(
            calls._replace(key=key, names=names, agent_call=agent_call, attempt=attempt)
        )
        try:
            return await handler(args)
        finally:
            current_tool_calls.reset(token)

    if (tool.metadata or {}).get("repeatable"):
        if log.run is not None:
            await log.run.check_held()
        return await call_it()
    return await effect(
        log,
        ("tool", tool_call.place, tool_call.name),
        call_it,
        given=tool_call.given,
        done=tool_call.done,
        failed=tool_call.failed,
    )


@dataclass(frozen=True, slots=True)
class _ToolCall:
    """One call of a tool in the log of a run."""

    log: Log
    scope: Scope
    place: str
    name: str
    tool: str

    def given(self, known: Begins | Ends) -> tuple[object] | None:
        """Return the result on record, or raise what the tool raised for the model."""
        run = self.log.run
        if run is None or not isinstance(known, ToolEnded):
            return None
        inside = run.recorded.requests.in_tool(self.place, self.name)
        self.scope.recount(inside, run.recorded.requests.agent_calls(inside))
        if known.deferred is not None:
            raise _deferral(run, known)
        if known.retry is not None:
            raise (ToolFailed if known.is_final else ModelRetry)(str(unseal(known.retry, run.codec)))
        return (_tool_result(run, known),)

    def done(self, result: object) -> ToolEnded:
        """Return the fact of a result. Raises `ValueNotStorable`."""
        stored: object = _ToolResult(self.tool, result)
        if (run := self.log.run) is not None:
            stored = seal(_stored_result(self.tool, result), run.codec)
        return ToolEnded(place=self.place, tool=self.name, result=stored)

    def failed(self, error: Exception) -> ToolEnded | None:
        """Return the fact of what the tool raised for the model; `None` for other errors.

        A deferral counts, so that work that the tool has begun, such as a job elsewhere, is not begun again.

        Raises:
            ValueNotStorable: the metadata of a deferral cannot be stored.
        """
        run = self.log.run
        if isinstance(error, CallDeferred | ApprovalRequired):
            metadata: object = as_json(error.metadata) if run is None else error.metadata
            metadata = self.log.stored(
                metadata, None, f"the metadata of the deferred tool call {self.name!r}"
            )
            deferred: Literal["approval", "call"] = "call" if isinstance(error, CallDeferred) else "approval"
            return ToolEnded(place=self.place, tool=self.name, result=metadata, deferred=deferred)
        if (raised := _raised_for_model(error)) is None:
            return None
        retry = raised.message if run is None else seal(raised.message, run.codec)
        is_final = isinstance(raised, ToolFailed)
        return ToolEnded(place=self.place, tool=self.name, retry=retry, is_final=is_final)


def _deferral(run: DurableRun, ended: ToolEnded) -> CallDeferred | ApprovalRequired:
    """Return the exception by which a tool deferred its call."""
    metadata = unseal(ended.result, run.codec)
    if metadata is not None and not isinstance(metadata, dict):
        what = f"the metadata of {ended.tool!r} in {ended.place!r} is no JSON object"
        raise RunCorrupt(run.run_id, 0, what)
    return CallDeferred(metadata) if ended.deferred == "call" else ApprovalRequired(metadata)


def _raised_for_model(error: Exception) -> ModelRetry | ToolFailed | None:
    """Return the exception that a tool raised for the model; PydanticAI has wrapped its own around it."""
    raised = error.__cause__ if isinstance(error, ToolRetryError | ToolFailedError) else error
    return raised if isinstance(raised, ModelRetry | ToolFailed) else None


def _tool_call_key(scope: Scope, agent_call: str, attempt: int, call: ToolCallPart) -> str:
    """Return the key of this call of a tool. The id of the call is not enough, as some models repeat ids."""
    what = [current_tool_calls.get().key, agent_call, attempt, call.tool_name, call.args_as_dict()]
    key = hashlib.sha256(to_json(what)).hexdigest()[:8]
    number = scope.count_child(key)
    return key if number == 1 else f"{key}.{number}"


def _tool_call_name(call: ToolCallPart, key: str) -> str:
    what = to_json([key, call.tool_call_id])
    return f"{call.tool_name}:{hashlib.sha256(what).hexdigest()[:16]}"


def _stored_result(tool_name: str, result: object) -> JsonValue:
    """Return a result as PydanticAI stores it in messages: as the model reads it, without Python types."""
    returned = result if isinstance(result, ToolReturn) else ToolReturn(return_value=result)
    parts: list[ModelRequestPart] = [
        ToolReturnPart(tool_name, returned.return_value, tool_call_id="", metadata=returned.metadata)
    ]
    if returned.content is not None:
        parts.append(UserPromptPart(returned.content))
    try:
        stored: JsonValue = ModelMessagesTypeAdapter.dump_python([ModelRequest(parts=parts)], mode="json")[0]
    except (PydanticSerializationError, ValueError) as error:
        advice = "return what pydantic can serialize, or mark the tool with metadata={'repeatable': True}"
        raise ValueNotStorable(
            f"the result of tool {tool_name!r}", "", type(result).__name__, f"{error}; {advice}"
        ) from error
    return stored


def _tool_result(run: DurableRun, ended: ToolEnded) -> object:
    part, *more = _message(run, ended.result, f"the result of {ended.tool!r} in {ended.place!r}").parts
    assert isinstance(part, ToolReturnPart)
    if part.metadata is None and not more:
        return part.content
    content = next((prompt.content for prompt in more if isinstance(prompt, UserPromptPart)), None)
    return ToolReturn(return_value=part.content, content=content, metadata=part.metadata)

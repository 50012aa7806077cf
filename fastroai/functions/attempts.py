"""The attempts at one answer: ask the model, read its answer, check it, and tell the model what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError
from pydantic_ai import capture_run_messages
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ModelResponse, ToolReturnPart
from pydantic_ai.models import Model

from fastroai.agent import FastroAgent
from fastroai.calls.call import AgentCall, Prompt
from fastroai.calls.response import ChatResponse
from fastroai.calls.stream import ChatStream
from fastroai.errors import BudgetExceeded, records_of
from fastroai.functions.declaring.conditions import Postcondition
from fastroai.functions.errors import FailedAttempt, ParseFailure, PostconditionFailed
from fastroai.functions.kept_calls import CallDraft
from fastroai.functions.prompt import CompiledPrompt, retry_prompt
from fastroai.functions.quotes import values_in, without_quotes
from fastroai.functions.typed_answers import Answer, AnswerType, said_in
from fastroai.records import RequestRecord
from fastroai.runtime import current_scope
from fastroai.runtime.facts import Asks
from fastroai.steps import StepContext
from fastroai.steps.context import scope_of
from fastroai.steps.durability import tell_not_accepted
from fastroai.store.record.declarations import digest
from fastroai.store.record.log_of_scope import run_of
from fastroai.usage import Quote

T = TypeVar("T")

_NOT_ACCEPTED: Final = "Not accepted."
_ANSWER_LIMIT: Final = "Budget(max_tokens_per_request=...)"
"""The setting that bounds answers if the user has given no agent with a `max_tokens` of its own."""
NO_OUTPUT: Final = "Exceeded maximum output retries"
"""Start of PydanticAI's message for an answer that is no output. No class of exceptions identifies it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker(Generic[T]):
    """Asks the model of a function until an answer is good enough."""

    function: str
    agent: FastroAgent[Any, Any]
    is_own_agent: bool
    """Whether the agent was made for the answers of this function, and not given by the user."""
    answers: AnswerType[T]
    ensure: Postcondition
    retries: int
    """Extra attempts."""
    model: Model | str | None = None
    """The model to ask, if the agent has none."""
    declares: Callable[[], Mapping[str, str]]
    """Function that returns hashes of what the function declares."""
    _shapes: list[str] = field(default_factory=list[str], init=False, repr=False, compare=False)

    async def ask(
        self, context: StepContext[Any], draft: CallDraft, compiled: CompiledPrompt, name: str
    ) -> Answer[T]:
        """Return the first answer that is good enough. `name` tells these attempts from others of the call.

        Raises:
            ParseFailure: the last answer is not of the declared type.
            PostconditionFailed: `ensure` does not hold for the last output.
        """
        failed: list[FailedAttempt] = []
        opaque_inputs = values_in(compiled.data)
        prompt: Prompt = compiled.content
        history: list[ModelMessage] | None = None
        while True:
            draft.attempts += 1
            number = len(failed) + 1
            called = f"{name}attempt {number}"
            attempt = Attempt(self, draft.call.key)
            try:
                await context.run(attempt, prompt, message_history=history, model=self.model, name=called)
            except ParseFailure:
                if attempt.is_output:
                    raise  # the error of another function, which a tool calls
            draft.model = attempt.model
            answer, wrong = self._judged(attempt)
            if answer is not None and not wrong:
                return answer
            parts = () if answer is None else self.answers.opaque_parts(answer.output)
            said = [self.answers.shown(attempt.text), *wrong]
            [text, *wrong] = without_quotes(said, [*opaque_inputs, *parts])
            failed.append(FailedAttempt(text if answer is None else answer.output, tuple(wrong)))
            failure = self._failure(answer, failed)
            is_last = number > self.retries
            with (scope := scope_of(context)).tree.lock:
                scope.spending.mark_records(attempt.records, "failed" if is_last else "retried")
            if is_last:
                raise failure
            draft.retry_reasons.append("; ".join(wrong))
            context.tracer.log_error(draft.trace_id, failure, {"fastroai.retry": number})
            await tell_not_accepted(scope_of(context), called, failure)
            prompt, history = retry_prompt(wrong), attempt.conversation()

    async def shape(self, context: StepContext[Any], compiled: CompiledPrompt) -> str | None:
        """Return a hash of everything except the prompt that shapes answers; `None` if it cannot be known.

        Requests of a user's agent can differ from call to call, because its instructions may be functions.
        """
        if self._shapes:
            return self._shapes[0]
        prompt = compiled.content if not self.is_own_agent else ""
        call = self.call(AgentCall(prompt=prompt, deps=context.deps, options={"model": self.model}))
        shape = await self.agent.fingerprint_call(call)
        if self.is_own_agent and shape is not None:
            self._shapes.append(shape)
        return shape

    async def quote(self, prompt: list[str] | None, deps: object, unknown_prompt: str | None) -> Quote:
        """Estimate one attempt.

        If the prompt is not known, `unknown_prompt` says why, and the estimate is for any prompt.
        """
        call = self.call(AgentCall(prompt=prompt, deps=deps, options={"model": self.model}))
        return await self.agent.estimate_call(call, unknown_prompt=unknown_prompt)

    def call(self, call: AgentCall) -> AgentCall:
        """Return a call that asks for the output of this function."""
        if self.is_own_agent:
            return call
        return replace(call.with_options(retries={"output": 0}), output_type=self.answers.output_type)

    def read(self, text: str) -> Answer[T] | None:
        """Return an answer from the text that was kept; `None` if it is not good enough now."""
        try:
            answer = Answer(text, self.answers.read(text))
        except ValidationError:
            return None
        return None if self.ensure.violations(answer.output) else answer

    def _judged(self, attempt: Attempt[T]) -> tuple[Answer[T] | None, list[str]]:
        """Return the answer of an attempt, if it can be read, and all its problems."""
        if not attempt.is_output:
            return None, [self.answers.is_no_output]
        try:
            answer = Answer(attempt.text, self.answers.read(attempt.text))
        except ValidationError as error:
            return None, self.answers.problems(error)
        return answer, self.ensure.violations(answer.output)

    def _failure(
        self, last: Answer[T] | None, failed: Sequence[FailedAttempt]
    ) -> ParseFailure | PostconditionFailed:
        wrong = failed[-1].violations
        if last is None:
            return ParseFailure(self.function, wrong, str(failed[-1].output), tuple(failed))
        return PostconditionFailed(self.function, wrong, last.output, tuple(failed))


class Attempt(Generic[T]):
    """One attempt. `StepContext.run` takes it for the agent; it accepts any answer as the output."""

    def __init__(self, asker: Asker[T], key: str) -> None:
        """`key` is the hash of the arguments of the function."""
        self._asker, self._key = asker, key
        self._messages: list[ModelMessage] = []
        self.text = ""
        """The text of the answer."""
        self.is_output = True
        """Whether PydanticAI has accepted the answer as structured output, of any type."""
        self.records: tuple[RequestRecord, ...] = ()
        """The records of the requests that the attempt made."""

    @property
    def model(self) -> str:
        """The model that answered."""
        answer = self._messages[self._last_answer()]
        return (answer.model_name or "") if isinstance(answer, ModelResponse) else ""

    def conversation(self) -> list[ModelMessage]:
        """Return the messages up to the answer, whose tool calls have all returned."""
        end = self._last_answer()
        answer, after = self._messages[end], self._messages[end + 1 :]
        assert isinstance(answer, ModelResponse)
        returned = {
            part.tool_call_id: part
            for message in after
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        }
        returns: list[ModelRequestPart] = [
            returned.get(call.tool_call_id)
            or ToolReturnPart(call.tool_name, _NOT_ACCEPTED, tool_call_id=call.tool_call_id)
            for call in answer.tool_calls
        ]
        return [*self._messages[: end + 1], *([ModelRequest(parts=returns)] if returns else ())]

    def _last_answer(self) -> int:
        last = len(self._messages) - 1
        while self._messages[last].kind != "response":
            last -= 1
        return last

    async def dispatch(self, call: AgentCall) -> ChatResponse[Any]:
        """Ask the model, and note its answer, even one that PydanticAI rejects.

        Raises:
            ParseFailure: the answer is no output. Other errors concern the request, and not the answer.
        """
        asker, self.is_output = self._asker, True
        if run_of(current_scope()) is not None:
            inputs = digest(self._key, call.call or "")
            call = replace(call, asks=Asks(declared=asker.declares(), inputs=inputs))
        with capture_run_messages() as messages:
            try:
                response = await asker.agent.dispatch(asker.call(call))
            except UnexpectedModelBehavior as error:
                if not error.message.startswith(NO_OUTPUT):
                    raise
                self._messages, self.is_output = messages, False
                self.text, self.records = said_in(messages), records_of(error)
            except BudgetExceeded as stop:
                if asker.is_own_agent and len(stop.stopped_runs) == 1:  # not an agent that a tool called
                    stop.answer_limit = _ANSWER_LIMIT
                raise
            else:
                self._messages = response.result.all_messages()
                self.text = asker.answers.text_of(response.output)
                self.records = response.records
                return response
        raise ParseFailure(asker.function, (), "")  # not from PydanticAI's error, which quotes the answer

    def dispatch_stream(self, call: AgentCall) -> ChatStream[Any]:
        """Stream the answer of the agent. Typed functions never use this."""
        return self._asker.agent.dispatch_stream(call)

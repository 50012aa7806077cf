"""Tool calls that need approval, or a result from outside, as questions to people."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any, Final

from pydantic import StrictBool, WithJsonSchema
from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolApprovalResult, DeferredToolCallResult
from pydantic_core import to_json

from fastroai.agent.agent_run import agent_run_of
from fastroai.errors import ConfigurationError
from fastroai.human.asking import Ask
from fastroai.human.halting import Halted
from fastroai.records import NOT_GIVEN, Duration, NotGiven
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.scope import RUNS, current_tool_calls
from fastroai.steps.durability import step_place

_ANSWERS: Final[Mapping[str, Any]] = {
    "approval": StrictBool | DeferredToolApprovalResult,
    # Any JSON is a valid result, so a schema of the special results would add 200 lines and exclude nothing.
    "call": Annotated[DeferredToolCallResult | Any, WithJsonSchema({})],
}
"""The types of the answers, by the kind of the question: those of PydanticAI's `DeferredToolResults`."""


@dataclass
class AskPeople(AbstractCapability[Any]):
    """Asks people about tool calls that need an approval or an outside result. The run waits in the store.

        agent = FastroAgent("openai:gpt-5-mini", tools=[Tool(refund, requires_approval=True)],
                            capabilities=[AskPeople(to="finance")])

    In a step of a run with a store, each call becomes a question in the inbox, and the step halts as with
    `ctx.ask`. When the run is resumed with the answers, the agent continues: responses and results of tools
    that are on record are not paid for again. Outside of steps and flows it does nothing, so PydanticAI
    returns the calls to the caller as `DeferredToolRequests`.

    An approval is answered with `True`, `False`, `ToolApproved(override_args=...)` or
    `ToolDenied("message to the model")`; a call for a result from outside with that result.

    Raises:
        ConfigurationError: an option is invalid, or `on_timeout` is given without `timeout`; or, in the
            agent's run, no store keeps the run around it.
        QuestionTimedOut: in the agent's run: nobody answered in time, and `on_timeout` is not given.
    """

    _: KW_ONLY
    to: str = ""
    """The people to ask: a label for inboxes."""
    timeout: Duration | None = None
    """Seconds, from when a question is first asked, after which no answer is taken. `None` sets no limit."""
    on_timeout: str | NotGiven = NOT_GIVEN
    """Message to the model after that time: an approval is denied with it, and any other call fails."""
    _ask: Ask = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.on_timeout, str | NotGiven):
            raise ConfigurationError("on_timeout", self.on_timeout, "a message to the model")
        self._ask = Ask(
            question=None,
            answer_type=None,
            options=None,
            timeout=self.timeout,
            on_timeout=self.on_timeout,
            to=self.to,
            name="tool call",
        )

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """In a step, declare tools whose calls are deferred as plain functions, and return the request.

        Otherwise PydanticAI would end a streamed run where the model calls one of them. Outside of steps, the
        request is returned unchanged. PydanticAI calls this before each request.
        """
        parameters = request_context.model_request_parameters
        scope = current_scope()
        in_step = scope is not None and scope.step is not None
        if in_step and any(tool.defer for tool in parameters.function_tools):
            tools = [replace(tool, kind="function") for tool in parameters.function_tools]
            request_context.model_request_parameters = replace(parameters, function_tools=tools)
        return request_context

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Return the answers that are on record, or ask and halt. Outside of steps, return `None`.

        The result has an answer for each tool call in `requests`, by the id of the call. If one has none yet,
        the questions of all such calls are put on record, and the step halts. PydanticAI calls this.

        Raises:
            Halted: there is a call without an answer yet.
            ConfigurationError: no store keeps the run.
            QuestionTimedOut: nobody answered in time, and `on_timeout` is not given.
            ValueNotStorable: arguments or metadata of a call cannot be stored.
        """
        scope = current_scope()
        if scope is None or (step := scope.step) is None:
            return None
        agent = scope.name if ctx.agent is None or ctx.agent.name is None else ctx.agent.name
        results, halted = DeferredToolResults(), None
        calls = [("approval", call) for call in requests.approvals] + [("call", c) for c in requests.calls]
        for kind, call in calls:
            question = {
                "kind": kind,
                "agent": agent,
                "tool_name": call.tool_name,
                "args": call.args_as_dict(),
                "tool_call_id": call.tool_call_id,
                "metadata": requests.metadata.get(call.tool_call_id, {}),
            }
            try:
                answer = self._answered(scope, step, kind, call, question)
            except Halted as waiting:  # after the questions of all calls, so that people see them together
                halted = waiting
            else:
                (results.approvals if kind == "approval" else results.calls)[call.tool_call_id] = answer
        if halted is not None:
            raise halted
        return results

    def _answered(
        self, scope: Scope, step: Scope, kind: str, call: ToolCallPart, question: Mapping[str, object]
    ) -> Any:
        late: object = self.on_timeout
        if isinstance(late, str):
            late = ToolDenied(late) if kind == "approval" else ToolFailed(late)
        asked = replace(
            self._ask,
            question=question,
            answer_type=_ANSWERS[kind],
            on_timeout=late,
            name=_question_name(scope, kind, call),
        )
        is_visit = step.parent is not None and step.parent.kind in RUNS
        return asked.answered(step, step_place(step), step.ordinal if is_visit else 1)


def _question_name(scope: Scope, kind: str, call: ToolCallPart) -> str:
    """Return a name that no other question of the step has. The call's id is not enough: models repeat it."""
    run = agent_run_of(scope)
    around = None if run is None else (run.call, run.attempt)
    key = to_json([current_tool_calls.get().key, around, kind, call.tool_name, call.tool_call_id])
    name = f"{call.tool_name}:{hashlib.sha256(key).hexdigest()[:16]}"
    number = scope.count_child(f"question {name}")
    return name if number == 1 else f"{name}.{number}"

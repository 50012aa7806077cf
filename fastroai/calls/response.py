"""The response of an agent call: its output, usage and cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.output import OutputDataT
from pydantic_ai.run import AgentRunResult
from pydantic_core import to_json

from fastroai.other_names import other_names
from fastroai.records import AgentCallUsage, RequestRecord, SumsOfUsage, ToolCall, Usage, dump
from fastroai.tracing import TraceSpan

if TYPE_CHECKING:
    from fastroai.runtime import Scope
    from fastroai.usage.reports.report import UsageReport


@other_names(
    attributes={
        "data": "response.output",
        "text": "str(response)",
        "cost": "response.cost_usd",
        "messages": "response.all_messages()",
    }
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse(SumsOfUsage, Generic[OutputDataT]):
    """The response of one agent call.

        response = await agent.run("What is the capital of France?")
        response.output, response.cost_usd, response.total_tokens

    Counts and costs are for the whole call: all its requests, and those of agents that its tools call. Only
    `tool_calls`, `tool_call_count` and `usage_details` leave out the agents that its tools call.
    """

    output: OutputDataT
    """The output, of the agent's output type."""
    model: str
    """The model that gave the final answer."""
    provider: str
    usage: Usage  # pyright: ignore[reportIncompatibleMethodOverride]
    """Usage of this call: of every request, also those of agents that its tools call."""
    records: tuple[RequestRecord, ...]
    """Every request of this call, in the order in which they ended."""
    tool_calls: tuple[ToolCall, ...]
    """Calls of function tools that the model asked for."""
    processing_time_ms: float
    """Wall time of the call, in milliseconds."""
    trace_id: str | None
    """Id of the trace, if there was a tracer."""
    trace_span: TraceSpan | None
    """The span of this call, where a tracer made one."""
    agent_calls: tuple[AgentCallUsage, ...]
    """The run of this agent, and those of agents that its tools call, each by itself."""
    run_id: str
    """PydanticAI's id of the agent run, as on its messages."""
    usage_details: dict[str, int]
    """Further counts that the provider reported."""
    result: AgentRunResult[OutputDataT] = field(repr=False)
    """PydanticAI's own result."""

    @classmethod
    def of(
        cls,
        result: AgentRunResult[OutputDataT],
        scope: Scope,
        *,
        output_tools: Collection[str],
        processing_time_ms: float,
    ) -> ChatResponse[OutputDataT]:
        """Make the response from PydanticAI's result and the scope in which the call was made.

        The scope has the usage and requests of the call. `output_tools` are the names of the tools by which a
        model gives its output: their calls are left out of `tool_calls`. For the library.
        """
        final = result.response
        with scope.tree.lock:
            spent = scope.spending
            usage, records, agent_calls = spent.usage.copy(), tuple(spent.records), spent.agent_calls
        return cls(
            output=result.output,
            model=final.model_name or "",
            provider=final.provider_name or "",
            usage=usage,
            records=records,
            tool_calls=_tool_calls(result, output_tools),
            processing_time_ms=processing_time_ms,
            trace_id=None if scope.span is None else scope.span.trace_id,
            trace_span=scope.span,
            agent_calls=agent_calls,
            run_id=result.run_id,
            usage_details=dict(result.usage.details),
            result=result,
        )

    def report(self) -> UsageReport:
        """Return a `UsageReport`: the cost of the call by agent, model, tool, outcome and so on.

        `print` shows it as a table. It includes the agents that tools of the call have called.
        """
        from fastroai.usage.reports.report import UsageReport

        return UsageReport.of(self.records)

    @property
    def content(self) -> str:
        """The output as text; compact JSON for any other output, such as `null` for `None`."""
        output = self.output
        if isinstance(output, str):
            return output
        if isinstance(output, BaseModel):
            return output.model_dump_json()
        return to_json(output, fallback=str).decode()

    def __str__(self) -> str:
        """Return `content`."""
        return self.content

    def model_dump(self) -> dict[str, Any]:
        """Return the fields of the response as a dict of JSON values, without PydanticAI's own `result`.

        Amounts of money are text.
        """
        return dump(self)

    def new_messages(self) -> list[ModelMessage]:
        """Return the messages of this call alone, from its prompt to the final answer, to keep as history."""
        return self.result.new_messages()

    def all_messages(self) -> list[ModelMessage]:
        """Return the history that was passed in, followed by the messages of this call."""
        return self.result.all_messages()

    @property
    def is_cut(self) -> bool:
        """Whether the answer is incomplete: its stream ended without a finish reason, or `cancel` stopped it.

        `run` raises `AnswerCutError` then; a stream that you read yourself ends with this flag. It is also
        true if that happened to an answer that an agent called by a tool has used.
        """
        return any(record.cut and record.use == "kept" for record in self.records)

    @property
    def is_measured(self) -> bool:
        """Whether every answer that was used is whole, and came with its usage from the provider.

        If it is false, `cost_usd` may lack something. Failed attempts and retried answers do not matter.
        """
        return not any(record.is_doubtful for record in self.records)

    @property
    def tool_call_count(self) -> int:
        """Number of calls of function tools that the model of this agent asked for.

        `total_tool_call_count` includes those of agents that its tools call.
        """
        return len(self.tool_calls)

    @property
    def total_tool_call_count(self) -> int:
        """Number of calls of function tools that were asked for, by this agent and agents its tools call."""
        return sum(call.tool_call_count for call in self.agent_calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChunk(Generic[OutputDataT]):
    """A piece of a streamed answer. The last one has `is_final` set, and the whole response.

    Of text, `content` has what is new. Of structured output, `output` has all of it so far. On the last
    chunk, `output` is the output, and `usage_data` is the `ChatResponse` with the cost.
    """

    content: str = ""
    """New text; empty for structured output and on the last chunk."""
    output: OutputDataT | None = None
    """Structured output so far, partially validated; on the last chunk, the output."""
    is_final: bool = False
    usage_data: ChatResponse[OutputDataT] | None = None
    """On the last chunk, the response that `run` would have returned."""
    response: ModelResponse | None = field(default=None, repr=False)
    """The answer of the model so far, as PydanticAI has it; `None` on the last chunk."""


def tool_calls_in(response: ModelResponse, output_tools: Collection[str]) -> int:
    """Return the number of calls of function tools that a response asks for."""
    return sum(
        part.part_kind == "tool-call" and part.tool_name not in output_tools for part in response.parts
    )


def _tool_calls(result: AgentRunResult[object], output_tools: Collection[str]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for message in result.new_messages():
        for part in message.parts:
            if part.part_kind == "tool-call" and part.tool_name not in output_tools:
                call = ToolCall(
                    tool_name=part.tool_name, args=part.args_as_dict(), tool_call_id=part.tool_call_id
                )
                calls.append(call)
    return tuple(calls)

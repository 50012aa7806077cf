"""The options of agents' calls and tools, and types of their values that PydanticAI does not export.

The options of a call travel as one value. A new run option of PydanticAI is a line here, and one in the
docstring of `FastroAgent.run`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Generic, Literal, TypeAlias

from pydantic.json_schema import GenerateJsonSchema
from pydantic_ai import (
    AgentCapability,
    AgentModelSettings,
    AgentRetries,
    AgentSpec,
    CancellationToken,
    Conversation,
    RunContext,
    TemplateStr,
    UsageLimits,
)
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.agent.abstract import AgentMetadata
from pydantic_ai.messages import InstructionPart, UserContent
from pydantic_ai.models import Model
from pydantic_ai.tools import (
    AgentDepsT,
    ArgsValidatorFunc,
    DeferredToolResults,
    DocstringFormat,
    ToolPrepareFunc,
)
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RunUsage
from pydantic_ai.workspaces import WorkspaceBackend, WorkspaceRef
from typing_extensions import TypedDict, TypeVar

from fastroai.records import Duration
from fastroai.usage import BudgetLike

DepsT = TypeVar("DepsT")

InstructionText: TypeAlias = str | InstructionPart | None

InstructionFunction: TypeAlias = (
    Callable[[RunContext[AgentDepsT]], InstructionText]
    | Callable[[RunContext[AgentDepsT]], Awaitable[InstructionText]]
    | Callable[[], InstructionText]
    | Callable[[], Awaitable[InstructionText]]
)

Instruction: TypeAlias = TemplateStr[AgentDepsT] | str | InstructionPart | InstructionFunction[AgentDepsT]

Instructions: TypeAlias = Instruction[AgentDepsT] | Sequence[Instruction[AgentDepsT]] | None
"""Values of `instructions=`: texts, functions that compute them, or both."""

Workspace: TypeAlias = WorkspaceBackend | WorkspaceRef | Literal["new"] | None
"""Values of `workspace=`."""


class RequestOptions(TypedDict, Generic[DepsT], total=False):
    """The options of PydanticAI that shape the requests of a call."""

    model: Model | str | None
    instructions: Instructions[DepsT]
    model_settings: AgentModelSettings[DepsT] | None
    usage_limits: UsageLimits | None
    retries: int | AgentRetries | None
    toolsets: Sequence[AbstractToolset[DepsT]] | None
    capabilities: Sequence[AgentCapability[DepsT]] | None


class EstimateOptions(RequestOptions[DepsT], total=False):
    """The keyword arguments of `FastroAgent.estimate`, which `FastroAgent.run` describes."""

    cost_budget: int | None
    budget: BudgetLike | None
    request_retries: int | None


class PassedOptions(RequestOptions[DepsT], total=False):
    """The options that are passed on to PydanticAI's run methods as they are."""

    conversation: Conversation | None
    deferred_tool_results: DeferredToolResults | None
    conversation_id: str | None
    run_id: str | None
    cancellation_token: CancellationToken | None
    usage: RunUsage | None
    metadata: AgentMetadata[DepsT] | None
    workspace: Workspace
    spec: dict[str, Any] | AgentSpec | None


class CallOptions(PassedOptions[DepsT], total=False):
    """The keyword arguments that every way to run an agent takes; `FastroAgent.run` describes each."""

    message: str | Sequence[UserContent] | None
    timeout: Duration | None
    cost_budget: int | None
    budget: BudgetLike | None
    tags: Collection[str] | None
    tenant: str | None
    request_retries: int | None


class RunOptions(CallOptions[DepsT], total=False):
    """The keyword arguments of `run` and `run_sync`."""

    event_stream_handler: EventStreamHandler[DepsT] | None


class ToolOptions(TypedDict, Generic[DepsT], total=False):
    """The keyword arguments of `@agent.tool` and `@agent.tool_plain`, as in PydanticAI."""

    name: str | None
    description: str | None
    retries: int | None
    prepare: ToolPrepareFunc[DepsT] | None
    args_validator: ArgsValidatorFunc[DepsT, ...] | None
    docstring_format: DocstringFormat
    require_parameter_descriptions: bool
    schema_generator: type[GenerateJsonSchema]
    strict: bool | None
    sequential: bool
    requires_approval: bool
    metadata: dict[str, Any] | None
    timeout: float | None
    defer_loading: bool
    include_return_schema: bool | None

"""What the first request of an agent call would carry, found out without sending it.

PydanticAI's own run prepares the request, so that instructions, toolsets, hooks, history and settings are
what they will be. It is left where the model would be asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider
from pydantic_ai import InstrumentationSettings, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import (
    AbstractCapability,
    Caching,
    CapabilityOrdering,
    Instrumentation,
    NativeTool,
    Thinking,
    Toolset,
)
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.run import AgentRun
from pydantic_ai.settings import ModelSettings

from fastroai.agent.metering import Metered

if TYPE_CHECKING:
    from fastroai.steps.call import AgentCall


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """The first request of a call, and what the rest of the call may do."""

    model: Model
    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters
    output_retries: int
    """How often the model is asked again for an output that cannot be used."""
    request_limit: int | None
    """The most requests that PydanticAI makes, answers that it takes as one request counted once."""
    settings_vary: bool
    """Whether a function computes the settings of each request anew."""
    code: tuple[str, ...]
    """Code of the user that runs later in the call, and that may call models."""

    @property
    def offers_tools(self) -> bool:
        """Whether the model is asked again after calling a tool, be it one that does not exist."""
        return bool(self.parameters.function_tools or self.parameters.output_tools)


async def first_request(
    agent: AbstractAgent[Any, Any], call: AgentCall, arguments: Mapping[str, Any]
) -> FirstRequest | str:
    """The first request of a call that is made with these arguments; else why it cannot be known.

    Raises what preparing it raises.
    """
    options = {**arguments, "capabilities": [*(call.capabilities or ()), _UNSEEN, _Probe()]}
    async with agent.iter(call.prompt, output_type=call.output_type, **options) as run:
        try:  # in here: a run that is left early is no failed run, so no hook hears of it
            async for _ in run:
                pass
        except _Asked as asked:
            return _found(asked, run, call, agent)
        except _ToolFirst as tool:
            return f"its history ends with a call of tool {tool}, which is code that runs first"
    return "code of its own answers it without asking a model"


def _found(
    asked: _Asked, run: AgentRun[Any, Any], call: AgentCall, agent: AbstractAgent[Any, Any]
) -> FirstRequest:
    facts = run.ctx.deps
    tools = (facts.tool_manager.tools or {}).values()
    functions = [tool.tool_def.name for tool in tools if tool.tool_def.kind in ("function", "unapproved")]
    code = [f"tool {name!r}" for name in functions]
    if facts.output_validators:
        code.append("its output validators")
    if _has_function(agent.output_type if call.output_type is None else call.output_type):
        code.append("its output function")
    code += [f"capability {name}" for name in _capabilities(facts.root_capability)]
    return FirstRequest(
        model=asked.model,
        messages=asked.messages,
        settings=asked.settings,
        parameters=asked.parameters,
        output_retries=facts.max_output_retries,
        request_limit=facts.usage_limits.request_limit,
        settings_vary=callable(call.model_settings)
        or (facts.agent is not None and callable(facts.agent.model_settings)),
        code=tuple(code),
    )


def _has_function(output: object) -> bool:
    """Whether an output type is, or contains, a function that makes the output."""
    if isinstance(output, TextOutput):
        return True
    if isinstance(output, ToolOutput):
        return _has_function(output.output)
    if isinstance(output, NativeOutput | PromptedOutput):
        return _has_function(output.outputs)
    if isinstance(output, Sequence) and not isinstance(output, str):
        return any(map(_has_function, output))
    return inspect.isroutine(output)


_WITHOUT_HOOKS: Final = "pydantic_ai.capabilities._"
"""Where the capabilities are from that every agent has."""


def _capabilities(root: AbstractCapability[Any]) -> Iterator[str]:
    """Names of the capabilities whose hooks may do anything."""
    leaves: list[AbstractCapability[Any]] = []
    root.apply(leaves.append)
    for leaf in leaves:
        kind = type(leaf)
        if kind not in _CALL_NO_MODEL and not kind.__module__.startswith(_WITHOUT_HOOKS):
            yield kind.__name__


class _Asked(BaseException):
    """The model was asked. Not an `Exception`: nobody's error handling is to take it for a failure."""

    def __init__(
        self,
        model: Model,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> None:
        super().__init__()
        self.model, self.messages, self.settings, self.parameters = model, messages, settings, parameters


class _ToolFirst(BaseException):
    """A tool was to run before the model was asked."""


class _Probe(AbstractCapability[Any]):
    """Puts a model that is not asked around the one that would be, outside of every other wrapper."""

    def get_ordering(self) -> CapabilityOrdering:
        """Around all others: meters keep what they have wrapped."""
        return CapabilityOrdering(position="outermost")

    def get_wrapper_model(self, model: Model) -> Model:
        """Called when the request is complete."""
        return _Unasked(model)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, **options: object
    ) -> NoReturn:
        """Called for tools that the last answer of a history has asked for."""
        raise _ToolFirst(repr(call.tool_name))


class _Unasked(WrapperModel):
    """A model that raises `_Asked` instead of answering."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return None

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> NoReturn:
        """Raise `_Asked`."""
        raise _Asked(self.wrapped, messages, model_settings, model_request_parameters)

    # `UsageLimits(count_tokens_before_request=True)` would ask the provider here.
    count_tokens = request


_UNSEEN: Final = Instrumentation(
    settings=InstrumentationSettings(tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider())
)
"""Keeps the run out of traces: it is the user's only in form."""

_CALL_NO_MODEL: Final = frozenset(
    {Metered, Instrumentation, Caching, Thinking, NativeTool, Toolset, _Probe}
)
"""Capabilities that only add to a request, or watch."""

"""The first request of an agent call, found out without sending it.

PydanticAI's own run prepares the request, so that instructions, toolsets, hooks, history and settings are
those of the real call. The run is left at the point where it would ask the model.
"""

from __future__ import annotations

import hashlib
import inspect
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

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
from pydantic_ai.output import NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.run import AgentRun
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import to_json

from fastroai.agent.models import leaves
from fastroai.agent.requests.fingerprint import fingerprint
from fastroai.agent.requests.metering import Metered, OwnedModel
from fastroai.errors import ScopeClosedError
from fastroai.pydantic_ai_private import is_of_every_agent
from fastroai.steps.estimating import nothing_paid

if TYPE_CHECKING:
    from fastroai.agent.dispatch import Dispatcher
    from fastroai.calls.call import AgentCall


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """The first request of a call, and facts about the rest of the call."""

    model: Model
    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters
    shortest_answer: int
    """Tokens of the shortest answer that the call can end with."""
    most_answers: int | None
    """The most answers of the model, several attempts at one request counted once; `None` for no limit."""
    why_more: str
    """Why the model may be asked more than once."""
    settings_vary: bool
    """Whether a function computes the settings of each request anew."""
    code: tuple[str, ...]
    """Code of the user that runs later in the call, and that may call models."""


async def first_request(
    agent: AbstractAgent[Any, Any], call: AgentCall, arguments: Mapping[str, Any]
) -> FirstRequest | str:
    """Return the first request of a call with these arguments, or the reason why it cannot be known.

    Raises the errors of preparing the request.
    """
    options = {**arguments, "capabilities": [*(call.options.get("capabilities") or ()), _UNSEEN, _Probe()]}
    async with agent.iter(call.prompt, output_type=call.output_type, **options) as run:
        try:  # in here: a run that is left early is no failed run, so no hook hears of it
            async for _ in run:
                pass
        except _Asked as asked:
            return _found(asked, run, call, agent)
        except _ToolFirst as tool:
            return f"its history ends with a call of tool {tool}, which is code that runs first"
    return "code of its own answers it without asking a model"


async def fingerprint_call(dispatcher: Dispatcher[Any, Any], call: AgentCall) -> str | None:
    """Hash a call's first request, and the models asked; `None` if code answers it, or calls a model.

    PydanticAI prepares the request, so instructions that are functions do their work. Nothing is sent.
    """
    await dispatcher.load_model(call)
    async with nothing_paid():
        try:
            first = await first_request(dispatcher.agent, call, dispatcher.arguments(call))
        except ScopeClosedError:
            return None
    if isinstance(first, str):
        return None
    asked = fingerprint(first.messages, first.settings, first.parameters)
    who = [_who(leaf) for leaf in leaves(first.model)]
    return hashlib.sha256(to_json([asked, who], fallback=repr, inf_nan_mode="constants")).hexdigest()


def _who(model: Model) -> list[object]:
    """Return values that identify a model; without a provider, as in tests, it differs from all others."""
    known: list[object] = [type(model).__qualname__, model.system, model.model_name, model.base_url]
    return [*known, model.settings, None if model.provider is not None else _token_of(model)]


_tokens: Final[dict[int, tuple[weakref.ref[Model], str]]] = {}


def _token_of(model: Model) -> str:
    """Return a random name for a model object, unique in all processes. Models are not hashable."""
    known = _tokens.get(id(model))
    if known is None or known[0]() is not model:
        known = _tokens[id(model)] = weakref.ref(model), secrets.token_hex(8)
    return known[1]


def _found(
    asked: _Asked, run: AgentRun[Any, Any], call: AgentCall, agent: AbstractAgent[Any, Any]
) -> FirstRequest:
    facts = run.ctx.deps
    tools = list((facts.tool_manager.tools or {}).values())
    most, why = _answers(tools, facts.tool_manager.default_max_retries, facts.max_output_retries)
    limit = facts.usage_limits.request_limit
    if limit is not None and (most is None or limit < most):
        most, why = limit, f"{why}, up to request_limit={limit}"
    code = [
        f"tool {tool.tool_def.name!r}" for tool in tools if tool.tool_def.kind in ("function", "unapproved")
    ]
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
        shortest_answer=0 if facts.output_schema.allows_none else 1,
        most_answers=most,
        why_more=why,
        settings_vary=callable(call.options.get("model_settings"))
        or (facts.agent is not None and callable(facts.agent.model_settings)),
        code=tuple(code),
    )


def _answers(
    tools: Sequence[ToolsetTool[Any]], tool_retries: int, output_retries: int
) -> tuple[int | None, str]:
    """Return the most answers that PydanticAI takes without a request limit, and why it may be several."""
    if any(tool.tool_def.kind != "output" for tool in tools):
        return None, "as a model that calls tools is asked again"
    if tools and tool_retries:
        # Retries are counted for each name, and a model can make up any number of names.
        return None, "as a model that calls tools which do not exist is asked again, unless retries=0"
    retries = output_retries + sum(tool.max_retries for tool in tools)
    return 1 + retries, "as a model whose output cannot be used is asked again, unless retries=0"


def _has_function(output: object) -> bool:
    """Return whether an output type is, or contains, a function that makes the output."""
    if isinstance(output, TextOutput):
        return True
    if isinstance(output, ToolOutput):
        return _has_function(output.output)
    if isinstance(output, NativeOutput | PromptedOutput):
        return _has_function(output.outputs)
    if isinstance(output, Sequence) and not isinstance(output, str):
        return any(map(_has_function, output))
    return inspect.isroutine(output)


def _capabilities(root: AbstractCapability[Any]) -> Iterator[str]:
    """Yield the names of capabilities whose hooks may do anything."""
    leaves: list[AbstractCapability[Any]] = []
    root.apply(leaves.append)
    for leaf in leaves:
        kind = type(leaf)
        if kind not in _CALL_NO_MODEL and not is_of_every_agent(kind):
            yield kind.__name__


class _Asked(BaseException):
    """Raised where the model is asked. Not an `Exception`, so that no code takes it for a failure."""

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
    """Raised where a tool is to run before the model is asked."""


class _Probe(AbstractCapability[Any]):
    """Puts an `_Unasked` around the model that would be asked, outside of every other wrapper."""

    def get_ordering(self) -> CapabilityOrdering:
        """Come around all other capabilities: meters keep the models that they have wrapped."""
        return CapabilityOrdering(position="outermost")

    def get_wrapper_model(self, model: Model) -> Model:
        """Return a model that raises. PydanticAI calls this when the request is complete."""
        return _Unasked(model)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, **options: object
    ) -> NoReturn:
        """Raise `_ToolFirst`. PydanticAI calls this for tools that the last answer of a history asked for."""
        raise _ToolFirst(repr(call.tool_name))


class _Unasked(OwnedModel):
    """A model that raises `_Asked` instead of answering."""

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
"""Keeps the run out of traces: it is a run of the user only in form."""

_CALL_NO_MODEL: Final = frozenset({Metered, Instrumentation, Caching, Thinking, NativeTool, Toolset, _Probe})
"""Capabilities that only add to a request, or watch."""

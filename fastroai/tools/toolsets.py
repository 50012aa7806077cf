"""Toolsets: a base class for your own, and a toolset that makes every tool in it safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.tools import AgentDepsT, RunContext, Tool, ToolFuncEither
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_ai.toolsets.function import FunctionToolsetTool

from fastroai.errors import ConfigurationError
from fastroai.records import Duration, in_seconds
from fastroai.tools.guard import DEFAULT_TIMEOUT, Guard, OnError, OnTimeout
from fastroai.tools.safe import is_safe_tool


@dataclass(init=False)
class SafeToolset(WrapperToolset[AgentDepsT]):
    """Tools whose failures become messages for the model, as with `safe_tool`, given once for all of them.

        agent = Agent("openai:gpt-5-mini", toolsets=[SafeToolset([search, fetch], timeout=10)])

    Functions that are decorated with `safe_tool` keep their own options. PydanticAI's own tool timeouts
    hold for each attempt, too: after one, the model is asked to try again, whatever `retries` says.

    Args:
        wrapped: Functions and PydanticAI `Tool`s, or another toolset: MCP servers, for example.
        tools: Functions and `Tool`s, as a keyword argument in place of `wrapped`. Give one of the two.
        name: The id of the toolset, if you give functions. With another toolset, which has its own id, it
            raises `ConfigurationError`.
        timeout: Seconds for each attempt of a call, 30 by default; `None` for no limit.
        retries: Extra attempts after a failure or a timeout, at once, but not after a failure that cannot get
            better. PydanticAI's `max_retries` is different: it lets the model try again.
        on_timeout: The message to the model after a timeout: a text, or a function that returns it. The
            default names the tool and the time.
        on_error: The message to the model after a failure: a text, in which `{error}` stands for the type and
            the message of the exception, or a function of the exception. The default names the tool and the
            type of the exception, not its message.

    PydanticAI's control exceptions (`ModelRetry`, ...) and FastroAI's own stops, such as a used-up budget,
    are raised, not turned into messages.

    Raises:
        ConfigurationError: an option has an invalid value, or both or neither of `wrapped` and `tools`.
    """

    timeout: float | None
    retries: int
    on_timeout: OnTimeout | None
    on_error: OnError | None

    def __init__(
        self,
        wrapped: AbstractToolset[AgentDepsT]
        | Sequence[Tool[AgentDepsT] | ToolFuncEither[AgentDepsT, ...]]
        | None = None,
        *,
        tools: Sequence[Tool[AgentDepsT] | ToolFuncEither[AgentDepsT, ...]] | None = None,
        name: str | None = None,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        retries: int = 0,
        on_timeout: OnTimeout | None = None,
        on_error: OnError | None = None,
    ) -> None:
        # The options are fields besides the guard, as PydanticAI copies toolsets with `dataclasses.replace`.
        self.timeout, self.retries = in_seconds(timeout), retries
        self.on_timeout, self.on_error = on_timeout, on_error
        self._guard = Guard(timeout=self.timeout, retries=retries, on_timeout=on_timeout, on_error=on_error)
        if (wrapped is None) == (tools is None):
            raise ConfigurationError("tools", tools, "either tools=, or a toolset as the first argument")
        super().__init__(_as_toolset(tools if wrapped is None else wrapped, name))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Call a tool of the toolset. Return its result, or the message to the model about its last failure.

        It is tried up to `retries` + 1 times, for at most `timeout` seconds each; a function decorated with
        `safe_tool` follows its own options instead. PydanticAI's control exceptions, such as `ModelRetry`,
        and FastroAI's own errors, such as a used-up budget, are raised. The failure of a step, or a time
        limit, inside of the tool is a message as well.
        """
        if _is_safe_already(tool):
            return await super().call_tool(name, tool_args, ctx, tool)
        return await self._guard.call(name, lambda: self.wrapped.call_tool(name, tool_args, ctx, tool))


class FunctionToolsetBase(FunctionToolset[AgentDepsT]):
    """Base class for your own toolset, whose tools are functions or its own methods.

        class Weather(FunctionToolsetBase[Deps]):
            def __init__(self, client: Client) -> None:
                self.client = client
                super().__init__(tools=[self.forecast], max_retries=2, id="weather")

            async def forecast(self, city: str) -> str:
                "The weather of tomorrow in a city."
                return await self.client.forecast(city)

        agent = Agent("openai:gpt-5-mini", toolsets=[Weather(client).safe(timeout=10)])

    It is PydanticAI's `FunctionToolset`, with the same parameters, and one more method: `safe`. Without
    `safe`, failures of its tools are not turned into messages for the model.
    """

    def safe(
        self,
        *,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        retries: int = 0,
        on_timeout: OnTimeout | None = None,
        on_error: OnError | None = None,
    ) -> SafeToolset[AgentDepsT]:
        """Return a `SafeToolset` around this one: failures of its tools become messages for the model.

        The options are those of `SafeToolset`: `timeout` in seconds for each attempt (30 by default, `None`
        for no limit), `retries` at once after a failure, and the messages after a timeout and after an error.
        This toolset itself is not changed.

        Raises:
            ConfigurationError: an option has an invalid value.
        """
        return SafeToolset(self, timeout=timeout, retries=retries, on_timeout=on_timeout, on_error=on_error)


def _as_toolset(
    wrapped: AbstractToolset[AgentDepsT]
    | Sequence[Tool[AgentDepsT] | ToolFuncEither[AgentDepsT, ...]]
    | None,
    name: str | None,
) -> AbstractToolset[AgentDepsT]:
    if isinstance(wrapped, AbstractToolset):
        if name is not None:
            raise ConfigurationError("name", name, "no value, because a toolset has its own id")
        return wrapped
    given: object = wrapped
    if isinstance(given, Sequence) and all(isinstance(tool, Tool) or callable(tool) for tool in given):
        return FunctionToolset(list(wrapped or ()), id=name)
    raise ConfigurationError("wrapped", given, "a list of functions and Tools, or a toolset")


def _is_safe_already(tool: ToolsetTool[AgentDepsT]) -> bool:
    """Return whether the function behind a tool is decorated with `safe_tool`."""
    toolset = tool.toolset
    if not isinstance(tool, FunctionToolsetTool) or not isinstance(toolset, FunctionToolset):
        return False
    return is_safe_tool(toolset.tools[tool.original_name or tool.tool_def.name].function)

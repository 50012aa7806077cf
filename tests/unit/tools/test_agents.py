"""Safe tools inside real PydanticAI agents: what the model sees of a failure."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext, Tool, ToolDefinition
from pydantic_ai.exceptions import CallDeferred, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from fastroai.errors import ConfigurationError, CostBudgetExceeded
from fastroai.tools import FunctionToolsetBase, SafeToolset, safe_tool


@dataclass
class OneCall:
    """A model that calls one tool, again while it is asked to retry, and then stops."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    returns: list[ToolReturnPart] = field(default_factory=list)

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        self.returns.extend(seen)
        if not seen or seen[-1].outcome == "retried":
            return ModelResponse(parts=[ToolCallPart(self.tool, self.args)])
        return ModelResponse(parts=[TextPart("done")])


async def returned(
    tool: Callable[..., Any] | AbstractToolset[object], name: str, **args: object
) -> list[ToolReturnPart]:
    """What the model is given back by the tool, in order."""
    model = OneCall(name, args)
    toolsets = [tool] if isinstance(tool, AbstractToolset) else [FunctionToolset([tool])]
    result = await Agent(FunctionModel(model), toolsets=toolsets).run("go")
    assert result.output == "done"
    return model.returns


async def search(query: str) -> str:
    """Search.

    Args:
        query: What for.
    """
    if query == "retry":
        raise ModelRetry("be precise")
    if query == "stop":
        raise CostBudgetExceeded(10, 10)
    raise LookupError(f"nothing for {query!r}")


def variants() -> list[Any]:
    return [
        pytest.param(safe_tool(search), id="safe_tool"),
        pytest.param(SafeToolset([search]), id="SafeToolset"),
        pytest.param(SafeToolset(FunctionToolset([search])), id="SafeToolset of a toolset"),
    ]


@pytest.mark.parametrize("tool", variants())
async def test_a_failure_reaches_the_model_as_an_ordinary_return(tool: Any) -> None:
    [part] = await returned(tool, "search", query="x")
    assert part.content == "Tool 'search' failed: LookupError"
    assert part.outcome == "success"


@pytest.mark.parametrize("tool", variants())
async def test_model_retry_still_asks_the_model_to_retry(tool: Any) -> None:
    first = OneCall("search", {"query": "retry"})

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            first.args = {"query": "x"}
        return first(messages, info)

    toolsets = [tool] if isinstance(tool, AbstractToolset) else [FunctionToolset([tool])]
    await Agent(FunctionModel(model), toolsets=toolsets).run("go")
    assert [(part.outcome, part.content) for part in first.returns] == [
        ("retried", "be precise"),
        ("success", "Tool 'search' failed: LookupError"),
    ]


@pytest.mark.parametrize("tool", variants())
async def test_a_budget_stop_ends_the_run(tool: Any) -> None:
    with pytest.raises(CostBudgetExceeded):
        await returned(tool, "search", query="stop")


@pytest.mark.parametrize("tool", variants())
async def test_wrong_arguments_are_pydantic_ais_business(tool: Any) -> None:
    model = OneCall("search", {"query": 5})

    def mend(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if model.returns:
            model.args = {"query": "x"}
        return model(messages, info)

    toolsets = [tool] if isinstance(tool, AbstractToolset) else [FunctionToolset([tool])]
    await Agent(FunctionModel(mend), toolsets=toolsets, retries=2).run("go")
    assert [part.outcome for part in model.returns] == ["retried", "retried", "success"]


async def test_a_tool_that_needs_approval_is_deferred() -> None:
    toolset = SafeToolset(FunctionToolset([search]).approval_required())
    agent = Agent(
        FunctionModel(OneCall("search", {"query": "x"})),
        toolsets=[toolset],
        output_type=[str, DeferredToolRequests],
    )
    output = (await agent.run("go")).output
    assert isinstance(output, DeferredToolRequests)
    assert [call.tool_name for call in output.approvals] == ["search"]


async def test_a_tool_that_defers_its_call_is_deferred() -> None:
    @safe_tool
    async def later() -> str:
        raise CallDeferred

    agent = Agent(FunctionModel(OneCall("later")), tools=[later], output_type=[str, DeferredToolRequests])
    output = (await agent.run("go")).output
    assert isinstance(output, DeferredToolRequests)
    assert [call.tool_name for call in output.calls] == ["later"]


async def test_the_context_of_the_run_reaches_a_safe_tool() -> None:
    @safe_tool
    async def secret(ctx: RunContext[int], factor: int) -> int:
        return ctx.deps * factor

    model = OneCall("secret", {"factor": 2})
    await Agent(FunctionModel(model), tools=[secret], deps_type=int).run("go", deps=21)
    assert [part.content for part in model.returns] == [42]


async def test_a_safe_toolset_offers_the_same_tools_as_the_bare_one() -> None:
    async def seen_by_the_model(toolset: AbstractToolset[object]) -> list[ToolDefinition]:
        seen: list[ToolDefinition] = []

        def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            seen.extend(info.function_tools)
            return ModelResponse(parts=[TextPart("done")])

        await Agent(FunctionModel(model), toolsets=[toolset]).run("go")
        return seen

    other: Tool[object] = Tool(search, name="other", description="Another.")
    bare = await seen_by_the_model(FunctionToolset([search, other]))
    assert [tool.name for tool in bare] == ["search", "other"]
    assert await seen_by_the_model(SafeToolset([search, other])) == bare


async def test_the_options_of_a_safe_toolset_hold_for_every_tool_in_it() -> None:
    called: list[str] = []

    async def hangs() -> str:
        called.append("hangs")
        await asyncio.Event().wait()
        raise AssertionError

    async def fails() -> str:
        called.append("fails")
        raise OSError("down")

    toolset = SafeToolset(
        [hangs, Tool(fails, name="renamed")],
        timeout=0.01,
        retries=1,
        on_timeout="slow",
        on_error=lambda error: f"sorry, {error}",
    )
    assert [part.content for part in await returned(toolset, "hangs")] == ["slow"]
    assert [part.content for part in await returned(toolset, "renamed")] == ["sorry, down"]
    assert called == ["hangs", "hangs", "fails", "fails"]


async def test_a_decorated_function_keeps_its_own_options_in_a_safe_toolset() -> None:
    @safe_tool(timeout=60, on_error="own text")
    async def own(fail: bool) -> str:
        if fail:
            raise ValueError("x")
        await asyncio.sleep(0.02)
        return "took its time"

    toolset = SafeToolset([own], timeout=0.001, on_error="text of the toolset")
    assert [part.content for part in await returned(toolset, "own", fail=True)] == ["own text"]
    assert [part.content for part in await returned(toolset, "own", fail=False)] == ["took its time"]


async def test_a_safe_toolset_stays_safe_when_pydantic_ai_copies_it_for_a_run() -> None:
    class PerRun(FunctionToolset[object]):
        async def for_run(self, ctx: RunContext[object]) -> AbstractToolset[object]:
            return FunctionToolset([search])

    [part] = await returned(SafeToolset(PerRun(), on_error="copied"), "search", query="x")
    assert part.content == "copied"


async def test_a_prefixed_toolset_can_be_made_safe() -> None:
    [part] = await returned(SafeToolset(FunctionToolset([search]).prefixed("web")), "web_search", query="x")
    assert part.content == "Tool 'web_search' failed: LookupError"


class Weather(FunctionToolsetBase[object]):
    def __init__(self, unit: str) -> None:
        self.unit = unit
        super().__init__(tools=[self.forecast], max_retries=4, id="weather")

    async def forecast(self, city: str) -> str:
        """The weather of tomorrow."""
        if city == "Atlantis":
            raise LookupError("no such city")
        return f"20 {self.unit} in {city}"


async def test_a_toolset_of_ones_own_has_methods_as_tools() -> None:
    weather = Weather("C")
    assert (weather.id, weather.max_retries) == ("weather", 4)
    [part] = await returned(weather, "forecast", city="Delft")
    assert part.content == "20 C in Delft"


async def test_a_toolset_of_ones_own_can_be_made_safe() -> None:
    with pytest.raises(LookupError):
        await returned(Weather("C"), "forecast", city="Atlantis")
    [part] = await returned(Weather("C").safe(on_error="unknown city"), "forecast", city="Atlantis")
    assert part.content == "unknown city"


@pytest.mark.parametrize("wrong", [search, "search", [search, 5], 5])
def test_a_safe_toolset_of_something_else_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a list of functions and Tools, or a toolset"):
        SafeToolset(wrong)


def test_the_options_of_a_safe_toolset_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="timeout=-1"):
        SafeToolset([search], timeout=-1)


async def test_the_tools_and_the_name_of_a_toolset_may_be_given_by_name() -> None:
    toolset = SafeToolset(tools=[search], name="web")

    assert toolset.wrapped.id == "web"
    [part] = await returned(toolset, "search", query="x")
    assert part.content == "Tool 'search' failed: LookupError"
    with pytest.raises(ConfigurationError, match="tools=None"):
        SafeToolset()
    with pytest.raises(ConfigurationError, match="name='web'"):
        SafeToolset(FunctionToolset([search]), name="web")

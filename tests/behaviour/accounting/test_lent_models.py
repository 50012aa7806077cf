"""`ctx.model` in code of the user is metered, in every place with a context, and in every kind of run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, TextOutput, Tool
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory, SelectModel
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import SkipModelRequest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models import Model, ModelRequestParameters, ModelSelectionContext
from pydantic_ai.models.concurrency import ConcurrencyLimitedModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset
from pydantic_ai.usage import RequestUsage
from support.accounting import assert_account_matches, listed_cost

from fastroai import Budget, FastroAgent, Metered, budget_scope
from fastroai.errors import BudgetExceeded
from fastroai.runtime import Scope
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage

REFERENCE = "openai:gpt-5-mini"
ASIDE = "A question aside"


@pytest.fixture
def reference() -> str:
    return REFERENCE


@pytest.fixture(autouse=True)
def answers(server: ModelServer) -> None:
    """The agent calls its tool `work` once, if it has it; a question aside is answered and costs more."""
    server.rule(lambda request: request.prompt == ASIDE, Reply("Indeed", usage=Usage(900, 90)))
    server.rule(
        lambda request: any(tool.name == "work" for tool in request.tools) and not request.tool_results,
        Reply(tool_calls=[ToolCall("work", {})], usage=Usage(30, 5)),
    )
    server.rule(None, Reply("Done", usage=Usage(40, 4)))


# --- the ways to ask ---

Ask = Callable[[Any], Awaitable[object]]
MESSAGES: Sequence[ModelMessage] = [ModelRequest.user_text_prompt(ASIDE)]


async def by_an_agent(model: Model) -> object:
    return (await Agent(model).run(ASIDE)).output


async def by_a_streaming_agent(model: Model) -> object:
    async with Agent(model).run_stream(ASIDE) as stream:
        return await stream.get_output()


async def by_an_agent_with_a_meter(model: Model) -> object:
    return (await Agent(model, capabilities=[Metered()]).run(ASIDE)).output


async def by_an_agent_of_ours(model: Model) -> object:
    return (await FastroAgent(model).run(ASIDE)).output


async def directly(model: Model) -> object:
    return (await model_request(model, MESSAGES)).parts


async def directly_as_a_stream(model: Model) -> object:
    async with model_request_stream(model, MESSAGES) as stream:
        async for _ in stream:
            pass
    return stream.get().parts


async def by_its_method(model: Model) -> object:
    return (await model.request([*MESSAGES], None, ModelRequestParameters())).parts


WAYS = (
    by_an_agent,
    by_a_streaming_agent,
    by_an_agent_with_a_meter,
    by_an_agent_of_ours,
    directly,
    directly_as_a_stream,
    by_its_method,
)


@dataclass
class Aside:
    """Asks the model of the first context that it gets."""

    way: Ask = by_an_agent
    asked: bool = False

    async def __call__(self, context: RunContext[Any] | ModelSelectionContext[Any]) -> None:
        if not self.asked:
            self.asked = True
            await self.way(context.model)


# --- the places that get a context ---


def in_a_tool(aside: Aside) -> dict[str, Any]:
    async def work(ctx: RunContext[None]) -> str:
        """Work."""
        await aside(ctx)
        return "worked"

    return {"tools": [work]}


def in_instructions(aside: Aside) -> dict[str, Any]:
    async def instructions(ctx: RunContext[None]) -> str:
        await aside(ctx)
        return "Be brief."

    return {"instructions": instructions}


def in_an_output_function(aside: Aside) -> dict[str, Any]:
    async def conclude(ctx: RunContext[None], text: str) -> str:
        await aside(ctx)
        return text

    return {"output_type": TextOutput(conclude)}


def in_a_toolset_function(aside: Aside) -> dict[str, Any]:
    async def tools_of_this_run(ctx: RunContext[None]) -> AbstractToolset[None]:
        await aside(ctx)
        return FunctionToolset()

    return {"toolsets": [tools_of_this_run]}


class _AskingToolset(WrapperToolset[None]):
    aside: Aside

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, Any]:
        await self.aside(ctx)
        return await super().get_tools(ctx)


def in_a_toolset(aside: Aside) -> dict[str, Any]:
    toolset = _AskingToolset(FunctionToolset())
    toolset.aside = aside
    return {"toolsets": [toolset]}


def in_the_preparation_of_a_tool(aside: Aside) -> dict[str, Any]:
    async def prepare(ctx: RunContext[None], tool: ToolDefinition) -> ToolDefinition:
        await aside(ctx)
        return tool

    def work() -> str:
        return "worked"

    return {"tools": [Tool(work, prepare=prepare)]}


def in_a_history_processor(aside: Aside) -> dict[str, Any]:
    async def process(ctx: RunContext[None], messages: list[ModelMessage]) -> list[ModelMessage]:
        await aside(ctx)
        return messages

    return {"capabilities": [ProcessHistory(process)]}


def in_a_capability_function(aside: Aside) -> dict[str, Any]:
    async def capability(ctx: RunContext[None]) -> AbstractCapability[None] | None:
        await aside(ctx)
        return None

    return {"capabilities": [capability]}


def in_a_model_selector(aside: Aside) -> dict[str, Any]:
    """The first selection comes before anything of the run; later ones have the model of the step before."""

    async def select(ctx: ModelSelectionContext[None]) -> Model:
        if ctx.run_step > 1:
            await aside(ctx)
        assert isinstance(ctx.model, Model)
        return ctx.model

    return {**in_a_tool(Aside(asked=True)), "capabilities": [SelectModel(select)]}


def in_a_tool_after_a_selector(aside: Aside) -> dict[str, Any]:
    def select(ctx: ModelSelectionContext[None]) -> Model:
        assert isinstance(ctx.model, Model)
        return ctx.model

    return {**in_a_tool(aside), "capabilities": [SelectModel(select)]}


def _in_hook(name: str) -> Callable[[Aside], dict[str, Any]]:
    def place(aside: Aside) -> dict[str, Any]:
        async def hook(
            capability: AbstractCapability[None], ctx: RunContext[None], *positional: Any, **options: Any
        ) -> Any:
            await aside(ctx)
            given = [*positional, *(options[key] for key in _PASSED_ON if key in options)]
            if "handler" in options:
                return await options["handler"](*given)
            return given[0] if given else capability

        kind = type("Asking", (AbstractCapability,), {name: hook})
        return {**in_a_tool(Aside(asked=True)), "capabilities": [kind()]}

    place.__name__ = f"in_the_hook_{name}"
    return place


_PASSED_ON = ("result", "response", "args")
"""Values that a hook returns or gives to its handler; `wrap_model_request` has the request before it."""

HOOKS = (
    "for_run",
    "before_model_request",
    "after_model_request",
    "before_tool_execute",
    "after_tool_execute",
    "wrap_tool_execute",
)


PLACES = (
    in_a_tool,
    in_instructions,
    in_an_output_function,
    in_a_toolset_function,
    in_a_toolset,
    in_the_preparation_of_a_tool,
    in_a_history_processor,
    in_a_capability_function,
    in_a_model_selector,
    in_a_tool_after_a_selector,
    *map(_in_hook, HOOKS),
)


# --- the ways to run an agent ---

Run = Callable[[Model, dict[str, Any]], Awaitable[None]]


async def agent_of_ours(model: Model, options: dict[str, Any]) -> None:
    await FastroAgent(model, **options).run("Go")


async def stream_of_ours(model: Model, options: dict[str, Any]) -> None:
    async with FastroAgent(model, **options).run_stream("Go") as stream:
        async for _ in stream:
            pass


async def events_of_ours(model: Model, options: dict[str, Any]) -> None:
    async with FastroAgent(model, **options).run_stream_events("Go") as events:
        async for _ in events:
            pass


async def agent_around_a_plain_one(model: Model, options: dict[str, Any]) -> None:
    await FastroAgent(agent=Agent(model, **options)).run("Go")


def with_meter(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "capabilities": [*options.get("capabilities", ()), Metered()]}


async def plain_agent(model: Model, options: dict[str, Any]) -> None:
    await Agent(model, **with_meter(options)).run("Go")


async def plain_stream(model: Model, options: dict[str, Any]) -> None:
    async with Agent(model, **with_meter(options)).run_stream("Go") as stream:
        await stream.get_output()


async def plain_iteration(model: Model, options: dict[str, Any]) -> None:
    async with Agent(model, **with_meter(options)).iter("Go") as run:
        async for _ in run:
            pass


async def overridden_agent_of_ours(model: Model, options: dict[str, Any]) -> None:
    agent = FastroAgent(TestModel(), **options)
    with agent.agent.override(model=model):
        await agent.run("Go")


async def overridden_plain_agent(model: Model, options: dict[str, Any]) -> None:
    agent = Agent("test", **with_meter(options))
    with agent.override(model=model):
        await agent.run("Go")


async def overridden_agent_around_a_plain_one(model: Model, options: dict[str, Any]) -> None:
    plain = Agent("test", **options)
    with plain.override(model=model):
        await FastroAgent(agent=plain).run("Go")


RUNS = (
    agent_of_ours,
    stream_of_ours,
    events_of_ours,
    agent_around_a_plain_one,
    plain_agent,
    plain_stream,
    plain_iteration,
    overridden_agent_of_ours,
    overridden_plain_agent,
    overridden_agent_around_a_plain_one,
)


def named(value: object) -> str:
    name: str = getattr(value, "__name__", repr(value))
    return name


def assert_all_is_in_the_account(server: ModelServer, scope: Scope, *, requests: int) -> None:
    assert len(server.ledger.entries) == requests
    assert_account_matches(server.ledger, scope.records, scope.usage)
    assert scope.usage.cost_complete


@pytest.mark.parametrize("run", RUNS, ids=named)
@pytest.mark.parametrize("place", PLACES, ids=named)
async def test_a_request_on_the_model_of_a_context_is_in_the_account(
    server: ModelServer, model: Model, place: Callable[[Aside], dict[str, Any]], run: Run
) -> None:
    aside = Aside()
    async with budget_scope(Budget(usd=1)) as scope:
        await run(model, place(aside))
    assert aside.asked or (place is in_a_model_selector and "overridden" in named(run))  # nothing to select
    has_tool = any(entry.body.get("tools") for entry in server.ledger.entries)
    assert_all_is_in_the_account(server, scope, requests=1 + has_tool + aside.asked)


@pytest.mark.parametrize("way", WAYS, ids=named)
async def test_each_way_to_ask_the_model_of_a_context_is_in_the_account(
    server: ModelServer, model: Model, way: Ask
) -> None:
    async with budget_scope(Budget(usd=1)) as scope:
        await FastroAgent(model, **in_a_tool(Aside(way))).run("Go")
    assert_all_is_in_the_account(server, scope, requests=3)


async def test_budgets_hold_for_the_model_of_a_context(server: ModelServer, model: Model) -> None:
    with pytest.raises(BudgetExceeded):
        await FastroAgent(model, budget=Budget(requests=2), **in_a_tool(Aside())).run("Go")
    assert len(server.ledger.entries) == 2


class Beside(WrapperModel):
    """Asks other models, too."""

    def __init__(self, wrapped: Model, *others: Model) -> None:
        super().__init__(wrapped)
        self.first, self.rest, self.named = others[0], list(others[1:2]), {"last": others[-1]}

    async def request(self, *arguments: Any) -> ModelResponse:
        for other in (self.first, *self.rest, *self.named.values()):
            await other.request(*arguments)
        return await super().request(*arguments)


async def test_models_that_a_wrapper_has_beside_the_wrapped_one_are_metered(
    server: ModelServer, model: Model
) -> None:
    wrapper = Beside(model, model, FallbackModel(server.model(REFERENCE)), server.model(REFERENCE))
    async with budget_scope(Budget(usd=1)) as scope:
        await FastroAgent(wrapper).run("Go")
    assert_all_is_in_the_account(server, scope, requests=4)
    assert wrapper.first is model


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: FallbackModel(model, model),
        lambda model: ConcurrencyLimitedModel(model, 1),
        lambda model: Beside(model, model),
    ],
    ids=["FallbackModel", "ConcurrencyLimitedModel", "a wrapper of the user"],
)
async def test_a_wrapped_model_of_a_context_is_metered_once(
    server: ModelServer, model: Model, wrap: Callable[[Model], Model]
) -> None:
    async with budget_scope(Budget(usd=1)) as scope:
        await FastroAgent(wrap(model), **in_a_tool(Aside(by_an_agent_of_ours))).run("Go")
    assert_all_is_in_the_account(server, scope, requests=len(server.ledger.entries))


async def test_the_model_of_a_context_shows_what_it_wraps(server: ModelServer, model: Model) -> None:
    seen: list[Any] = []

    def work(ctx: RunContext[None]) -> str:
        seen.append(ctx.model)
        return "worked"

    await FastroAgent(model, tools=[work]).run("Go")
    (lent,) = seen
    assert lent.wrapped is model
    assert isinstance(lent.wrapped, OpenAIResponsesModel)
    shown = (repr(lent), lent.model_name, lent.model_id, lent.system, lent.profile, lent.client)
    assert shown == (repr(model), model.model_name, model.model_id, model.system, model.profile, model.client)


async def test_a_request_of_a_tool_rejects_no_answer_of_the_agent(server: ModelServer, model: Model) -> None:
    """The request after a rejected answer brings a call of a tool; its question does not reject that call."""
    server.reset()
    server.rule(lambda request: request.prompt == ASIDE, Reply("Indeed", usage=Usage(900, 90)))
    server.script(
        Reply(tool_calls=[ToolCall("picky", {})], usage=Usage(30, 5)),
        Reply(tool_calls=[ToolCall("work", {})], usage=Usage(35, 5)),
    )
    server.rule(None, Reply("Done", usage=Usage(40, 4)))

    def picky() -> str:
        raise ModelRetry("Use work")

    options = in_a_tool(Aside())
    response = await FastroAgent(model, tools=[*options["tools"], picky]).run("Go")
    assert [record.use for record in response.records] == ["retried", "kept", "kept", "kept"]


async def test_requests_of_the_agent_settle_the_retries_of_its_model(
    server: ModelServer, model: Model
) -> None:
    async def work(ctx: RunContext[None]) -> str:
        server.fail_next(1, Fault.status(503))
        await directly(ctx.model)
        return "worked"

    async with budget_scope(Budget(usd=1)) as scope:
        await FastroAgent(model, tools=[work], request_retries=1).run("Go")
    assert_all_is_in_the_account(server, scope, requests=4)


# --- responses that no meter has seen ---


class Answering(AbstractCapability[None]):
    """Answers a request by other means."""

    def __init__(self, answer: Callable[[], Awaitable[ModelResponse]]) -> None:
        self.answer = answer

    async def wrap_model_request(self, ctx: RunContext[None], **options: Any) -> ModelResponse:
        raise SkipModelRequest(await self.answer())


def asking_by_itself(model: Model) -> Callable[[], Awaitable[ModelResponse]]:
    async def answer() -> ModelResponse:
        return await model_request(model, MESSAGES)

    return answer


@pytest.mark.parametrize("run", [agent_of_ours, stream_of_ours, plain_agent, plain_stream], ids=named)
async def test_a_response_that_no_meter_has_seen_is_told_and_makes_the_cost_incomplete(
    server: ModelServer, model: Model, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with budget_scope(Budget(usd=1)) as scope:
        await run(model, {"capabilities": [Answering(asking_by_itself(model))]})
    usage = scope.usage
    assert (usage.request_count, usage.unmeasured_requests, usage.cost_complete) == (1, 1, False)
    assert usage.uncertain_usd == listed_cost(*server.ledger.entries)
    assert "that FastroAI did not see" in caplog.text


async def test_a_budget_refuses_what_comes_after_a_response_that_no_meter_has_seen(
    server: ModelServer, model: Model
) -> None:
    agent = FastroAgent(model, capabilities=[Answering(asking_by_itself(model))])
    async with budget_scope(Budget(usd="0.0004")):  # it costs $0.000405
        assert (await agent.run("Go")).output == "Indeed"
        with pytest.raises(BudgetExceeded):
            await FastroAgent(model).run("Go")


async def test_answers_that_cost_nothing_leave_the_cost_complete(server: ModelServer, model: Model) -> None:
    kept = await model_request(model, MESSAGES)
    made = ModelResponse(parts=[TextPart("Hello")])
    merged = ModelResponse(parts=[TextPart("Hello")], usage=RequestUsage(input_tokens=9, output_tokens=9))
    for response in (kept, made, merged):

        async def answer(response: ModelResponse = response) -> ModelResponse:
            return replace(response)

        async with budget_scope(Budget(usd=1)) as scope:
            await FastroAgent(model, capabilities=[Answering(answer)]).run("Go")
        assert (scope.usage.request_count, scope.usage.cost_complete) == (0, True)


async def test_an_answer_of_a_metered_model_is_seen_wherever_it_was_asked(
    server: ModelServer, model: Model
) -> None:
    other = FastroAgent(model)

    async def answer() -> ModelResponse:
        response = (await other.run(ASIDE)).new_messages()[-1]
        assert isinstance(response, ModelResponse)
        return response

    for given in (answer, asking_by_itself(Metered().model(model))):
        server.ledger.clear()
        async with budget_scope(Budget(usd=1)) as scope:
            await FastroAgent(model, capabilities=[Answering(given)]).run("Go")
        assert_all_is_in_the_account(server, scope, requests=1)

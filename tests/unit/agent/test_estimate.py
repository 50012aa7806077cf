"""Quotes of agent calls. Models here are real ones of providers that are never reached, or functions."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    InstrumentationSettings,
    ModelRetry,
    NativeOutput,
    RunContext,
    TextOutput,
    ToolOutput,
    UsageLimits,
)
from pydantic_ai.capabilities import AbstractCapability, Hooks, NativeTool, Thinking
from pydantic_ai.exceptions import SkipModelRequest, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage
from support.agents import TOKEN_IS_MICROCENT, paid_agent

from fastroai import Budget, CostCalculator, FastroAgent, Pipeline, StepContext, step
from fastroai.agent.quotes.input_tokens import TOKENS_PER_FILE, input_tokens
from fastroai.agent.quotes.learned import MODELS_REMEMBERED, REMEMBERED, PastCalls
from fastroai.agent.quotes.probe import first_request
from fastroai.calls.call import AgentCall
from fastroai.errors import RunningLoopError
from fastroai.records import Usage, usd_to_microcents
from fastroai.runtime import Scope
from fastroai.usage import ModelFallback, Quote, RequestBound, request_bound
from fastroai.usage.bounding.bounds import AskedRequest, prepare_bound
from fastroai.usage.limits import Limits

OPENAI = OpenAIProvider(api_key="none")
GPT = OpenAIResponsesModel("gpt-5-mini", provider=OPENAI)
NANO = OpenAIResponsesModel("gpt-5-nano", provider=OPENAI)
CLAUDE = AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(api_key="none"))
WINDOW_USD = Decimal("0.45") * 400_000 / 1_000_000
"""All of gpt-5-mini's context window, at the price of the priority tier."""


class City(BaseModel):
    name: str


def once(**options: Any) -> FastroAgent[Any, str]:
    """An agent that sends one request at most, of one attempt."""
    defaults: dict[str, Any] = {"max_tokens": 100, "retries": 0, "request_retries": 0}
    return FastroAgent(options.pop("model", GPT), **{**defaults, **options})


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


async def reasons(agent: FastroAgent[Any, Any], **options: Any) -> str:
    """Why nothing bounds a call."""
    quote = await agent.estimate("hi", **options)
    assert quote.upper_usd is None
    return "\n".join(quote.upper_reasons)


async def parameters_of(agent: FastroAgent[Any, Any]) -> ModelRequestParameters:
    """Those of the agent's first request."""
    first = await first_request(agent.agent, AgentCall(prompt="hello"), {})
    assert not isinstance(first, str)
    return first.parameters


# --- nothing is sent, and nobody is charged ---


async def test_an_estimate_asks_no_model_and_charges_nobody() -> None:
    asked = []
    agent = paid_agent(before=lambda prompt: asyncio.sleep(0, asked.append(prompt)), max_tokens=5)
    async with Scope("pipeline", "run", parent=None) as scope:
        quote = await agent.estimate("hello")
    assert quote.upper_usd is None or quote.upper_usd > 0
    assert asked == []
    assert (
        scope.spending.usage.request_count,
        scope.spending.usage.agent_call_count,
        scope.spending.records,
    ) == (
        0,
        0,
        [],
    )


async def test_an_estimate_in_a_step_draws_on_no_budget() -> None:
    @step(cost_budget=1)
    async def plan(ctx: StepContext[object]) -> Quote:
        return await once().estimate("hello")

    result = await Pipeline("p", {"plan": plan}).execute()
    assert result.output is not None
    assert result.output.upper_usd is not None
    assert (result.usage.total.request_count, result.usage.total.agent_call_count) == (0, 0)


async def test_the_request_that_is_estimated_is_the_one_that_a_run_sends() -> None:
    sent: list[tuple[list[ModelMessage], AgentInfo]] = []
    bounded: list[AskedRequest] = []
    bound = AskedRequest.bound

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.append((messages, info))
        return ModelResponse([TextPart("fine")], usage=RequestUsage(input_tokens=1, output_tokens=1))

    agent = FastroAgent(
        FunctionModel(answer, model_name="paid"),
        instructions=lambda ctx: f"Serve {ctx.deps}.",
        system_prompt="Be brief.",
        tools=[weather],
        deps_type=str,
        max_tokens=77,
        cost_calculator=TOKEN_IS_MICROCENT,
    )
    history = (await agent.run("earlier", deps="Ada")).all_messages()
    before = copy.deepcopy(history)

    def spy(asked: AskedRequest) -> RequestBound:
        bounded.append(asked)
        return bound(asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AskedRequest, "bound", spy)
        await agent.estimate("now", deps="Ada", message_history=history, toolsets=[])
    await agent.run("now", deps="Ada", message_history=history)
    assert history == before
    messages, info = sent[-1]
    asked, parameters = bounded[0], bounded[0].parameters
    assert [[getattr(part, "content", None) for part in message.parts] for message in asked.messages] == [
        [getattr(part, "content", None) for part in message.parts] for message in messages
    ]
    assert asked.settings == info.model_settings == {"max_tokens": 77}
    assert [tool.name for tool in parameters.function_tools] == [tool.name for tool in info.function_tools]
    assert [part.content for part in parameters.instruction_parts] == ["Serve Ada."]


async def test_no_hook_hears_of_an_estimate() -> None:
    heard: list[str] = []

    class Listening(AbstractCapability[Any]):
        async def on_run_error(self, ctx: Any, *, error: BaseException) -> Any:
            heard.append("run")
            raise error

        async def on_node_run_error(self, ctx: Any, *, node: Any, error: Exception) -> Any:
            heard.append("node")
            raise error

        async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> Any:
            heard.append("request")
            raise error

        async def after_run(self, ctx: Any, *, result: Any) -> Any:
            heard.append("after")
            return result

    agent = paid_agent(
        capabilities=[Listening()],
        on_before_dispatch=lambda dispatch: heard.append("before dispatch"),
        on_after_dispatch=lambda dispatch: heard.append("after dispatch"),
    )
    await agent.estimate("hello")
    assert heard == []
    await agent.run("hello")
    assert heard == ["before dispatch", "after", "after dispatch"]


async def test_an_estimate_is_in_no_trace() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        await paid_agent().estimate("hello")
        assert exporter.get_finished_spans() == ()
        await paid_agent().run("hello")
        assert exporter.get_finished_spans() != ()
    finally:
        Agent.instrument_all(False)


async def test_agents_that_instructions_call_are_refused_and_make_the_cost_unknown() -> None:
    asked = []
    helper = paid_agent(before=lambda prompt: asyncio.sleep(0, asked.append(prompt)))

    async def instructions() -> str:
        return (await helper.run("what to say?")).output

    agent = once(instructions=instructions)
    assert "calls a model" in await reasons(agent)
    assert (await agent.estimate("hi", cost_budget=500)).upper_usd == Decimal("0.0005")
    assert asked == []


async def test_tools_that_a_history_waits_for_are_not_run() -> None:
    ran = []

    def book(city: str) -> str:
        ran.append(city)
        return "booked"

    history: list[ModelMessage] = [
        ModelRequest([UserPromptPart("book")]),
        ModelResponse([ToolCallPart("book", {"city": "Paris"})]),
    ]
    quote = await once(tools=[book]).estimate(message_history=history)
    assert quote.upper_reasons == (
        "its history ends with a call of tool 'book', which is code that runs first",
    )
    assert ran == []


async def test_no_provider_is_asked_to_count_tokens() -> None:
    limits = UsageLimits(count_tokens_before_request=True, input_tokens_limit=1_000)
    quote = await once(model=CLAUDE).estimate("hello", usage_limits=limits)
    assert quote.upper_usd is not None


async def test_a_call_that_code_answers_by_itself_has_no_request_to_estimate() -> None:
    class Cache(AbstractCapability[Any]):
        async def before_model_request(self, ctx: Any, request_context: ModelRequestContext) -> Any:
            raise SkipModelRequest(ModelResponse([TextPart("from the cache")]))

    quote = await once(capabilities=[Cache()]).estimate("hello")
    assert (quote.lower_usd, quote.upper_usd) == (0, None)
    assert quote.upper_reasons == ("code of its own answers it without asking a model",)


async def test_what_cannot_be_prepared_is_raised() -> None:
    with pytest.raises(UserError, match="No message history, user prompt, or instructions"):
        await once().estimate()

    def instructions(ctx: RunContext[Any]) -> str:
        raise ModelRetry("there are no deps")

    with pytest.raises(ModelRetry):
        await once(instructions=instructions).estimate("hello")


# --- at most ---


async def test_one_request_of_one_attempt_costs_its_bound() -> None:
    agent = once()
    quote = await agent.estimate("hello")
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart("hello")])]
    bound = request_bound(CostCalculator(), GPT, messages, {"max_tokens": 100}, await parameters_of(agent))
    assert bound.cost_usd is not None
    assert quote.upper_usd is not None
    assert abs(quote.upper_usd - bound.cost_usd) < Decimal("0.0001")
    assert len(quote.upper_reasons) == 1
    assert quote.upper_reasons[0].startswith("1 request to gpt-5-mini of at most")
    assert "max_tokens" not in quote.upper_reasons[0]
    assert "max_tokens makes it less" in (await once(max_tokens=None).estimate("hello")).upper_reasons[0]


async def test_each_attempt_at_a_request_may_be_billed() -> None:
    one = await once().estimate("hello")
    three = await once(request_retries=2).estimate("hello")
    assert one.upper_usd is not None
    assert three.upper_usd == 3 * one.upper_usd
    assert "up to 3 attempts at each request, as request_retries=2" in three.upper_reasons[1]
    assert (await once().estimate("hello", request_retries=2)).upper_usd == three.upper_usd


async def test_an_output_that_is_asked_for_again_may_fill_the_context_window() -> None:
    one = await once().estimate("hello")
    again = await once(retries=2).estimate("hello")
    assert one.upper_usd is not None
    assert again.upper_usd is not None
    assert again.upper_usd > one.upper_usd + 2 * WINDOW_USD
    assert "2 more, as a model whose output cannot be used is asked again" in again.upper_reasons[-1]
    assert (await once().estimate("hello", retries={"output": 2})).upper_usd == again.upper_usd
    limited = await once(retries=2).estimate("hello", usage_limits=UsageLimits(request_limit=2))
    assert one.upper_usd + WINDOW_USD < limited.upper_usd < again.upper_usd  # type: ignore[operator]


@pytest.mark.parametrize(
    ("output_type", "retries", "answers"),
    [
        (City, 0, 1),
        (ToolOutput(City, max_retries=3), 0, 4),
        (City, {"tools": 0, "output": 1}, 3),  # once as text, once as a tool
        (City, 1, 50),  # tools that do not exist
        (NativeOutput(City), 1, 2),
    ],
)
async def test_how_often_a_model_is_asked_depends_on_what_it_can_call(
    output_type: Any, retries: Any, answers: int
) -> None:
    quote = await once(output_type=output_type, retries=retries).estimate("hello")
    assert quote.upper_usd is not None
    assert quote.upper_usd // WINDOW_USD == answers - 1
    if answers == 50:
        assert "request_limit=50" in quote.upper_reasons[-1]


async def test_without_a_request_limit_a_model_with_tools_goes_on_without_end() -> None:
    agent = once(output_type=City, retries=1)
    why = await reasons(agent, usage_limits=UsageLimits(request_limit=None))
    assert "without end, as request_limit=None" in why
    text = await once(retries=1).estimate("hi", usage_limits=UsageLimits(request_limit=None))
    assert text.upper_usd is not None


def shout(text: str) -> str:
    return text.upper()


class Quiet(AbstractCapability[Any]):
    pass


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tools": [weather]}, "tool 'weather'"),
        ({"output_type": TextOutput(shout)}, "its output function"),
        ({"output_type": [City, shout]}, "its output function"),
        ({"output_type": ToolOutput(shout)}, "its output function"),
        ({"output_type": NativeOutput([shout])}, "its output function"),
        ({"capabilities": [Quiet()]}, "capability Quiet"),
        ({"capabilities": [Hooks()]}, "capability Hooks"),
    ],
)
async def test_code_that_may_call_models_leaves_a_call_without_limit(
    options: dict[str, Any], named: str
) -> None:
    agent = once(**options)
    assert f"{named}: code of your own, which may call models" in await reasons(agent)
    capped = await agent.estimate("hi", budget=Budget(usd="0.25"))
    assert capped.upper_usd == Decimal("0.25")
    assert capped.upper_reasons[0] == "its budget stops it at $0.25"


async def test_output_validators_are_such_code() -> None:
    plain: Agent[object, str] = Agent(GPT, model_settings={"max_tokens": 100}, retries=0)

    @plain.output_validator
    def judge(output: str) -> str:
        return output

    assert "its output validators: code of your own" in await reasons(FastroAgent(agent=plain))


async def test_capabilities_without_code_of_the_user_leave_a_limit() -> None:
    assert (await once(capabilities=[Thinking()]).estimate("hi")).upper_usd is not None


async def test_settings_that_a_function_computes_bound_only_the_first_answer() -> None:
    def settings(ctx: RunContext[Any]) -> Any:
        return {"max_tokens": 100}

    agent = once(max_tokens=None, model_settings=settings)
    assert (await agent.estimate("hi")).upper_usd == (await once().estimate("hi")).upper_usd
    assert "settings are a function" in await reasons(agent, retries=1)
    assert "settings are a function" in await reasons(once(), retries=1, model_settings=settings)


async def test_a_wrapper_of_the_users_own_may_send_any_number_of_requests() -> None:
    class Twice(WrapperModel):
        pass

    assert "model wrapper Twice" in await reasons(once(model=FallbackModel(NANO, Twice(GPT))))
    instrumented = InstrumentedModel(GPT, InstrumentationSettings())
    assert (await once(model=instrumented).estimate("hi")).upper_usd is not None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"model": OpenAIResponsesModel("unheard-of", provider=OPENAI)},
            "no price is known for unheard-of; CostCalculator(pricing_overrides=...) adds one",
        ),
        (
            {"model": OpenAIResponsesModel("gpt-4o-search-preview", provider=OPENAI)},
            "gpt-4o-search-preview: the provider may bill more than tokens (searches, for example)",
        ),
        (
            {"capabilities": [NativeTool(WebSearchTool())]},
            "tools of the provider (web_search) are billed by how often it uses them",
        ),
        (
            {"model_settings": {"extra_body": {"n": 5}}},
            "extra_body['n'] may ask for more than the tokens of the request",
        ),
    ],
)
async def test_a_request_without_a_bound_leaves_a_call_without_limit(
    options: dict[str, Any], why: str
) -> None:
    assert why in await reasons(once(**options))


async def test_searches_of_the_provider_fill_context_windows_from_the_first_request_on() -> None:
    searches = NativeTool(WebSearchTool(max_uses=2))
    one = await once(model=CLAUDE, capabilities=[searches]).estimate("hi")
    again = await once(model=CLAUDE, capabilities=[searches], retries=1).estimate("hi")
    assert one.upper_usd is not None
    assert again.upper_usd == 2 * one.upper_usd


def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([TextPart("fine")], usage=RequestUsage(input_tokens=10, output_tokens=2))


def windowless(**options: Any) -> FastroAgent[Any, str]:
    """An agent of a model that has a price and no context window."""
    model = FunctionModel(answers, model_name="paid")
    return once(model=model, cost_calculator=TOKEN_IS_MICROCENT, **options)


async def test_without_a_context_window_nothing_bounds_a_second_request() -> None:
    assert (await windowless().estimate("hi")).upper_usd is not None
    assert "its context window is unknown" in await reasons(windowless(retries=1))
    image = BinaryContent(data=b"x", media_type="image/png")
    quote = await windowless().estimate(["hi", image])
    assert "no documented rule tells how many tokens" in quote.upper_reasons[0]


async def test_without_max_tokens_nothing_may_bound_an_answer() -> None:
    assert "paid: nothing limits the answer: set max_tokens" in await reasons(windowless(max_tokens=None))


async def test_models_for_tests_are_free() -> None:
    quote = await FastroAgent(TestModel(), output_type=City).estimate("hi")
    assert (quote.lower_usd, quote.expected_usd, quote.upper_usd) == (0, 0, 0)
    assert "test is free" in quote.upper_reasons


async def test_every_candidate_of_a_fallback_model_may_be_billed() -> None:
    mini, nano = await once().estimate("hi"), await once(model=NANO).estimate("hi")
    quote = await once(model=FallbackModel(GPT, NANO)).estimate("hi")
    assert mini.upper_usd is not None
    assert nano.upper_usd is not None
    assert quote.upper_usd == mini.upper_usd + nano.upper_usd
    assert quote.lower_usd == nano.lower_usd < mini.lower_usd
    assert quote.expected_usd == mini.expected_usd
    assert "each candidate of the fallback model may be billed" in quote.upper_reasons


@pytest.mark.parametrize("where", ["call", "agent", "around"])
async def test_a_budget_that_steps_down_makes_a_call_cheaper_at_the_least(where: str) -> None:
    budget = Budget(usd=1, fallback=ModelFallback(at=0.8, use=NANO))
    mini, nano = await once().estimate("hi"), await once(model=NANO).estimate("hi")
    if where == "call":
        quote = await once().estimate("hi", budget=budget)
    elif where == "agent":
        quote = await once(budget=budget).estimate("hi")
    else:
        async with Scope("budget", "b", parent=None, limits=Limits((budget,))):
            quote = await once().estimate("hi")
    assert quote.lower_usd == nano.lower_usd < mini.lower_usd
    assert quote.upper_usd == mini.upper_usd


async def test_a_budget_that_steps_up_makes_a_call_dearer_at_the_most() -> None:
    budget = Budget(usd=1, fallback=ModelFallback(at=0.8, use=GPT))
    mini = await once().estimate("hi")
    quote = await once(model=NANO).estimate("hi", budget=budget)
    assert quote.upper_usd == mini.upper_usd


# --- at least ---


async def test_the_least_is_one_cached_request_with_one_token_of_answer() -> None:
    quote = await once(model=CLAUDE).estimate("hello")
    # one input token read from the cache and one of answer, at half the price: as in a batch
    assert quote.lower_usd == (Decimal("0.05") + Decimal("2.5")) / 1_000_000
    assert quote.lower_reasons == (
        "1 request to claude-haiku-4-5 of no less than 1 input and 1 output tokens, at its lowest prices",
    )


async def test_the_least_has_the_tokens_of_the_text() -> None:
    one, whole = await once().estimate("hello"), await once().estimate("hello " * 1_000)
    assert whole.lower_usd - one.lower_usd == 1_000 * Decimal("0.0125") / 1_000_000
    cut = await once(model_settings={"openai_truncation": "auto"}).estimate("hello " * 1_000)
    assert cut.lower_usd == one.lower_usd


async def test_an_output_that_may_be_nothing_may_take_no_token() -> None:
    quote = await once(model=CLAUDE, output_type=[str, type(None)]).estimate("hello")
    assert quote.lower_usd == Decimal("0.05") / 1_000_000


async def test_a_model_without_a_price_costs_nothing_at_least() -> None:
    quote = await once(model=OpenAIResponsesModel("unheard-of", provider=OPENAI)).estimate("hi")
    assert (quote.lower_usd, quote.expected_usd) == (0, 0)
    assert quote.lower_reasons == (
        "no price is known for unheard-of; CostCalculator(pricing_overrides=...) adds one",
    )
    assert quote.expected_reasons == (
        "counted as $0.00: no price is known for unheard-of; CostCalculator(pricing_overrides=...) adds one",
    )


# --- expected ---


async def test_before_there_is_experience_an_answer_is_assumed() -> None:
    agent = once(max_tokens=None)
    quote = await agent.estimate("hi")
    assert abs(quote.expected_usd - Decimal("0.001")) < Decimal("0.00001")  # 500 tokens at $2 a million
    assert quote.expected_reasons[0].startswith("1 request of about")
    assert abs((await once().estimate("hi")).expected_usd - Decimal("0.0002")) < Decimal("0.00001")


async def test_with_tools_a_second_request_is_assumed() -> None:
    without, quote = await once().estimate("hi"), await once(tools=[weather]).estimate("hi")
    assert quote.expected_usd > 2 * without.expected_usd
    assert quote.expected_reasons[0].startswith("2 requests, as it has tools,")


async def test_what_is_expected_is_the_mean_of_the_last_calls() -> None:
    costs = iter([100, 300])
    agent = metered_answers(lambda: next(costs))
    await agent.run("a")
    first = await agent.estimate("a")
    assert first.expected_reasons[0].startswith("the last call: 1 x 100 input and 7 output tokens")
    await agent.run("a")
    quote = await agent.estimate("a")
    assert quote.expected_reasons[0].startswith("the mean of the last 2 calls: 1 x 200 input and 7")
    # 200 tokens of input on average; this call has about 1
    assert usd_to_microcents(quote.expected_usd) == 200 + 7 - 200 + 1
    assert quote.expected_reasons[1] == "with an input of about 1 tokens instead"


async def test_a_longer_prompt_is_expected_to_cost_more() -> None:
    agent = metered_answers(lambda: 100)
    await agent.run("a")
    short, long = await agent.estimate("a" * 400), await agent.estimate("a" * 4_000)
    assert usd_to_microcents(short.expected_usd) == 107
    assert len(short.expected_reasons) == 1
    assert usd_to_microcents(long.expected_usd) == 107 + 900


def metered_answers(input_tokens: Callable[[], int], **options: Any) -> FastroAgent[Any, str]:
    """An agent whose requests have the input tokens that they are said to have, and 7 output tokens."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=input_tokens(), output_tokens=7)
        return ModelResponse([TextPart("fine")], usage=usage)

    return FastroAgent(
        FunctionModel(answer, model_name="paid"), cost_calculator=TOKEN_IS_MICROCENT, **options
    )


async def test_streamed_calls_are_learned_from_too() -> None:
    agent = FastroAgent(TestModel(model_name="paid"), cost_calculator=prices("test:paid"))
    async for _ in agent.run_stream("a"):
        pass
    assert (await agent.estimate("a")).expected_reasons[0].startswith("the last call")


def prices(model: str) -> CostCalculator:
    return CostCalculator(pricing_overrides={model: {"input_per_mtok": 1, "output_per_mtok": 1}})


async def test_agents_that_tools_call_are_part_of_what_is_expected() -> None:
    helper = paid_agent(5_000)

    async def look_up() -> str:
        return (await helper.run("?")).output

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [TextPart("done")] if len(messages) > 1 else [ToolCallPart("look_up", {})]
        return ModelResponse(parts, usage=RequestUsage(input_tokens=10, output_tokens=5))

    agent = FastroAgent(
        FunctionModel(answer, model_name="outer"),
        tools=[look_up],
        cost_calculator=prices("function:outer"),
    )
    await agent.run("?")
    quote = await agent.estimate("?")
    assert usd_to_microcents(quote.expected_usd) == 5_030 + 2 * (quote_input(quote) - 10)
    assert "the last call: 2 x 10 input" in quote.expected_reasons[0]


def quote_input(quote: Quote) -> int:
    return int(quote.expected_reasons[1].split("about ")[1].split(" ")[0])


async def test_calls_that_fail_or_whose_cost_is_not_known_teach_nothing() -> None:
    def refuse(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise OSError("down")

    agent = FastroAgent(FunctionModel(refuse, model_name="paid"), cost_calculator=TOKEN_IS_MICROCENT)
    with pytest.raises(OSError, match="down"):
        await agent.run("?")
    assert "an assumption" in (await agent.estimate("?")).expected_reasons[0]
    response = await paid_agent().run("?")
    learned = PastCalls()
    learned.learn(replace(response, usage=Usage(unpriced_requests=1)))
    assert learned.usual("paid") is None
    learned.learn(response)
    assert learned.usual("paid") is not None


async def test_experience_is_kept_by_model_and_bounded() -> None:
    agent = metered_answers(lambda: 100)
    learned = agent._dispatcher.learned
    for _ in range(REMEMBERED + 5):
        await agent.run("a")
    usual = learned.usual("paid")
    assert usual is not None
    assert usual.calls == REMEMBERED
    for number in range(MODELS_REMEMBERED):
        name = f"paid-{number}"
        await agent.run("a", model=FunctionModel(answers, model_name=name))
    assert learned.usual("paid") is None
    assert learned.usual("paid-0") is not None


# --- ways to ask ---


def test_an_estimate_can_be_had_without_a_loop() -> None:
    agent = once()
    assert agent.estimate_sync("hello") == asyncio.run(agent.estimate("hello"))


async def test_on_a_loop_the_waiting_form_is_named() -> None:
    with pytest.raises(RunningLoopError, match=r"agent\.estimate"):
        once().estimate_sync("hello")


async def test_the_model_of_the_call_counts() -> None:
    quote = await once().estimate("hi", model=NANO, output_type=str, instructions="Be brief.")
    assert "gpt-5-nano" in quote.upper_reasons[0]
    assert quote.name == "agent"


# --- counting input ---


async def counted(
    model: Any, *messages: ModelMessage, agent: FastroAgent[Any, Any] | None = None
) -> tuple[int, int]:
    parameters = await parameters_of(agent or once())
    await prepare_bound(CostCalculator(), model, messages, parameters)
    tokens = input_tokens(CostCalculator().host(model), messages, parameters)
    return tokens.least, tokens.likely


async def test_text_is_counted_by_the_tokenizer_of_its_model() -> None:
    request = ModelRequest([UserPromptPart("The quick brown fox jumps over the lazy dog.")])
    assert await counted(GPT, request) == (10, 10)
    elsewhere = OpenAIResponsesModel(
        "gpt-5-mini", provider=OpenAIProvider(api_key="none", base_url="http://127.0.0.1:1/v1")
    )
    assert await counted(elsewhere, request) == (1, 11)  # who knows what counts there
    assert await counted(CLAUDE, request) == (1, 13)  # 3.5 letters for each token


async def test_everything_that_is_said_counts() -> None:
    call = ModelResponse([ToolCallPart("weather", {"city": "Paris"})])
    returned = ModelRequest([ToolReturnPart("weather", "rain", call.tool_calls[0].tool_call_id)])
    image = BinaryContent(data=b"x", media_type="image/png")
    least, likely = await counted(GPT, ModelRequest([UserPromptPart(["hello", image])]), call, returned)
    assert least == 1
    assert TOKENS_PER_FILE + 5 < likely < TOKENS_PER_FILE + 50
    tools = await counted(GPT, ModelRequest([UserPromptPart("hello")]), agent=once(tools=[weather]))
    assert tools[1] > 20
    schema = await counted(
        GPT, ModelRequest([UserPromptPart("hello")]), agent=once(output_type=NativeOutput(City))
    )
    assert schema[1] > 10


async def test_a_text_too_long_to_count_promises_nothing() -> None:
    least, likely = await counted(GPT, ModelRequest([UserPromptPart("ab " * 100_000)]))
    assert least == 1
    assert likely > 10_000


async def test_the_budget_of_a_call_limits_it_beside_that_of_the_agent() -> None:
    agent = FastroAgent(GPT, budget=Budget(usd="0.0001"), max_tokens=100, retries=0)
    for usd, upper in ((1, "0.0001"), ("0.00005", "0.00005")):
        assert (await agent.estimate("hi", budget=Budget(usd=usd))).upper_usd == Decimal(upper)

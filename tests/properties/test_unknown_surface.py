"""Whatever PydanticAI has or may have, the account equals the ledger of the provider, or is incomplete.

The ways to send, settings, parts, contents and fields are those of the installed PydanticAI, and invented
ones.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import fields, make_dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, RunContext
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.usage import RequestUsage
from support.examples import examples
from support.later import Provider, changing, with_method
from support.settings import names_of_settings

from fastroai import Budget, CostCalculator, FastroAgent, Metered, budget_scope
from fastroai.errors import UnmeteredRequestError
from fastroai.records import Usage
from fastroai.usage import request_bound
from fastroai.usage.facts.surface import FREE_DETAILS
from fastroai.usage.prices.rate_card import UNITS

NEW = st.from_regex("[a-z]{3,9}_of_tomorrow", fullmatch=True)
"""Names that no version of PydanticAI has."""
COUNTS = st.integers(0, 5)
WINDOW = 1_047_576
"""The context window of gpt-4.1-mini, in tokens."""
FREE = sorted({name for details in FREE_DETAILS for name in details.names} - {"is_byok"})
PARTS: list[Any] = [
    SystemPromptPart("Be short."),
    UserPromptPart("Hi"),
    UserPromptPart(["Hi", TextContent("there"), CachePoint(), ImageUrl("https://example.com/a.png")]),
    UserPromptPart([BinaryContent(b"x", media_type="text/plain")]),
    ToolReturnPart("work", {"a": 1}, "1"),
]
"""Parts of a request that the account understands."""


PLACES = ["detail", "field", "native call", "part", "method", "method of a user", "field of a request"]
"""Where something new can be, that the provider bills."""
FEWER = settings(max_examples=examples(13))
"""For tests that take long."""


def with_field(part: Any, name: str, value: object) -> Any:
    """The same part in a later PydanticAI, whose class has one more field."""
    later = make_dataclass(type(part).__name__, [(name, Any, None)], bases=(type(part),), kw_only=True)
    known = {one.name: getattr(part, one.name) for one in fields(part) if one.init}
    return later(**known, **{name: value})


def of_kind(name: str) -> Any:
    return make_dataclass("LaterPart", [("part_kind", str, name)])()


@FEWER
@given(parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=4), name=NEW, value=COUNTS | st.none())
def test_a_request_with_something_new_is_bounded_by_the_window_and_by_nothing_less(
    parts: list[Any], name: str, value: int | None
) -> None:
    model, parameters = Provider().model(), ModelRequestParameters()

    def bound(parts: list[Any]) -> Any:
        settings: Any = {"max_tokens": 10}
        return request_bound(CostCalculator(), model, [ModelRequest(parts=parts)], settings, parameters)

    last = with_field(parts[-1], name, value)
    found = bound([*parts[:-1], last])
    if value is None:
        assert found == bound(parts)
    else:
        assert found.input_tokens == WINDOW
        assert f"{last.part_kind}.{name}" in found.why
    assert bound([*parts, of_kind(name)]).input_tokens == WINDOW
    assert name in bound([*parts, of_kind(name)]).why


@given(
    details=st.dictionaries(st.sampled_from(FREE) | NEW, COUNTS, max_size=4),
    units=st.dictionaries(NEW | st.sampled_from(sorted(UNITS - {"requests"})), COUNTS, max_size=2),
    parts=st.lists(
        st.sampled_from([TextPart("x"), ThinkingPart("y"), ToolCallPart("t", {}), of_kind("hologram")])
        | st.builds(NativeToolCallPart, NEW, st.just({})),
        max_size=3,
    ),
)
def test_what_an_answer_reports_is_priced_or_named(
    details: dict[str, int], units: dict[str, int], parts: list[Any]
) -> None:
    usage = RequestUsage(details=details, **{"input_tokens": 20, "output_tokens": 5, **units})
    answer = ModelResponse(parts=parts, usage=usage, model_name="gpt-4.1-mini", provider_name="openai")
    cost = CostCalculator().cost_of(answer, model="gpt-4.1-mini", provider="openai")
    new = {name for name, count in (*details.items(), *units.items()) if count and name.endswith("tomorrow")}
    new |= {part.tool_name for part in parts if isinstance(part, NativeToolCallPart)}
    new |= {part.part_kind for part in parts if part.part_kind == "hologram"}
    if cost.contradiction is None and "token counts that overlap" not in cost.unpriced_units:
        assert new <= set(cost.unpriced_units)
    assert not (new and cost.complete)
    if not new and not any(units.values()):
        assert (cost.cost_usd, cost.complete) == (Decimal("0.000016"), True)


@FEWER
@given(
    surcharge=st.sampled_from([Decimal(0), Decimal("0.01")]),
    place=st.sampled_from(PLACES),
    name=NEW,
    limited=st.booleans(),
)
def test_the_account_equals_the_ledger_or_says_that_it_does_not(
    surcharge: Decimal, place: str, name: str, limited: bool
) -> None:
    provider = Provider(surcharge_usd=surcharge)
    if not surcharge:
        place = ""  # nothing new, and nothing to pay for it

    def change(response: ModelResponse) -> None:
        if place == "detail":
            response.usage.details[name] = 1
        elif place == "field":
            setattr(response.usage, name, 1)
        elif place == "native call":
            response.parts = [NativeToolCallPart(name, {}, tool_call_id="x"), *response.parts]
        elif place == "part":
            response.parts = [of_kind(name), *response.parts]

    async def run() -> Any:
        prompt = UserPromptPart("x")
        if place == "field of a request":
            prompt = with_field(prompt, name, 1)
        async with budget_scope(Budget(usd=10) if limited else Budget(ms=60_000)) as scope:
            if place.startswith("method"):
                module = "app" if place.endswith("user") else "pydantic_ai.models.later"
                model: Any = Metered().model(provider.model(with_method(module)))
                try:
                    await model.research("x")
                except UnmeteredRequestError:
                    assert limited
                provider.surcharge_usd = Decimal(0)
            agent = FastroAgent(provider.model(changing(change)), max_tokens=50)
            # PydanticAI itself does not take a part that it does not know.
            with pytest.raises(AssertionError) if place == "part" else nullcontext():
                await agent.run("Hi", message_history=[ModelRequest(parts=[prompt])])
        return scope.usage

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usage = asyncio.run(run())
    if usage.cost_complete:
        assert usage.cost_usd == provider.billed_usd
    assert usage.cost_complete == (not place or (place == "method" and limited))


# --- every way to send, with every setting ---

HELLO: list[ModelMessage] = [ModelRequest.user_text_prompt("Hi")]


async def run(model: Model, settings: Any) -> None:
    await FastroAgent(model, model_settings=settings, request_retries=0).run("Hi")


async def stream(model: Model, settings: Any) -> None:
    async for _ in FastroAgent(model, model_settings=settings, request_retries=0).run_stream("Hi"):
        pass


async def read_events(model: Model, settings: Any) -> None:
    async with FastroAgent(model, model_settings=settings).run_stream_events("Hi") as events:
        async for _ in events:
            pass


async def run_plain(model: Model, settings: Any) -> None:
    await Agent(model, model_settings=settings, capabilities=[Metered()]).run("Hi")


async def stream_plain(model: Model, settings: Any) -> None:
    agent = Agent(model, model_settings=settings, capabilities=[Metered()])
    async with agent.run_stream("Hi") as answer:
        await answer.get_output()


async def iterate(model: Model, settings: Any) -> None:
    async with Agent(model, model_settings=settings, capabilities=[Metered()]).iter("Hi") as steps:
        async for _ in steps:
            pass


async def delegate(model: Model, settings: Any) -> None:
    """The request of the agent has no settings; those of the agent that its hook asks are these."""
    inner = Agent(model, model_settings=settings)

    def instructions(ctx: RunContext[Any]) -> str:
        delegated.append(ctx.model)
        return ""

    delegated: list[Any] = []
    await FastroAgent(model, instructions=instructions, max_tokens=9).run("Hi")
    await inner.run("Hi", model=delegated[0])


async def ask_directly(model: Model, settings: Any) -> None:
    await model_request(Metered().model(model), HELLO, model_settings=settings)


async def stream_directly(model: Model, settings: Any) -> None:
    async with model_request_stream(Metered().model(model), HELLO, model_settings=settings) as events:
        async for _ in events:
            pass


async def ask_the_model(model: Model, settings: Any) -> None:
    await Metered().model(model).request(HELLO, settings, ModelRequestParameters())


WAYS: list[Callable[[Model, Any], Awaitable[None]]] = [
    run,
    stream,
    read_events,
    run_plain,
    stream_plain,
    iterate,
    delegate,
    ask_directly,
    stream_directly,
    ask_the_model,
]
SETTINGS = sorted(names_of_settings())
VALUES = st.sampled_from(
    [None, True, 0, 1, 30, 0.5, "auto", "default", "high", "12h", [], ["x"], {}, {"a": 1}]
)


def sent(
    way: Callable[[Model, Any], Awaitable[None]], settings: Any, budget: Budget
) -> tuple[Usage, Decimal]:
    """What the account says of requests, and what they were billed."""
    provider = Provider()

    async def send() -> Usage:
        async with budget_scope(budget) as scope:
            # A setting without sense may raise anything, in PydanticAI, in the SDK, or in the budget.
            with suppress(Exception):
                await way(provider.model(), settings)
        return scope.usage

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return asyncio.run(send()), provider.billed_usd


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_way_to_send_is_on_the_account(way: Callable[[Model, Any], Awaitable[None]]) -> None:
    usage, billed_usd = sent(way, {"max_tokens": 10}, Budget(usd=10))
    assert billed_usd
    assert (usage.cost_usd, usage.cost_complete) == (billed_usd, True)


@FEWER
@given(
    way=st.sampled_from(WAYS),
    settings=st.dictionaries(st.sampled_from(SETTINGS) | NEW, VALUES, max_size=3),
    limited=st.booleans(),
)
def test_no_setting_gets_a_request_off_the_account(
    way: Callable[[Model, Any], Awaitable[None]], settings: Any, limited: bool
) -> None:
    usage, billed_usd = sent(way, settings, Budget(usd=10) if limited else Budget(ms=60_000))
    assert usage.cost_usd <= billed_usd
    assert not usage.cost_complete or usage.cost_usd == billed_usd
    assert not limited or billed_usd <= usage.committed_usd
    new = [name for name, value in settings.items() if value is not None and name.endswith("_of_tomorrow")]
    if limited and new and way is not delegate:
        assert not billed_usd, "a budget refuses a setting that nobody knows"

"""Whatever PydanticAI has or may have, the account equals the ledger of the provider, or is incomplete.

The parts, contents and fields are those of the installed PydanticAI, and invented ones.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import nullcontext
from dataclasses import fields, make_dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ImageUrl,
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
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage
from support.examples import examples
from support.later import Provider, changing, with_method

from fastroai import Budget, CostCalculator, FastroAgent, Metered, budget_scope
from fastroai.errors import UnmeteredRequestError
from fastroai.usage import request_bound
from fastroai.usage.facts.surface import FREE_DETAILS
from fastroai.usage.rate_card import UNITS

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
FEWER = settings(max_examples=examples(25))
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

"""Whatever prices a user gives: a request costs no more than its bound, and no less than its lower bound."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from fastroai.usage import CostCalculator
from fastroai.usage.prices.flat_prices import PriceConditions

MODELS = ("gpt-4o", "gpt-5.4", "claude-sonnet-4-5", "gemini-2.5-pro", "in-house")
PROVIDERS = {
    "gpt-4o": "openai",
    "gpt-5.4": "openai",
    "claude-sonnet-4-5": "anthropic",
    "gemini-2.5-pro": "google",
}
SNAPSHOTS = {"gpt-4o": "gpt-4o-2024-08-06", "claude-sonnet-4-5": "claude-sonnet-4-5-20250929"}
KEYS = (
    *MODELS,
    *SNAPSHOTS.values(),
    "openai:gpt-4o",
    "openai:*",
    "gpt-*",
    "*",
    "claude-sonnet*",
    "anthropic:*4-5",
)
PARTS = (
    "cache_read_per_mtok",
    "cache_write_per_mtok",
    "cache_write_1h_per_mtok",
    "input_audio_per_mtok",
    "output_audio_per_mtok",
    "cache_audio_read_per_mtok",
)

amounts = st.decimals(0, 1000, places=7)
token_prices = st.fixed_dictionaries(
    {"input_per_mtok": amounts, "output_per_mtok": amounts}, optional=dict.fromkeys(PARTS, amounts)
)
some_prices = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("input_per_mtok", "output_per_mtok", *PARTS), amounts)
)
thresholds = st.lists(st.integers(0, 3000), min_size=1, max_size=3, unique=True).map(sorted)
extras = st.fixed_dictionaries(
    {}, optional={"discount": st.decimals(-1, 1, places=6), "per_request": amounts}
)


@st.composite
def with_tiers(draw: st.DrawFn) -> dict[str, Any]:
    tiers = [{**draw(some_prices), "above": above} for above in draw(thresholds)]
    return {**draw(token_prices), "tiers": tiers}


prices = token_prices | with_tiers()
discounted_list = st.fixed_dictionaries(
    {"discount": st.decimals(-1, 1, places=6)}, optional={"per_request": amounts}
)


@st.composite
def pricings(draw: st.DrawFn) -> dict[str, Any]:
    given_prices = {**draw(prices), **draw(extras)} if draw(st.booleans()) else draw(discounted_list)
    in_tiers = draw(st.dictionaries(st.sampled_from(["flex", "priority"]), prices | extras, max_size=2))
    return {**given_prices, "service_tiers": in_tiers}


@st.composite
def usages(draw: st.DrawFn) -> RequestUsage:
    plain, read, write, write_1h, audio, audio_read = draw(st.tuples(*[st.integers(0, 1500)] * 6))
    output, output_audio = draw(st.tuples(*[st.integers(0, 1000)] * 2))
    return RequestUsage(
        input_tokens=plain + read + write + write_1h + audio + audio_read,
        cache_read_tokens=read + audio_read,
        cache_write_tokens=write + write_1h,
        cache_write_1h_tokens=write_1h,
        input_audio_tokens=audio + audio_read,
        cache_audio_read_tokens=audio_read,
        output_tokens=output + output_audio,
        output_audio_tokens=output_audio,
    )


@given(
    overrides=st.dictionaries(st.sampled_from(KEYS), pricings(), min_size=1, max_size=4),
    model=st.sampled_from(MODELS),
    snapshot=st.booleans(),
    tier=st.sampled_from([None, "default", "flex", "priority"]),
    usage=usages(),
    precision=st.sampled_from([3, 28]),
)
def test_a_request_costs_at_most_its_bound_and_at_least_its_lower_bound(
    overrides: dict[str, Any],
    model: str,
    snapshot: bool,
    tier: str | None,
    usage: RequestUsage,
    precision: int,
) -> None:
    provider = PROVIDERS.get(model)
    response = ModelResponse(
        parts=[],
        usage=usage,
        model_name=SNAPSHOTS.get(model, model) if snapshot else model,
        provider_name=provider,
        provider_details={"service_tier": tier},
    )
    with localcontext(prec=precision):
        calculator = CostCalculator(overrides)
        cost = calculator.price(response, model=model, provider=provider)
        for conditions in (
            PriceConditions(),
            PriceConditions(service_tiers=frozenset() if tier is None else frozenset({tier})),
        ):
            upper = calculator.upper_prices(model, provider, None, usage.input_tokens, conditions)
            if cost is None or upper is None:
                assert cost is None or model == "in-house"  # which has a price in some service tiers only
                continue
            bound = upper.cost(usage.input_tokens, usage.output_tokens)
            assert bound is not None
            assert cost <= bound
        lower = calculator.lower_prices(model, provider)
        if cost is not None and lower is not None:
            assert lower.cost(usage.input_tokens, usage.output_tokens) <= cost


@given(
    discount=st.decimals(-1, 1, places=6),
    fee=amounts,
    usage=usages(),
    model=st.sampled_from(["gpt-4o", "gpt-5.4"]),
)
def test_a_discount_is_an_exact_share_of_the_list_price(
    discount: Decimal, fee: Decimal, usage: RequestUsage, model: str
) -> None:
    list_usd = CostCalculator().price(usage, model=model, provider="openai")
    ours = CostCalculator({"openai:*": {"discount": discount, "per_request": fee}})
    found = ours.price(usage, model=model, provider="openai")
    if list_usd is None:
        assert found is None
    else:
        with localcontext(prec=200):
            assert found == list_usd * (1 - discount) + fee

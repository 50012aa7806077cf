from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.usage import RequestUsage

from fastroai.errors import ConfigurationError
from fastroai.usage import PricingOverride
from fastroai.usage.overrides import ModelPricing, PricingOverrides, canonical_provider

BASIC: PricingOverride = {"input_per_mtok": 2, "output_per_mtok": 8}


def pricing(**prices: object) -> ModelPricing:
    return ModelPricing.of("m", {"input_per_mtok": 2, "output_per_mtok": 8, **prices})


def dollars_per_mtok(total: str) -> Decimal:
    return Decimal(total) / 1_000_000


def test_floats_are_the_decimals_they_are_written_as() -> None:
    assert pricing(cache_read_per_mtok=0.1).cache_read_per_mtok == Decimal("0.1")


@pytest.mark.parametrize(
    ("given_prices", "message"),
    [
        (
            {**BASIC, "input_per_mtok": -1},
            r"pricing_overrides\['m'\]\['input_per_mtok'\]=-1: expected a finite number",
        ),
        ({**BASIC, "output_per_mtok": float("nan")}, r"\['output_per_mtok'\]=nan"),
        ({**BASIC, "per_request": "inf"}, r"\['per_request'\]='inf'"),
        ({**BASIC, "cache_read_per_mtok": True}, r"\['cache_read_per_mtok'\]=True"),
        (
            {**BASIC, "cached_per_mtok": 1},
            r"\['m'\]='cached_per_mtok': .* Did you mean 'cache_read_per_mtok'\?",
        ),
        ({"input_per_mtok": 1}, r"\['m'\]\['output_per_mtok'\]=None: expected a price; 0 if it is free"),
        ({"input_per_mtok": None, "output_per_mtok": 1}, r"\['input_per_mtok'\]=None"),
        (2.0, r"pricing_overrides\['m'\]=2.0: expected a mapping such as"),
    ],
)
def test_prices_that_cannot_be_meant_are_refused_by_model_and_field(
    given_prices: object, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PricingOverrides({"m": given_prices})  # type: ignore[dict-item]


@pytest.mark.parametrize("model", ["", "  ", None, 5])
def test_a_price_is_for_a_model_with_a_name(model: object) -> None:
    with pytest.raises(ConfigurationError, match="'model' or 'provider:model'"):
        PricingOverrides({model: BASIC})  # type: ignore[dict-item]


def test_overrides_are_a_mapping() -> None:
    with pytest.raises(ConfigurationError, match="a mapping from model names to their prices"):
        PricingOverrides([("m", BASIC)])  # type: ignore[arg-type]


def cheap_if(price: int) -> PricingOverride:
    return {"input_per_mtok": price, "output_per_mtok": price}


@pytest.mark.parametrize(
    ("model", "provider", "price"),
    [
        ("gpt-4o", "openai", 1),
        ("gpt-4o", "azure", 2),
        ("gpt-4o", None, 2),
        ("gpt-4o-2024-08-06", "openai", 1),
        ("gpt-4o-2024-08-06", "azure", 2),
        ("gpt-4o-2024-11-20", "openai", 3),
        ("claude-sonnet-4-5-20250929", "bedrock", 4),
        ("gpt-4o-mini", "openai", None),
        ("GPT-4o", "openai", None),
        ("gpt-4o-2024", "openai", None),
        ("llama3:8b", "ollama", 5),
        ("gpt-5", "openai", 6),
        (None, "openai", None),
    ],
)
def test_the_most_specific_override_counts(
    model: str | None, provider: str | None, price: int | None
) -> None:
    overrides = PricingOverrides(
        {
            "gpt-4o": cheap_if(2),
            "openai:gpt-4o": cheap_if(1),
            "gpt-4o-2024-11-20": cheap_if(3),
            "claude-sonnet-4-5": cheap_if(4),
            "llama3:8b": cheap_if(5),
            "openai-chat:gpt-5": cheap_if(6),
        }
    )
    found = overrides.find([model], [provider])
    assert (found and found.input_per_mtok) == price


def test_names_are_tried_in_order() -> None:
    overrides = PricingOverrides({"asked": cheap_if(1), "answered": cheap_if(2)})
    found = overrides.find(["asked", "answered"], [None])
    assert found is not None
    assert found.input_per_mtok == 1


def test_an_override_can_be_added_and_replaced() -> None:
    overrides = PricingOverrides()
    assert overrides.find(["m"], [None]) is None
    for price in (1, 2):
        overrides.add("m", cheap_if(price))
        found = overrides.find(["m"], [None])
        assert found is not None
        assert found.input_per_mtok == price


@pytest.mark.parametrize(
    ("reference", "provider"),
    [
        ("openai", "openai"),
        ("openai-chat", "openai"),
        ("openai-responses", "openai"),
        ("azure-responses", "azure"),
        ("gateway/openai-chat", "openai"),
        ("groq", "groq"),
    ],
)
def test_providers_are_known_by_the_name_in_responses(reference: str, provider: str) -> None:
    assert canonical_provider(reference) == provider


USAGE = RequestUsage(
    input_tokens=1000,
    output_tokens=100,
    cache_read_tokens=300,
    cache_write_tokens=200,
    cache_write_1h_tokens=50,
    input_audio_tokens=40,
    cache_audio_read_tokens=10,
    output_audio_tokens=20,
)


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        ({}, "2800"),  # 1000 x 2 + 100 x 8
        ({"cache_read_per_mtok": 1}, "2500"),  # 300 of the input at 1
        ({"cache_write_per_mtok": 3}, "3000"),  # 200 of the input at 3
        ({"cache_write_1h_per_mtok": 4}, "2900"),  # 50 of the input at 4
        ({"cache_write_per_mtok": 3, "cache_write_1h_per_mtok": 4}, "3050"),
        ({"input_audio_per_mtok": 10}, "3120"),  # 40 of the input at 10
        ({"cache_audio_read_per_mtok": 0}, "2780"),  # 10 of the input at 0
        ({"input_audio_per_mtok": 10, "cache_read_per_mtok": 1}, "2830"),  # cached audio is audio
        ({"input_audio_per_mtok": 10, "cache_read_per_mtok": 1, "cache_audio_read_per_mtok": 5}, "2780"),
        ({"output_audio_per_mtok": 20}, "3040"),  # 20 of the output at 20
        ({"per_request": "0.01"}, "12800"),
        ({"input_per_mtok": 0, "output_per_mtok": 0}, "0"),
    ],
)
def test_each_token_is_priced_once_and_parts_without_a_price_as_their_whole(
    prices: Mapping[str, object], cost: str
) -> None:
    assert pricing(**prices).cost(USAGE) == dollars_per_mtok(cost)


@pytest.mark.parametrize(
    "usage",
    [
        RequestUsage(input_tokens=1, cache_read_tokens=2),
        RequestUsage(input_tokens=3, cache_read_tokens=2, cache_write_tokens=2),
        RequestUsage(output_tokens=1, output_audio_tokens=2),
    ],
)
def test_usage_that_contradicts_itself_has_no_cost(usage: RequestUsage) -> None:
    with pytest.raises(ValueError, match="parts of its token counts exceed their totals"):
        pricing(cache_read_per_mtok=1, cache_write_per_mtok=1, output_audio_per_mtok=1).cost(usage)


counts = st.integers(0, 10**9)
prices = st.decimals(0, 100, places=4)


@given(counts, counts, counts, prices, prices, prices)
def test_costs_are_those_of_genai_prices_for_the_same_prices(
    plain: int, cached: int, output: int, input_price: Decimal, cache_price: Decimal, output_price: Decimal
) -> None:
    from genai_prices.types import ModelPrice

    usage = RequestUsage(input_tokens=plain + cached, cache_read_tokens=cached, output_tokens=output)
    same = ModelPrice(input_mtok=input_price, cache_read_mtok=cache_price, output_mtok=output_price)
    ours = pricing(input_per_mtok=input_price, cache_read_per_mtok=cache_price, output_per_mtok=output_price)
    assert ours.cost(usage) == same.calc_price(usage)["total_price"]

from decimal import Decimal

import pytest

from fastroai.errors import ConfigurationError
from fastroai.usage import PricingOverride
from fastroai.usage.prices.overrides import PricingOverrides, canonical_provider

BASIC: PricingOverride = {"input_per_mtok": 2, "output_per_mtok": 8}


@pytest.mark.parametrize("model", ["", "  ", None, 5])
def test_a_price_is_for_a_model_with_a_name(model: object) -> None:
    with pytest.raises(ConfigurationError, match="'model', 'provider:model', or with"):
        PricingOverrides({model: BASIC})  # type: ignore[dict-item]


def test_overrides_are_a_mapping() -> None:
    with pytest.raises(ConfigurationError, match="a mapping from model names to their prices"):
        PricingOverrides([("m", BASIC)])  # type: ignore[arg-type]


def cheap_if(price: int) -> PricingOverride:
    return {"input_per_mtok": price, "output_per_mtok": price}


def price_of(
    overrides: PricingOverrides, models: list[str | None], providers: list[str | None]
) -> Decimal | None:
    found = overrides.find(models, providers)
    if found is None:
        return None
    assert found.prices is not None
    return found.prices.input_per_mtok


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
    assert price_of(overrides, [model], [provider]) == price


def test_names_are_tried_in_order() -> None:
    overrides = PricingOverrides({"asked": cheap_if(1), "answered": cheap_if(2)})
    assert price_of(overrides, ["asked", "answered"], [None]) == 1


def test_an_override_can_be_added_and_replaced() -> None:
    overrides = PricingOverrides()
    assert overrides.find(["m"], [None]) is None
    for price in (1, 2):
        overrides.add("m", cheap_if(price))
        assert price_of(overrides, ["m"], [None]) == price


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


class TestWildcards:
    OVERRIDES = PricingOverrides(
        {
            "*": cheap_if(1),
            "ollama:*": cheap_if(2),
            "openai:gpt-4o*": cheap_if(3),
            "gpt-4*": cheap_if(4),
            "gpt-4o-mini": cheap_if(5),
            "azure:gpt-4o-mini": cheap_if(6),
            "*/*-chat": cheap_if(7),
        }
    )

    @pytest.mark.parametrize(
        ("model", "provider", "price"),
        [
            ("mistral-large", "mistral", 1),
            ("mistral-large", None, 1),
            ("llama3:8b", "ollama", 2),
            ("gpt-4o", "openai", 3),
            ("gpt-4o-2024-08-06", "openai", 3),
            ("gpt-4o", "gateway/openai-chat", 3),
            ("gpt-4o", "azure", 4),
            ("gpt-4.1", "openai", 4),
            ("gpt-4o-mini", "openai", 5),
            ("gpt-4o-mini-2024-07-18", "openai", 5),
            ("gpt-4o-mini", "azure", 6),
            ("deepseek/deepseek-chat", "openrouter", 7),
            ("deepseek.deepseek-chat", "openrouter", 1),
        ],
    )
    def test_the_longest_one_counts_after_all_names_without(
        self, model: str, provider: str | None, price: int
    ) -> None:
        assert price_of(self.OVERRIDES, [model], [provider]) == price

    def test_the_name_of_the_answering_model_is_more_specific_than_a_wildcard_for_the_asked_one(self) -> None:
        overrides = PricingOverrides({"gpt-*": cheap_if(1), "gpt-4o": cheap_if(2)})
        assert price_of(overrides, ["gpt-best", "gpt-4o"], ["openai"]) == 2

    def test_other_letters_stand_for_themselves(self) -> None:
        overrides = PricingOverrides({"gpt-4.*": cheap_if(1), "[abc]*": cheap_if(2)})
        assert price_of(overrides, ["gpt-4.1"], [None]) == 1
        assert price_of(overrides, ["gpt-41", "a", "[abc]"], [None]) == 2

    def test_a_later_one_is_found_as_well(self) -> None:
        overrides = PricingOverrides({"*": cheap_if(1)})
        overrides.add("gpt-*", cheap_if(2))
        overrides.add("*", cheap_if(3))
        assert price_of(overrides, ["gpt-4o"], [None]) == 2
        assert price_of(overrides, ["o3"], [None]) == 3

    @pytest.mark.parametrize("key", ["gpt-4o-2024*", "*-2025-01-01", "openai:gpt-4o-20240806*"])
    def test_a_date_is_refused_because_a_wildcard_is_for_all_dates(self, key: str) -> None:
        with pytest.raises(ConfigurationError, match="expected a key with a wildcard and no date"):
            PricingOverrides({key: BASIC})

    def test_errors_name_the_option_that_they_were_given_for(self) -> None:
        with pytest.raises(ConfigurationError, match=r"prices\['\*'\]\['discount'\]=2"):
            PricingOverrides({"*": {"discount": 2}}, option="prices")

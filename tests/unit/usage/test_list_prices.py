from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from genai_prices.data import providers
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    StartDateConstraint,
)

from fastroai.usage.prices.list_prices import ListedModel, is_local, listed_model

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("model", "provider", "local"),
    [
        ("test", "test", True),
        ("anything", "function", True),
        ("function:reply:", None, True),
        ("function:reply:", "openai", False),
        ("gpt-5-mini", None, False),
        (None, None, False),
    ],
)
def test_test_and_function_models_are_local(model: str | None, provider: str | None, local: bool) -> None:
    assert is_local(model, provider) is local


@pytest.mark.parametrize("model", ["gpt-5-mini", "claude-sonnet-4-5", "gemini-2.5-pro"])
def test_models_of_the_large_makers_are_found_by_their_bare_names(model: str) -> None:
    listed = listed_model(model, None, None)
    assert listed is not None
    assert listed.card(NOW, {}).cost({"input_tokens": 100}) > 0


def test_a_bare_name_of_a_model_that_many_sell_is_nobodys() -> None:
    assert listed_model("llama-3.3-70b", None, None) is None


def test_the_url_says_more_than_the_provider() -> None:
    at_openrouter = listed_model("openai/gpt-4o-mini", "openai", "https://openrouter.ai/api/v1")
    assert at_openrouter is not None
    assert at_openrouter.info in next(each for each in providers if each.id == "openrouter").models


def test_an_unknown_url_leaves_the_provider() -> None:
    assert listed_model("gpt-5-mini", "openai", "http://localhost:4000") is not None


def test_prices_of_service_tiers_hold_where_the_maker_serves_the_model_and_not_at_a_reseller() -> None:
    openai = listed_model("gpt-4.1", "openai", None)
    azure = listed_model("gpt-4.1", "azure", None)
    assert openai is not None
    assert azure is not None
    used = {"input_tokens": 1_000_000}
    priority = {"service_tier": "priority"}
    assert openai.card(NOW, priority).cost(used) > openai.card(NOW, {}).cost(used)
    assert azure.card(NOW, priority).cost(used) == azure.card(NOW, {}).cost(used)
    assert openai.knows("service_tier", "priority")
    assert not azure.knows("service_tier", "priority")


def test_the_same_prices_are_prepared_once() -> None:
    listed = listed_model("gpt-5-mini", "openai", None)
    assert listed is not None
    assert listed.card(NOW, {}) is listed.card(NOW, {"downstream": "x"})


def test_only_prices_that_do_not_depend_on_the_time_last() -> None:
    later = StartDateConstraint(date(2026, 11, 23))
    plain, cheap = ModelPrice(input_mtok=Decimal(2)), ModelPrice(input_mtok=Decimal(1))
    variant = PriceVariant(when={"service_tier": "flex"}, prices=cheap, constraint=later)
    match = ClauseEquals(equals="gpt-x")
    model = ListedModel(ModelInfo(id="gpt-x", match=match, prices=plain, price_variants=[variant]), True)
    flex = {"service_tier": "flex"}
    assert model.lasting_card({}) is model.card(NOW, {})
    assert model.lasting_card(flex) is None
    million = {"input_tokens": 1_000_000}
    assert model.card(NOW, flex).cost(million) == 2
    assert model.card(datetime(2026, 11, 24, tzinfo=UTC), flex).cost(million) == 1
    dated = [ConditionalPrice(prices=plain), ConditionalPrice(later, prices=cheap)]
    assert ListedModel(ModelInfo(id="gpt-x", match=match, prices=dated), True).lasting_card({}) is None

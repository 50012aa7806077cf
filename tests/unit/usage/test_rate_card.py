from datetime import UTC, datetime
from decimal import Decimal, localcontext

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data import providers
from genai_prices.types import ModelPrice, Tier, TieredPrices
from hypothesis import given
from hypothesis import strategies as st

from fastroai.usage.prices.list_prices import listed_model
from fastroai.usage.prices.rate_card import ContradictoryUsage, RateCard, add_up, check_parts, without_noise

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
USED = {
    "input_tokens": 300_000,
    "cache_read_tokens": 40_000,
    "cache_write_tokens": 3_000,
    "cache_write_1h_tokens": 1_000,
    "output_tokens": 7_000,
    "output_reasoning_tokens": 2_000,
}
LISTED = [(provider, model) for provider in providers for model in provider.models]


def test_every_model_that_genai_prices_ships_costs_what_genai_prices_says() -> None:
    compared = 0
    for provider, model in LISTED:
        try:
            expected = calc_price(
                Usage(**USED), model.id, provider_id=provider.id, genai_request_timestamp=NOW
            ).total_price
        except (LookupError, ValueError):
            continue
        listed = listed_model(model.id, provider.id, None)
        if listed is None:
            assert expected == 0, "it is listed without prices"
            continue
        cost = listed.card(NOW, {}).cost(USED)
        # Its prices carry the noise of floats, in the 16th digit.
        assert abs(cost - expected) <= expected * Decimal("1e-11"), (provider.id, model.id)
        compared += 1
    assert compared > 1_000


@pytest.mark.parametrize("tier", ["default", "flex", "priority", "fast"])
def test_every_service_tier_of_openai_costs_what_genai_prices_says(tier: str) -> None:
    for provider, model in LISTED:
        if provider.id != "openai" or not model.price_variants:
            continue
        served = {"service_tier": tier}
        expected = model.calc_price(
            Usage(**USED), provider, genai_request_timestamp=NOW, price_context=served
        )
        if listed_model(model.id, "openai", None) is None:
            continue  # a pattern, such as that of fine-tuned models
        listed = listed_model(model.id, "openai", None)
        assert listed is not None
        assert listed.card(NOW, served).cost(USED) == expected.total_price, model.id


counts = st.integers(0, 400_000)


@given(
    card=st.sampled_from(
        [("openai", "gpt-5.4"), ("anthropic", "claude-sonnet-4-5"), ("google", "gemini-2.5-pro")]
    ),
    counts=st.tuples(counts, counts, counts, counts, counts),
)
def test_any_usage_costs_what_genai_prices_says(card: tuple[str, str], counts: tuple[int, ...]) -> None:
    plain, read, written, hour, output = counts
    used = {
        "input_tokens": plain + read + written + hour,
        "cache_read_tokens": read,
        "cache_write_tokens": written + hour,
        "cache_write_1h_tokens": hour,
        "output_tokens": output,
    }
    provider, model = card
    with localcontext(prec=200):
        expected = calc_price(Usage(**used), model, provider_id=provider, genai_request_timestamp=NOW)
    listed = listed_model(model, provider, None)
    assert listed is not None
    assert listed.card(NOW, {}).cost(used) == expected.total_price


def test_a_sum_is_exact_in_a_process_that_counts_with_six_digits() -> None:
    card = RateCard(ModelPrice(input_mtok=Decimal("0.123456789"), output_mtok=Decimal(1)))
    with localcontext(prec=6):
        assert card.cost({"input_tokens": 1_000_003, "output_tokens": 7}) == Decimal("0.123464159370367")


def test_a_tier_applies_to_all_tokens_once_the_input_is_above_it() -> None:
    tiered = TieredPrices(base=Decimal(1), tiers=[Tier(start=200_000, price=Decimal(2))])
    card = RateCard(ModelPrice(input_mtok=tiered, output_mtok=tiered))
    assert card.cost({"input_tokens": 200_000, "output_tokens": 1_000_000}) == Decimal("1.2")
    assert card.cost({"input_tokens": 200_001, "output_tokens": 1_000_000}) == Decimal("2.400002")


def test_prices_that_went_through_floats_are_what_was_meant() -> None:
    assert without_noise(Decimal("0.18000000000000002")) == Decimal("0.18")
    assert without_noise(Decimal("1.0399999999999998")) == Decimal("1.04")
    assert without_noise(Decimal("0.0375")) == Decimal("0.0375")


@pytest.mark.parametrize(
    "used",
    [
        {"input_tokens": 1, "cache_read_tokens": 2},
        {"cache_write_1h_tokens": 1, "input_tokens": 5},
        {"input_tokens": -1},
        {"output_tokens": 10**9 + 1},
        {"output_tokens": 10**400},
        {"output_tokens": float("nan")},
        {"output_tokens": float("inf")},
        {"output_tokens": True},
        {"output_tokens": 3, "output_reasoning_tokens": 4},
        {"output_tokens": 3, "output_audio_tokens": 4},
        {"input_tokens": 9, "cache_read_tokens": 1, "cache_audio_read_tokens": 2, "input_audio_tokens": 2},
    ],
)
def test_counts_that_cannot_all_be_true_are_found(used: dict[str, int | float]) -> None:
    with pytest.raises(ContradictoryUsage):
        check_parts(used)


def test_tokens_that_were_read_and_written_are_part_of_the_input_together() -> None:
    assert add_up({"input_tokens": 10, "cache_read_tokens": 6, "cache_write_tokens": 4})
    assert not add_up({"input_tokens": 10, "cache_read_tokens": 6, "cache_write_tokens": 5})


def test_counts_that_add_up_are_fine() -> None:
    check_parts(USED)
    check_parts({})
    check_parts({"audio_seconds": 0.5, "web_searches": 3})


def test_kinds_of_tokens_without_a_price_are_named_where_they_never_cost_what_text_costs() -> None:
    card = RateCard(ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(2)))
    used = {"input_tokens": 9, "cache_read_tokens": 1, "input_audio_tokens": 2, "output_image_tokens": 3}
    assert card.uncovered(used) == ("input_audio_tokens", "output_image_tokens")
    spoken = RateCard(ModelPrice(input_mtok=Decimal(1), input_audio_mtok=Decimal(3)))
    assert spoken.uncovered({"input_tokens": 9, "input_audio_tokens": 2}) == ()


def test_what_is_bought_besides_tokens_is_named_unless_it_has_a_price() -> None:
    card = RateCard(ModelPrice(input_mtok=Decimal(1), web_searches_kcount=Decimal(10)))
    assert card.uncovered({"input_tokens": 1, "web_searches": 2, "advisor tokens": 1}) == ("advisor tokens",)
    assert card.cost({"web_searches": 2}) == Decimal("0.02")
    assert RateCard(ModelPrice(input_mtok=Decimal(1))).uncovered({"web_searches": 2}) == ("web_searches",)


def test_a_model_that_is_listed_without_prices_is_free_but_searches_are_not() -> None:
    card = RateCard(ModelPrice())
    assert card.cost({"input_tokens": 10}) == 0
    assert card.uncovered({"input_tokens": 10, "output_tokens": 3, "web_searches": 1}) == ("web_searches",)


def test_tokens_of_a_model_that_is_sold_by_the_hour_are_in_that_price() -> None:
    card = RateCard(ModelPrice(audio_hours=Decimal(1)))
    assert card.cost({"audio_seconds": 3600}) == 1
    assert card.uncovered({"audio_seconds": 3600, "input_tokens": 10}) == ()
    assert card.uncovered({"input_tokens": 10}) == ("input_tokens",)

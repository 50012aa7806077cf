from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from genai_prices.data_snapshot import set_custom_snapshot
from genai_prices.data_units import unit_data
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from fastroai.usage import CostCalculator, PricingOverride
from fastroai.usage.prices import flat_list_prices as module
from fastroai.usage.prices.flat_prices import ANY_PRICE, FlatPrices, PriceConditions


def upper(
    input_per_mtok: object,
    output_per_mtok: object,
    per_request: object = 0,
    *,
    per_web_search: str | None = None,
) -> FlatPrices:
    return FlatPrices(
        input_per_mtok=Decimal(str(input_per_mtok)),
        output_per_mtok=Decimal(str(output_per_mtok)),
        per_request=Decimal(str(per_request)),
        per_web_search=None if per_web_search is None else Decimal(per_web_search),
    )


@pytest.mark.usefixtures("list_prices")
@pytest.mark.parametrize(
    ("model", "input_tokens", "expected"),
    [
        ("gpt-plain", None, upper(2, 8)),
        ("gpt-tiered", None, upper(4, 12)),
        ("gpt-tiered", 1000, upper(2, 8)),
        ("gpt-tiered", 1001, upper(4, 12)),
        ("gpt-variants", None, upper(5, 8)),
        ("gpt-dated", None, upper(3, 8)),
        ("gpt-hourly", None, upper(6, 8)),
        ("gpt-day-and-night", None, upper(2, 9)),
        ("gpt-fees", None, upper(2, 8, "0.005")),
        ("gpt-native-tools", None, upper(2, 8, per_web_search="0.01")),
        ("gpt-plain:free", None, upper(0, 0)),
        ("gpt-gone", None, None),
        ("gpt-search", None, None),
        ("gpt-pages", None, None),
        ("gpt-transcribe", None, None),
        ("gpt-unheard-of", None, None),
    ],
)
def test_the_highest_list_price_that_can_apply_counts(
    model: str, input_tokens: int | None, expected: FlatPrices | None
) -> None:
    assert CostCalculator().upper_prices(model, "openai", None, input_tokens) == expected


@pytest.mark.usefixtures("list_prices")
def test_a_kind_of_price_that_is_not_known_yet_bounds_nothing() -> None:
    assert CostCalculator().upper_prices("gpt-from-the-future", "openai") is None


@pytest.mark.usefixtures("list_prices")
class TestOverrides:
    @pytest.mark.parametrize(
        "dearest",
        [
            "input_per_mtok",
            "cache_read_per_mtok",
            "cache_write_per_mtok",
            "cache_write_1h_per_mtok",
            "input_audio_per_mtok",
            "cache_audio_read_per_mtok",
        ],
    )
    def test_the_dearest_kind_of_input_counts(self, dearest: str) -> None:
        prices: PricingOverride = {"input_per_mtok": 1, "output_per_mtok": 2, dearest: 7}  # type: ignore[misc]
        assert CostCalculator({"gpt-plain": prices}).upper_prices("gpt-plain", "openai") == upper(7, 2)

    def test_the_dearest_kind_of_output_counts_and_the_fee(self) -> None:
        calculator = CostCalculator()
        calculator.add_pricing_override(
            "gpt-plain", input_per_mtok=1, output_per_mtok=2, output_audio_per_mtok=9, per_request="0.5"
        )
        assert calculator.upper_prices("gpt-plain", "openai") == upper(1, 9, "0.5")

    @pytest.mark.parametrize("key", ["gpt-plain-2026-01-01", "openai:gpt-plain-20260101"])
    def test_a_dearer_snapshot_may_answer(self, key: str) -> None:
        calculator = CostCalculator({key: {"input_per_mtok": 1, "output_per_mtok": 9}})
        assert calculator.upper_prices("gpt-plain", "openai") == upper(2, 9)
        assert calculator.upper_prices("gpt-tiered", "openai", None, 0) == upper(2, 8)


class TestConditions:
    """What a request rules out does not count."""

    @pytest.mark.usefixtures("list_prices")
    @pytest.mark.parametrize(
        ("tiers", "expected"),
        [({"default", "flex"}, upper(2, 8)), ({"priority"}, upper(5, 8)), ((), upper(2, 8))],
    )
    def test_service_tiers(self, tiers: set[str], expected: FlatPrices) -> None:
        conditions = PriceConditions(service_tiers=frozenset(tiers))
        assert CostCalculator().upper_prices("gpt-variants", "openai", conditions=conditions) == expected

    @pytest.mark.parametrize(("fast", "price"), [(True, 50), (False, 25)])
    def test_the_fast_mode(self, fast: bool, price: int) -> None:
        conditions = PriceConditions(fast=fast)
        found = CostCalculator().upper_prices("claude-opus-4-8", "anthropic", conditions=conditions)
        assert found is not None
        assert found.output_per_mtok == price

    @pytest.mark.parametrize(
        ("conditions", "listed", "overridden"),
        [
            (PriceConditions(cache_write="no"), "3", 2),
            (PriceConditions(cache_write="5m"), "3.75", 3),
            (PriceConditions(cache_write="1h"), "6", 4),
            (ANY_PRICE, "6", 4),
        ],
    )
    def test_cache_writes(self, conditions: PriceConditions, listed: str, overridden: int) -> None:
        def input_price(calculator: CostCalculator) -> Decimal:
            found = calculator.upper_prices("claude-sonnet-4-5", "anthropic", None, 1, conditions)
            assert found is not None
            return found.input_per_mtok

        assert input_price(CostCalculator()) == Decimal(listed)
        prices: PricingOverride = {
            "input_per_mtok": 2,
            "output_per_mtok": 8,
            "cache_write_per_mtok": 3,
            "cache_write_1h_per_mtok": 4,
        }
        assert input_price(CostCalculator({"claude-sonnet-4-5": prices})) == overridden


class TestRemembering:
    """Looking up prices takes 100 µs, so it is done once an hour."""

    @pytest.mark.usefixtures("list_prices")
    def test_other_list_prices_count_at_once(self) -> None:
        assert CostCalculator().upper_prices("gpt-plain", "openai") == upper(2, 8)
        set_custom_snapshot(None)
        assert CostCalculator().upper_prices("gpt-plain", "openai") is None

    @pytest.mark.usefixtures("list_prices")
    def test_prices_of_later_dates_count_in_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Clock:
            at = datetime(2998, 12, 31, tzinfo=UTC)

            @classmethod
            def now(cls, zone: object) -> datetime:
                return cls.at

        monkeypatch.setattr(module, "datetime", Clock)
        assert CostCalculator().upper_prices("gpt-dated", "openai") == upper(3, 8)
        Clock.at += timedelta(days=2)
        assert CostCalculator().upper_prices("gpt-dated", "openai") == upper(3, 7)


@pytest.mark.parametrize("provider", ["test", "function"])
def test_local_models_cost_nothing_at_most(provider: str) -> None:
    assert CostCalculator().upper_prices("anything", provider) == FlatPrices()


@pytest.mark.parametrize(
    ("prices", "input_tokens", "output_tokens", "cost"),
    [
        (upper(2, 8, 1), 500_000, 250_000, "4"),
        (upper(2, 8), None, 1, None),
        (upper(2, 8), 1, None, None),
        (upper(0, 8), None, 500_000, "4"),
        (upper(2, 0), 500_000, None, "1"),
        (upper(0, 0), None, None, "0"),
    ],
)
def test_a_count_that_is_not_known_matters_only_if_it_costs_something(
    prices: FlatPrices, input_tokens: int | None, output_tokens: int | None, cost: str | None
) -> None:
    assert prices.cost(input_tokens, output_tokens) == (cost and Decimal(cost))


MODELS = [
    ("gpt-4o", "openai"),
    ("gpt-5-mini", "openai"),
    ("gpt-5.4", "openai"),
    ("gpt-4o-audio-preview", "openai"),
    ("claude-sonnet-4-5", "anthropic"),
    ("claude-opus-4-5", "anthropic"),
    ("claude-haiku-5-5", "anthropic"),
    ("gemini-2.5-pro", "google"),
    ("gemini-2.5-flash", "google"),
    ("deepseek-chat", "deepseek"),
    ("anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock"),
]
PARTS_OF_INPUT = [
    name
    for name, unit in unit_data.items()
    if unit["dimensions"]["family"] == "tokens" and unit["dimensions"].get("direction") == "input"
]


@pytest.mark.parametrize(("model", "provider"), MODELS)
def test_the_models_of_the_next_test_are_listed(model: str, provider: str) -> None:
    assert CostCalculator().upper_prices(model, provider) is not None


@given(
    model=st.sampled_from(MODELS),
    input_tokens=st.integers(0, 2_000_000),
    output_tokens=st.integers(0, 200_000),
    shares=st.dictionaries(st.sampled_from(PARTS_OF_INPUT), st.floats(0, 1), max_size=3),
    audio_share=st.floats(0, 1),
    context=st.fixed_dictionaries(
        {},
        optional={
            "service_tier": st.sampled_from(["priority", "default", "flex", "fast"]),
            "speed": st.just("fast"),
            "processing": st.just("batch"),
        },
    ),
)
def test_no_request_costs_more_than_the_upper_prices_of_its_tokens(
    model: tuple[str, str],
    input_tokens: int,
    output_tokens: int,
    shares: dict[str, float],
    audio_share: float,
    context: dict[str, object],
) -> None:
    name, provider = model
    usage = RequestUsage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        output_audio_tokens=int(output_tokens * audio_share),
    )
    for part, share in shares.items():
        if part != "input_tokens":
            setattr(usage, part, int(input_tokens * share))
    calculator = CostCalculator()
    response = ModelResponse(
        parts=[], usage=usage, model_name=name, provider_name=provider, provider_details=context
    )
    cost, most = calculator.price(response), calculator.upper_prices(name, provider, None, input_tokens)
    assert most is not None
    bound = most.cost(input_tokens, output_tokens)
    assert bound is not None
    if cost is not None:  # parts that contradict each other have no price
        assert cost <= bound

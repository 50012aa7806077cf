from collections.abc import Mapping
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.usage import RequestUsage

from fastroai.errors import ConfigurationError
from fastroai.usage import PricingOverride
from fastroai.usage.prices.model_pricing import ModelPricing

BASIC: PricingOverride = {"input_per_mtok": 2, "output_per_mtok": 8}


def pricing(**prices: object) -> ModelPricing:
    return ModelPricing.of("prices", {"input_per_mtok": 2, "output_per_mtok": 8, **prices})


def dollars_per_mtok(total: str) -> Decimal:
    return Decimal(total) / 1_000_000


def test_floats_are_the_decimals_they_are_written_as() -> None:
    found = pricing(cache_read_per_mtok=0.1).prices
    assert found is not None
    assert found.cache_read_per_mtok == Decimal("0.1")


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
        ({}, r"pricing_overrides\['m'\]=\{\}: expected prices, a discount or a fee per request"),
        ({"discount": "1.01"}, r"\['m'\]\['discount'\]='1.01': expected a share of the price, at most 1"),
        ({"discount": 20}, r"\['discount'\]=20: .* '0.2' for 20 % less"),
        ({"discount": "nan"}, r"\['discount'\]='nan'"),
        ({"tiers": [{"above": 1, "input_per_mtok": 1}]}, r"\['input_per_mtok'\]=None: expected a price"),
        ({**BASIC, "tiers": {"above": 1}}, r"\['m'\]\['tiers'\]=\{'above': 1\}: expected a list such as"),
        ({**BASIC, "tiers": [5]}, r"\['tiers'\]\[0\]=5: expected a mapping such as"),
        (
            {**BASIC, "tiers": [{"input_per_mtok": 3}]},
            r"\['tiers'\]\[0\]\['above'\]=None: expected a whole number",
        ),
        (
            {**BASIC, "tiers": [{"above": 1, "per_request": 3}]},
            r"\['tiers'\]\[0\]='per_request': expected a field",
        ),
        (
            {**BASIC, "tiers": [{"above": 1, "input_per_mtok": "x"}]},
            r"\['tiers'\]\[0\]\['input_per_mtok'\]='x': expected a finite number",
        ),
        (
            {**BASIC, "tiers": [{"above": 2, "input_per_mtok": 3}, {"above": 2, "input_per_mtok": 4}]},
            r"\['tiers'\]=\[2, 2\]: expected tiers in ascending order of 'above'",
        ),
        ({**BASIC, "service_tiers": ["flex"]}, r"\['service_tiers'\]=\['flex'\]: expected a mapping"),
        (
            {**BASIC, "service_tiers": {"flex": {"discont": 0.5}}},
            r"\['service_tiers'\]\['flex'\]='discont': .* Did you mean 'discount'\?",
        ),
        (
            {"discount": 0.1, "service_tiers": {"flex": {"input_per_mtok": 1}}},
            r"\['service_tiers'\]\['flex'\]\['output_per_mtok'\]=None: expected a price",
        ),
    ],
)
def test_prices_that_cannot_be_meant_are_refused_by_model_and_field(
    given_prices: object, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ModelPricing.of("pricing_overrides['m']", given_prices)


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
    with pytest.raises(ValueError, match="its token counts contradict each other"):
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


def cost(input_tokens: int, output_tokens: int = 100, **prices: object) -> Decimal | None:
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    return pricing(**prices).cost(usage)


class TestTiers:
    TIERS = [{"above": 1000, "input_per_mtok": 4}, {"above": 5000, "output_per_mtok": 20}]

    @pytest.mark.parametrize(
        ("input_tokens", "total"),
        [
            (1000, "2800"),
            (1001, "4804"),  # all tokens pay the tier
            (5000, "20800"),
            (5001, "22004"),  # what a tier leaves out is that of the tier below
        ],
    )
    def test_a_request_with_more_input_pays_the_tier_for_all_of_its_tokens(
        self, input_tokens: int, total: str
    ) -> None:
        assert cost(input_tokens, tiers=self.TIERS) == dollars_per_mtok(total)

    @given(st.integers(0, 3000), st.integers(0, 1000))
    def test_they_are_those_of_genai_prices(self, input_tokens: int, output_tokens: int) -> None:
        from genai_prices.types import ModelPrice, Tier, TieredPrices

        listed = ModelPrice(
            input_mtok=TieredPrices(base=Decimal(2), tiers=[Tier(start=1000, price=Decimal(4))]),
            output_mtok=TieredPrices(base=Decimal(8), tiers=[Tier(start=2000, price=Decimal(20))]),
        )
        ours = pricing(
            tiers=[{"above": 1000, "input_per_mtok": 4}, {"above": 2000, "output_per_mtok": 20}],
        )
        usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
        assert ours.cost(usage) == listed.calc_price(usage)["total_price"]


class TestDiscounts:
    def test_a_share_of_the_price_of_tokens_is_taken_off_but_not_of_the_fee(self) -> None:
        assert cost(1000, discount="0.25", per_request="0.01") == dollars_per_mtok("2100") + Decimal("0.01")

    def test_a_negative_one_is_added(self) -> None:
        assert cost(1000, discount=-0.05) == dollars_per_mtok("2940")

    def test_all_of_it_leaves_the_fee(self) -> None:
        assert cost(1000, discount=1, per_request="0.01") == Decimal("0.01")

    def test_without_prices_it_is_taken_off_the_list_price(self) -> None:
        ours = ModelPricing.of("prices", {"discount": "0.2", "per_request": "0.001"})
        assert ours.cost(RequestUsage(), list_usd=Decimal("0.01")) == Decimal("0.009")
        assert ours.cost(RequestUsage()) is None

    @given(
        st.integers(0, 10**12),
        st.decimals(0, 1000, places=12),
        st.decimals(-1, 1, places=15),
        st.sampled_from([1, 6, 28]),
    )
    def test_no_digit_is_lost_whatever_the_callers_context(
        self, tokens: int, price: Decimal, discount: Decimal, precision: int
    ) -> None:
        from fractions import Fraction

        ours = ModelPricing.of(
            "prices", {"input_per_mtok": price, "output_per_mtok": 0, "discount": discount}
        )
        with localcontext(prec=precision):
            found = ours.cost(RequestUsage(input_tokens=tokens))
        assert found is not None
        assert Fraction(found) == Fraction(price) * tokens * (1 - Fraction(discount)) / 1_000_000


class TestServiceTiers:
    def in_tier(self, tier: object, input_tokens: int = 1000, **prices: Any) -> Decimal | None:
        usage = RequestUsage(input_tokens=input_tokens, output_tokens=100)
        return pricing(**prices).in_service_tier(tier).cost(usage)

    @pytest.mark.parametrize(
        ("tier", "total"),
        [("flex", "1400"), ("default", "2800"), (None, "2800"), (5, "2800"), ("priority", "5600")],
    )
    def test_a_response_pays_the_prices_of_its_tier(self, tier: object, total: str) -> None:
        tiers = {"flex": {"discount": 0.5}, "priority": {"input_per_mtok": 4, "output_per_mtok": 16}}
        assert self.in_tier(tier, service_tiers=tiers) == dollars_per_mtok(total)

    def test_it_takes_over_all_that_it_does_not_name(self) -> None:
        shared = {"per_request": "0.01", "discount": "0.5", "tiers": [{"above": 10, "input_per_mtok": 4}]}
        tiers = {"flex": {"discount": "0.75"}}
        assert self.in_tier("flex", service_tiers=tiers, **shared) == dollars_per_mtok("1200") + Decimal(
            "0.01"
        )

    def test_prices_of_its_own_replace_those_for_larger_inputs_too(self) -> None:
        tiers = {"priority": {"input_per_mtok": 6}}
        larger = [{"above": 10, "input_per_mtok": 4}]
        assert self.in_tier("priority", service_tiers=tiers, tiers=larger) == dollars_per_mtok("6800")

    def test_a_model_can_have_its_own_prices_in_one_tier_only(self) -> None:
        ours = ModelPricing.of(
            "prices", {"service_tiers": {"flex": {"input_per_mtok": 1, "output_per_mtok": 1}}}
        )
        usage = RequestUsage(input_tokens=1000)
        assert ours.in_service_tier("flex").cost(usage) == Decimal("0.001")
        assert ours.in_service_tier(None).cost(usage, list_usd=Decimal(1)) == 1

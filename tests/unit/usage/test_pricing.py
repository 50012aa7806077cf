import warnings
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data_snapshot import DataSnapshot, get_snapshot, set_custom_snapshot
from genai_prices.types import ClauseEquals, ModelInfo, ModelPrice
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage, RunUsage

from fastroai.errors import ConfigurationError, UnknownModelError, UnpricedModelError
from fastroai.records import Tokens, Usage
from fastroai.usage import CostCalculator, PricingOverride, UnpricedModelWarning
from fastroai.usage.prices.request_cost import RequestCost

pytestmark = pytest.mark.usefixtures("list_prices")

CHEAP: PricingOverride = {"input_per_mtok": 1, "output_per_mtok": 1}


def answer(
    model: str | None = "gpt-plain",
    *,
    provider: str | None = "openai",
    url: str | None = "https://api.openai.com/v1/",
    details: dict[str, object] | None = None,
    at: datetime | None = None,
    **usage: Any,
) -> ModelResponse:
    response = ModelResponse(
        parts=[TextPart("hello")],
        usage=RequestUsage(**{"input_tokens": 1000, "output_tokens": 100} | usage),
        model_name=model,
        provider_name=provider,
        provider_url=url,
        provider_details=details,
    )
    if at is not None:
        response.timestamp = at
    return response


class TestCalculateCost:
    def test_it_is_the_list_price_in_microcents(self) -> None:
        assert CostCalculator().calculate_cost("openai:gpt-plain", 1000, 100) == 2800

    def test_a_bare_first_party_name_means_its_maker(self) -> None:
        assert CostCalculator().calculate_cost("gpt-plain", 1000, 100) == 2800

    def test_cached_tokens_are_part_of_the_input(self) -> None:
        assert CostCalculator().calculate_cost("gpt-plain", 1000, 0, cache_read_tokens=400) == 1400

    def test_half_a_microcent_is_rounded_to_even_once(self) -> None:
        calculator = CostCalculator({"gpt-x": {"input_per_mtok": 0.5, "output_per_mtok": 0}})
        assert [calculator.calculate_cost("gpt-x", tokens, 0) for tokens in (1, 2, 3, 4, 5)] == [
            0,
            1,
            2,
            2,
            2,
        ]

    def test_overrides_come_first_and_need_no_provider(self) -> None:
        calculator = CostCalculator({"gpt-plain": CHEAP, "in-house": CHEAP})
        assert calculator.calculate_cost("openai:gpt-plain", 1000, 100) == 1100
        assert calculator.calculate_cost("in-house", 1000, 100) == 1100

    def test_audio_and_cache_writes_have_prices_of_their_own(self) -> None:
        calculator = CostCalculator()
        calculator.add_pricing_override(
            "gpt-voice",
            input_per_mtok=1,
            output_per_mtok=2,
            cache_read_per_mtok=0,
            cache_write_per_mtok=3,
            cache_write_1h_per_mtok=4,
            input_audio_per_mtok=10,
            output_audio_per_mtok=20,
            cache_audio_read_per_mtok=5,
            per_request=Decimal("0.000001"),
        )
        cost = calculator.calculate_cost(
            "gpt-voice",
            100,
            10,
            cache_read_tokens=20,
            cache_write_tokens=30,
            input_audio_tokens=15,
            output_audio_tokens=5,
            cache_audio_read_tokens=4,
        )
        plain, read, write, audio, audio_read = 100 - 16 - 30 - 11 - 4, 16 * 0, 30 * 3, 11 * 10, 4 * 5
        assert cost == plain + read + write + audio + audio_read + 5 * 2 + 5 * 20 + 1

    def test_prices_are_those_of_the_time_asked_for(self) -> None:
        calculator = CostCalculator()
        at_noon, at_night = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 23, tzinfo=UTC)
        assert calculator.calculate_cost("gpt-hourly", 1000, 0, timestamp=at_noon) == 6000
        assert calculator.calculate_cost("gpt-hourly", 1000, 0, timestamp=at_night) == 2000

    def test_an_unknown_model_is_an_error_and_not_free(self) -> None:
        with pytest.raises(UnpricedModelError, match=r"pricing_overrides=\{'openai:gpt-unheard-of'"):
            CostCalculator().calculate_cost("gpt-unheard-of", 1, 1)

    def test_the_error_of_an_unknown_model_names_no_budget_and_the_nearest_model(self) -> None:
        with pytest.raises(UnpricedModelError, match=r"Did you mean 'openai:gpt-plain'\?$") as caught:
            CostCalculator().calculate_cost("openai:gpt-plan", 1, 1)
        assert "budget" not in str(caught.value)

    def test_the_error_names_an_override_that_has_a_discount_and_no_prices(self) -> None:
        calculator = CostCalculator({"acme-*": {"discount": "0.1"}})
        message = r"pricing_overrides\['acme-\*'\] matches, but there is no list price .* add input_per_mtok"
        with pytest.raises(UnpricedModelError, match=message):
            calculator.calculate_cost("acme-1", 1, 1)
        with pytest.warns(UnpricedModelWarning, match=message):
            calculator.warn_incomplete(RequestCost(), "acme-1", "acme")

    def test_a_model_without_a_provider_is_an_error_that_names_candidates(self) -> None:
        with pytest.raises(UnknownModelError, match=r"groq:openai/gpt-oss-120b"):
            CostCalculator().calculate_cost("openai/gpt-oss-120b", 1, 1)

    def test_the_test_model_is_free(self) -> None:
        assert CostCalculator().calculate_cost("test", 1000, 1000) == 0

    @pytest.mark.parametrize(
        ("counts", "message"),
        [
            ({"input_tokens": -1}, "input_tokens=-1: expected a whole number"),
            ({"output_tokens": 1.5}, "output_tokens=1.5"),
            ({"input_tokens": True}, "input_tokens=True"),
            ({"cache_read_tokens": "1"}, "cache_read_tokens='1'"),
            ({"cache_read_tokens": 11}, r"cache_read_tokens=11: expected at most input_tokens.*\(10\)"),
            ({"cache_write_tokens": 11}, "cache_write_tokens=11: expected at most input_tokens"),
            ({"input_audio_tokens": 11}, "input_audio_tokens=11: expected at most input_tokens"),
            ({"output_audio_tokens": 11}, "output_audio_tokens=11: expected at most output_tokens"),
            ({"cache_audio_read_tokens": 1}, "cache_audio_read_tokens=1: expected at most cache_read_tokens"),
        ],
    )
    def test_counts_that_cannot_be_are_refused(self, counts: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            CostCalculator().calculate_cost(
                "gpt-plain", **{"input_tokens": 10, "output_tokens": 10, **counts}
            )

    def test_parts_that_together_exceed_their_total_are_refused(self) -> None:
        calculator = CostCalculator({"gpt-x": {**CHEAP, "cache_read_per_mtok": 1, "cache_write_per_mtok": 1}})
        with pytest.raises(ConfigurationError, match="expected parts within their totals"):
            calculator.calculate_cost("gpt-x", 10, 0, cache_read_tokens=6, cache_write_tokens=6)


class TestPriceOfAResponse:
    def test_it_is_exact(self) -> None:
        assert CostCalculator().price(answer(input_tokens=1, output_tokens=0)) == Decimal("0.000002")

    def test_it_is_what_pydantic_ai_says(self) -> None:
        response = answer(cache_read_tokens=400)
        assert CostCalculator().price(response) == response.cost().total_price == Decimal("0.0022")

    def test_the_service_tier_of_the_response_counts(self) -> None:
        calculator = CostCalculator()
        assert calculator.price(answer("gpt-variants")) == Decimal("0.0028")
        assert calculator.price(answer("gpt-variants", details={"service_tier": "priority"})) == Decimal(
            "0.0058"
        )
        assert calculator.price(answer("gpt-variants", details={"service_tier": "flex"})) == Decimal("0.0024")

    def test_the_size_of_each_request_decides_its_tier(self) -> None:
        calculator = CostCalculator()
        small, large = answer("gpt-tiered", input_tokens=1000), answer("gpt-tiered", input_tokens=1001)
        assert calculator.price(small) == Decimal("0.0028")
        assert calculator.price(large) == (1001 * Decimal(4) + 100 * Decimal(12)) / 1_000_000

    def test_an_override_comes_before_the_list(self) -> None:
        cost = CostCalculator({"gpt-plain": CHEAP}).cost_of(answer())
        assert (cost.cost_usd, cost.source, cost.complete) == (Decimal("0.0011"), "override", True)
        listed = CostCalculator().cost_of(answer())
        assert (listed.cost_usd, listed.source) == (Decimal("0.0028"), "priced")

    @pytest.mark.parametrize("stated", [Decimal("0.5"), Decimal(0)])
    def test_a_stated_bill_comes_before_every_price_and_both_are_kept(self, stated: Decimal) -> None:
        for calculator, priced in (
            (CostCalculator(), Decimal("0.0028")),
            (CostCalculator({"gpt-plain": CHEAP}), Decimal("0.0011")),
        ):
            cost = calculator.cost_of(answer(), stated_usd=stated)
            assert (cost.cost_usd, cost.source, cost.complete) == (stated, "stated", True)
            assert (cost.stated_usd, cost.priced_usd) == (stated, priced)
            assert cost.difference_usd == stated - priced

    def test_a_cost_that_pydantic_ai_filled_in_is_no_statement(self) -> None:
        assert CostCalculator().price(answer(cost=Decimal("0.5"))) == Decimal("0.0028")

    def test_an_advisor_is_billed_at_the_rates_of_its_model_if_the_request_names_it(self) -> None:
        advised = _advised(advisor_input_tokens=2529, advisor_output_tokens=38)
        cost = CostCalculator().cost_of(advised, conditions={"advisor_model": "gpt-plain"})
        own = CostCalculator().price(_advised(advisor_iterations=0))
        advice = CostCalculator().price(
            Tokens(input_tokens=2529, output_tokens=38), model="gpt-plain", provider="openai"
        )
        assert own is not None
        assert advice is not None
        assert (cost.cost_usd, cost.complete) == (own + advice, True)
        assert cost.priced_usd == own + advice

    @pytest.mark.parametrize(
        "told",
        [
            {"advisor_cache_creation_input_tokens": 1},
            {"advisor_iterations": 2, "advisor_input_tokens": 200_001},
        ],
    )
    def test_an_advisor_whose_price_depends_on_more_than_sums_leaves_the_cost_incomplete(
        self, told: dict[str, int]
    ) -> None:
        cost = CostCalculator().cost_of(_advised(**told), conditions={"advisor_model": "gpt-plain"})
        assert cost.unpriced_units == ("advisor tokens",)

    def test_an_advisor_at_another_speed_leaves_the_cost_incomplete(self) -> None:
        fast = _advised(advisor_input_tokens=9)
        fast.provider_details = {"speed": "fast"}
        cost = CostCalculator().cost_of(fast, conditions={"advisor_model": "gpt-plain"})
        assert "advisor tokens" in cost.unpriced_units

    def test_what_has_no_price_is_named_and_leaves_the_cost_incomplete(self) -> None:
        advised = answer()
        advised.usage.details = {"advisor_iterations": 1, "advisor_input_tokens": 900}
        cost = CostCalculator().cost_of(advised)
        assert (cost.cost_usd, cost.unpriced_units) == (Decimal("0.0028"), ("advisor tokens",))
        assert not cost.complete
        assert CostCalculator().price(advised) is None
        of_nobody = CostCalculator().cost_of(advised, conditions={"advisor_model": "gpt-nobody"})
        assert of_nobody.unpriced_units == ("advisor tokens",), "without a price, it is named as before"
        billed = CostCalculator().cost_of(advised, stated_usd=Decimal(1))
        assert billed.complete, "the bill covers everything"

    @pytest.mark.parametrize("tier", ["default", "standard", "auto", "on_demand", "ON_DEMAND"])
    def test_names_of_the_plain_service_tier_change_nothing(self, tier: str) -> None:
        assert CostCalculator().price(answer(details={"service_tier": tier})) == Decimal("0.0028")

    def test_a_service_tier_without_a_listed_price_leaves_the_cost_incomplete(self) -> None:
        cost = CostCalculator().cost_of(answer(details={"service_tier": "scale"}))
        assert cost.unpriced_units == ("service_tier=scale",)

    def test_prices_that_were_found_before_give_way_to_newer_ones(self) -> None:
        calculator = CostCalculator()
        assert calculator.price(answer()) == Decimal("0.0028")
        calculator.add_pricing_override("gpt-plain", **CHEAP)
        assert calculator.price(answer()) == Decimal("0.0011")
        listed = CostCalculator()
        assert listed.price(answer()) == Decimal("0.0028")
        dearer = ModelInfo(
            id="gpt-plain",
            match=ClauseEquals(equals="gpt-plain"),
            prices=ModelPrice(input_mtok=Decimal(20), output_mtok=Decimal(80)),
        )
        provider = replace(get_snapshot().providers[0], models=[dearer])
        set_custom_snapshot(DataSnapshot([provider], from_auto_update=True))
        assert listed.price(answer()) == Decimal("0.028")
        assert calculator.price(answer()) == Decimal("0.0011")

    def test_each_response_has_the_prices_of_its_own_time_and_terms(self) -> None:
        calculator = CostCalculator({"gpt-variants": {"service_tiers": {"flex": {"discount": "0.5"}}}})
        at_noon, at_night = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 23, tzinfo=UTC)
        for _ in range(2):
            assert calculator.price(answer("gpt-hourly", at=at_noon)) == Decimal("0.0066")
            assert calculator.price(answer("gpt-hourly", at=at_night)) == Decimal("0.0028")
            assert calculator.price(answer("gpt-variants")) == Decimal("0.0028")
            flex = answer("gpt-variants", details={"service_tier": "flex"})
            assert calculator.price(flex) == Decimal("0.0012")
            fast = calculator.cost_of(answer(), conditions={"speed": "fast"})
            assert fast.unpriced_units == ("speed=fast",)

    def test_overrides_are_of_one_calculator_only(self) -> None:
        CostCalculator({"gpt-plain": CHEAP}).add_pricing_override(
            "gpt-plain", input_per_mtok=9, output_per_mtok=9
        )
        assert CostCalculator().price(answer()) == Decimal("0.0028")

    def test_an_override_of_the_model_that_was_asked_counts_whoever_answers(self) -> None:
        calculator = CostCalculator({"openai:my-alias": CHEAP})
        assert calculator.price(answer(), model="my-alias", provider="openai") == Decimal("0.0011")
        assert calculator.price(answer(), model="openai:my-alias") == Decimal("0.0011")
        assert calculator.price(answer()) == Decimal("0.0028")

    def test_an_answer_of_another_model_is_never_priced_as_the_one_that_was_asked(self) -> None:
        response = answer("gpt-renamed")
        assert CostCalculator().price(response) is None
        assert CostCalculator().price(response, model="gpt-plain", provider="openai") is None

    def test_an_answer_that_does_not_name_its_model_is_of_the_one_that_was_asked(self) -> None:
        response = answer(None)
        assert CostCalculator().price(response, model="gpt-plain", provider="openai") == Decimal("0.0028")

    def test_an_override_of_zero_means_free(self) -> None:
        free: PricingOverride = {"input_per_mtok": 0, "output_per_mtok": 0}
        assert CostCalculator({"gpt-plain": free}).price(answer()) == 0

    def test_an_unknown_model_or_provider_has_no_price(self) -> None:
        assert CostCalculator().price(answer("gpt-unheard-of")) is None
        assert CostCalculator().price(answer(provider="nobody", url=None)) is None
        assert CostCalculator().price(answer(None)) is None

    def test_an_unknown_url_is_no_reason_for_having_no_price(self) -> None:
        assert CostCalculator().price(answer(url="http://127.0.0.1:8000/v1")) == Decimal("0.0028")

    def test_a_response_that_omitted_its_usage_has_no_price(self) -> None:
        assert (
            CostCalculator({"gpt-plain": CHEAP}).price(answer(unmeasured_requests=1, cost=Decimal(1))) is None
        )

    def test_tokens_of_a_model_that_is_sold_by_the_hour_have_no_price(self) -> None:
        assert CostCalculator().price(answer("gpt-transcribe")) is None
        assert CostCalculator().price(answer("gpt-transcribe", audio_seconds=3600)) == 1

    def test_a_model_that_is_listed_without_prices_is_free_only_where_its_name_says_so(self) -> None:
        assert CostCalculator().price(answer("gpt-plain:free")) == 0
        assert CostCalculator().price(answer("gpt-gone")) is None

    def test_usage_that_contradicts_itself_has_no_price_and_is_no_crash(self) -> None:
        response = answer(input_tokens=1, cache_read_tokens=2)
        assert CostCalculator().price(response) is None
        overridden = CostCalculator({"gpt-plain": {**CHEAP, "cache_read_per_mtok": 1}})
        assert overridden.price(response) is None

    def test_a_warning_of_genai_prices_is_no_crash_even_where_warnings_are_errors(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert CostCalculator().price(answer("gpt-from-the-future")) is None

    async def test_local_models_are_free_unless_they_have_a_price(self) -> None:
        def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[TextPart("hello")])

        for model in (TestModel(), FunctionModel(reply)):
            response = (await Agent(model).run("hello")).response
            asked = {"model": model.model_name, "provider": model.system}
            assert CostCalculator().price(response) == 0
            assert CostCalculator().price(response, **asked) == 0
            assert CostCalculator().has_price(model.model_name, model.system)
            priced = CostCalculator({model.model_name: CHEAP})
            assert priced.price(response, **asked) == Decimal(response.usage.total_tokens) / 1_000_000

    async def test_a_function_model_that_is_named_like_a_priced_one_costs_as_much(self) -> None:
        model = FunctionModel(
            lambda messages, info: ModelResponse(parts=[TextPart("x")]), model_name="gpt-plain"
        )
        response = (await Agent(model).run("hello")).response
        expected = (2 * response.usage.input_tokens + 8 * response.usage.output_tokens) / Decimal(1_000_000)
        assert CostCalculator().price(response, model="gpt-plain", provider="function") == expected


class TestPriceOfUsage:
    def test_tokens_and_request_usage_are_priced_alike(self) -> None:
        calculator = CostCalculator()
        tokens = Tokens(input_tokens=1000, output_tokens=100, cache_read_tokens=400, reasoning_tokens=50)
        usage = RequestUsage(input_tokens=1000, output_tokens=100, cache_read_tokens=400)
        for model in ("gpt-plain", "openai:gpt-plain", "openai-chat:gpt-plain", "gateway/openai:gpt-plain"):
            assert (
                calculator.price(tokens, model=model)
                == calculator.price(usage, model=model)
                == Decimal("0.0022")
            )

    def test_the_provider_can_be_told_by_its_url_or_name(self) -> None:
        tokens = Tokens(input_tokens=1_000_000)
        assert CostCalculator().price(tokens, model="gpt-plain", provider="openai") == 2
        known_url = CostCalculator().price(
            tokens, model="gpt-plain", provider="proxy", provider_url="https://api.openai.com"
        )
        assert known_url == 2

    def test_prices_are_those_of_the_timestamp(self) -> None:
        long_ago = datetime(2019, 1, 1, tzinfo=UTC)
        tokens = Tokens(input_tokens=1_000_000)
        assert CostCalculator().price(tokens, model="gpt-dated", timestamp=long_ago) == 100
        assert CostCalculator().price(tokens, model="gpt-dated") == 2

    def test_a_name_without_a_provider_has_no_price_rather_than_a_guessed_one(self) -> None:
        assert CostCalculator().price(Tokens(input_tokens=1), model="in-house") is None
        assert CostCalculator({"in-house": CHEAP}).price(Tokens(input_tokens=1), model="in-house") is not None

    @pytest.mark.parametrize("usage", [RunUsage(input_tokens=1)])
    def test_usage_of_a_whole_run_is_refused(self, usage: RequestUsage) -> None:
        with pytest.raises(ConfigurationError, match="price each response of the run"):
            CostCalculator().price(usage, model="gpt-plain")

    def test_usage_needs_a_model(self) -> None:
        with pytest.raises(ConfigurationError, match="model='': expected the model that reported the usage"):
            CostCalculator().price(Tokens(input_tokens=1), model="")

    @pytest.mark.parametrize(
        "given", [{"timestamp": datetime(2019, 1, 1, tzinfo=UTC)}, {"provider_url": "https://api.openai.com"}]
    )
    def test_a_response_takes_no_other_time_or_url_than_its_own(self, given: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match="expected no value with a response, which is priced by"):
            CostCalculator().price(answer("gpt-dated"), **given)


class TestKnowingPrices:
    @pytest.mark.parametrize(
        ("model", "provider", "known"),
        [
            ("gpt-plain", "openai", True),
            ("openai:gpt-plain", None, True),
            ("gpt-plain", None, True),
            ("gpt-unheard-of", "openai", False),
            ("gpt-plain", "nobody", False),
            ("in-house", None, False),
            ("test", "test", True),
            ("function:reply:", "function", True),
            ("gpt-plain:free", "openai", True),
            ("gpt-gone", "openai", False),
        ],
    )
    def test_a_model_has_a_price_if_its_requests_can_be_priced(
        self, model: str, provider: str | None, known: bool
    ) -> None:
        assert CostCalculator().has_price(model, provider) is known

    def test_an_override_is_a_price(self) -> None:
        assert CostCalculator({"in-house": CHEAP}).has_price("in-house", "nobody")

    def test_an_unpriced_model_is_warned_of_once_with_what_to_do(self) -> None:
        calculator, unknown = CostCalculator(), RequestCost()
        with pytest.warns(UnpricedModelWarning, match=r"no price is known for 'me:m'; add one: .*'me:m'"):
            calculator.warn_incomplete(unknown, "m", "me")
        calculator.warn_incomplete(unknown, "m", "me")  # a second warning would be an error here
        with pytest.warns(UnpricedModelWarning):
            calculator.warn_incomplete(unknown, "m", "other")
        with pytest.warns(UnpricedModelWarning, match="for 'm'"):
            CostCalculator().warn_incomplete(unknown, "m", None)

    def test_the_warning_says_when_usage_contradicts_itself(self) -> None:
        calculator = CostCalculator()
        cost = calculator.cost_of(answer(input_tokens=1, cache_read_tokens=2))
        with pytest.warns(UnpricedModelWarning, match="'openai:gpt-plain' reported contradicts itself"):
            calculator.warn_incomplete(cost, "gpt-plain", "openai")

    def test_the_warning_names_what_has_no_price(self) -> None:
        cost = RequestCost(cost_usd=Decimal(1), unpriced_units=("web_searches", "advisor tokens"))
        with pytest.warns(
            UnpricedModelWarning, match="part of the use of .*: web_searches, advisor tokens; .* the bill"
        ):
            CostCalculator().warn_incomplete(cost, "gpt-plain", "openai")

    def test_a_bill_that_differs_from_the_prices_is_logged_once_for_each_model(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        calculator = CostCalculator()
        rounded = calculator.cost_of(answer(), stated_usd=Decimal("0.0028005"))
        calculator.note_difference(rounded, "gpt-plain", "openai")
        assert not caplog.records, "a difference below a microcent is rounding"
        cost = calculator.cost_of(answer(), stated_usd=Decimal("0.01"))
        for _ in range(2):
            calculator.note_difference(cost, "gpt-plain", "openai")
        [logged] = caplog.messages
        assert "openai:gpt-plain bills $0.01 for a request that costs $0.0028" in logged

    def test_pricing_itself_never_warns(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            CostCalculator().price(answer("gpt-unheard-of"))
        assert not caught


def test_small_costs_add_up_without_loss() -> None:
    calculator = CostCalculator({"gpt-small": {"input_per_mtok": 0.15, "output_per_mtok": 0.6}})
    cost = calculator.price(Tokens(input_tokens=6), model="gpt-small")
    assert cost is not None
    total = Usage(cost_usd=sum([cost] * 1000, Decimal(0)))
    assert total.cost_microcents == 900


def _advised(**details: int) -> ModelResponse:
    """An answer for which an advisor was consulted."""
    advised = answer()
    advised.usage.details = {"advisor_iterations": 1, **details}
    return advised

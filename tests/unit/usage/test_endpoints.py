from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from fastroai.errors import ConfigurationError
from fastroai.usage import CostCalculator, Endpoint, PricingOverride
from fastroai.usage.prices.endpoints import COST_HEADERS, Endpoints
from fastroai.usage.prices.flat_prices import PriceConditions
from fastroai.usage.prices.references import first_party_provider

GATEWAY = "http://litellm.internal"
BASIC: PricingOverride = {"input_per_mtok": 1, "output_per_mtok": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"like": "opanai"},
            r"like='opanai': expected None or one of 'anthropic', .* Did you mean 'openai'\?",
        ),
        ({"like": 5}, "like=5: expected None or one of"),
        ({"service_tier": ""}, "service_tier='': expected None or one of 'default'"),
        ({"service_tier": 5}, "service_tier=5"),
        ({"service_tier": "prioritty"}, r"service_tier='prioritty': .* Did you mean 'priority'\?"),
        ({"allowance": -1}, "allowance=-1: expected None or a whole number of tokens"),
        ({"allowance": 1.5}, "allowance=1.5"),
        ({"regional_factor": 0}, "regional_factor=0: expected None or a number above 0"),
        ({"regional_factor": "much"}, "regional_factor='much'"),
        ({"cost_headers": "x-cost"}, r"cost_headers='x-cost': expected names of response headers"),
        ({"cost_headers": (5,)}, r"cost_headers=\(5,\)"),
        ({"cost_headers": None}, "cost_headers=None: expected names of response headers"),
        (
            {"prices": {"m": {"input_per_mtok": 1}}},
            r"prices\['m'\]\['output_per_mtok'\]=None: expected a price",
        ),
        ({"prices": [1]}, r"prices=\[1\]: expected a mapping from model names to their prices"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_field(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Endpoint(**given)


@pytest.mark.parametrize(
    "url",
    [
        "litellm.internal",
        "ftp://litellm.internal",
        "http://",
        "http://x?a=1",
        "http://x#a",
        "http://me@x",
        "http://x:y",
        "http://[",
        "http://lite llm.internal",
        "http://litellm.internal/v1 ",
        "http://*.internal",
        "http://litellm.internal/*",
        5,
    ],
)
def test_an_endpoint_has_a_url(url: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"expected URLs as keys, such as 'http://litellm\.internal'"
    ):
        CostCalculator(endpoints={url: Endpoint()})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([GATEWAY], "a mapping from URLs to their Endpoint"),
        ({GATEWAY: "openai"}, r"endpoints\['http://litellm.internal'\]='openai': expected an Endpoint"),
        ({GATEWAY: Endpoint(), f"{GATEWAY}:80/": Endpoint()}, "expected each URL once"),
    ],
)
def test_endpoints_are_a_mapping_from_urls(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CostCalculator(endpoints=given)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://litellm.internal", "default"),
        ("http://litellm.internal/", "default"),
        ("http://litellm.internal:80/v1/", "default"),
        ("HTTP://LiteLLM.internal/v1/chat", "default"),
        ("http://litellm.internal/team", "flex"),
        ("http://litellm.internal/team/v1/", "flex"),
        ("http://litellm.internal/team/blue/v1/", "priority"),
        ("http://litellm.internal/teams/v1/", "default"),
        ("http://litellm.internal:4000/v1/", "scale"),
        ("http://litellm.internal.example/v1/", None),
        ("http://other.internal", None),
        (None, None),
    ],
)
def test_the_longest_path_of_the_same_host_counts(url: str | None, found: str | None) -> None:
    endpoints = Endpoints(
        {
            "http://litellm.internal": Endpoint(service_tier="default"),
            "http://litellm.internal/team/": Endpoint(service_tier="flex"),
            "http://litellm.internal/team/blue": Endpoint(service_tier="priority"),
            "http://litellm.internal:4000": Endpoint(service_tier="scale"),
        }
    )
    endpoint = endpoints.at(url)
    assert (endpoint and endpoint.service_tier) == found


def test_a_tier_that_only_the_prices_of_an_endpoint_name_can_be_its_tier() -> None:
    prices: dict[str, PricingOverride] = {"*": {**BASIC, "service_tiers": {"gold": {"discount": "-1"}}}}
    assert Endpoint(service_tier="gold", prices=prices).service_tier == "gold"


def test_the_tier_auto_is_that_of_an_endpoint_whose_tier_is_not_given() -> None:
    assert Endpoint(service_tier="auto") == Endpoint()


def test_what_the_owner_says_is_known_of_the_host() -> None:
    calculator = CostCalculator(
        endpoints={GATEWAY: Endpoint(like="openai", service_tier="default", allowance=7)}
    )
    provider = OpenAIProvider(api_key="none", base_url=f"{GATEWAY}/v1")
    host = calculator.host(OpenAIChatModel("gpt-4o", provider=provider))
    assert (host.maker, host.service_tier, host.allowance) == ("openai", "default", 7)
    elsewhere = calculator.host(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(api_key="none")))
    assert (elsewhere.maker, elsewhere.service_tier, elsewhere.allowance) == ("openai", None, None)


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://other.internal/v1", COST_HEADERS),
        (f"{GATEWAY}/v1", ("x-cost",)),
        ("http://quiet.internal", ()),
        ("https://api.openai.com/v1", ()),
        ("https://acme.openai.azure.com/openai", ()),
        (None, ()),
    ],
)
def test_who_bills_may_state_costs_in_headers_but_no_maker(url: str | None, headers: tuple[str, ...]) -> None:
    endpoints = {
        GATEWAY: Endpoint(cost_headers=("x-cost",)),
        "http://quiet.internal": Endpoint(cost_headers=()),
        "https://api.openai.com": Endpoint(cost_headers=("x-cost",)),
    }
    assert CostCalculator(endpoints=endpoints).cost_headers(url) == headers


def answer(
    model: str, *, url: str | None = f"{GATEWAY}/v1/", provider: str = "openai", tier: str | None = None
) -> ModelResponse:
    return ModelResponse(
        parts=[],
        usage=RequestUsage(input_tokens=1_000, output_tokens=100),
        model_name=model,
        provider_name=provider,
        provider_url=url,
        provider_details=None if tier is None else {"service_tier": tier},
    )


@pytest.mark.usefixtures("list_prices")
class TestPrices:
    """`gpt-plain` costs 2 and 8 dollars a million tokens, `gpt-variants` too, and more at priority."""

    def test_those_of_an_endpoint_hold_there_and_come_first(self) -> None:
        calculator = CostCalculator(
            {"gpt-plain": {"input_per_mtok": 3, "output_per_mtok": 0}},
            endpoints={GATEWAY: Endpoint(prices={"gpt-*": BASIC})},
        )
        assert calculator.price(answer("gpt-plain")) == Decimal("0.0011")
        assert calculator.price(answer("gpt-plain", url="https://api.openai.com/v1")) == Decimal("0.003")
        for url, price in ((f"{GATEWAY}/v1", 1), ("https://api.openai.com/v1", 3)):
            upper = calculator.upper_prices("gpt-plain", "openai", url)
            lower = calculator.lower_prices("gpt-plain", "openai", url)
            assert upper is not None
            assert lower is not None
            assert upper.input_per_mtok == lower.input_per_mtok == price

    def test_a_model_without_a_price_has_one_there(self) -> None:
        calculator = CostCalculator(endpoints={GATEWAY: Endpoint(prices={"*": BASIC})})
        assert calculator.has_price("in-house", "openai", GATEWAY)
        assert not calculator.has_price("in-house", "openai", "http://other.internal")

    def test_a_discount_without_a_list_price_is_no_price(self) -> None:
        calculator = CostCalculator(endpoints={GATEWAY: Endpoint(prices={"*": {"discount": "0.5"}})})
        assert calculator.has_price("gpt-plain", "openai", GATEWAY)
        assert calculator.price(answer("gpt-plain")) == Decimal("0.0014")
        assert not calculator.has_price("in-house", "openai", GATEWAY)
        assert calculator.price(answer("in-house")) is None
        assert calculator.upper_prices("in-house", "openai", GATEWAY) is None

    def test_the_list_price_is_that_of_the_provider_it_is_like(self) -> None:
        calculator = CostCalculator(endpoints={GATEWAY: Endpoint(like="openai")})
        for model, provider in (("openai/gpt-plain", "litellm"), ("gpt-plain", "unheard-of")):
            assert calculator.price(answer(model, provider=provider)) == Decimal("0.0028")
            assert calculator.has_price(model, provider, GATEWAY)
            upper = calculator.upper_prices(model, provider, GATEWAY)
            assert upper is not None
            assert upper.output_per_mtok == 8
            lower = calculator.lower_prices(model, provider, GATEWAY)
            assert lower is not None
            assert lower.output_per_mtok == 8

    @pytest.mark.parametrize(
        ("tier", "reported", "usd"),
        [
            (None, None, "0.0028"),
            ("priority", None, "0.0058"),
            ("priority", "flex", "0.0024"),
            ("default", None, "0.0028"),
        ],
    )
    def test_its_service_tier_is_that_of_answers_that_name_none(
        self, tier: str | None, reported: str | None, usd: str
    ) -> None:
        calculator = CostCalculator(endpoints={GATEWAY: Endpoint(service_tier=tier)})
        cost = calculator.cost_of(answer("gpt-variants", tier=reported))
        assert (cost.cost_usd, cost.unpriced_units) == (Decimal(usd), ())

    def test_prices_of_a_service_tier_hold_in_it(self) -> None:
        prices: dict[str, PricingOverride] = {"*": {**BASIC, "service_tiers": {"flex": {"discount": "0.5"}}}}
        calculator = CostCalculator(endpoints={GATEWAY: Endpoint(service_tier="flex", prices=prices)})
        assert calculator.price(answer("gpt-plain")) == Decimal("0.00055")
        upper = calculator.upper_prices("gpt-plain", "openai", GATEWAY, conditions=PriceConditions())
        assert upper is not None
        assert upper.input_per_mtok == 1


@pytest.mark.usefixtures("list_prices")
class TestRegions:
    EU = "https://eu.api.openai.com/v1"

    def test_a_regional_premium_is_in_the_cost_and_in_the_bound(self) -> None:
        url, model = "https://us.api.x.ai/v1", "gpt-plain"
        calculator = CostCalculator()
        cost = calculator.cost_of(answer(model, url=url))
        assert (cost.cost_usd, cost.complete) == (Decimal("0.00308"), True)
        upper, lower = (
            calculator.upper_prices(model, "openai", url),
            calculator.lower_prices(model, "openai", url),
        )
        assert upper is not None
        assert lower is not None
        assert upper.output_per_mtok == lower.output_per_mtok == Decimal("8.8")

    def test_it_is_for_tokens_and_not_for_fees(self) -> None:
        cost = CostCalculator().cost_of(answer("gpt-fees", url="https://us.api.x.ai/v1"))
        assert cost.cost_usd == Decimal("0.00308") + Decimal("0.005")

    def test_one_that_may_apply_is_named_and_bounded_by_the_highest(self) -> None:
        calculator = CostCalculator()
        cost = calculator.cost_of(answer("gpt-plain", url=self.EU))
        assert (cost.cost_usd, cost.complete) == (Decimal("0.0028"), False)
        assert cost.unpriced_units == ("regional pricing of eu.api.openai.com",)
        assert cost.most_usd == Decimal("0.00308")
        upper, lower = (
            calculator.upper_prices("gpt-plain", "openai", self.EU),
            calculator.lower_prices("gpt-plain", "openai", self.EU),
        )
        assert upper is not None
        assert lower is not None
        assert (upper.output_per_mtok, lower.output_per_mtok) == (Decimal("8.8"), 8)

    def test_one_of_which_no_limit_is_known_has_no_bound(self) -> None:
        url = "https://mars-central1-aiplatform.googleapis.com/v1"
        assert CostCalculator().cost_of(answer("gpt-plain", url=url)).most_usd is None
        assert CostCalculator().upper_prices("gpt-plain", "openai", url) is None

    def test_the_owner_can_say_what_it_is(self) -> None:
        calculator = CostCalculator(endpoints={self.EU: Endpoint(regional_factor="1.05")})
        cost = calculator.cost_of(answer("gpt-plain", url=self.EU))
        assert (cost.cost_usd, cost.complete) == (Decimal("0.00294"), True)
        upper = calculator.upper_prices("gpt-plain", "openai", self.EU)
        assert upper is not None
        assert upper.input_per_mtok == Decimal("2.1")

    def test_a_discount_is_taken_off_the_regional_price(self) -> None:
        calculator = CostCalculator({"*": {"discount": "0.5"}})
        assert calculator.cost_of(answer("gpt-plain", url=self.EU)).most_usd == Decimal("0.00154")
        assert calculator.price(answer("gpt-plain", url="https://us.api.x.ai/v1")) == Decimal("0.00154")

    @pytest.mark.parametrize(
        ("asked", "usd", "units"),
        [
            ({}, "0.0028", ()),
            ({"inference_geo": "us"}, "0.00308", ()),
            ({"inference_geo": "global"}, "0.0028", ()),
            ({"inference_geo": "mars"}, "0.0028", ("regional pricing of api.anthropic.com",)),
        ],
    )
    def test_a_region_that_a_request_asks_for_is_priced(
        self, asked: dict[str, str], usd: str, units: tuple[str, ...]
    ) -> None:
        response = answer("gpt-plain", url="https://api.anthropic.com", provider="anthropic")
        endpoints = {"https://api.anthropic.com": Endpoint(like="openai")}
        calculator = CostCalculator(endpoints=endpoints)
        cost = calculator.cost_of(response, conditions=asked)
        assert (cost.cost_usd, cost.unpriced_units) == (Decimal(usd), units)
        bound = calculator.upper_prices(
            "gpt-plain",
            "anthropic",
            "https://api.anthropic.com",
            conditions=PriceConditions(inference_geo=asked.get("inference_geo")),
        )
        if units:
            assert bound is None
        else:
            assert bound is not None
            assert bound.cost(1_000, 100) == (Decimal("0.00308") if not asked else Decimal(usd))

    def test_prices_of_the_user_are_what_is_paid(self) -> None:
        cost = CostCalculator({"*": BASIC}).cost_of(answer("gpt-plain", url=self.EU))
        assert (cost.cost_usd, cost.complete) == (Decimal("0.0011"), True)


def test_another_scheme_is_another_endpoint() -> None:
    endpoints = Endpoints({GATEWAY: Endpoint(service_tier="default")})
    assert endpoints.at("https://litellm.internal/v1") is None


# --- models of other makers ---


def at_gateway(like: str | None) -> CostCalculator:
    return CostCalculator(endpoints={GATEWAY: Endpoint(like=like, service_tier="default")})


@pytest.mark.parametrize(
    ("like", "model", "priced_as"),
    [
        ("openai", "claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("openai", "anthropic/claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("openai", "gemini-2.5-pro", "google:gemini-2.5-pro"),
        ("anthropic", "gpt-4o", "openai:gpt-4o"),
        ("openai", "vertex_ai/claude-sonnet-4-5", None),
        ("openai", "openrouter/anthropic/claude-sonnet-4-5", None),
        ("openai", "our-claude", None),
        ("openai", "claude-of-tomorrow", None),
        ("azure", "gemini-2.5-pro", None),
        (None, "claude-sonnet-4-5", None),
    ],
)
def test_a_model_of_another_maker_has_the_list_price_of_its_maker(
    like: str | None, model: str, priced_as: str | None
) -> None:
    calculator, usage = at_gateway(like), RequestUsage(input_tokens=1_000, output_tokens=200)
    provider = "anthropic" if like == "anthropic" else "openai"
    price = calculator.price(usage, model=model, provider=provider, provider_url=GATEWAY)
    assert price == (None if priced_as is None else CostCalculator().price(usage, model=priced_as))
    assert calculator.has_price(model, provider, GATEWAY) == (priced_as is not None)
    assert (calculator.upper_prices(model, provider, GATEWAY) is None) == (priced_as is None)
    assert (calculator.lower_prices(model, provider, GATEWAY) is None) == (priced_as is None)


USAGES = (
    RequestUsage(input_tokens=400_000, output_tokens=60_000),
    RequestUsage(input_tokens=1_000, output_tokens=1),
    RequestUsage(input_tokens=300_000, cache_write_tokens=300_000, output_tokens=10),
    RequestUsage(input_tokens=300_000, cache_read_tokens=200_000, output_tokens=10),
)


def test_no_charge_for_a_model_of_another_maker_is_above_its_bound() -> None:
    calculator, seen = at_gateway("openai"), 0
    for maker in ("anthropic", "google"):
        (provider,) = [each for each in get_snapshot().providers if each.id == maker]
        for name in (model.id for model in provider.models):
            for usage in USAGES if first_party_provider(name) == maker else ():
                upper = calculator.upper_prices(name, "openai", GATEWAY, usage.input_tokens)
                lower = calculator.lower_prices(name, "openai", GATEWAY)
                charged = calculator.cost_of_usage(usage, model=name, provider="openai", provider_url=GATEWAY)
                if upper is None or charged.cost_usd is None:
                    assert upper is None, name
                    continue
                most = upper.cost(usage.input_tokens, usage.output_tokens)
                assert most is not None
                assert lower is not None
                assert lower.cost(usage.input_tokens, usage.output_tokens) <= charged.cost_usd <= most, name
                seen += 1
    assert seen > 50

"""The prices of requests: exact, each request by itself, the user's prices before list prices."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, Unpack, get_args

from genai_prices.data_snapshot import DataSnapshot, get_snapshot
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage, RunUsage

from fastroai.callers import warn_caller
from fastroai.errors import ConfigurationError, FastroAIWarning, UnpricedModelError
from fastroai.other_names import other_names
from fastroai.records import Tokens, usd_to_microcents
from fastroai.usage.money import Amount, whole_number
from fastroai.usage.prices.advisor import ADVISOR_MODEL, ADVISOR_UNIT, usage_of_advisor
from fastroai.usage.prices.bought import used_units
from fastroai.usage.prices.endpoints import NO_ENDPOINTS, Endpoint, Endpoints
from fastroai.usage.prices.flat_list_prices import lower_list_prices, upper_list_prices
from fastroai.usage.prices.flat_prices import ANY_PRICE, Choose, FlatPrices, PriceConditions, flat_override
from fastroai.usage.prices.hosts import Host
from fastroai.usage.prices.list_prices import ListedModel, is_local, listed_model
from fastroai.usage.prices.model_pricing import ModelPricing, PricingOverride
from fastroai.usage.prices.overrides import PricingOverrides, canonical_provider
from fastroai.usage.prices.rate_card import PARTS, ContradictoryUsage, add_up, check_parts
from fastroai.usage.prices.references import model_reference, near_reference, provider_and_name
from fastroai.usage.prices.request_cost import OVERLAPPING, UNKNOWN_COST, RequestCost
from fastroai.usage.prices.served_prices import Conditions, ListedPrices, ServedPrices, told_conditions
from fastroai.usage.prices.updates import refresh_prices, refresh_prices_async, update_prices_in_background

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_Served: TypeAlias = tuple[str | None, str | None, str | None, str | None, str | None, Conditions, Conditions]
"""The key of prices that are kept: the asked model and provider, those that have answered, the URL, the
conditions that the answer names, and those that are known besides.
"""

OnUnknown: TypeAlias = Literal["raise", "zero"]
"""What `calculate_cost` does about a price that is not known."""

logger = logging.getLogger("fastroai.usage")

_LIST_PRICES: Final = ModelPricing()
_ONE: Final = Decimal(1)
_NOTHING_TOLD: Final[frozenset[tuple[str, str | None]]] = frozenset()
_NOTHING_FOUND: Final[tuple[DataSnapshot | None, dict[_Served, ServedPrices]]] = (None, {})
"""Shared, because each agent has a calculator. Prices are found with a snapshot, so never in this."""
_MOST_KEPT: Final = 4_096
_ROUNDING: Final = Decimal("0.000001")
"""US dollars by which a bill may differ from known prices without a log message."""


class UnpricedModelWarning(FastroAIWarning):
    """Warning that some costs are incomplete: the price of a model, or of a part of its use, is not known.

    It is also given if the usage that a provider reports contradicts itself. The message says what is
    missing. A `CostCalculator` warns once of each reason for each model. Agents without `cost_calculator=`
    have one each, so each of them can warn.
    """


@other_names(attributes={"format_cost": "fastroai.format_cost(cost)"})
class CostCalculator:
    """Prices requests: by the overrides of this calculator, or by the list prices of genai-prices.

        prices = {"gpt-4o": {"input_per_mtok": 2.0, "output_per_mtok": 8.0}}
        calculator = CostCalculator(pricing_overrides=prices)
        calculator.calculate_cost("gpt-4o", 1_000, 200)  # 3600 microcents, $0.0036: $1 is 1,000,000

    Keys are `provider:model`, `model`, or have a wildcard (`ollama:*`). The first of these that fits wins; of
    wildcards, the one with the most other letters. They stand for the dated snapshots of a model as well
    (`gpt-4o-2024-08-06`). Prices are US dollars per million tokens, and a price of 0 means free. Without
    `cache_read_per_mtok`, cached input costs what other input costs. `PricingOverride` has tiers by the size
    of the input, discounts and fees for each request, too.

    `endpoints` describes your own gateways and servers, by their URLs; see `Endpoint`.

    Keys that are probably misspelt, such as `opnai:gpt-4o`, cause a `NearMissWarning` and no error, because
    a provider of your own can have any name.

    List prices belong to the process and are those that genai-prices ships, until they are updated.
    `TestModel` and `FunctionModel` are free unless they have a price.

    Raises:
        ConfigurationError: a price, a key or an endpoint is invalid. The error names the model and the field.
    """

    __slots__ = ("__weakref__", "_endpoints", "_found", "_overrides", "_told")

    def __init__(
        self,
        pricing_overrides: Mapping[str, PricingOverride] | None = None,
        *,
        endpoints: Mapping[str, Endpoint] | None = None,
    ) -> None:
        self._overrides = PricingOverrides(pricing_overrides)
        self._overrides.warn_of_misspelt(pricing_overrides or ())
        self._endpoints = NO_ENDPOINTS if endpoints is None else Endpoints(endpoints)
        self._told = _NOTHING_TOLD
        """What was warned of: models, each with the reason why costs are incomplete, or with its provider."""
        self._found = _NOTHING_FOUND
        """The list prices of genai-prices, and the prices that were found with them."""

    refresh_prices = staticmethod(refresh_prices)
    refresh_prices_async = staticmethod(refresh_prices_async)
    update_prices_in_background = staticmethod(update_prices_in_background)

    def add_pricing_override(
        self, model: str, *input_and_output: Amount, **prices: Unpack[PricingOverride]
    ) -> None:
        """Set the prices of a model for this calculator from now on, in US dollars per million tokens.

            calculator.add_pricing_override("gpt-4o", input_per_mtok=2.0, output_per_mtok=8.0)
            calculator.add_pricing_override("gpt-4o", 2.0, 8.0)  # the same

        `model` is a key as in `CostCalculator(pricing_overrides=...)`: `model`, `provider:model`, or one with
        a wildcard. The other fields of `PricingOverride`, such as `discount`, are keyword arguments, too.
        Earlier prices of this calculator for the same key are replaced as a whole. A key that is probably
        misspelt causes a `NearMissWarning`.

        Raises:
            ConfigurationError: a price is invalid or given twice; the error names the model and the field.
        """
        if len(input_and_output) not in (0, 2):
            expected = "input_per_mtok and output_per_mtok, in this order"
            raise ConfigurationError("add_pricing_override", input_and_output, expected)
        named = dict(zip(("input_per_mtok", "output_per_mtok"), input_and_output, strict=False))
        if twice := named.keys() & prices.keys():
            raise ConfigurationError("add_pricing_override", sorted(twice), "each price once")
        self._overrides.add(model, {**named, **prices})
        self._found = _NOTHING_FOUND
        self._overrides.warn_of_misspelt([model])

    def calculate_cost(
        self,
        model: str,
        input_tokens: int,
        output_tokens: int,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        input_audio_tokens: int = 0,
        output_audio_tokens: int = 0,
        cache_audio_read_tokens: int = 0,
        *,
        timestamp: datetime | None = None,
        on_unknown: OnUnknown = "raise",
    ) -> int:
        """Return the cost of one request in microcents ($1 = 1,000,000), rounded once, half to even.

        `model` is `provider:model`, a bare name of a first-party model (`gpt-…`, `claude-…`, `gemini-…`), or
        the key of an override. Parts are included in their totals: cached tokens and audio input in
        `input_tokens`, audio output in `output_tokens`, and cached audio in `cache_read_tokens` as well. List
        prices are those of `timestamp`, by default now. A fee for each request is included.

        With `on_unknown="zero"`, a model or a part of its use that has no known price counts as free, as in
        fastroai 0.6. A budget cannot hold with such a cost, so nothing here counts like that unless you ask
        for it.

        Raises:
            ConfigurationError: a count is not a whole number, or a part exceeds its total.
            UnknownModelError: the provider cannot be told from the name; not with `"zero"`.
            UnpricedModelError: no price is known for the model, or for a part of the cost; not with `"zero"`.
        """
        if on_unknown not in get_args(OnUnknown):
            raise ConfigurationError("on_unknown", on_unknown, "'raise' or 'zero'")
        tokens = Tokens(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_read_tokens=cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            input_audio_tokens=input_audio_tokens,
            output_audio_tokens=output_audio_tokens,
            cache_audio_read_tokens=cache_audio_read_tokens,
        )
        _check(tokens)
        provider, name = provider_and_name(model, None)
        if provider is None and self._overrides.find([name], []) is None:
            if on_unknown == "zero":
                return 0
            provider, name = model_reference(model)  # or raises, with the candidates
        cost = self.cost_of_usage(tokens, model=name, provider=provider, timestamp=timestamp)
        if cost is OVERLAPPING or cost.contradiction is not None:
            expected = "parts within their totals, also cache reads and writes together"
            raise ConfigurationError("tokens", tokens, expected)
        if on_unknown == "zero":
            return usd_to_microcents(cost.cost_usd or Decimal(0))
        if cost.cost_usd is None or not cost.complete:
            near = near_reference(provider, name) if provider else None
            override = self._overrides.without_prices(name, provider)
            raise UnpricedModelError(name, provider or "", "price", near, override)
        return usd_to_microcents(cost.cost_usd)

    def price(
        self,
        measured: ModelResponse | RequestUsage | Tokens,
        /,
        *,
        model: str | None = None,
        provider: str | None = None,
        provider_url: str | None = None,
        timestamp: datetime | None = None,
    ) -> Decimal | None:
        """Return the cost of one request in exact US dollars; `None` if a part of it has no known price.

        `measured` is a PydanticAI `ModelResponse`, or the usage of one request. A response is priced by the
        model, provider, URL, service tier and time that it carries itself. `model` and `provider` say which
        model was asked, so that overrides for its name count as well. Usage needs `model`
        (`provider:model`, or a name), and is priced at the time `timestamp`, by default now; `provider_url`
        is the base URL that answered, so that prices of an `Endpoint` count. The result is also `None` if the
        usage contradicts itself. `cost_of` returns more details, and takes the provider's own bill if you
        pass it as `stated_usd`.

        Raises:
            ConfigurationError: `measured` is the usage of a whole run, because each request is priced by
                itself; or is usage without `model`; or is a response, and `provider_url` or `timestamp` is
                given.
        """
        if isinstance(measured, RunUsage):
            raise ConfigurationError(
                "usage", measured, "the usage of one request; price each response of the run"
            )
        if isinstance(measured, ModelResponse):
            for option, value in {"provider_url": provider_url, "timestamp": timestamp}.items():
                if value is not None:
                    expected = "no value with a response, which is priced by its own URL and time"
                    raise ConfigurationError(option, value, expected)
            cost = self.cost_of(measured, model=model, provider=provider)
        elif not model:
            raise ConfigurationError("model", model, "the model that reported the usage")
        else:
            cost = self.cost_of_usage(
                measured, model=model, provider=provider, provider_url=provider_url, timestamp=timestamp
            )
        return cost.cost_usd if cost.complete else None

    def cost_of_usage(
        self,
        usage: RequestUsage | Tokens,
        *,
        model: str,
        provider: str | None = None,
        provider_url: str | None = None,
        timestamp: datetime | None = None,
    ) -> RequestCost:
        """Return the cost of the usage of one request, as far as it is known.

        The result has `cost_usd` in exact US dollars (`None` if no part is known), whether it is `complete`,
        and the parts without a known price. An unknown price is no error. `model` is `provider:model`, or a
        name with `provider` beside it. `provider_url` is the base URL that answered, so that prices of an
        `Endpoint` count. List prices are those of `timestamp`, by default now.
        """
        provider, model = provider_and_name(model, provider)
        measured = _request_usage(usage) if isinstance(usage, Tokens) else usage
        response = _response(measured, model, provider, provider_url, timestamp)
        return self.cost_of(response, model=model, provider=provider)

    def cost_of(
        self,
        response: ModelResponse,
        *,
        model: str | None = None,
        provider: str | None = None,
        stated_usd: Decimal | None = None,
        conditions: Mapping[str, str] | None = None,
    ) -> RequestCost:
        """Return the cost of one request, the source of this cost, and the parts whose price is not known.

        The result has `cost_usd` in exact US dollars, `None` if no part is known; `complete` says whether
        that is the whole cost. An unknown price or contradictory usage is no error: the cost is then
        incomplete.

        Args:
            response: The response of the request, with its model, provider, URL, time and usage.
            model: The model that was asked, so that overrides for its name count. The list price of an asked
                model is never used for an answer of another one.
            provider: The provider that was asked.
            stated_usd: The bill that the provider or a gateway states, in US dollars. It is the cost then,
                instead of that by prices.
            conditions: Conditions of service that are not in the response, such as `{"speed": "fast"}`.
        """
        priced = self._priced(response, model, provider, conditions)
        return priced if stated_usd is None else priced.billed(stated_usd)

    def _priced(
        self,
        response: ModelResponse,
        model: str | None,
        provider: str | None,
        conditions: Mapping[str, str] | None,
    ) -> RequestCost:
        if response.usage.unmeasured_requests:
            return UNKNOWN_COST
        try:
            used = used_units(response)
            check_parts(used)
        except ContradictoryUsage as error:
            return RequestCost(contradiction=str(error))
        if not add_up(used):
            return OVERLAPPING
        advisor = self._cost_of_advisor(response, provider, used, conditions)
        if advisor is not None:
            del used[ADVISOR_UNIT]
        told = told_conditions(response.provider_details) if response.provider_details else ()
        known = tuple(conditions.items()) if conditions else ()
        of = model, provider, response.model_name, response.provider_name, response.provider_url, told, known
        try:
            cost = self._served_prices(of).cost(response, used)
        except ContradictoryUsage:
            return OVERLAPPING
        return cost if advisor is None else cost.plus(advisor)

    def _cost_of_advisor(
        self,
        response: ModelResponse,
        provider: str | None,
        used: Mapping[str, int | float],
        conditions: Mapping[str, str] | None,
    ) -> RequestCost | None:
        """Return the cost of the advisor of a request; `None` without one, or if it is not known."""
        if ADVISOR_UNIT not in used or not conditions or (model := conditions.get(ADVISOR_MODEL)) is None:
            return None
        usage = usage_of_advisor(response)
        if usage is None:
            return None
        cost = self.cost_of_usage(
            usage,
            model=model,
            provider=response.provider_name or provider,
            provider_url=response.provider_url,
            timestamp=response.timestamp,
        )
        return cost if cost.complete else None

    def _served_prices(self, of: _Served) -> ServedPrices:
        snapshot, found = self._found
        if snapshot is not (now := get_snapshot()):
            _, found = self._found = now, {}
        if of in found:
            return found[of]
        prices = self._find_served_prices(*of)
        if len(found) >= _MOST_KEPT:
            _, found = self._found = now, {}
        found[of] = prices
        return prices

    def _find_served_prices(
        self,
        model: str | None,
        provider: str | None,
        answered: str | None,
        answered_by: str | None,
        url: str | None,
        told: Conditions,
        known: Conditions,
    ) -> ServedPrices:
        if model is not None:
            provider, model = provider_and_name(model, provider)
        endpoint = self._endpoints.at(url)
        served = {**dict(told), **dict(known)}
        if endpoint is not None and endpoint.service_tier is not None:
            served.setdefault("service_tier", endpoint.service_tier)
        served.pop(ADVISOR_MODEL, None)
        inference_geo = served.pop("inference_geo", None)  # list prices have no such condition
        caches_half_a_day = served.pop("cache_ttl", None) == "12h"
        asked_tier = served.pop("asked_tier", None)
        if asked_tier is not None and "service_tier" not in dict(told):
            served["service_tier"] = asked_tier
        found = self._find((model, answered), (provider, answered_by), url)
        own = None if found is None else found.in_service_tier(served.get("service_tier"))
        asked, name = answered_by or provider, _full_name(answered, model)
        listed = self._listed(name, asked, url)
        if listed is None:
            return ServedPrices(own, None, is_free=is_local(answered, provider or answered_by))
        region = self._endpoints.region(url, asked or "", name or "", inference_geo)
        listed_prices = ListedPrices(listed, served, region, url, caches_half_a_day=caches_half_a_day)
        return ServedPrices(own, listed_prices, is_free=False)

    def _find(
        self, models: Sequence[str | None], providers: Sequence[str | None], url: str | None
    ) -> ModelPricing | None:
        """Return the user's own prices of a model; prices for the endpoint at the URL come first."""
        at_endpoint = self._endpoints.prices(url)
        pricing = None if at_endpoint is None else at_endpoint.find(models, providers)
        return pricing or self._overrides.find(models, providers)

    def _listed(self, model: str | None, provider: str | None, url: str | None) -> ListedModel | None:
        found = (listed_model(*listing) for listing in self._listings(model or "", provider, url))
        return next((listed for listed in found if listed is not None), None)

    def _listings(
        self, model: str, provider: str | None, url: str | None
    ) -> Iterator[tuple[str, str | None, str | None]]:
        return self._endpoints.listings(model, canonical_provider(provider) if provider else None, url)

    def host(self, model: Model) -> Host:
        """Return the known facts about the host that serves a model, by the model's URL and the `endpoints`.

        They include the provider, the URL, the provider whose documented rules hold there (`None` if none
        do), and the tokens that the host may add to a request. Nothing is sent. If the URL nearly matches an
        endpoint, this gives a `NearMissWarning`, once for each URL.
        """
        return self._endpoints.host(model)

    def warn_of_near_miss(self, url: str | None) -> None:
        """Give a `NearMissWarning` if requests go to a URL that is nearly that of one of the `endpoints`.

        The hosts must be the same. A URL with another scheme is then a near miss. So is one with the same
        scheme and another port, if one of the two ports is the default port. With the same scheme and port,
        it is a near miss if its path is only the beginning of the path of the endpoint.

        `None` gives no warning, and neither does a URL that is at one of the endpoints: with its scheme, host
        and port, and with its path or a longer one that begins with it. The warning is given once for each
        URL.
        """
        self._endpoints.warn_of_near_miss(url)

    def cost_headers(self, url: str | None) -> Sequence[str]:
        """Return the names of the response headers in which a gateway at a URL states the cost of a request.

        These are the `cost_headers` of the `Endpoint` at the URL, or, at an unknown host, those of known
        gateways, such as LiteLLM. The result is empty for a provider's own host, and for `None`.
        """
        return self._endpoints.cost_headers(url)

    def has_price(self, model: str, provider: str | None = None, provider_url: str | None = None) -> bool:
        """Return whether token prices of a model are known: by an override, a list price, or as free.

        `model` is `provider:model`, or a name, with `provider` or without. `TestModel` and `FunctionModel`
        are free. An override with only a discount or a fee counts if there is a list price. Even if the
        result is `True`, a part of a request's use can have no known price.
        """
        provider, model = provider_and_name(model, provider)
        pricing = self._find((model,), (provider,), provider_url)
        if pricing is not None and pricing.prices is not None:
            return True
        return self._listed(model, provider, provider_url) is not None or is_local(model, provider)

    def upper_prices(
        self,
        model: str,
        provider: str | None = None,
        provider_url: str | None = None,
        input_tokens: int | None = None,
        conditions: PriceConditions = ANY_PRICE,
    ) -> FlatPrices | None:
        """Return the highest prices that can apply to a request to a model; `None` if they are not known.

        The result has one price for all input and one for all output, in US dollars per million tokens, and
        the fees for a request and for a web search. Service tiers, cache writes, regions and dated snapshots
        of the model are considered. If prices rise with the size of the input, only those for up to
        `input_tokens` count, or all if it is not given. Prices that `conditions` exclude do not count, such
        as those of cache writes or audio.
        """
        return self._flat_prices(max, model, provider, provider_url, input_tokens, conditions)

    def lower_prices(
        self, model: str, provider: str | None = None, provider_url: str | None = None
    ) -> FlatPrices | None:
        """Return the lowest prices that can apply to a request to a model; `None` if they are not known.

        The result has one price for all input and one for all output, in US dollars per million tokens, and
        the fee for a request. They are the lowest of all service tiers, kinds of tokens (cached ones, for
        example), times and dated snapshots.
        """
        return self._flat_prices(min, model, provider, provider_url)

    def _flat_prices(
        self,
        choose: Choose,
        model: str,
        provider: str | None,
        provider_url: str | None,
        input_tokens: int | None = None,
        conditions: PriceConditions = ANY_PRICE,
    ) -> FlatPrices | None:
        """Return the highest (`max`) or lowest (`min`) prices that can apply to a request to a model."""
        provider, model = provider_and_name(model, provider)
        pricings = self._pricings(model, provider, provider_url)
        listed: FlatPrices | None = None
        if any(pricing.uses_list_prices for pricing in pricings):
            region = self._endpoints.region(provider_url, provider or "", model, conditions.inference_geo)
            if choose is max:
                find = partial(upper_list_prices, input_tokens=input_tokens, conditions=conditions)
                factor = region.most
            else:
                find, factor = partial(lower_list_prices), region.known or _ONE
            found = (find(*listing) for listing in self._listings(model, provider, provider_url))
            listed = next((prices for prices in found if prices is not None), None)
            if listed is not None:
                listed = None if factor is None else listed.in_region(factor)
            elif is_local(model, provider):
                listed = FlatPrices()
        own = (flat_override(choose, pricing, listed, input_tokens, conditions) for pricing in pricings)
        return FlatPrices.chosen(choose, own)

    def _pricings(self, model: str, provider: str | None, url: str | None) -> list[ModelPricing]:
        """Return the pricings that can apply when a model is asked: its own, and those of its snapshots."""
        asked = self._find([model], [provider], url) or _LIST_PRICES
        at_endpoint = self._endpoints.prices(url)
        of_snapshots = [] if at_endpoint is None else at_endpoint.of_snapshots(model)
        return [asked, *of_snapshots, *self._overrides.of_snapshots(model)]

    def warn_incomplete(self, cost: RequestCost, model: str, provider: str | None) -> None:
        """Give an `UnpricedModelWarning` that a cost is incomplete, and why, once for each reason and model.

        Call it only with a cost that is not `complete`: that is not checked. The warning names the line of
        the user's code that led to the request, where that can be found.
        """
        provider, model = provider_and_name(model, provider or None)
        key = f"{provider}:{model}" if provider else model
        reason = cost.why_incomplete(key, override=self._overrides.without_prices(model, provider))
        if (key, reason) not in self._told:
            self._told |= {(key, reason)}
            warn_caller(f"some costs are incomplete: {reason}", UnpricedModelWarning)

    def note_difference(self, cost: RequestCost, model: str, provider: str | None) -> None:
        """Log a warning if a provider's bill differs from the cost by known prices, once for each model.

        The logger is `fastroai.usage`. Nothing happens if `cost` has no bill (`stated_usd`), no cost by
        prices, or if they differ by at most $0.000001.
        """
        difference = cost.difference_usd
        if difference is None or difference.copy_abs() <= _ROUNDING or (model, provider) in self._told:
            return
        self._told |= {(model, provider)}
        logger.warning(
            "%s:%s bills $%s for a request that costs $%s by the known prices; the bill is counted",
            provider,
            model,
            cost.stated_usd,
            cost.priced_usd,
        )


_BY_LIST: Final = CostCalculator()


def calculator_of(given: CostCalculator | None, default: CostCalculator = _BY_LIST) -> CostCalculator:
    """Return the calculator that an option gives, else the default, which has list prices alone.

    Raises:
        ConfigurationError: the option is not a calculator, but for example a mapping of prices.
    """
    if given is None:
        return default
    if not isinstance(given, CostCalculator):
        expected = "a CostCalculator; for your own prices: CostCalculator(pricing_overrides=...)"
        raise ConfigurationError("cost_calculator", given, expected)
    return given


@lru_cache(maxsize=4096)
def _full_name(answered: str | None, asked: str | None) -> str | None:
    """Return the name under which a model is listed, even if it answers with a part of it (as on Bedrock).

    `eu.anthropic.claude-haiku-4-5-20251001-v1:0` answers as `claude-haiku-4-5-20251001`.
    """
    if not answered:
        return asked
    is_part = asked and re.fullmatch(rf".+\.{re.escape(answered)}(-v\d+)?(:\d+)?", asked)
    return asked if is_part else answered


def _request_usage(tokens: Tokens) -> RequestUsage:
    counts = asdict(tokens)  # all but one have the same names
    return RequestUsage(output_reasoning_tokens=counts.pop("reasoning_tokens"), **counts)


def _response(
    usage: RequestUsage,
    model: str,
    provider: str | None,
    provider_url: str | None,
    timestamp: datetime | None = None,
) -> ModelResponse:
    """Return the usage as a response, which is the form that prices are computed for."""
    response = ModelResponse(
        parts=[],
        usage=usage,
        model_name=model,
        provider_name=canonical_provider(provider) if provider else None,
        provider_url=provider_url,
    )
    if timestamp is not None:
        response.timestamp = timestamp
    return response


def _check(tokens: Tokens) -> None:
    counts = {name: whole_number(name, count) for name, count in asdict(tokens).items()}
    for part, wholes in PARTS:
        for whole in wholes:
            if counts.get(part, 0) > (limit := counts[whole]):
                expected = f"at most {whole}, of which it is a part ({limit})"
                raise ConfigurationError(part, counts[part], expected)

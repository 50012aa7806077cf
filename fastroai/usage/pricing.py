"""What requests cost: exact, each by itself, the user's prices before list prices."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Unpack, overload

from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage, RunUsage

from fastroai.errors import ConfigurationError, UnpricedModelError
from fastroai.records import Tokens, usd_to_microcents
from fastroai.usage.endpoints import Endpoint, Endpoints, Host, base_url_of
from fastroai.usage.list_prices import is_local, list_price
from fastroai.usage.lower_prices import LowerPrices, lower_list_prices, lower_override
from fastroai.usage.model_pricing import ModelPricing, PricingOverride
from fastroai.usage.money import whole_number
from fastroai.usage.overrides import PricingOverrides, canonical_provider
from fastroai.usage.references import first_party_provider, model_reference
from fastroai.usage.updates import refresh_prices, refresh_prices_async, update_prices_in_background
from fastroai.usage.upper_prices import (
    ANY_PRICE,
    PriceConditions,
    UpperPrices,
    upper_list_prices,
    upper_override,
)

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation
    from pydantic_ai.models import Model

_ZERO: Final = Decimal(0)
_LIST_PRICES: Final = ModelPricing()


class UnpricedModelWarning(UserWarning):
    """A model was used for which no price is known, so that costs leave it out."""


class CostCalculator:
    """Prices requests by the overrides of this calculator, else by the list prices of genai-prices.

        prices = {"gpt-4o": {"input_per_mtok": 2.0, "output_per_mtok": 8.0}}
        calculator = CostCalculator(pricing_overrides=prices)
        calculator.calculate_cost("gpt-4o", 1_000, 200)  # 3600 microcents

    Keys are `model`, `provider:model`, or have a wildcard (`ollama:*`); the most specific one wins. They
    stand for the dated snapshots of a model as well (`gpt-4o-2024-08-06`). Prices are US dollars per million
    tokens, and a price of 0 means free. Without `cache_read_per_mtok`, cached input costs what other input
    costs. `PricingOverride` has tiers by the size of the input, discounts and fees for each request, too.

    `endpoints` says what gateways and servers of your own are, by their URLs; see `Endpoint`.

    List prices belong to the process and are those that genai-prices ships, until they are updated.
    `TestModel` and `FunctionModel` are free unless they have a price.

    Raises:
        ConfigurationError: naming the model and the field, for prices that cannot be meant.
    """

    def __init__(
        self,
        pricing_overrides: Mapping[str, PricingOverride] | None = None,
        *,
        endpoints: Mapping[str, Endpoint] | None = None,
    ) -> None:
        self._overrides = PricingOverrides(pricing_overrides)
        self._endpoints = Endpoints(endpoints)
        self._warned: set[tuple[str | None, str]] = set()
        self._contradictions: dict[tuple[str | None, str], str] = {}

    refresh_prices = staticmethod(refresh_prices)
    refresh_prices_async = staticmethod(refresh_prices_async)
    update_prices_in_background = staticmethod(update_prices_in_background)

    def add_pricing_override(self, model: str, **prices: Unpack[PricingOverride]) -> None:
        """Set the prices of a model for this calculator, or replace them.

        Raises:
            ConfigurationError: naming the model and the field.
        """
        self._overrides.add(model, prices)

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
    ) -> int:
        """What one request costs in microcents ($1 = 1,000,000), rounded once, half to even.

        `model` is `provider:model`, a bare name of a first-party model (`gpt-…`, `claude-…`, `gemini-…`), or
        the key of an override. Parts are included in their totals: cached and audio tokens in
        `input_tokens`. Prices are those of `timestamp`, by default now.

        Raises:
            ConfigurationError: if a count is not a whole number, or a part exceeds its total.
            UnknownModelError: if the provider cannot be told from the name.
            UnpricedModelError: if no price is known.
        """
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
        provider, name = _provider_and_name(model, None)
        if provider is None and self._overrides.find([name], []) is None:
            provider, name = model_reference(model)  # or raises, with the candidates
        try:
            cost = self._price(
                _response(_request_usage(tokens), name, provider, None, timestamp), name, provider
            )
        except ValueError as error:
            raise ConfigurationError("tokens", tokens, f"parts within their totals ({error})") from error
        if cost is None:
            raise UnpricedModelError(name, provider or "")
        return usd_to_microcents(cost)

    @overload
    def price(
        self, response: ModelResponse, /, *, model: str | None = None, provider: str | None = None
    ) -> Decimal | None: ...

    @overload
    def price(
        self,
        usage: RequestUsage | Tokens,
        /,
        *,
        model: str,
        provider: str | None = None,
        provider_url: str | None = None,
        timestamp: datetime | None = None,
    ) -> Decimal | None: ...

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
        """What one request costs, in exact US dollars; `None` if no price is known, or its usage is not.

        A response is priced by the model, provider, URL, service tier and time that it carries itself. With
        it, `model` and `provider` are those that were asked: overrides for them count, and where the
        answering model has no price, theirs applies. Overrides come first, then a cost that the response
        already has (the Pydantic AI Gateway reports what was billed), then list prices.

        Usage that contradicts itself has no price; `warn_unpriced` then says so.

        Raises:
            ConfigurationError: for the usage of a whole run, because each request is priced by itself; and
                for usage without its model.
        """
        if isinstance(measured, RunUsage):
            raise ConfigurationError(
                "usage", measured, "the usage of one request; price each response of the run"
            )
        if isinstance(measured, ModelResponse):
            response = measured
            if model is not None:
                provider, model = _provider_and_name(model, provider)
        else:
            if not model:
                raise ConfigurationError("model", model, "the model that this usage is of")
            provider, model = _provider_and_name(model, provider)
            usage = _request_usage(measured) if isinstance(measured, Tokens) else measured
            response = _response(usage, model, provider, provider_url, timestamp)
        try:
            return self._price(response, model, provider)
        except (ValueError, UserWarning) as error:  # genai-prices warns of prices that it cannot apply
            asked = provider or response.provider_name, model or response.model_name or ""
            self._contradictions[asked] = str(error)
            return None

    def _price(self, response: ModelResponse, asked: str | None, provider: str | None) -> Decimal | None:
        usage = response.usage
        if usage.unmeasured_requests:
            return None
        response = self._in_service_tier(response)
        pricing = self._find(
            (asked, response.model_name), (provider, response.provider_name), response.provider_url
        )
        if pricing is not None:
            pricing = pricing.in_service_tier((response.provider_details or {}).get("service_tier"))
            list_usd = self._list_usd(response, asked, provider) if pricing.prices is None else None
            return pricing.cost(usage, list_usd=list_usd)
        if usage.cost is not None:
            return usage.cost
        return self._list_usd(response, asked, provider)

    def _in_service_tier(self, response: ModelResponse) -> ModelResponse:
        """The response with the service tier of its endpoint, where it names none itself."""
        endpoint = self._endpoints.at(response.provider_url)
        details = response.provider_details or {}
        if endpoint is None or endpoint.service_tier is None or details.get("service_tier"):
            return response
        return replace(response, provider_details={**details, "service_tier": endpoint.service_tier})

    def _find(
        self, models: Sequence[str | None], providers: Sequence[str | None], url: str | None
    ) -> ModelPricing | None:
        """The user's own prices: those of the endpoint come first."""
        at_endpoint = self._endpoints.prices_at(url)
        pricing = None if at_endpoint is None else at_endpoint.find(models, providers)
        return pricing or self._overrides.find(models, providers)

    def _list_usd(self, response: ModelResponse, asked: str | None, provider: str | None) -> Decimal | None:
        listed = self._list_price(response)
        if listed is None and asked not in (None, response.model_name):
            listed = self._list_price(
                replace(response, model_name=asked, provider_name=provider or response.provider_name)
            )
        if listed is not None:
            return listed.total_price
        return _ZERO if is_local(response.model_name, provider or response.provider_name) else None

    def _list_price(self, response: ModelResponse) -> PriceCalculation | None:
        listings = self._listings(response.model_name or "", response.provider_name, response.provider_url)
        for model, provider, url in listings:
            listed = list_price(replace(response, model_name=model, provider_name=provider, provider_url=url))
            if listed is not None:
                return listed
        return None

    def _listings(
        self, model: str, provider: str | None, url: str | None
    ) -> Iterator[tuple[str, str | None, str | None]]:
        """Where to look for the list price of a model: at whoever serves it, then at what that is like."""
        yield model, provider, url
        endpoint = self._endpoints.at(url)
        if endpoint is not None and endpoint.like is not None:
            yield model.rpartition("/")[2], endpoint.like, None

    def host(self, model: Model) -> Host:
        """Return what is known of whoever serves a model: whose rules hold, and what it adds."""
        return self._endpoints.host(model.model_name, model.system, base_url_of(model))

    def cost_headers(self, url: str | None) -> Sequence[str]:
        """Return the response headers in which a gateway at a URL states the cost of a request."""
        return self._endpoints.cost_headers(url)

    def has_price(self, model: str, provider: str | None = None, provider_url: str | None = None) -> bool:
        """Whether requests to a model can be priced: by an override, a list price, or as free."""
        provider, model = _provider_and_name(model, provider)
        return (
            self._price(_response(RequestUsage(), model, provider, provider_url), model, provider) is not None
        )

    def upper_prices(
        self,
        model: str,
        provider: str | None = None,
        provider_url: str | None = None,
        input_tokens: int | None = None,
        conditions: PriceConditions = ANY_PRICE,
    ) -> UpperPrices | None:
        """Prices that no token of a request to a model exceeds; `None` if that cannot be told.

        Where prices rise with the size of the input, only what `input_tokens` can reach counts, and of
        service tiers and cache writes only what the `conditions` leave.
        """
        provider, model = _provider_and_name(model, provider)
        pricings = self._pricings(model, provider, provider_url)
        listed: UpperPrices | None = None
        if any(pricing.uses_list_prices for pricing in pricings):
            name = canonical_provider(provider) if provider else None
            listings = self._listings(model, name, provider_url)
            found = (upper_list_prices(*listing, input_tokens, conditions) for listing in listings)
            listed = next((prices for prices in found if prices is not None), None)
            if listed is None and is_local(model, provider):
                listed = UpperPrices()
        possible = [upper_override(pricing, listed, input_tokens, conditions) for pricing in pricings]
        known = [prices for prices in possible if prices is not None]
        return UpperPrices.highest(known) if len(known) == len(possible) else None

    def lower_prices(
        self, model: str, provider: str | None = None, provider_url: str | None = None
    ) -> LowerPrices | None:
        """Prices below which no token of a request to a model is billed; `None` if no price is known."""
        provider, model = _provider_and_name(model, provider)
        pricings = self._pricings(model, provider, provider_url)
        listed: LowerPrices | None = None
        if any(pricing.uses_list_prices for pricing in pricings):
            name = canonical_provider(provider) if provider else None
            found = (lower_list_prices(*listing) for listing in self._listings(model, name, provider_url))
            listed = next((prices for prices in found if prices is not None), None)
            if listed is None and is_local(model, provider):
                listed = LowerPrices()
        possible = [lower_override(pricing, listed) for pricing in pricings]
        known = [prices for prices in possible if prices is not None]
        return LowerPrices.lowest(known) if len(known) == len(possible) else None

    def _pricings(self, model: str, provider: str | None, url: str | None) -> list[ModelPricing]:
        """The pricings that can apply when a model is asked: its own, and those of its snapshots."""
        asked = self._find([model], [provider], url) or _LIST_PRICES
        at_endpoint = self._endpoints.prices_at(url)
        of_snapshots = [] if at_endpoint is None else at_endpoint.of_snapshots(model)
        return [asked, *of_snapshots, *self._overrides.of_snapshots(model)]

    def warn_unpriced(self, model: str, provider: str | None) -> None:
        """Say that requests could not be priced: one `UnpricedModelWarning` per model and calculator."""
        provider, model = _provider_and_name(model, provider or None)
        if (provider, model) in self._warned:
            return
        self._warned.add((provider, model))
        key = f"{provider}:{model}" if provider else model
        if (contradiction := self._contradictions.get((provider, model))) is not None:
            reason = f"the usage that {key!r} reported cannot be priced ({contradiction})"
        else:
            reason = (
                f"no price is known for {key!r}; add one: CostCalculator(pricing_overrides="
                f"{{{key!r}: {{'input_per_mtok': ..., 'output_per_mtok': ...}}}})"
            )
        warnings.warn(f"costs leave out requests: {reason}", UnpricedModelWarning, stacklevel=2)


def _provider_and_name(model: str, provider: str | None) -> tuple[str | None, str]:
    if provider is None and ":" in model:
        provider, _, model = model.partition(":")
        return provider, model
    return provider or first_party_provider(model), model


def _request_usage(tokens: Tokens) -> RequestUsage:
    return RequestUsage(
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        cache_read_tokens=tokens.cache_read_tokens,
        cache_write_tokens=tokens.cache_write_tokens,
        input_audio_tokens=tokens.input_audio_tokens,
        cache_audio_read_tokens=tokens.cache_audio_read_tokens,
        output_audio_tokens=tokens.output_audio_tokens,
        output_reasoning_tokens=tokens.reasoning_tokens,
    )


def _response(
    usage: RequestUsage,
    model: str,
    provider: str | None,
    provider_url: str | None,
    timestamp: datetime | None = None,
) -> ModelResponse:
    """The form in which PydanticAI prices things."""
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


_WHOLES = {
    "cache_read_tokens": "input_tokens",
    "cache_write_tokens": "input_tokens",
    "input_audio_tokens": "input_tokens",
    "output_audio_tokens": "output_tokens",
    "cache_audio_read_tokens": "cache_read_tokens",
}


def _check(tokens: Tokens) -> None:
    whole_number("input_tokens", tokens.input_tokens)
    whole_number("output_tokens", tokens.output_tokens)
    for part, whole in _WHOLES.items():
        limit = getattr(tokens, whole)
        count = whole_number(part, getattr(tokens, part))
        if count > limit:
            raise ConfigurationError(part, count, f"at most {whole}, of which it is a part ({limit})")

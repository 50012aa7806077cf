"""The prices of a model as it is asked for and served: found once, and kept for its next responses.

Most of the conditions of a price are the same for many responses: the model, the provider, the URL, the
service tier, the region. Responses differ in their usage, and in their time, where list prices change by
date or hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fastroai.records import EXACT
from fastroai.usage.facts.billing import HALF_DAY_WRITE
from fastroai.usage.facts.documented import service_tiers
from fastroai.usage.prices.rate_card import TOKEN_UNITS, ContradictoryUsage, RateCard, Used
from fastroai.usage.prices.request_cost import FREE, REGIONAL, UNKNOWN_COST, RequestCost

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    from fastroai.usage.facts.regions import RegionalFactor
    from fastroai.usage.prices.list_prices import ListedModel
    from fastroai.usage.prices.model_pricing import ModelPricing

Conditions = tuple[tuple[str, str], ...]
"""Conditions of a price besides the model, named as in genai-prices and in PydanticAI's responses."""

_ONE: Final = Decimal(1)
_WRITES: Final = "cache_write_tokens"
_CONDITIONS: Final = ("service_tier", "traffic_type", "speed", "processing")


class ServedPrices:
    """The prices of all responses that are served alike."""

    def __init__(self, own: ModelPricing | None, listed: ListedPrices | None, *, is_free: bool) -> None:
        """Take the prices of the user first, then list prices; `is_free` holds where there are neither."""
        self._own, self._listed, self._is_free = own, listed, is_free

    def cost(self, response: ModelResponse, used: Used) -> RequestCost:
        """Return the cost of the request that a response answers.

        Raises:
            ContradictoryUsage: parts of a count exceed it.
        """
        own = self._own
        if own is not None and own.prices is not None:
            return _by_override(own, response.usage, used)
        if self._listed is not None:
            cost = self._listed.cost(response.timestamp, used)
        elif self._is_free:
            cost = FREE
        else:
            return UNKNOWN_COST
        return cost if own is None else cost.charged(own.share, fee=own.per_request)


class ListedPrices:
    """The list prices of a model under some conditions, at a URL."""

    def __init__(
        self,
        listed: ListedModel,
        served: Mapping[str, str],
        region: RegionalFactor,
        url: str | None,
        *,
        caches_half_a_day: bool,
    ) -> None:
        self._listed, self._served, self._region = listed, served, region
        self._unlisted = tuple(_unlisted(listed, served))
        self._premium = f"{REGIONAL} {urlsplit(url or '').hostname}"
        self._card = listed.lasting_card(served)
        self._caches_half_a_day = caches_half_a_day

    def cost(self, at: datetime, used: Used) -> RequestCost:
        """Return the cost of a request that was answered at a time.

        Raises:
            ContradictoryUsage: parts of a count exceed it.
        """
        card, region = self._card or self._listed.card(at, self._served), self._region
        list_usd = card.cost(used)
        if self._caches_half_a_day and (written := used.get(_WRITES)):
            premium = EXACT.multiply(card.price_of(_WRITES, used), HALF_DAY_WRITE.times - 1)
            list_usd = EXACT.add(list_usd, EXACT.multiply(premium, Decimal(written)))
        cost = _in_region(card, used, list_usd, region.known or _ONE)
        beside = (*card.uncovered(used), *card.unknown, *self._unlisted)
        if region.known is not None:
            priced, most = None if beside else cost, None
        else:
            priced = None
            most = None if beside or region.most is None else _in_region(card, used, list_usd, region.most)
            beside = (*beside, self._premium)
        return RequestCost(
            cost_usd=cost, source="priced", priced_usd=priced, most_usd=most, unpriced_units=beside
        )


def told_conditions(details: Mapping[str, object]) -> Conditions:
    """Return the conditions of prices that a response names in its `provider_details`."""
    told = []
    for name in _CONDITIONS:
        if name in details and isinstance(value := details[name], str):
            told.append((name, value))
    return tuple(told)


def _by_override(pricing: ModelPricing, usage: RequestUsage, used: Used) -> RequestCost:
    """Return the cost at the prices of the user, which are for tokens and for requests."""
    try:
        cost = pricing.cost(usage)
    except ValueError as error:
        raise ContradictoryUsage(str(error)) from error
    beside = tuple(name for name in used if name not in TOKEN_UNITS)
    return RequestCost(
        cost_usd=cost, source="override", priced_usd=None if beside else cost, unpriced_units=beside
    )


def _in_region(card: RateCard, used: Used, list_usd: Decimal, factor: Decimal) -> Decimal:
    """Return the cost with a regional premium, which applies to tokens but not to searches and the like."""
    if factor == _ONE:
        return list_usd
    without_tokens = card.cost({name: count for name, count in used.items() if name not in TOKEN_UNITS})
    tokens_usd = EXACT.subtract(list_usd, without_tokens)
    return EXACT.add(without_tokens, EXACT.multiply(tokens_usd, factor))


def _unlisted(listed: ListedModel, served: Mapping[str, str]) -> Iterator[str]:
    """Return the conditions of the service for which the list has no price."""
    for name, value in served.items():
        if value.lower() not in _standard() and not listed.knows(name, value):
            yield f"{name}={value}"


@cache
def _standard() -> frozenset[str]:
    """Return the values that name the service at its plain list price, in lower case."""
    return frozenset({"auto"}).union(*(one.listed for one in service_tiers()))

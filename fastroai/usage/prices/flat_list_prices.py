"""The highest and the lowest list prices that tokens of a model can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Final, NamedTuple

from genai_prices.data_units import unit_data
from genai_prices.types import ModelInfo, ModelPrice, StartDateConstraint

from fastroai.records import EXACT
from fastroai.usage.facts.billing import HALF_DAY_WRITE, SEARCHES_UNASKED
from fastroai.usage.prices.flat_prices import ANY_PRICE, FlatPrices, PriceConditions
from fastroai.usage.prices.list_prices import KeptWhileListed, listed_model
from fastroai.usage.prices.model_pricing import TOKENS_PER_MTOK
from fastroai.usage.prices.rate_card import PER, UNIT_OF_PRICE, kind_of, without_noise

_ZERO: Final = Decimal(0)
_CLOCK_SLACK: Final = timedelta(days=1)


def upper_list_prices(
    model: str,
    provider: str | None,
    provider_url: str | None,
    input_tokens: int | None,
    conditions: PriceConditions = ANY_PRICE,
) -> FlatPrices | None:
    """Return the highest list prices that can apply to a request of at most `input_tokens`, sent now.

    Compares every kind of token (plain, cached, written to a cache, audio, ...), every tier within reach,
    every service tier and other variant that the conditions leave, and every date and hour that the request
    can fall in. The result is `None` if there is no list price, or if more than tokens and requests is
    billed.
    """
    hour = int(datetime.now(UTC).timestamp()) // 3600
    rates = _rates.of((model, provider, provider_url, conditions, hour))
    if rates is None:
        return None
    highest = dict(rates.flat)
    for kind, start, price in rates.tiers:
        if (input_tokens is None or input_tokens > start) and price > highest[kind]:
            highest[kind] = price
    return FlatPrices(
        input_per_mtok=EXACT.multiply(highest["input"], TOKENS_PER_MTOK),
        output_per_mtok=EXACT.multiply(highest["output"], TOKENS_PER_MTOK),
        per_request=highest["requests"],
        per_web_search=highest["web_search"] or None,
    )


def lower_list_prices(model: str, provider: str | None, provider_url: str | None) -> FlatPrices | None:
    """Return the lowest list prices that a request can be billed at; `None` if there is no list price.

    Compares every kind of token (cached, audio, ...), every tier, every service tier and other variant, and
    every date and hour that prices are known for.
    """
    listed = listed_model(model, provider, provider_url)
    if listed is None:
        return None
    given = listed.info.prices
    every = [given] if isinstance(given, ModelPrice) else [each.prices for each in given]
    every += [variant.prices for variant in listed.info.price_variants or ()]
    # Variants list only the prices that differ from the others, so all prices are compared one by one.
    lowest: dict[str, Decimal] = {}
    for price in chain.from_iterable(map(_prices_in, every)):
        if price.unit is not None:
            kind = kind_of(price.unit)
            lowest[kind] = min(price.usd, lowest.get(kind, price.usd))
    return FlatPrices(
        input_per_mtok=EXACT.multiply(lowest.get("input", _ZERO), TOKENS_PER_MTOK),
        output_per_mtok=EXACT.multiply(lowest.get("output", _ZERO), TOKENS_PER_MTOK),
    )


class _Price(NamedTuple):
    """One price of a model."""

    key: str
    """The name that genai-prices gives the price."""
    unit: str | None
    """The unit that it is for; `None` if this version of genai-prices does not define it."""
    above: int | None
    """The input tokens above which it applies, if it is that of a tier."""
    usd: Decimal
    """US dollars for one unit."""


def _prices_in(prices: ModelPrice) -> Iterator[_Price]:
    for key, value in vars(prices).items():
        if value is None:
            continue
        unit = UNIT_OF_PRICE.get(key)
        per = 1 if unit is None else PER[unit]
        if isinstance(value, Decimal):
            yield _Price(key, unit, None, EXACT.divide(without_noise(value), per))
            continue
        yield _Price(key, unit, None, EXACT.divide(without_noise(value.base), per))
        for tier in value.tiers:
            yield _Price(key, unit, tier.start, EXACT.divide(without_noise(tier.price), per))


@dataclass(frozen=True, slots=True)
class _ModelRates:
    """Every price that can apply to a model, in US dollars for one unit."""

    flat: Mapping[str, Decimal]
    """The highest price of each kind, whatever the size of the input."""
    tiers: Sequence[tuple[str, int, Decimal]]
    """Prices of tiers: the kind, the input tokens above which the price applies, and the price."""


def _find_rates(key: tuple[str, str | None, str | None, PriceConditions, int]) -> _ModelRates | None:
    """Find the prices that can apply to a model. The key has the hour, as this is done once an hour.

    It takes 100 µs. An hour is short enough, because prices of a later date count from the day before on.
    """
    model, provider, url, conditions, _ = key
    listed = listed_model(model, provider, url)
    if listed is None or SEARCHES_UNASKED.names.match(model):
        return None
    if conditions.asked_tier is not None and not listed.knows("service_tier", conditions.asked_tier):
        return None  # its price is not listed, and is above those that are
    flat: dict[str, Decimal] = dict.fromkeys(("input", "output", "requests", "web_search"), _ZERO)
    tiers: list[tuple[str, int, Decimal]] = []
    possible = _possible_prices(listed.info, conditions, datetime.now(UTC))
    for price in chain.from_iterable(map(_prices_in, possible)):
        if price.unit is None:
            return None
        kind = "web_search" if price.unit == "web_searches" else kind_of(price.unit)
        if kind == "tool_calls":
            continue  # only native tools make them, and a request with these has no bound
        if kind not in flat:
            return None
        if _CACHE_WRITES_OF.get(price.key, 0) > _CACHE_WRITES[conditions.cache_write]:
            continue
        if price.key in _AUDIBLE and not conditions.audio:
            continue
        usd = price.usd
        if conditions.cache_write == "12h" and price.key in _CACHE_WRITES_OF:
            usd = EXACT.multiply(usd, HALF_DAY_WRITE.times)
        if price.above is None:
            flat[kind] = max(flat[kind], usd)
        else:
            tiers.append((kind, price.above, usd))
    return _ModelRates(flat, tiers)


_rates: Final = KeptWhileListed(_find_rates)


def _possible_prices(model: ModelInfo, conditions: PriceConditions, now: datetime) -> Iterator[ModelPrice]:
    """Yield the prices that can apply around now: also of later dates and any hour, but not of the past."""
    for variant in model.price_variants or ():
        if _can_apply(variant.when, conditions):
            yield variant.prices
    if isinstance(model.prices, ModelPrice):
        yield model.prices
        return
    for conditional in reversed(model.prices):  # the last price that holds takes precedence
        yield conditional.prices
        constraint = conditional.constraint
        if constraint is None or (
            isinstance(constraint, StartDateConstraint) and constraint.active(now - _CLOCK_SLACK)
        ):
            return


def _can_apply(when: Mapping[str, str], conditions: PriceConditions) -> bool:
    """Return whether a variant can apply; `when` has the service tier, the speed or other values for it."""
    tier = when.get("service_tier")
    if tier is not None and conditions.service_tiers is not None and tier not in conditions.service_tiers:
        return False
    return conditions.fast or when.get("speed") != "fast"


_CACHE_WRITES: Final = {"no": 0, "5m": 1, "1h": 2, "12h": 3}
_CACHE_WRITES_OF: Final = {
    unit["price_key"]: _CACHE_WRITES["1h" if unit["dimensions"].get("cache_ttl") == "1h" else "5m"]
    for unit in unit_data.values()
    if unit["dimensions"].get("token_type") == "cache_write"
}
"""Prices that apply to cache writes only, each with the lifetime of the writes, as in `_CACHE_WRITES`."""
_AUDIBLE: Final = frozenset(
    unit["price_key"]
    for unit in unit_data.values()
    if unit["dimensions"].get("direction") == "input"
    and unit["dimensions"].get("modality") in ("audio", "video")
)
"""Prices that apply to input of audio and video only."""

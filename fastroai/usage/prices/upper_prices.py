"""The highest prices that tokens of a model can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from genai_prices.data_snapshot import DataSnapshot, get_snapshot
from genai_prices.data_units import unit_data
from genai_prices.types import ModelInfo, ModelPrice, StartDateConstraint, TieredPrices

from fastroai.records import EXACT
from fastroai.usage.facts.billing import HALF_DAY_WRITE, SEARCHES_UNASKED
from fastroai.usage.prices.flat_prices import ANY_PRICE, FlatPrices, PriceConditions
from fastroai.usage.prices.list_prices import listed_model
from fastroai.usage.prices.model_pricing import TOKENS_PER_MTOK
from fastroai.usage.prices.rate_card import PER, UNIT_OF_PRICE, kind_of, without_noise

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
    rates = _rates.of(model, provider, provider_url, conditions)
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


@dataclass(frozen=True, slots=True)
class _ModelRates:
    """Every price that can apply to a model, in US dollars for one unit."""

    flat: Mapping[str, Decimal]
    """The highest price of each kind, whatever the size of the input."""
    tiers: Sequence[tuple[str, int, Decimal]]
    """Prices of tiers: the kind, the input tokens above which the price applies, and the price."""


class _Rates:
    """The prices that can apply to models. Each is found once an hour, since looking one up takes 100 µs.

    The time is an hour, because prices of a later date count from the day before on.
    """

    def __init__(self) -> None:
        self._of: tuple[DataSnapshot, int] | None = None
        self._found: dict[tuple[str, str | None, str | None, PriceConditions], _ModelRates | None] = {}

    def of(
        self, model: str, provider: str | None, url: str | None, conditions: PriceConditions
    ) -> _ModelRates | None:
        now = datetime.now(UTC)
        current = get_snapshot(), int(now.timestamp()) // 3600
        if self._of is None or self._of[0] is not current[0] or self._of[1] != current[1]:
            self._of, self._found = current, {}
        found, key = self._found, (model, provider, url, conditions)
        if key not in found:
            found[key] = _find_rates(model, provider, url, conditions, now)
        return found[key]


_rates: Final = _Rates()


def _find_rates(
    model: str, provider: str | None, url: str | None, conditions: PriceConditions, now: datetime
) -> _ModelRates | None:
    listed = listed_model(model, provider, url)
    if listed is None or SEARCHES_UNASKED.names.match(model):
        return None
    if conditions.asked_tier is not None and not listed.knows("service_tier", conditions.asked_tier):
        return None  # its price is not listed, and is above those that are
    flat: dict[str, Decimal] = dict.fromkeys(("input", "output", "requests", "web_search"), Decimal(0))
    tiers: list[tuple[str, int, Decimal]] = []
    for prices in _possible_prices(listed.info, conditions, now):
        for key, value in vars(prices).items():
            if value is None:
                continue
            if (unit := UNIT_OF_PRICE.get(key)) is None:
                return None
            kind = "web_search" if unit == "web_searches" else kind_of(unit)
            if kind == "tool_calls":
                continue  # only native tools make them, and a request with these has no bound
            if kind not in flat:
                return None
            if _CACHE_WRITES_OF.get(key, 0) > _CACHE_WRITES[conditions.cache_write]:
                continue
            if key in _AUDIBLE and not conditions.audio:
                continue
            per = PER[unit]
            if conditions.cache_write == "12h" and key in _CACHE_WRITES_OF:
                per = EXACT.divide(per, HALF_DAY_WRITE.times)
            base = without_noise(value if isinstance(value, Decimal) else value.base)
            flat[kind] = max(flat[kind], EXACT.divide(base, per))
            if isinstance(value, TieredPrices):
                for tier in value.tiers:
                    tiers.append((kind, tier.start, EXACT.divide(without_noise(tier.price), per)))
    return _ModelRates(flat, tiers)


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

"""The lowest prices that tokens of a model can have."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

from fastroai.records import EXACT
from fastroai.usage.prices.flat_prices import TOKENS_PER_MTOK, FlatPrices
from fastroai.usage.prices.list_prices import listed_model
from fastroai.usage.prices.model_pricing import ModelPricing, TokenPrices
from fastroai.usage.prices.price_units import PRICE_UNITS
from fastroai.usage.prices.rate_card import without_noise

_ZERO: Final = Decimal(0)


def lower_override(pricing: ModelPricing, listed: FlatPrices | None) -> FlatPrices | None:
    """Return the lowest of a user's own prices for a model.

    `listed` are the lowest list prices, which hold where the user gives none. The result is `None` if they
    are needed and not known.
    """
    lowest: list[FlatPrices | None] = []
    for variant in pricing.variants():
        own = map(_lower, variant.prices_within())
        tokens = listed if variant.prices is None else FlatPrices.chosen(min, own)
        lowest.append(tokens and tokens.charged(variant.share, fee=variant.per_request))
    return FlatPrices.chosen(min, lowest)


def _lower(prices: TokenPrices) -> FlatPrices:
    input_prices = (
        prices.input_per_mtok,
        prices.cache_read_per_mtok,
        prices.cache_write_per_mtok,
        prices.cache_write_1h_per_mtok,
        prices.input_audio_per_mtok,
        prices.cache_audio_read_per_mtok,
    )
    output_prices = (prices.output_per_mtok, prices.output_audio_per_mtok)
    return FlatPrices(
        input_per_mtok=min(price for price in input_prices if price is not None),
        output_per_mtok=min(price for price in output_prices if price is not None),
    )


def lower_list_prices(model: str, provider: str | None, provider_url: str | None) -> FlatPrices | None:
    """Return the lowest list prices that a request can be billed at; `None` if there is no list price.

    Compares every kind of token (cached, audio, ...), every tier, every service tier and other variant, and
    every date and hour that prices are known for.
    """
    listed = listed_model(model, provider, provider_url)
    if listed is None:
        return None
    # Variants list only the prices that differ from the others, so all prices are compared one by one.
    lowest: dict[str, Decimal] = {}
    for kind, price in _prices(listed.info):
        lowest[kind] = min(price, lowest.get(kind, price))
    return FlatPrices(
        input_per_mtok=EXACT.multiply(lowest.get("input", _ZERO), TOKENS_PER_MTOK),
        output_per_mtok=EXACT.multiply(lowest.get("output", _ZERO), TOKENS_PER_MTOK),
    )


def _prices(model: ModelInfo) -> Iterator[tuple[str, Decimal]]:
    """Yield every price of a model: the kind of its unit, and US dollars for one unit."""
    given = [model.prices] if isinstance(model.prices, ModelPrice) else [each.prices for each in model.prices]
    for prices in (*given, *(variant.prices for variant in model.price_variants or ())):
        for key, value in vars(prices).items():
            if value is not None and (unit := PRICE_UNITS.get(key)) is not None:
                for price in _tiers(value):
                    yield unit.kind, EXACT.divide(without_noise(price), unit.per)


def _tiers(price: Decimal | TieredPrices) -> Iterator[Decimal]:
    if isinstance(price, Decimal):
        yield price
        return
    yield price.base
    yield from (tier.price for tier in price.tiers)

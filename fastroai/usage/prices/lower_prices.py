"""The lowest prices that tokens of a model can have."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

from fastroai.records import EXACT
from fastroai.usage.prices.flat_prices import FlatPrices
from fastroai.usage.prices.list_prices import listed_model
from fastroai.usage.prices.model_pricing import TOKENS_PER_MTOK
from fastroai.usage.prices.rate_card import PER, UNIT_OF_PRICE, kind_of, without_noise

_ZERO: Final = Decimal(0)


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
            if value is not None and (unit := UNIT_OF_PRICE.get(key)) is not None:
                for price in _tiers(value):
                    yield kind_of(unit), EXACT.divide(without_noise(price), PER[unit])


def _tiers(price: Decimal | TieredPrices) -> Iterator[Decimal]:
    if isinstance(price, Decimal):
        yield price
        return
    yield price.base
    yield from (tier.price for tier in price.tiers)

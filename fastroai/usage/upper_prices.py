"""The most that tokens of a model can cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from genai_prices.data_units import unit_data
from genai_prices.types import ModelInfo, ModelPrice, StartDateConstraint, TieredPrices
from pydantic_ai.messages import ModelResponse

from fastroai.usage.list_prices import list_price
from fastroai.usage.overrides import ModelPricing

_TOKENS_PER_MTOK: Final = 1_000_000
_CLOCK_SLACK: Final = timedelta(days=1)
_SEARCHES_UNASKED: Final = re.compile(r"search|sonar|:online")
"""Models that search the web without being given a tool for it, for fees that no token count bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpperPrices:
    """Prices in US dollars that no kind of token of a model exceeds, and what a request costs besides."""

    input_per_mtok: Decimal = Decimal(0)
    output_per_mtok: Decimal = Decimal(0)
    per_request: Decimal = Decimal(0)

    def cost(self, input_tokens: int | None, output_tokens: int | None) -> Decimal | None:
        """The most that so many tokens can cost; `None` if a count that costs money is not known."""
        total = self.per_request
        for tokens, per_mtok in ((input_tokens, self.input_per_mtok), (output_tokens, self.output_per_mtok)):
            if per_mtok:
                if tokens is None:
                    return None
                total += tokens * per_mtok / _TOKENS_PER_MTOK
        return total

    @classmethod
    def highest(cls, prices: Iterable[UpperPrices]) -> UpperPrices:
        """Prices that none of these exceeds."""
        known = list(prices)
        return cls(
            input_per_mtok=max(price.input_per_mtok for price in known),
            output_per_mtok=max(price.output_per_mtok for price in known),
            per_request=max(price.per_request for price in known),
        )


def upper_override(pricing: ModelPricing) -> UpperPrices:
    """The highest of a user's own prices for a model."""
    input_prices = (
        pricing.input_per_mtok,
        pricing.cache_read_per_mtok,
        pricing.cache_write_per_mtok,
        pricing.cache_write_1h_per_mtok,
        pricing.input_audio_per_mtok,
        pricing.cache_audio_read_per_mtok,
    )
    return UpperPrices(
        input_per_mtok=max(price for price in input_prices if price is not None),
        output_per_mtok=max(pricing.output_per_mtok, pricing.output_audio_per_mtok or Decimal(0)),
        per_request=pricing.per_request or Decimal(0),
    )


def upper_list_prices(
    model: str, provider: str | None, provider_url: str | None, input_tokens: int | None
) -> UpperPrices | None:
    """The highest list prices that can apply to a request of at most `input_tokens`, sent now.

    Over every kind of token (plain, cached, written to a cache, audio, ...), every tier within reach, every
    service tier and other variant, and every date and hour that the request can fall in. `None` if there
    is no list price, or if more than tokens and requests is billed.
    """
    now = datetime.now(UTC)
    listed = list_price(
        ModelResponse(
            parts=[], model_name=model, provider_name=provider, provider_url=provider_url, timestamp=now
        )
    )
    if listed is None or _SEARCHES_UNASKED.search(model):
        return None
    alternatives = [_highest_of(prices, input_tokens) for prices in _possible_prices(listed.model, now)]
    known = [prices for prices in alternatives if prices is not None]
    return UpperPrices.highest(known) if len(known) == len(alternatives) else None


def _possible_prices(model: ModelInfo, now: datetime) -> Iterator[ModelPrice]:
    """The prices that can apply around now: of later dates and any hour, but not those of the past."""
    yield from (variant.prices for variant in model.price_variants or ())
    if isinstance(model.prices, ModelPrice):
        yield model.prices
        return
    for conditional in reversed(model.prices):  # the last one that holds takes precedence
        yield conditional.prices
        constraint = conditional.constraint
        if constraint is None or (
            isinstance(constraint, StartDateConstraint) and constraint.active(now - _CLOCK_SLACK)
        ):
            return


def _highest_of(prices: ModelPrice, input_tokens: int | None) -> UpperPrices | None:
    """The highest price of each kind of token, where nothing else is billed."""
    highest = {"input": Decimal(0), "output": Decimal(0), "requests": Decimal(0)}
    for key, value in vars(prices).items():
        if value is None:
            continue
        if (unit := _UNITS.get(key)) is None:
            return None
        if unit.kind == "tool_calls":
            continue  # only native tools make them, and a request with these has no bound
        if unit.kind not in highest:
            return None
        highest[unit.kind] = max(
            highest[unit.kind], *(price / unit.per for price in _tiers(value, input_tokens))
        )
    return UpperPrices(
        input_per_mtok=highest["input"] * _TOKENS_PER_MTOK,
        output_per_mtok=highest["output"] * _TOKENS_PER_MTOK,
        per_request=highest["requests"],
    )


def _tiers(price: Decimal | TieredPrices, input_tokens: int | None) -> Iterator[Decimal]:
    """The prices of a unit that so much input can reach: a tier applies above its start."""
    if isinstance(price, Decimal):
        yield price
        return
    yield price.base
    yield from (tier.price for tier in price.tiers if input_tokens is None or input_tokens > tier.start)


@dataclass(frozen=True, slots=True)
class _Unit:
    kind: str
    """`input` or `output` tokens; for anything else that is billed, its family in genai-prices."""
    per: int
    """How many units the price is for."""


def _unit(per: int, dimensions: dict[str, str]) -> _Unit:
    family = dimensions["family"]
    return _Unit(dimensions["direction"] if family == "tokens" else family, per)


_UNITS: Final = {unit["price_key"]: _unit(unit["per"], unit["dimensions"]) for unit in unit_data.values()}

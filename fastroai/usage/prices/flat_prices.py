"""Prices of a model as one figure for all input and one for all output: the highest, or the lowest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import attrgetter
from typing import Final, Literal, TypeAlias, overload

from fastroai.records import EXACT
from fastroai.usage.prices.model_pricing import TOKENS_PER_MTOK, ModelPricing, TokenPrices

_ZERO: Final = Decimal(0)

Choose: TypeAlias = Callable[[Iterable[Decimal]], Decimal]
"""`max` or `min`: which of several prices counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatPrices:
    """Prices in US dollars: for a million tokens of any input or output, for a request, and for a search."""

    input_per_mtok: Decimal = _ZERO
    output_per_mtok: Decimal = _ZERO
    per_request: Decimal = _ZERO
    per_web_search: Decimal | None = None
    """The price of one search by the provider's own tool; `None` if it is not known."""

    @overload
    def cost(self, input_tokens: int, output_tokens: int) -> Decimal: ...
    @overload
    def cost(self, input_tokens: int | None, output_tokens: int | None) -> Decimal | None: ...
    def cost(self, input_tokens: int | None, output_tokens: int | None) -> Decimal | None:
        """Return the cost of a request in US dollars; `None` if a token count that matters is not known."""
        total = self.per_request
        for tokens, per_mtok in ((input_tokens, self.input_per_mtok), (output_tokens, self.output_per_mtok)):
            if per_mtok:
                if tokens is None:
                    return None
                total = EXACT.add(total, EXACT.divide(EXACT.multiply(tokens, per_mtok), TOKENS_PER_MTOK))
        return total

    def charged(self, share: Decimal, *, fee: Decimal = _ZERO) -> FlatPrices:
        """Return a share of these prices, plus a fee for each request."""
        search = self.per_web_search
        return FlatPrices(
            input_per_mtok=EXACT.multiply(self.input_per_mtok, share),
            output_per_mtok=EXACT.multiply(self.output_per_mtok, share),
            per_request=EXACT.add(EXACT.multiply(self.per_request, share), fee),
            per_web_search=None if search is None else EXACT.multiply(search, share),
        )

    def in_region(self, factor: Decimal) -> FlatPrices:
        """Return these prices with a regional premium, which is for tokens only."""
        return replace(
            self,
            input_per_mtok=EXACT.multiply(self.input_per_mtok, factor),
            output_per_mtok=EXACT.multiply(self.output_per_mtok, factor),
        )

    @classmethod
    def chosen(cls, choose: Choose, prices: Iterable[FlatPrices | None]) -> FlatPrices | None:
        """Return the highest (`max`) or lowest (`min`) price of each kind; `None` if one is not known."""
        known: list[FlatPrices] = []
        for price in prices:
            if price is None:
                return None
            known.append(price)
        searches = [price.per_web_search for price in known if price.per_web_search is not None]
        return cls(
            input_per_mtok=choose(map(attrgetter("input_per_mtok"), known)),
            output_per_mtok=choose(map(attrgetter("output_per_mtok"), known)),
            per_request=choose(map(attrgetter("per_request"), known)),
            per_web_search=choose(searches) if searches else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceConditions:
    """The prices of a model that can apply to a request: all, except those that the request rules out."""

    service_tiers: frozenset[str] | None = None
    """The tiers that the request can be served in; `None` for any."""
    fast: bool = True
    """Whether the request can be served at the price of a fast mode."""
    asked_tier: str | None = None
    """The service tier above the list prices that the request asks for."""
    cache_write: Literal["no", "5m", "1h", "12h"] = "1h"
    """The longest time for which the request's input can be written to a cache."""
    inference_geo: str | None = None
    """The region that the request asks Anthropic for."""
    audio: bool = True
    """Whether some of the request's input can be audio or video."""


ANY_PRICE: Final = PriceConditions()


def flat_override(
    choose: Choose,
    pricing: ModelPricing,
    listed: FlatPrices | None,
    input_tokens: int | None = None,
    conditions: PriceConditions = ANY_PRICE,
) -> FlatPrices | None:
    """Return the highest or lowest of a user's own prices that can apply to a request.

    `listed` are the highest or lowest list prices, which hold where the user gives none. The request has at
    most `input_tokens` of input. The result is `None` if list prices are needed and not known.
    """
    chosen: list[FlatPrices | None] = []
    for variant in pricing.variants(conditions.service_tiers):
        own = (_flat(choose, each, conditions) for each in variant.prices_within(input_tokens))
        tokens = listed if variant.prices is None else FlatPrices.chosen(choose, own)
        chosen.append(tokens and tokens.charged(variant.share, fee=variant.per_request))
    return FlatPrices.chosen(choose, chosen)


def _flat(choose: Choose, prices: TokenPrices, conditions: PriceConditions) -> FlatPrices:
    input_prices = (
        prices.input_per_mtok,
        prices.cache_read_per_mtok,
        prices.cache_write_per_mtok if conditions.cache_write != "no" else None,
        prices.cache_write_1h_per_mtok if conditions.cache_write in ("1h", "12h") else None,
        prices.input_audio_per_mtok if conditions.audio else None,
        prices.cache_audio_read_per_mtok if conditions.audio else None,
    )
    output_prices = (prices.output_per_mtok, prices.output_audio_per_mtok)
    return FlatPrices(
        input_per_mtok=choose(price for price in input_prices if price is not None),
        output_per_mtok=choose(price for price in output_prices if price is not None),
    )

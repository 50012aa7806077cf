"""Prices of a model as one figure for all input and one for all output: the highest, or the lowest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import attrgetter
from typing import Final, overload

from fastroai.records import EXACT

TOKENS_PER_MTOK: Final = 1_000_000
_ZERO: Final = Decimal(0)


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
    def chosen(
        cls, choose: Callable[[Iterable[Decimal]], Decimal], prices: Iterable[FlatPrices | None]
    ) -> FlatPrices | None:
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

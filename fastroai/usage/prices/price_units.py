"""The units of the prices in genai-prices: kinds of tokens, and other things that are billed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genai_prices.data_units import unit_data


@dataclass(frozen=True, slots=True)
class PriceUnit:
    """The unit of one kind of price."""

    kind: str
    """`input` or `output` tokens; for anything else that is billed, its family in genai-prices."""
    per: int
    """The number of units that the price is for."""


def _unit(per: int, dimensions: dict[str, str]) -> PriceUnit:
    family = dimensions["family"]
    return PriceUnit(dimensions["direction"] if family == "tokens" else family, per)


PRICE_UNITS: Final = {
    unit["price_key"]: _unit(unit["per"], unit["dimensions"]) for unit in unit_data.values()
}
"""Units by the name that their price has in genai-prices."""

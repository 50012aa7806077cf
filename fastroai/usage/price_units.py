"""What the prices of genai-prices are for: which tokens, or what else is billed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genai_prices.data_units import unit_data


@dataclass(frozen=True, slots=True)
class PriceUnit:
    """What one kind of price is for."""

    kind: str
    """`input` or `output` tokens; for anything else that is billed, its family in genai-prices."""
    per: int
    """How many units the price is for."""


def _unit(per: int, dimensions: dict[str, str]) -> PriceUnit:
    family = dimensions["family"]
    return PriceUnit(dimensions["direction"] if family == "tokens" else family, per)


PRICE_UNITS: Final = {
    unit["price_key"]: _unit(unit["per"], unit["dimensions"]) for unit in unit_data.values()
}
"""By the name that the price has in genai-prices."""

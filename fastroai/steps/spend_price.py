"""Prices of spending that is no request: by list prices, overrides, or what the caller states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeAlias

from pydantic_ai.usage import RequestUsage

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.records import EXACT, RequestRecord, Tokens
from fastroai.usage import CostCalculator
from fastroai.usage.money import Amount, exact_dollars
from fastroai.usage.prices.rate_card import UNITS
from fastroai.usage.prices.references import provider_and_name
from fastroai.usage.prices.request_cost import UNKNOWN_COST, RequestCost

Units: TypeAlias = Mapping[str, int | float]
"""Amounts by the names of their units, as in `{"audio_seconds": 90.5}`."""

_UNIT_OF_FIELD: Final = {field.name: field.name for field in fields(Tokens)} | {
    "reasoning_tokens": "output_reasoning_tokens"
}
"""The unit of genai-prices for each count of `Tokens`."""


def checked_units(units: Units) -> dict[str, int | float]:
    """Return a copy of some units. Raises `ConfigurationError` for invalid counts."""
    if not isinstance(units, Mapping):
        raise ConfigurationError("units", units, "a mapping, as in {'web_searches': 3}")
    for name, count in units.items():
        number = isinstance(count, int | float) and not isinstance(count, bool)
        if not isinstance(name, str) or not number or not 0 <= count < float("inf"):
            raise ConfigurationError("units", {name: count}, "names of units, each with a number, 0 or more")
    return dict(units)


def tokens_of(units: Units) -> Tokens:
    """Return the token counts among some units."""
    return Tokens(**{field: int(units.get(unit, 0)) for field, unit in _UNIT_OF_FIELD.items()})


@dataclass(frozen=True, slots=True)
class SpendPrice:
    """The price of one unit: `price_usd`, if it is given; else that of a calculator for a model."""

    calculator: CostCalculator
    model: str
    provider: str
    price_usd: Decimal | None
    provider_url: str | None = None
    """URL of the API where it is bought, because prices can depend on that."""

    @staticmethod
    def stated(usd: Amount) -> RequestCost:
        """Return a cost that the caller states."""
        return UNKNOWN_COST.billed(exact_dollars("usd", usd))

    def of(self, units: Units) -> RequestCost:
        """Return the cost of some units.

        Raises:
            ConfigurationError: the price is for other units.
        """
        if self.price_usd is not None:
            if len(units) != 1:
                raise ConfigurationError("units", units, "one unit, whose price is price_usd=")
            (count,) = units.values()
            cost = EXACT.multiply(self.price_usd, Decimal(str(count)))
            return RequestCost(cost_usd=cost, source="override", priced_usd=cost)
        if not self.model:
            raise ConfigurationError("model", self.model, "a model with prices of these units, or price_usd=")
        for name in units:
            if name not in UNITS:
                expected = f"a unit of genai-prices, or price_usd= for it.{nearest_hint(name, UNITS)}"
                raise ConfigurationError("units", name, expected)
        usage = RequestUsage()
        for name, count in units.items():
            setattr(usage, name, count)
        return self.calculator.cost_of_usage(
            usage, model=self.model, provider=self.provider or None, provider_url=self.provider_url
        )


def price_record(
    calculator: CostCalculator,
    model: str,
    provider: str,
    tokens: Tokens,
    cost_usd: Amount | None,
) -> RequestRecord:
    """Return a settled record of `tokens`, priced by `calculator` unless `cost_usd` says what they cost."""
    told, model = provider_and_name(model, provider or None)
    if cost_usd is None and tokens == Tokens():
        raise ConfigurationError("record_usage", ..., "cost_usd= or tokens, such as input_tokens=")
    if cost_usd is None:
        cost = calculator.cost_of_usage(tokens, model=model, provider=told)
        if not cost.complete:
            calculator.warn_incomplete(cost, model, told)
    else:
        cost = UNKNOWN_COST.billed(exact_dollars("cost_usd", cost_usd))
    now = datetime.now(UTC)
    return cost.on(
        RequestRecord(model=model, provider=told or "", outcome="settled", tokens=tokens, started_at=now)
    )

"""Spending that does not go through an agent, as a record like any other."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from fastroai.errors import ConfigurationError
from fastroai.records import RequestRecord, Tokens
from fastroai.usage import CostCalculator


def price_record(
    calculator: CostCalculator,
    model: str,
    provider: str,
    tokens: Tokens,
    cost_usd: Decimal | str | int | None,
) -> RequestRecord:
    """A settled record of `tokens`, priced by `calculator` unless `cost_usd` says what they cost."""
    if ":" in model and not provider:
        provider, model = model.split(":", 1)
    if cost_usd is None:
        cost = calculator.price(tokens, model=model, provider=provider or None)
        if cost is None:
            calculator.warn_unpriced(model, provider)
    else:
        cost = _exact_cost(cost_usd)
    return RequestRecord(
        model=model,
        provider=provider,
        outcome="settled",
        tokens=tokens,
        cost_usd=cost,
        started_at=datetime.now(UTC),
    )


def _exact_cost(cost_usd: Decimal | str | int) -> Decimal:
    expected = "exact US dollars, zero or more: a Decimal, a string or an int"
    if isinstance(cost_usd, bool | float):
        raise ConfigurationError("cost_usd", cost_usd, expected)
    try:
        cost = Decimal(cost_usd)
    except (InvalidOperation, TypeError, ValueError):
        raise ConfigurationError("cost_usd", cost_usd, expected) from None
    if not cost.is_finite() or cost < 0:
        raise ConfigurationError("cost_usd", cost_usd, expected)
    return cost

"""Spending that does not go through an agent, as a record like any other."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from fastroai.errors import ConfigurationError
from fastroai.records import RequestRecord, Tokens
from fastroai.usage import CostCalculator
from fastroai.usage.request_cost import UNKNOWN_COST


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
    if cost_usd is None and tokens == Tokens():
        raise ConfigurationError("record_usage", "nothing", "cost_usd= or tokens, such as input_tokens=")
    if cost_usd is None:
        cost = calculator.cost_of_usage(tokens, model=model, provider=provider or None)
        if not cost.complete:
            calculator.warn_incomplete(cost, model, provider)
    else:
        cost = UNKNOWN_COST.billed(_exact_cost(cost_usd))
    return RequestRecord(
        model=model,
        provider=provider,
        outcome="settled",
        tokens=tokens,
        cost_usd=cost.cost_usd,
        cost_source=cost.source,
        stated_usd=cost.stated_usd,
        priced_usd=cost.priced_usd,
        unpriced_units=cost.unpriced_units,
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

"""Records of spending that does not go through an agent."""

from __future__ import annotations

from datetime import UTC, datetime

from fastroai.errors import ConfigurationError
from fastroai.records import RequestRecord, Tokens
from fastroai.usage import CostCalculator
from fastroai.usage.money import Amount, exact_dollars
from fastroai.usage.prices.references import provider_and_name
from fastroai.usage.prices.request_cost import UNKNOWN_COST


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

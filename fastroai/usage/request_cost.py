"""What one request cost, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from fastroai.records import EXACT, CostSource
from fastroai.usage.list_prices import ListedModel, listed_model
from fastroai.usage.overrides import canonical_provider
from fastroai.usage.rate_card import TOKEN_UNITS, ContradictoryUsage, Used

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    from fastroai.usage.overrides import ModelPricing

_CONDITIONS: Final = ("service_tier", "traffic_type", "speed", "processing")
"""What prices depend on besides the model, by the names of genai-prices and of PydanticAI's responses."""
_STANDARD: Final = frozenset({"auto", "default", "on_demand", "standard", "standard_only"})
"""Values that name the service at its plain list price, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    """What one request cost, where that is from, and what of it is not known."""

    cost_usd: Decimal | None = None
    """Exact US dollars, without `unpriced_units`; `None` if no part of the cost is known."""
    source: CostSource = "unknown"
    priced_usd: Decimal | None = None
    """What it costs by the prices known here, in US dollars; `None` if they do not cover it."""
    stated_usd: Decimal | None = None
    """What the provider or a gateway says that it bills, in US dollars."""
    unpriced_units: tuple[str, ...] = ()
    """What was used and has no known price."""
    contradiction: str | None = None
    """Why the reported usage cannot be true."""

    @property
    def complete(self) -> bool:
        """Whether `cost_usd` is all of the cost, beyond doubt."""
        return self.cost_usd is not None and not self.unpriced_units and self.contradiction is None

    @property
    def difference_usd(self) -> Decimal | None:
        """How much more the stated bill is than the prices known here, in US dollars; `None` without both."""
        if self.stated_usd is None or self.priced_usd is None:
            return None
        return EXACT.subtract(self.stated_usd, self.priced_usd)

    def billed(self, stated_usd: Decimal) -> RequestCost:
        """The same with the bill that the provider states, which covers everything."""
        return replace(self, cost_usd=stated_usd, source="stated", stated_usd=stated_usd, unpriced_units=())

    def why_incomplete(self, model: str) -> str:
        """Say why the cost of a request to `model` is not complete, and what to do about it."""
        if self.contradiction is not None:
            return f"the usage that {model!r} reported contradicts itself ({self.contradiction})"
        if self.unpriced_units:
            units = ", ".join(self.unpriced_units)
            return f"no price is known for what {model!r} used besides: {units}"
        return (
            f"no price is known for {model!r}; add one: CostCalculator(pricing_overrides="
            f"{{{model!r}: {{'input_per_mtok': ..., 'output_per_mtok': ...}}}})"
        )


OVERLAPPING: Final = RequestCost(unpriced_units=("token counts that overlap",))
"""Of usage whose parts are more than their whole together, so that some tokens are counted twice."""
UNKNOWN_COST: Final = RequestCost()
"""Of a request of which no price, or no usage, is known."""
FREE: Final = RequestCost(cost_usd=Decimal(0), source="priced", priced_usd=Decimal(0))
"""Of a request to a model for tests."""


def by_override(pricing: ModelPricing, usage: RequestUsage, used: Used) -> RequestCost:
    """What a request costs by prices of the user, which are for tokens and for requests.

    Raises:
        ContradictoryUsage: parts of a count exceed it.
    """
    try:
        cost = pricing.cost(usage)
    except ValueError as error:
        raise ContradictoryUsage(str(error)) from error
    beside = tuple(name for name in used if name not in TOKEN_UNITS)
    return RequestCost(
        cost_usd=cost, source="override", priced_usd=None if beside else cost, unpriced_units=beside
    )


def by_list_price(
    response: ModelResponse,
    used: Used,
    model: str | None,
    provider: str | None,
    conditions: Mapping[str, str],
) -> RequestCost:
    """What a request costs by the list prices of the model that answered: `model`, where it does not say.

    Raises:
        ContradictoryUsage: parts of a count exceed it.
    """
    asked = response.provider_name or provider
    name = canonical_provider(asked) if asked else None
    listed = listed_model(response.model_name or model, name, response.provider_url)
    if listed is None:
        return UNKNOWN_COST
    served = {**_texts(response.provider_details or {}), **conditions}
    card = listed.card(response.timestamp, served)
    cost = card.cost(used)
    beside = (*card.uncovered(used), *card.unknown, *_unlisted(listed, served))
    return RequestCost(
        cost_usd=cost, source="priced", priced_usd=None if beside else cost, unpriced_units=beside
    )


def _texts(details: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name in _CONDITIONS if isinstance(value := details.get(name), str)}


def _unlisted(listed: ListedModel, served: Mapping[str, str]) -> Iterator[str]:
    """The conditions under which it was served and of which the list has no price."""
    for name, value in served.items():
        if value.lower() not in _STANDARD and not listed.knows(name, value):
            yield f"{name}={value}"

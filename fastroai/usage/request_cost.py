"""What one request cost, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fastroai.records import EXACT, CostSource
from fastroai.usage.rate_card import TOKEN_UNITS, ContradictoryUsage, RateCard, Used

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    from fastroai.usage.endpoints import RegionalFactor
    from fastroai.usage.list_prices import ListedModel
    from fastroai.usage.model_pricing import ModelPricing

_ONE: Final = Decimal(1)
_CONDITIONS: Final = frozenset({"service_tier", "traffic_type", "speed", "processing"})
"""What prices depend on besides the model, by the names of genai-prices and of PydanticAI's responses."""
_STANDARD: Final = frozenset({"auto", "default", "on_demand", "standard", "standard_only"})
"""Values that name the service at its plain list price, in lower case."""


_REGIONAL: Final = "regional pricing of"
_SAY_REGION: Final = (
    "say what tokens cost there, as a multiple of list prices: "
    "CostCalculator(endpoints={'https://...': Endpoint(regional_factor=1)})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    """What one request cost, where that is from, and what of it is not known."""

    cost_usd: Decimal | None = None
    """Exact US dollars, without `unpriced_units`; `None` if no part of the cost is known."""
    source: CostSource = "unknown"
    priced_usd: Decimal | None = None
    """What it costs by the prices known here, in US dollars; `None` if they do not cover it."""
    most_usd: Decimal | None = None
    """The most that it can be, if it is not complete; `None` if prices do not tell."""
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
        return replace(
            self,
            cost_usd=stated_usd,
            source="stated",
            stated_usd=stated_usd,
            most_usd=None,
            unpriced_units=(),
        )

    def charged(self, share: Decimal, *, fee: Decimal) -> RequestCost:
        """The same at a share of its prices, and with a fee besides, as the user says."""

        def of(usd: Decimal | None) -> Decimal | None:
            return None if usd is None else EXACT.add(EXACT.multiply(usd, share), fee)

        return replace(
            self,
            cost_usd=of(self.cost_usd),
            priced_usd=of(self.priced_usd),
            most_usd=of(self.most_usd),
            source="override",
        )

    def why_incomplete(self, model: str, *, override: str | None = None) -> str:
        """Say why the cost of a request to `model` is not complete, and what to do about it.

        `override` names the override that matches the model, if that has no prices of its own.
        """
        if self.contradiction is not None:
            return f"the usage that {model!r} reported contradicts itself ({self.contradiction})"
        if self.unpriced_units:
            units = ", ".join(self.unpriced_units)
            reason = f"no price is known for what {model!r} used besides: {units}"
            return f"{reason}; {_SAY_REGION}" if _REGIONAL in units else reason
        if override is not None:
            return (
                f"no price is known for {model!r}: {override} matches, but there is no list price to take a "
                "discount from; add input_per_mtok and output_per_mtok"
            )
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
    listed: ListedModel,
    response: ModelResponse,
    used: Used,
    served: Mapping[str, str],
    region: RegionalFactor,
) -> RequestCost:
    """Work out what a request costs by the list prices of the model that answered, in a region.

    Raises:
        ContradictoryUsage: parts of a count exceed it.
    """
    card = listed.card(response.timestamp, served)
    list_usd = card.cost(used)
    cost = _in_region(card, used, list_usd, region.known or _ONE)
    beside = (*card.uncovered(used), *card.unknown, *_unlisted(listed, served))
    if region.known is not None:
        priced, most = None if beside else cost, None
    else:
        priced = None
        most = None if beside or region.most is None else _in_region(card, used, list_usd, region.most)
        beside = (*beside, f"{_REGIONAL} {urlsplit(response.provider_url or '').hostname}")
    return RequestCost(
        cost_usd=cost, source="priced", priced_usd=priced, most_usd=most, unpriced_units=beside
    )


def _in_region(card: RateCard, used: Used, list_usd: Decimal, factor: Decimal) -> Decimal:
    """The cost with a regional premium, which is for tokens and not for searches and the like."""
    if factor == _ONE:
        return list_usd
    without_tokens = card.cost({name: count for name, count in used.items() if name not in TOKEN_UNITS})
    tokens_usd = EXACT.subtract(list_usd, without_tokens)
    return EXACT.add(without_tokens, EXACT.multiply(tokens_usd, factor))


def served_under(
    response: ModelResponse, conditions: Mapping[str, str], *, service_tier: str | None = None
) -> dict[str, str]:
    """Tell under which conditions a request was served, as far as prices depend on them.

    `service_tier` is that of responses that name none.
    """
    default = {} if service_tier is None else {"service_tier": service_tier}
    return {**default, **_texts(response.provider_details or {}), **conditions}


def _texts(details: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in details.items() if name in _CONDITIONS and isinstance(value, str)}


def _unlisted(listed: ListedModel, served: Mapping[str, str]) -> Iterator[str]:
    """The conditions under which it was served and of which the list has no price."""
    for name, value in served.items():
        if value.lower() not in _STANDARD and not listed.knows(name, value):
            yield f"{name}={value}"

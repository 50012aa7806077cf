"""The cost of one request, as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from fastroai.records import EXACT, CostSource, RequestRecord

REGIONAL: Final = "regional pricing of"
"""Prefix of the unpriced unit for a regional premium of a host."""
_SEE_BILL: Final = "the known cost leaves this out, so look at the bill of the provider"
_SAY_REGION: Final = (
    "say what tokens cost there, as a multiple of list prices: "
    "CostCalculator(endpoints={'https://...': Endpoint(regional_factor=1)})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    """The cost of one request, the source of this cost, and the units whose price is not known."""

    cost_usd: Decimal | None = None
    """Exact US dollars, without `unpriced_units`; `None` if no part of the cost is known."""
    source: CostSource = "unknown"
    priced_usd: Decimal | None = None
    """The cost at the prices known here, in US dollars; `None` if they do not cover it."""
    most_usd: Decimal | None = None
    """The highest cost, if `cost_usd` is not complete, in US dollars; `None` if prices do not tell."""
    stated_usd: Decimal | None = None
    """The bill that the provider or a gateway states, in US dollars."""
    unpriced_units: tuple[str, ...] = ()
    """Names of used units that have no known price."""
    contradiction: str | None = None
    """Why the reported usage cannot be true; `None` if it can."""

    @property
    def complete(self) -> bool:
        """Whether `cost_usd` is surely the whole cost."""
        return self.cost_usd is not None and not self.unpriced_units and self.contradiction is None

    @property
    def difference_usd(self) -> Decimal | None:
        """The stated bill minus the cost at the prices known here, in US dollars; `None` without both."""
        if self.stated_usd is None or self.priced_usd is None:
            return None
        return EXACT.subtract(self.stated_usd, self.priced_usd)

    def on(self, record: RequestRecord) -> RequestRecord:
        """Return the record of a request with this cost."""
        return replace(
            record,
            cost_usd=self.cost_usd,
            cost_source=self.source,
            stated_usd=self.stated_usd,
            priced_usd=self.priced_usd,
            unpriced_units=self.unpriced_units,
        )

    def billed(self, stated_usd: Decimal) -> RequestCost:
        """Return the cost with the bill that the provider states, which covers everything."""
        return replace(
            self,
            cost_usd=stated_usd,
            source="stated",
            stated_usd=stated_usd,
            most_usd=None,
            unpriced_units=(),
        )

    def beside(self, units: tuple[str, ...]) -> RequestCost:
        """Return the cost of a request that has used these units besides, whose price nobody knows."""
        told = tuple(dict.fromkeys((*self.unpriced_units, *units)))
        return replace(self, priced_usd=None, unpriced_units=told) if units else self

    def plus(self, other: RequestCost) -> RequestCost:
        """Return the cost with that of another model that the request has used, which is complete."""
        return self._scaled(Decimal(1), other.cost_usd or Decimal(0))

    def charged(self, share: Decimal, *, fee: Decimal) -> RequestCost:
        """Return the cost at a share of its prices and with a fee, as the user's override says."""
        return replace(self._scaled(share, fee), source="override")

    def _scaled(self, share: Decimal, added: Decimal) -> RequestCost:
        def of(usd: Decimal | None) -> Decimal | None:
            return None if usd is None else EXACT.add(EXACT.multiply(usd, share), added)

        return replace(
            self, cost_usd=of(self.cost_usd), priced_usd=of(self.priced_usd), most_usd=of(self.most_usd)
        )

    def why_incomplete(self, model: str, *, override: str | None = None) -> str:
        """Say why the cost of a request to `model` is not complete, and what to do about it.

        `override` names the override that matches the model, if that has no prices of its own.
        """
        if self.contradiction is not None:
            return f"the usage that {model!r} reported contradicts itself ({self.contradiction}); {_SEE_BILL}"
        if self.unpriced_units:
            units = ", ".join(self.unpriced_units)
            reason = f"no price is known for part of the use of {model!r}: {units}"
            return f"{reason}; {_SAY_REGION if REGIONAL in units else _SEE_BILL}"
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
"""The cost of usage whose parts exceed their whole, so that some tokens are counted twice."""
UNKNOWN_COST: Final = RequestCost()
"""The cost of a request without known usage, or without any known price."""
FREE: Final = RequestCost(cost_usd=Decimal(0), source="priced", priced_usd=Decimal(0))
"""The cost of a request to a model for tests."""

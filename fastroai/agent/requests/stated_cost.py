"""The bill that a provider or a gateway states with a response.

Read it right after `Model.request`: later, PydanticAI may have put an estimate in the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, Protocol

from fastroai.records import EXACT
from fastroai.usage.facts.billing import OPENROUTER_BILL, XAI_BILL

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

MOST_USD: Final = Decimal(10**6)
"""The largest bill that is believed, in US dollars. No request costs more, so a larger bill is a mistake."""


class Billed(Protocol):
    """A response that can state a bill: a `ModelResponse`, or the result of a model that makes images."""

    @property
    def usage(self) -> RequestUsage:
        """The usage that was reported."""
        ...

    @property
    def provider_name(self) -> str | None:
        """The provider that answered."""
        ...

    @property
    def provider_details(self) -> Mapping[str, object] | None:
        """Other details that the provider reported."""
        ...


def stated_cost(response: Billed, body: object = None) -> Decimal | None:
    """Return the bill that a provider or a gateway states, in US dollars; `None` if it states none.

    A stated 0 is 0: a gateway may have answered from its cache. The decoded `body` of the response, which
    streams do not have, tells what PydanticAI changes or drops: it leaves out 0 like `null` and reads `true`
    as 1 in OpenRouter's bill, and drops xAI's.
    """
    if response.usage.cost is not None:  # stated by the Pydantic AI Gateway, or by a model of the user's own
        return usd_amount(response.usage.cost)
    details, usage = response.provider_details or {}, _usage_in(body)
    if response.provider_name == "openrouter":
        return (
            _openrouter_bill(details, details)
            if usage is None
            else _openrouter_bill(usage, usage.get("cost_details"))
        )
    ticks = _number(details.get(XAI_BILL.name))
    if ticks is None and response.provider_name == "xai" and usage is not None:
        ticks = _number(usage.get(XAI_BILL.name))
    return None if ticks is None else usd_amount(EXACT.multiply(ticks, XAI_BILL.usd))


def _usage_in(body: object) -> Mapping[str, object] | None:
    usage = body.get("usage") if isinstance(body, Mapping) else None
    return usage if isinstance(usage, Mapping) else None


def _openrouter_bill(bill: Mapping[str, object], details: object) -> Decimal | None:
    """Return OpenRouter's charge, plus that of the provider whose key the user has brought.

    The details of PydanticAI leave out a cost of 0, as they do `null`: then no bill is stated.
    """
    cost = usd_amount(bill.get(OPENROUTER_BILL.name))
    if cost is None:
        return None
    if not bill.get("is_byok"):
        return cost
    upstream = usd_amount(details.get("upstream_inference_cost")) if isinstance(details, Mapping) else None
    return None if upstream is None else EXACT.add(cost, upstream)


def usd_amount(value: object) -> Decimal | None:
    """Read an amount that can be the bill of one request: 0 or more, and at most `MOST_USD`."""
    amount = _number(value)
    return amount if amount is not None and 0 <= amount <= MOST_USD else None


def _number(value: object) -> Decimal | None:
    """Read a finite number as it is written: a float as the shortest decimal number that it stands for."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int | float | str):
        return None
    try:
        amount = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None

"""`reserve="quote"`: runs that begin only if the limits around them can pay for the whole quote."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, Self, TypeAlias

from fastroai.errors import ConfigurationError
from fastroai.records import EXACT, exact_sum
from fastroai.runtime import Scope
from fastroai.runtime.budgets.admission import set_aside
from fastroai.runtime.budgets.terms import AskedFor, RequestTerms
from fastroai.steps.spend_windows import or_wait
from fastroai.store.record.memo import Memo
from fastroai.usage import Quote, RequestBound

Reserve: TypeAlias = Literal["quote"]
"""The money to set aside for a run before it begins: `"quote"` is the upper amount of its quote."""

Estimate: TypeAlias = Callable[[Any, Any], Awaitable[Quote]]
"""Function that returns the quote of a run with these inputs and deps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms(RequestTerms):
    """The terms of a run for admission: the run gets all of its money at once, or does not begin."""

    model: str  # pyright: ignore[reportIncompatibleMethodOverride]
    """Name of the run, in place of a model."""
    bound: RequestBound  # pyright: ignore[reportIncompatibleMethodOverride]
    """The most that the run may cost. It has 0 tokens, because quotes are amounts of money."""
    provider: str = ""  # pyright: ignore[reportIncompatibleMethodOverride]
    priced: bool = True  # pyright: ignore[reportIncompatibleMethodOverride]
    asks_for: AskedFor = "run"  # pyright: ignore[reportIncompatibleMethodOverride]
    waits_for_others: bool = False  # pyright: ignore[reportIncompatibleMethodOverride]

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """Return `None`, because a run cannot ask for less than its quote."""
        return None


def usd_to_set_aside(name: str, quote: Quote, recorded: Memo | None) -> Decimal:
    """Return the US dollars to set aside for a run: its quote, less what it spent before it was resumed.

    Raises:
        ConfigurationError: the cost of the run has no bound.
    """
    if quote.upper_usd is None:
        why = "; ".join(quote.upper_reasons)
        expected = (
            f"a run whose cost has an upper limit, and {name!r} has none: {why}. "
            "Give it, or these steps, a budget"
        )
        raise ConfigurationError("reserve", "quote", expected)
    records = () if recorded is None else (charge.record for charge in recorded.requests.charges())
    amounts = (record.committed_usd for record in records)
    spent_usd = exact_sum(usd for usd in amounts if isinstance(usd, Decimal))
    return max(Decimal(0), EXACT.subtract(quote.upper_usd, spent_usd))


@asynccontextmanager
async def reserved(scope: Scope, usd: Decimal) -> AsyncGenerator[None]:
    """Set US dollars aside for the run of a scope, and give back at the end what the run has not spent.

    Raises:
        BudgetExceeded: a budget around the run, or a spend limit, has less left.
        SpendStoreUnavailable: the store of a spend limit cannot be asked.
    """
    bound = RequestBound(input_tokens=0, output_tokens=0, cost_usd=usd)
    reservation = await or_wait(scope, set_aside(scope, RunTerms(model=scope.name, bound=bound)), "run")
    try:
        yield
    except BaseException as error:
        reservation.give_back()
        # A cancelled task must not wait for stores: they are told in the background.
        if isinstance(error, Exception):
            await reservation.conclude()
        raise
    reservation.give_back()
    await reservation.conclude()


def check_reserve(reserve: object) -> None:
    """Check that `reserve=` is `"quote"` or `None`. Raises `ConfigurationError`."""
    if reserve not in (None, "quote"):
        raise ConfigurationError("reserve", reserve, "'quote', or None")

"""Money that is reserved before it is spent on something other than a model request.

`spend` works wherever a run is: in steps (as `ctx.spend`), in tools, inside of `budget_scope`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from time import perf_counter
from types import TracebackType
from typing import Final, Literal, Self

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.records import RequestRecord, Tokens, dollars
from fastroai.runtime import Reservation, Scope, admit, current_scope, run_blocking
from fastroai.runtime.budgets.terms import RequestTerms
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.steps.durability import SpendingOnRecord
from fastroai.steps.spend_price import SpendPrice, Units, checked_units, tokens_of
from fastroai.steps.spend_windows import or_wait
from fastroai.tracing.attributes import error_summary
from fastroai.usage import CostCalculator, RequestBound
from fastroai.usage.money import Amount, exact_dollars
from fastroai.usage.prices.pricing import calculator_of
from fastroai.usage.prices.references import provider_and_name
from fastroai.usage.prices.request_cost import UNKNOWN_COST, RequestCost

_UNSAID: Final = "it was neither settled nor released"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendTerms(RequestTerms):
    """The terms of spending for admission, which takes all of it or refuses it."""

    model: str  # pyright: ignore[reportIncompatibleMethodOverride]
    provider: str  # pyright: ignore[reportIncompatibleMethodOverride]
    most: RequestCost
    """The most that it can cost."""
    tokens: Tokens
    unbounded: str | None = None
    """Why nothing bounds its tokens, nor its cost if `most` is not known, with advice."""

    @property
    def priced(self) -> bool:
        """Whether a price is known."""
        return self.unbounded is not None or self.bound.cost_usd is not None

    @property
    def bound(self) -> RequestBound:
        """The most that it can use and cost."""
        bounded = self.unbounded is None
        return RequestBound(
            input_tokens=self.tokens.input_tokens if bounded else None,
            output_tokens=self.tokens.output_tokens if bounded else None,
            cost_usd=self.most.cost_usd if self.most.complete else self.most.most_usd,
            why=self.unbounded,
        )

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """Return the same terms if these amounts pay for them. Spending cannot be made smaller."""
        bound = self.bound.lowered(usd=usd, tokens=tokens)
        return None if bound is None else self


class Spend:
    """A purchase for which money is reserved; made by `spend` and `ctx.spend`.

    Enter it once, with `async with`, or with `with` in code that is not async, such as sync steps and tools.
    Where an event loop runs, `with` raises `ConfigurationError`. Entering it reserves the money, which can
    wait for other requests, and raises `BudgetExceeded` if a budget or spend limit cannot pay for it.

    Inside the block, buy something and call `settle` with its cost, or call `release` if you have bought
    nothing. If the block ends or raises before you call either, the purchase counts as unmeasured: the most
    that it can have cost is charged. Afterwards, `record` has the record of the spending.
    """

    def __init__(
        self, scope: Scope | None, terms: SpendTerms, price: SpendPrice, units: Units, unsaid: str = _UNSAID
    ) -> None:
        """Made by `spend`. `unsaid` is the reason on record if the block ends without a cost."""
        self._scope = scope or Scope("call", "spend", parent=None)
        self._is_root = scope is None
        self._terms, self._price, self._units, self._unsaid = terms, price, units, unsaid
        self._inside = ExitStack()
        self._reservation: Reservation[SpendTerms] | None = None
        self._on_record: SpendingOnRecord | None = None
        self._started_at, self._started = datetime.now(UTC), perf_counter()
        self._waited_ms = 0.0
        self.record: RequestRecord | None = None
        """The record of the spending, once it has ended."""

    @property
    def bound_usd(self) -> Decimal | None:
        """The most that the spending can cost, in US dollars; `None` if no known price covers all of it.

        It is the amount that is reserved. `settle` can charge more.
        """
        return self._terms.bound.cost_usd

    def settle(self, usd: Amount | None = None, *, units: Units | None = None) -> RequestRecord:
        """Charge the cost, end the spending, and return its record.

        The cost is `usd`, in US dollars; or the price of the `units` that were used; or, without arguments,
        all that was reserved. With both, `usd` is the bill. The record also has the units and, in
        `priced_usd`, their price. A cost above the reserved amount is charged, too. If it crosses a budget,
        the step keeps what was bought, and the next request, purchase or step is refused.

        Raises:
            ConfigurationError: an amount or a unit is invalid; a unit is not among those that were reserved;
                there are `units` and neither a model nor `price_usd`; the block has not begun, or the
                spending has ended.
        """
        used = self._units if units is None else self._of_reserved(units)
        cost = self._terms.most if units is None else self._price.of(used)
        if usd is not None:
            cost = (cost if units else UNKNOWN_COST).billed(exact_dollars("usd", usd))
        record = replace(
            cost.on(self._record("settled")), tokens=tokens_of(used), units=used, bound_usd=cost.most_usd
        )
        return self._end(lambda reservation: reservation.settle(record).record)

    def _of_reserved(self, units: Units) -> Units:
        used = checked_units(units)
        for name in used if self._units else ():
            if name not in self._units:
                reserved = ", ".join(map(repr, self._units))
                expected = f"units that were reserved: {reserved}.{nearest_hint(name, self._units)}"
                raise ConfigurationError("units", used, expected)
        return used

    def release(self) -> RequestRecord:
        """End the spending without a charge, because nothing was bought, and return its record.

        The reserved money is free for others again. The outcome of the record is `released`.

        Raises:
            ConfigurationError: the block has not begun, or the spending has ended already.
        """
        record = replace(self._record("released"), error="nothing was bought")
        return self._end(lambda reservation: reservation.release(record).record)

    # --- entering and leaving ---

    async def __aenter__(self) -> Self:
        await self._begin()
        self._enter()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(exc)
        # A cancelled task has no time to wait for stores and listeners: they are told later.
        if exc is None or isinstance(exc, Exception):
            await self._conclude()

    def __enter__(self) -> Self:
        if running_loop() is not None:
            raise ConfigurationError("spend", "with", "`async with`, since an event loop runs here")
        run_blocking(self._begin, called="spend", instead="spend")
        self._enter()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(exc)
        run_blocking(self._conclude, called="spend", instead="spend")

    async def _begin(self) -> None:
        if self._reservation is not None:
            raise ConfigurationError("spend", self, "a new spend() for each purchase")
        started = perf_counter()
        reservation = await or_wait(self._scope, admit(self._scope, self._terms), "spend")
        self._waited_ms = (perf_counter() - started) * 1000
        self._started_at, self._started = datetime.now(UTC), perf_counter()
        reservation.describe = self._unheard
        self._reservation = reservation
        if (on_record := SpendingOnRecord.of(self._scope)) is None:
            return
        self._on_record = on_record
        try:
            await on_record.begin(reservation.bounded(self._unheard()))
        except BaseException as error:
            released = replace(self._record("released"), error=f"nothing was bought: {error_summary(error)}")
            self._end(lambda reservation: reservation.release(released).record)  # a cancelled commit goes on
            raise

    def _enter(self) -> None:
        assert self._reservation is not None
        self._inside.enter_context(self._reservation.inside())

    def _leave(self, error: BaseException | None) -> None:
        self._inside.close()
        if self.record is None:
            record = (
                self._unheard() if error is None else replace(self._unheard(), error=error_summary(error))
            )
            self._end(lambda reservation: reservation.charge_unmeasured(record).record)
        if self._is_root:
            self._scope.close(error)

    async def _conclude(self) -> None:
        assert self._reservation is not None
        await self._reservation.conclude()

    def _end(self, end: Callable[[Reservation[SpendTerms]], RequestRecord]) -> RequestRecord:
        if self._reservation is None or self.record is not None:
            expected = "one call of settle() or release(), inside of its `with` block"
            raise ConfigurationError("spend", self, expected)
        self.record = end(self._reservation)
        if self._on_record is not None:
            self._on_record.ended(self.record)
        return self.record

    def _unheard(self) -> RequestRecord:
        return replace(self._record("unmeasured"), error=self._unsaid, use="failed")

    def _record(self, outcome: Literal["settled", "unmeasured", "released"]) -> RequestRecord:
        record = RequestRecord(
            model=self._terms.model,
            provider=self._terms.provider,
            outcome=outcome,
            kind="spend",
            units=self._units,
            waited_ms=self._waited_ms,
            started_at=self._started_at,
            duration_ms=(perf_counter() - self._started) * 1000,
        )
        return self._scope.labelled(record)

    def __repr__(self) -> str:
        bound = "an unknown amount" if self.bound_usd is None else dollars(self.bound_usd)
        return f"<Spend of up to {bound} on {self._terms.model!r}>"


def spend(
    usd: Amount | None = None,
    *,
    model: str = "",
    provider: str = "",
    units: Units | None = None,
    price_usd: Amount | None = None,
    cost_calculator: CostCalculator | None = None,
) -> Spend:
    """Set money aside in every budget and spend limit around this code, before you spend it.

    Use it for purchases that no agent makes: embeddings, images, speech, searches, paid APIs. It returns a
    `Spend`, which sets the money aside when you enter it with `async with`, or with `with` in code that is
    not async. Like a request, it waits while requests of others stand in the way, and is refused if the money
    is not there. If you call neither `settle` with the cost nor `release` in the block, it counts at the most
    that it can have cost. Outside of runs and `budget_scope`, nothing limits it.

        async with spend("0.02", model="acme:search") as purchase:
            found = await search(question)
            purchase.settle(found.price)

        embed = spend(model="openai:text-embedding-3-small", units={"input_tokens": 8_000})

    State the most that it can cost, in one of two ways: `usd`, or `units` with their price. With `usd`,
    `units` only say what is bought. `Budget(requests=)` does not count the purchase, because it is no request
    to a model; `Budget(tokens=)` counts its tokens.

    Args:
        usd: The most that it can cost, in US dollars.
        model: The model or service that is paid for, with or without its provider, as reports show it.
        provider: Its provider, if `model` does not name it.
        units: The most that is used, by the names of genai-prices' units: `input_tokens`, `audio_seconds`,
            `input_characters`, `input_document_pages`, `web_searches`, ... Their price is the list price of
            `model`, or an override of the calculator. With `price_usd`, one unit of any name.
        price_usd: The price of one unit, in US dollars.
        cost_calculator: Source of prices; by default list prices of genai-prices.

    Raises:
        ConfigurationError: an amount or a unit is invalid, or nothing says what it costs.
        BudgetExceeded: on entering, a budget or a spend limit cannot pay for it.
        UnpricedModelError: on entering, there is a budget of money, and no price is known.
    """
    return spend_in(current_scope(), usd, model, provider, units, price_usd, cost_calculator)


def spend_in(
    scope: Scope | None,
    usd: Amount | None,
    model: str,
    provider: str,
    units: Units | None,
    price_usd: Amount | None,
    cost_calculator: CostCalculator | None,
) -> Spend:
    """Make a `Spend` in a scope, or in one of its own if there is none. See `spend`."""
    told, model = provider_and_name(model, provider or None)
    provider = told or ""
    known = {} if units is None else checked_units(units)
    own = None if price_usd is None else exact_dollars("price_usd", price_usd)
    price = SpendPrice(calculator_of(cost_calculator), model, provider, own)
    most = _most(price, usd, units, known)
    terms = SpendTerms(model=model or "spend", provider=provider, most=most, tokens=tokens_of(known))
    return Spend(scope, terms, price, known)


def _most(price: SpendPrice, usd: Amount | None, units: Units | None, known: Units) -> RequestCost:
    if usd is not None:
        if price.price_usd is not None:
            raise ConfigurationError("price_usd", price.price_usd, "units= instead of usd=")
        return SpendPrice.stated(usd)
    if units is None:
        expected = (
            "the most that it can cost: usd='0.02', or units={'searches': 3} with price_usd='0.01' for each, "
            "or units={'input_tokens': 8_000} with the model= whose list price counts"
        )
        raise ConfigurationError("usd", None, expected)
    return price.of(known)

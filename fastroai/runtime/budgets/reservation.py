"""The reservation of one admitted request, from its admission to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, overload

from fastroai.errors import BudgetExceeded
from fastroai.records import RequestRecord, usd_to_microcents
from fastroai.runtime.budgets.in_flight import Charge
from fastroai.runtime.budgets.ledger import NOTHING, Account, Claim, Hold, Measure, wake
from fastroai.runtime.budgets.shared_reservation import SharedReservation, booked_usd, note_settled
from fastroai.runtime.budgets.stops import committed_of
from fastroai.runtime.budgets.terms import TermsT, amounts_of, usd_to_reserve
from fastroai.runtime.concurrency.flow import Flow
from fastroai.runtime.concurrency.interruption import Interruption
from fastroai.runtime.concurrency.wakeup import result_of
from fastroai.runtime.events import BudgetWarning, SpendRecorded
from fastroai.runtime.scope import Scope

if TYPE_CHECKING:
    from fastroai.runtime.budgets.in_flight import Payer
    from fastroai.usage import SpendBalance
    from fastroai.usage.limits import Ceiling

logger = logging.getLogger("fastroai.runtime")


Warned: TypeAlias = list[tuple[Account, float]]
"""Pairs of an account and a share in `warn_at` that it has reached."""


_around: Final[ContextVar[tuple[Reservation[Any], ...]]] = ContextVar("fastroai_requests", default=())
"""The requests inside of which the running code is, such as code that handles the events of a stream.

A context variable, because several requests go on at once under one scope.
"""


class Reservation(Generic[TermsT]):
    """One admitted request. It is ended exactly once."""

    def __init__(self, scope: Scope, terms: TermsT, hold: Hold, flow: Flow | None) -> None:
        self.scope = scope
        self.terms = terms
        """The request as it was admitted: perhaps with a lower `max_tokens`, or to another model."""
        self.short: BudgetExceeded | None = None
        """The error to raise if the answer is cut; `None` if `max_tokens` was not lowered."""
        self.short_of: tuple[Account, Measure] | SharedReservation | None = None
        """The account or spend limit because of which `max_tokens` was lowered."""
        self.shared: list[SharedReservation] = []
        self.written_off: Charge | None = None
        self.describe: Callable[[], RequestRecord] | None = None
        """Function that makes the record so far, for scopes that close while the request is in flight."""
        self.interruption = Interruption(scope)
        """Ends the request if the run ends while it is in flight."""
        self._hold, self._flow, self._open = hold, flow, True
        self._endings: list[tuple[SharedReservation, Future[SpendBalance | None]]] = []
        if flow is not None:
            flow.watch(self._on_stall)
            flow.holds.add(hold)

    @property
    def hold(self) -> Hold | None:
        """The hold of the request; `None` after its end."""
        return self._hold if self._open else None

    @property
    def counted_hold(self) -> Hold:
        """The hold of the request, also after its end."""
        return self._hold

    def payer_at(self, ceiling: Ceiling) -> Payer | None:
        """Return the reservation with a spend limit; `None` if there is none, and after the end."""
        shared = self.shared if self._open else ()
        return next((each for each in shared if each.ceiling.place == ceiling.place), None)

    def note_slot(self) -> None:
        """Note that the request has a slot under a `ProviderLimit`. Requests inside of it share the slot."""
        self._hold.has_slot = True

    @property
    def is_limited(self) -> bool:
        """Whether any budget or spend limit applies to the request."""
        return bool(self._hold.accounts or self.shared)

    # --- while it is in flight ---

    def take_off(self) -> bool:
        """Note that the request is in flight. A scope that closes before its end charges its bound.

        Returns False if the run is over.
        """
        with self.scope.tree.lock:
            if self.scope.root.closed:
                return False
            changed = self.scope.add_in_flight(self)
        if changed:
            wake(changed)
        return True

    def around(self, *, reading: bool = False) -> AbstractContextManager[None]:
        """Mark the code that sends the request or reads its stream. The end of the run interrupts it."""
        return _Inside(self, "reading" if reading else "asking")

    def inside(self) -> AbstractContextManager[None]:
        """Mark code that runs inside of the request: the request ends only after that code."""
        return _Inside(self)

    def write_off(self) -> Charge:
        """Return the charge for a scope that closes: the bound of the request, as unmeasured."""
        if self.written_off is None:
            self.written_off = Charge(self.bounded(self._described()))
        return self.written_off

    def leave(self, account: Account) -> list[Claim]:
        """Give back everything that is held of an account. Returns the claims that this changes."""
        return self._hold.leave(account)

    def interrupt(self) -> None:
        """End the request, because the run is over."""
        self.interruption.set()

    def _described(self) -> RequestRecord:
        if self.describe is not None:
            return self.describe()
        tags, tenant = self.scope.bounds.labels
        return RequestRecord(
            model=self.terms.model,
            provider=self.terms.provider,
            outcome="unmeasured",
            use="failed",
            tags=tags,
            tenant=tenant,
        )

    def bounded(self, record: RequestRecord) -> RequestRecord:
        """Return the record with the bound of the request, for one that is unmeasured."""
        bound = self.terms.bound
        return replace(record, bound_usd=bound.cost_usd, bound_tokens=bound.tokens)

    def _on_stall(self, stalled: bool) -> None:
        with self.scope.tree.lock:
            self._hold.stalled = stalled
            changed = self._hold.review()
        wake(changed)

    def lower(self, terms: TermsT, short: BudgetExceeded) -> None:
        """Hold less, because the request was given a lower `max_tokens`."""
        self.short = short
        self.take_instead(terms)

    def take_instead(self, terms: TermsT) -> None:
        """Hold what these terms need, which is not more than before."""
        self.terms = terms
        if (ledger := self._hold.ledger) is not None:
            with self.scope.tree.lock:
                changed = ledger.shrink(self._hold, amounts_of(terms, self._hold.accounts))
            wake(changed)

    def grow(self, terms: TermsT) -> bool:
        """Hold more, because more is sent than was admitted. Returns False if that takes another admission.

        It does if there is no room for it, and under spend limits, whose stores must be asked.
        """
        if self.shared:
            return False
        if (ledger := self._hold.ledger) is not None:
            with self.scope.tree.lock:
                if not ledger.grow(self._hold, amounts_of(terms, self._hold.accounts)):
                    return False
        self.terms = terms
        return True

    # --- claims on spend limits that outlive the process ---

    @property
    def claims(self) -> dict[str, str]:
        """Ids of the claims with which spend limits count the request, by `Ceiling.digest`."""
        return {shared.ceiling.digest: shared.claim.id for shared in self.shared}

    def leave_claims(self) -> None:
        """Leave the claims to a later process, which learns the cost. Until then, limits count the bound."""
        for shared in self.shared:
            shared.leave()
        self.shared = []

    def take_up_claims(self, claims: Mapping[str, str]) -> None:
        """Take up the claims that an earlier process has left, of the limits that apply here, too."""
        for ceiling in self.scope.bounds.ceilings:
            if (claim_id := claims.get(ceiling.digest)) is not None:
                shared = SharedReservation(ceiling, ceiling.known_usd, self._hold, self.scope)
                shared.take_up(claim_id, usd_to_reserve(self.terms))
                self.shared.append(shared)

    # --- its end ---

    def settle(self, record: RequestRecord) -> Charge:
        """Charge the cost, now that the usage has arrived; or the bound, if a part of the cost is unknown."""
        if not record.cost_complete:
            if record.bound_usd is None:
                record = replace(record, bound_usd=self.terms.bound.cost_usd)
        elif self.shared or self._hold.accounts:
            self._check_bound(record)
        return self._end(record)

    def _check_bound(self, record: RequestRecord) -> None:
        """Log a warning if the request cost more than its bound."""
        counts = bool(self.shared) or any(account.budget.usd is not None for account in self._hold.accounts)
        bound_usd = self.terms.bound.cost_usd if counts else None
        if bound_usd is not None and record.cost_usd is not None and record.cost_usd > bound_usd:
            logger.warning(
                "%s:%s billed $%s for a request that could cost $%s at most; budgets cannot prevent that",
                record.provider,
                record.model,
                record.cost_usd,
                bound_usd,
            )

    def release(self, record: RequestRecord) -> Charge:
        """Charge nothing, because the request was not sent, or was refused unbilled."""
        return self._end(record)

    def charge_unmeasured(self, record: RequestRecord) -> Charge:
        """Charge the bound, because the request was sent and its usage never came or cannot be true."""
        return self._end(self.bounded(record))

    def give_back(self) -> None:
        """End the reservation without a record, because the request was not even tried."""
        self._end(None)

    @overload
    def _end(self, record: RequestRecord) -> Charge: ...
    @overload
    def _end(self, record: None) -> None: ...
    def _end(self, record: RequestRecord | None) -> Charge | None:
        assert self._open, "a reservation ends once"
        self._open = False
        scope, hold = self.scope, self._hold
        changed: list[Claim] = []
        warned: Warned = []
        with scope.tree.lock:
            charge = None if record is None else Charge(record, self.written_off)
            scope.end_in_flight(self, charge)
            self.describe = None  # it refers to the owner of this reservation, which is a reference cycle
            if hold.ledger is not None:
                changed = hold.end(NOTHING if hold.reserve is None else self._spent_usd(record))
            if self.short is not None and isinstance(self.short_of, tuple):
                self.short.committed = committed_of(*self.short_of)
            if record is not None and hold.accounts:
                warned = to_warn_of(scope, hold.accounts)
        if self._flow is not None:
            self._flow.forget(self._on_stall)
            self._flow.holds.discard(self._hold)
        if changed:
            wake(changed)
        for shared in self.shared:
            if (ending := shared.end(record)) is not None:
                self._endings.append((shared, ending))
        if record is not None:
            from fastroai.tracing.metrics import record_request

            record_request(record)
            if scope.listener is not None:
                note_spending(scope, record, warned)
        return charge

    def _spent_usd(self, record: RequestRecord | None) -> Decimal:
        """Return the US dollars that the request has cost the run that pays for it."""
        return NOTHING if record is None else booked_usd(record, self._hold.amounts.usd)

    async def conclude(self) -> None:
        """Wait until the spend limits have counted the request, and tell listeners."""
        for shared, ending in self._endings:
            balance = await result_of(ending)
            if balance is not None and self.short is not None and shared is self.short_of:
                self.short.committed = usd_to_microcents(balance.spent_usd)
            if balance is not None:
                note_settled(self.scope, shared.ceiling, shared.claim, balance)
        await self.scope.tree.tell()


class _Inside:
    """The context manager that `Reservation.inside` and `around` return."""

    __slots__ = ("_before", "_inside", "_reservation", "_while")

    def __init__(
        self, reservation: Reservation[Any], during: Literal["asking", "reading"] | None = None
    ) -> None:
        self._reservation, self._while = reservation, during

    def __enter__(self) -> None:
        if self._while == "asking":
            self._reservation.interruption.send_here()
        elif self._while == "reading":
            self._reservation.interruption.read_here()
        self._before = _around.get()
        self._inside = (*self._before, self._reservation)
        _around.set(self._inside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if _around.get() is self._inside:  # a stream may be left in another context, with another value
            _around.set(self._before)
        if self._while == "asking":
            self._reservation.interruption.sent(error)
        elif self._while == "reading":
            self._reservation.interruption.was_read(error)


def reservations_around() -> tuple[Reservation[Any], ...]:
    """Return the open requests and purchases around the running code."""
    return tuple(each for each in _around.get() if each.hold is not None)


def is_inside_spend() -> bool:
    """Return whether money is set aside in this run for what the running code buys."""
    return any(each.terms.asks_for == "spend" for each in reservations_around())


def holds_around(scope: Scope) -> tuple[Hold, ...]:
    """Return the holds of requests and runs that end only after a request that is made here.

    These are the requests and runs around the running code, and the requests whose streams it reads.
    """
    holds = [outer.hold for outer in (*_around.get(), *scope.bounds.reserves) if outer.hold is not None]
    for each in scope.lineage():
        for flow in each.reading:
            holds += flow.holds
    return tuple(dict.fromkeys(holds)) if holds else ()


def to_warn_of(scope: Scope, accounts: Iterable[Account]) -> Warned:
    """Return the shares to warn of that accounts have newly reached. The caller holds the lock."""
    if scope.listener is None:
        return []
    return [(account, reached) for account in accounts for reached in account.new_warnings()]


def note_spending(scope: Scope, record: RequestRecord, warned: Warned) -> None:
    """Tell listeners of spending, and of the shares of budgets that were reached by it."""
    if scope.listener is None:
        return
    part = scope.part
    scope.note(SpendRecorded(part=part, record=record, scope_path=scope.path))
    for account, reached in warned:
        scope.note(
            BudgetWarning(
                part=part,
                scope_path=account.path,
                share=account.share,
                threshold=reached,
                limit_usd=account.budget.usd,
                budget=account.budget,
            )
        )

"""Admitting requests against the budgets that they are under, and ending each in the account.

Every provider request passes here once: `admit` before it is sent, then exactly one of `settle`, `release`
and `charge_unmeasured` of its reservation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, overload

from fastroai.errors import (
    BudgetExceeded,
    CostBudgetExceeded,
    RequestBudgetExceeded,
    ScopeClosedError,
    TokenBudgetExceeded,
    UnboundedRequestError,
    UnpricedModelError,
)
from fastroai.records import RequestRecord, Unbounded, usd_to_microcents
from fastroai.runtime.events import BudgetRefused, BudgetWaiting, BudgetWarning, SpendRecorded
from fastroai.runtime.flow import Flow, current_flow, read_around
from fastroai.runtime.in_flight import Charge
from fastroai.runtime.interruption import Interruption
from fastroai.runtime.ledger import Account, Amounts, Claim, Hold, Measure, Room, wake
from fastroai.runtime.scope import Scope
from fastroai.runtime.spending import TOLD_AFTER, SharedReservation, in_force, note_warnings, result_of
from fastroai.runtime.wakeup import Wakeup
from fastroai.tracing.metrics import record_refusal, record_request
from fastroai.usage.money import format_cost
from fastroai.usage.references import near_reference

if TYPE_CHECKING:
    from fastroai.usage import Budget, ModelFallback, RequestBound, SpendBalance, SpendLimit


class RequestTerms(Protocol):
    """What admission wants to know of a request; properties, so that nothing is computed in vain.

    The defaults are those of something that is no request, and is taken as it is or not at all.
    """

    @property
    def model(self) -> str:
        """The model that is asked."""
        ...

    @property
    def provider(self) -> str:
        """Its provider."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it is a model for tests, which sends nothing anywhere."""
        return False

    @property
    def streamed(self) -> bool:
        """Whether the answer goes to a consumer who may leave it lying."""
        return False

    @property
    def is_request(self) -> bool:
        """Whether it is a request to a model, which budgets of requests count."""
        return False

    @property
    def priced(self) -> bool:
        """Whether a price is known."""
        ...

    @property
    def bound(self) -> RequestBound:
        """What it can use and cost at most."""
        ...

    @property
    def is_flexible(self) -> bool:
        """Whether it may do with a shorter answer than it asks for, so that others find something too."""
        return False

    @property
    def expected_usd(self) -> Decimal | None:
        """US dollars that it is expected to cost; `None` if nothing but its bound is known."""
        return None

    @property
    def expected_tokens(self) -> int | None:
        """Tokens that it is expected to use; `None` if nothing but its bound is known."""
        return None

    async def prepare_bound(self) -> None:
        """Do beforehand what takes time in `bound`."""
        return None

    async def prepare_expectation(self) -> None:
        """Prepare the expectation, if that takes time."""
        return None

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """The same request with the longest answer that so much pays for; `None` if there is none."""
        ...

    def sharing(self, *, usd: Decimal | None, tokens: int | None) -> Self:
        """The same with as long an answer as so much pays for, or more where that is of no use."""
        return self

    def shortened(self, output_tokens: int) -> Self:
        """The same with an answer of at most so many tokens, as far as its length can be limited."""
        return self

    def counted_again(self) -> Self:
        """The same with a lower bound, if answers that came meanwhile give one; else itself."""
        return self

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """The same request to another model."""
        return self


logger = logging.getLogger("fastroai.runtime")

QUIET_TURNS: Final = 3
"""Turns of the event loop in which nobody comes to a budget before requests are decided that share it."""
MOST_TURNS: Final = 100
"""Turns after which they are decided although others are coming."""
MOST_NAMED: Final = 3
"""Requests in flight that are named then."""
_LEAST_USD: Final = Decimal("1e-18")
_NOTHING: Final = Amounts()

Warned: TypeAlias = list[tuple[Account, float]]
"""Accounts with the shares to warn of that they have reached."""

TermsT = TypeVar("TermsT", bound=RequestTerms)

_around: Final[ContextVar[tuple[Reservation[Any], ...]]] = ContextVar("fastroai_requests", default=())
"""The requests inside of which the running code is: of a stream, for the code that handles its events.

Of a task, as several requests go on at once under one scope."""


class Reservation(Generic[TermsT]):
    """One admitted request in the account, until it is ended, once."""

    def __init__(self, scope: Scope, terms: TermsT, hold: Hold, flow: Flow | None) -> None:
        self.scope = scope
        self.terms = terms
        """The request as it was admitted: perhaps with a lower `max_tokens`, or to another model."""
        self.short: BudgetExceeded | None = None
        """Where `max_tokens` was lowered: the stop to raise if the answer is cut there."""
        self.short_of: tuple[Account, Measure] | SharedReservation | None = None
        """Where there was too little for more."""
        self.shared: list[SharedReservation] = []
        self.written_off: Charge | None = None
        self.describe: Callable[[], RequestRecord] | None = None
        """Makes the record of what is known so far, for scopes that close while it is in flight."""
        self.interruption = Interruption(scope)
        """How it is ended if the run ends while it is in flight."""
        self._hold, self._flow, self._open = hold, flow, True
        self._endings: list[tuple[SharedReservation, Future[SpendBalance | None]]] = []
        if flow is not None:
            flow.watch(self._on_stall)
            flow.holds.add(hold)

    @property
    def hold(self) -> Hold | None:
        """What it holds, until it has ended."""
        return self._hold if self._open else None

    def note_slot(self) -> None:
        """It has a slot under a `ProviderLimit`, which those that are made inside of it share."""
        self._hold.has_slot = True

    @property
    def is_limited(self) -> bool:
        """Whether any budget or spend limit holds for it."""
        return bool(self._hold.accounts or self.shared)

    async def share(self) -> None:
        """Reserve with the spend limits above, one after the other, and note with each that it goes out.

        Raises:
            SpendLimitExceeded: one cannot pay, not even for a shorter answer.
            SpendStoreUnavailable: a store cannot be asked.
        """
        outer = _holds_around(self.scope)
        while not await self._reserve_shared(outer):
            # A lease has ended. To ask for it again while the others are held would be out of order.
            endings = [shared.end(None) for shared in self.shared]
            self.shared = []
            for ending in endings:
                if ending is not None:
                    await result_of(ending)

    async def _reserve_shared(self, outer: tuple[Hold, ...]) -> bool:
        """Reserve from inside of requests that hold `outer`; false if a lease has ended meanwhile."""
        ceilings = self.scope.ceilings
        for ceiling in ceilings:
            _check(self.terms, ceiling.limit, counts_money=True, counts_tokens=False)
        self.shared = [SharedReservation(ceiling, self._hold, self.scope) for ceiling in ceilings]
        if self.terms.is_flexible:
            await _let_others_come(lambda: sum(shared.arrivals for shared in self.shared))
        for shared in self.shared:
            await self._acquire(shared, outer)
        for shared in self.shared:
            if not await shared.mark_sent():
                return False
        return True

    async def _acquire(self, shared: SharedReservation, outer: tuple[Hold, ...]) -> None:
        asking = _AtLimit(self.scope, shared, self.terms)
        with _sharing_inside(self.scope, outer), self.scope.in_line():
            async with shared.turn(inside=bool(outer)):
                await asking.take()
        if asking.short is not None:
            self.short_of = shared
            self._lower(asking.terms, asking.short)

    # --- while it is in flight ---

    def take_off(self) -> bool:
        """It may be sent now; a scope that closes before it ends charges its bound. False after the run."""
        with self.scope.lock:
            if self.scope.root.closed:
                return False
            changed = self.scope.add_in_flight(self)
        if changed:
            wake(changed)
        return True

    def around(self, *, reading: bool = False) -> AbstractContextManager[None]:
        """Inside, the provider is asked, or its stream is read by any code; the end of the run ends that."""
        return _Inside(self, "reading" if reading else "asking")

    def inside(self) -> AbstractContextManager[None]:
        """What runs inside belongs to the request: it ends after that, and not before."""
        return _Inside(self)

    def write_off(self) -> Charge:
        """Charge its bound, as unmeasured, in a scope that closes."""
        if self.written_off is None:
            self.written_off = Charge(self.bounded(self._described()), where=self.scope)
        return self.written_off

    def leave(self, account: Account) -> list[Claim]:
        """Hold nothing more of an account. Returns the claims that this changes."""
        return self._hold.leave(account)

    def interrupt(self) -> None:
        """End it, as the run is over."""
        self.interruption.set()

    def _described(self) -> RequestRecord:
        if self.describe is not None:
            return self.describe()
        tags, tenant = self.scope.labels
        return RequestRecord(
            model=self.terms.model,
            provider=self.terms.provider,
            outcome="unmeasured",
            use="failed",
            tags=tags,
            tenant=tenant,
        )

    def bounded(self, record: RequestRecord) -> RequestRecord:
        """Return the record of an unmeasured request with the most that it can have used and cost."""
        bound = self.terms.bound
        return replace(record, bound_usd=bound.cost_usd, bound_tokens=bound.tokens)

    def _on_stall(self, stalled: bool) -> None:
        with self.scope.lock:
            self._hold.stalled = stalled
            changed = self._hold.review()
        wake(changed)

    def _lower(self, terms: TermsT, short: BudgetExceeded) -> None:
        """Hold less: the request was given a lower `max_tokens`."""
        self.terms, self.short = terms, short
        if (ledger := self._hold.ledger) is not None:
            with self.scope.lock:
                changed = ledger.shrink(self._hold, _amounts(terms, self._hold.accounts))
            wake(changed)

    # --- its end ---

    def settle(self, record: RequestRecord) -> Charge:
        """Its usage arrived: charge what it cost, or the most that it can be if a part is not known."""
        if not record.cost_complete:
            if record.bound_usd is None:
                record = replace(record, bound_usd=self.terms.bound.cost_usd)
        elif self.shared or self._hold.accounts:
            self._check_bound(record)
        return self._end(record)

    def _check_bound(self, record: RequestRecord) -> None:
        """Say so where a request cost more than was reserved for it."""
        counts = bool(self.shared) or any(account.budget.usd is not None for account in self._hold.accounts)
        bound_usd = self.terms.bound.cost_usd if counts else None
        if bound_usd is not None and record.cost_usd is not None and record.cost_usd > bound_usd:
            logger.warning(
                "%s:%s billed $%s for a request that was to cost $%s at most; no budget holds against that",
                record.provider,
                record.model,
                record.cost_usd,
                bound_usd,
            )

    def release(self, record: RequestRecord) -> Charge:
        """It was not sent, or was refused unbilled: charge nothing."""
        return self._end(record)

    def charge_unmeasured(self, record: RequestRecord) -> Charge:
        """It was sent, and its usage never came or cannot be true: charge its bound."""
        return self._end(self.bounded(record))

    def give_back(self) -> None:
        """It was not even tried: leave no record."""
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
        with scope.lock:
            charge = None if record is None else Charge(record, self.written_off, scope)
            scope.end_in_flight(self, charge)
            if hold.ledger is not None:
                changed = hold.end()
            if self.short is not None and isinstance(self.short_of, tuple):
                self.short.committed = _committed(*self.short_of)
            if record is not None and hold.accounts:
                warned = _to_warn_of(scope, hold.accounts)
        if self._flow is not None:
            self._flow.forget(self._on_stall)
            self._flow.holds.discard(self._hold)
        if changed:
            wake(changed)
        for shared in self.shared:
            if (ending := shared.end(record)) is not None:
                self._endings.append((shared, ending))
        if record is not None:
            record_request(record)
            if scope.listener is not None:
                _note(scope, record, warned)
        return charge

    async def conclude(self) -> None:
        """Wait until shared ceilings have it in their books, and tell listeners."""
        for shared, ending in self._endings:
            balance = await result_of(ending)
            if balance is not None and self.short is not None and shared is self.short_of:
                self.short.committed = usd_to_microcents(balance.spent_usd)
            if balance is not None:
                note_warnings(self.scope, shared.limit, shared.claim, balance)
        await self.scope.tell()


class _Inside:
    """What `Reservation.inside` and `around` are."""

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
        if _around.get() is self._inside:  # a stream may be left in another context, where this is not set
            _around.set(self._before)
        if self._while == "asking":
            self._reservation.interruption.sent(error)
        elif self._while == "reading":
            self._reservation.interruption.was_read(error)


async def admit(scope: Scope, terms: TermsT) -> Reservation[TermsT]:
    """Let a request go out once what it can use at most is reserved in every budget above it.

    Waits while only the reservations of others stand in the way. Where there is nobody to wait for, the
    request gets what the budgets can still pay for: a cheaper model, where a budget names one, or a lower
    `max_tokens`.

    Raises:
        BudgetExceeded: a budget of this scope or of one above it cannot pay for the request.
        UnpricedModelError: there is a budget of money, and no price for the model.
        UnboundedRequestError: there is a budget, and nothing bounds what the request, or an earlier
            unmeasured one, can use.
        SpendStoreUnavailable: the store of a spend limit cannot be asked.
        ScopeClosedError: the run has ended.
        ForkedScopeError: a budget of this scope is in the process that forked this one.
    """
    if scope.forked is not None:
        scope.check_process()
    if scope.root.closed:
        raise ScopeClosedError(scope.path)
    flow = current_flow.get() if terms.streamed else None
    if scope.receiving:
        scope.hand_on()
    try:
        if scope.account is not None and (accounts := _open_accounts(scope)):
            in_line = _InLine(scope, accounts, terms)
            await in_line.take()
            reservation = Reservation(scope, in_line.terms, in_line.hold, flow)
            reservation.short, reservation.short_of = in_line.short, in_line.short_of
        else:
            if scope.ceilings:
                await terms.prepare_bound()
            reservation = Reservation(scope, terms, Hold((), _NOTHING), flow)
        if scope.ceilings:
            try:
                await reservation.share()
            except BaseException as error:
                reservation.give_back()
                if isinstance(error, BudgetExceeded):
                    await reservation.conclude()  # so that whoever is told finds nothing of it in the stores
                raise
    except BudgetExceeded as error:
        record_refusal(error)
        await scope.emit(BudgetRefused(part=scope.part, error=error))
        raise
    if not reservation.take_off():  # the run ended while the request waited
        reservation.give_back()
        raise ScopeClosedError(scope.path)
    return reservation


def reservations_around() -> tuple[Reservation[Any], ...]:
    """What is open of the requests and the spending inside of which the running code is."""
    return tuple(each for each in _around.get() if each.hold is not None)


def shares_slot(scope: Scope) -> bool:
    """Whether a request that is made here is made inside of one that has a slot under a `ProviderLimit`."""
    read = (hold for flow in read_around() for hold in list(flow.holds))
    return any(hold.has_slot for hold in chain(_holds_around(scope), read))


@contextmanager
def waiting_inside(scope: Scope) -> Iterator[None]:
    """A request waits here for something other than budgets: those inside of which it is made cannot end."""
    ledger = None if scope.account is None else scope.account.ledger
    outer = [hold for hold in _holds_around(scope) if hold.ledger is ledger]
    _add_dependents(scope, outer, 1)
    try:
        yield
    finally:
        _add_dependents(scope, outer, -1)


def _add_dependents(scope: Scope, holds: Iterable[Hold], number: int) -> None:
    changed: list[Claim] = []
    with scope.lock:
        for hold in holds:
            hold.dependents += number
            changed += hold.review()
    wake(changed)


def record_spending(scope: Scope, record: RequestRecord) -> BudgetExceeded | None:
    """Charge what was spent without being admitted, and have it told with the next event.

    Returns the stop of the outermost budget that this, or what was spent before, went beyond.
    """
    scope.charge(record)
    record_request(record)
    with scope.lock:
        warned = _to_warn_of(scope, _open_accounts(scope))
    _note(scope, record, warned)
    return crossing(scope)


def crossing(scope: Scope) -> BudgetExceeded | None:
    """Return the stop of the outermost budget that was crossed by spending which nobody admitted."""
    with scope.lock:
        accounts = _open_accounts(scope)
        crossed: list[tuple[Account, Measure]] = [
            (account, measure) for account in accounts if (measure := account.crossed) is not None
        ]
    if not crossed:
        return None
    stop = _stop(scope, *crossed[-1], None)
    stop.stopped = "recorded"
    record_refusal(stop)
    scope.note(BudgetRefused(part=scope.part, error=stop))
    return stop


def unknown_cost(scope: Scope, record: RequestRecord) -> UnpricedModelError | None:
    """Return why budgets of money around a scope cannot hold with what was recorded; `None` if they can."""
    if not isinstance(record.committed_usd, Unbounded):
        return None
    with scope.lock:
        budgets = [account.budget for account in _open_accounts(scope)]
    strict = any(each.usd is not None and _is_strict(each) for each in budgets)
    if strict or any(_is_strict(ceiling.limit) for ceiling in scope.ceilings):
        return UnpricedModelError(record.model, record.provider, "record")
    return None


def _is_strict(limit: Budget | SpendLimit) -> bool:
    return "allow" not in (limit.on_unbounded, limit.on_unpriced)


def step_down_if_due(scope: Scope, terms: TermsT) -> TermsT:
    """The request to the cheaper model of a budget of which the share is spent; else as it is."""
    for account in _open_accounts(scope):
        fallback = account.budget.fallback
        if fallback is not None and account.share >= Decimal(str(fallback.at)):
            return terms.stepped_down(fallback)
    return terms


class _AtLimit(Generic[TermsT]):
    """One request that asks one spend limit."""

    def __init__(self, scope: Scope, shared: SharedReservation, terms: TermsT) -> None:
        self.terms = terms
        self.short: BudgetExceeded | None = None
        self._scope, self._shared, self._whole = scope, shared, terms

    async def take(self) -> None:
        """Wait for enough room. Raises `SpendLimitExceeded` if there will be none."""
        fitting = self._fit if self._whole.is_flexible else None
        while True:
            balance = await self._shared.acquire(_usd_to_reserve(self.terms), fitting, self._tell_of_waiting)
            if balance is None:
                return
            self.short, fitting = self._refusal(balance), None
            lowered = self._whole.lowered(usd=self._shared.left_of(balance), tokens=None)
            if lowered is None:
                raise self.short
            self.terms = lowered

    def _fit(self, balance: SpendBalance) -> Decimal:
        """US dollars that it asks for with such a balance."""
        self.terms = self._whole.sharing(usd=self._shared.offer(balance), tokens=None)
        self.short = None if self.terms is self._whole else self._refusal(balance)
        return _usd_to_reserve(self.terms)

    def _refusal(self, balance: SpendBalance) -> BudgetExceeded:
        refusal = self._shared.refusal(self._scope, balance, _usd_to_reserve(self._whole))
        refusal.stopped = _asked(self._whole)
        refusal.why = self._whole.bound.why
        return refusal

    async def _tell_of_waiting(self, balance: SpendBalance, holders: Collection[str]) -> None:
        claim, limit_usd = self._shared.claim, in_force(self._shared.limit, balance)
        left_usd = max(self._shared.left_of(balance), Decimal(0))  # less, where it was lowered by hand
        amounts = claim.amount_usd, limit_usd, left_usd
        needs, limit, left = map(format_cost, amounts)
        waiting = BudgetWaiting(
            part=self._scope.part,
            scope_path=self._scope.root.path,
            waits_for=f"{needs} of spend limit {claim.account.key!r} of {limit}, of which {left} is "
            "neither spent nor reserved",
            held_by=tuple(f"process {holder}" for holder in sorted(holders)[:MOST_NAMED]),
            advice="set max_tokens for the agent, or raise the spend limit",
        )
        logger.warning("a request waits for %s", waiting)
        await self._scope.emit(waiting)


async def _let_others_come(arrivals: Callable[[], int]) -> None:
    """Go on when nobody has come for a few turns of the event loop: tasks begin one after the other."""
    quiet = -1  # all count from the turn after the last one came, and ask in order
    for _ in range(MOST_TURNS):
        before = arrivals()
        await asyncio.sleep(0)
        quiet = quiet + 1 if arrivals() == before else 0
        if quiet == QUIET_TURNS:
            return


class _InLine(Generic[TermsT]):
    """One request in the line before the budgets of its run."""

    def __init__(self, scope: Scope, accounts: tuple[Account, ...], terms: TermsT) -> None:
        self.scope = scope
        self.terms = terms
        self.short: BudgetExceeded | None = None
        self.short_of: tuple[Account, Measure] | None = None
        self._told_of_waiting = False
        self._whole = terms
        self._ledger = accounts[0].ledger
        around = tuple(hold for hold in _holds_around(scope) if hold.ledger is self._ledger)
        self._claim = Claim(accounts, around)

    @property
    def hold(self) -> Hold:
        """What was granted."""
        assert self._claim.hold is not None
        return self._claim.hold

    async def take(self) -> None:
        """Wait for the request's turn, and for enough room. Raises `BudgetExceeded` if there will be none."""
        claim = self._claim
        with self.scope.lock:
            self._ledger.expect(claim)
        try:
            await self._come()
            while claim.state != "granted":
                if claim.state == "waiting":
                    await self._news()
                elif not (self._count_again() or self._step_down()):
                    self._lower_or_refuse()
        except BaseException:
            with self.scope.lock:
                changed = self._ledger.leave(claim) if claim.hold is None else claim.hold.end()
            wake(changed)
            raise

    async def _come(self) -> None:
        """Ask, once all that come at the same time are counted, because they share the budget."""
        await self._whole.prepare_bound()
        if any(account.goes_by_expectations for account in self._claim.accounts):
            await self._whole.prepare_expectation()
        if self._whole.is_flexible:
            await _let_others_come(lambda: self._ledger.arrivals)
        accounts = tuple(account for account in self._claim.accounts if not account.closed)
        for account in accounts:
            if (longest := account.budget.max_tokens_per_request) is not None:
                self.terms = self._whole = self._whole.shortened(longest)
        _check_all(self._whole, accounts)
        with self.scope.lock:
            changed = self._ledger.ask(self._claim, _amounts(self._whole, accounts), self._fitting)
        wake(changed)

    @property
    def _fitting(self) -> Callable[[Room], Amounts] | None:
        changes = any(account.goes_by_expectations for account in self._claim.accounts)
        return self._fit if changes or self._whole.is_flexible else None

    def _fit(self, offer: Room) -> Amounts:
        """Return the amounts that it asks for if it is offered so much. The lock is held."""
        accounts = self._claim.accounts
        self.terms = self._whole.sharing(usd=offer.usd, tokens=offer.tokens)
        self.short = self.short_of = None
        if self.terms is not self._whole:
            self.short_of = _stinting(accounts, _amounts(self._whole, accounts))
            self.short = _refusal(self.scope, self._whole, *self.short_of)
        return _amounts(self.terms, accounts)

    async def _news(self) -> None:
        """Wait until others have changed the claim."""
        with self.scope.lock:
            if self._claim.state != "waiting":
                return
            wakeup = Wakeup()
            self._claim.wake = wakeup.set
        with self.scope.in_line():
            if self._told_of_waiting or not await wakeup.wait_for(TOLD_AFTER):
                await self._tell_of_waiting()
                await wakeup.wait()

    async def _tell_of_waiting(self) -> None:
        """Tell once which budget it waits for, and which requests hold it."""
        if self._told_of_waiting:
            return
        self._told_of_waiting = True
        with self.scope.lock:
            short = self._claim.short()
            waiting = None if not short else self._waiting_for(*short[0])
            is_news = bool(short) and not short[0][0].told_of_waiting
            if short:
                short[0][0].told_of_waiting = True
        if waiting is not None:
            if is_news:
                logger.warning("requests wait for %s", waiting)
            await self.scope.emit(waiting)

    def _waiting_for(self, account: Account, measure: Measure) -> BudgetWaiting:
        held = [
            (account.reserved_for(each.hold.amounts), f"{' / '.join(each.scope.path)} ({each.terms.model})")
            for each in self.scope.root.in_flight
            if isinstance(each, Reservation) and each.hold is not None and account in each.hold.accounts
        ]
        held.sort(key=lambda each: getattr(each[0], measure), reverse=True)
        asked = account.reserved_for(self._claim.amounts)
        needs, limit, left = (_worded(measure, each) for each in (asked, account.budget, account.room))
        return BudgetWaiting(
            part=self.scope.part,
            scope_path=account.path,
            waits_for=f"{needs} of a budget of {limit}, of which {left} is neither spent nor reserved",
            held_by=tuple(f"{where}: {_worded(measure, amounts)}" for amounts, where in held[:MOST_NAMED]),
            advice=_ADVICE[measure],
        )

    def _count_again(self) -> bool:
        """Ask for less, where answers to others tell by now that the request needs less."""
        again = self._whole.counted_again()
        return again is not self._whole and self._ask_instead(again)

    def _step_down(self) -> bool:
        """Ask for a cheaper model instead, if a budget names one and that was not done yet."""
        fallbacks = (account.budget.fallback for account in self._claim.accounts)
        fallback = next((fallback for fallback in fallbacks if fallback is not None), None)
        cheaper = self._whole if fallback is None else self._whole.stepped_down(fallback)
        if cheaper is self._whole:
            return False
        _check_all(cheaper, self._claim.accounts)
        return self._ask_instead(cheaper)

    def _ask_instead(self, terms: TermsT) -> bool:
        with self.scope.lock:
            if self._claim.state != "alone":
                return True  # there is room now, or somebody to wait for
            self.terms = self._whole = terms
            amounts = _amounts(terms, self._claim.accounts)
            changed = self._ledger.amend(self._claim, amounts, self._fitting)
        wake(changed)
        return True

    def _lower_or_refuse(self) -> None:
        """Ask for as long an answer as there is room for. Raises `BudgetExceeded` if there is too little."""
        with self.scope.lock:
            if self._claim.state != "alone":
                return
            self.short_of = self._claim.short()[0]
            self.short = _refusal(self.scope, self._whole, *self.short_of)
            self.terms = self._affordable(self.short)
            changed = self._ledger.amend(self._claim, _amounts(self.terms, self._claim.accounts))
        wake(changed)

    def _affordable(self, refusal: BudgetExceeded) -> TermsT:
        room = self._claim.room
        if room.requests is not None and room.requests < self._claim.amounts.requests:
            raise refusal
        lowered = self._whole.lowered(usd=room.usd, tokens=room.tokens)
        if lowered is None:
            raise refusal
        return lowered


def _holds_around(scope: Scope) -> tuple[Hold, ...]:
    """What those requests hold that do not end before one that is made here: it is made inside of them, or by
    whoever reads their streams.
    """
    holds = [outer.hold for outer in _around.get() if outer.hold is not None]
    for each in scope.lineage():
        for flow in each.reading:
            holds += flow.holds
    return tuple(dict.fromkeys(holds)) if holds else ()


def _open_accounts(scope: Scope) -> tuple[Account, ...]:
    if scope.account is None:
        return ()
    return tuple(account for account in scope.account.lineage() if not account.closed)


@contextmanager
def _sharing_inside(scope: Scope, outer: Iterable[Hold]) -> Iterator[None]:
    """While a request waits for a spend limit, those inside of which it is made cannot end."""
    with scope.lock:
        for hold in outer:
            hold.shared_dependents += 1
    try:
        yield
    finally:
        with scope.lock:
            for hold in outer:
                hold.shared_dependents -= 1


def _to_warn_of(scope: Scope, accounts: Iterable[Account]) -> Warned:
    if scope.listener is None:
        return []
    return [(account, reached) for account in accounts for reached in account.new_warnings()]


def _note(scope: Scope, record: RequestRecord, warned: Warned) -> None:
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
            )
        )


def _amounts(terms: RequestTerms, accounts: tuple[Account, ...]) -> Amounts:
    """What to reserve. Where that is not known, and allowed, at least something must be left."""
    requests = 1 if terms.is_request else 0
    if all(account.budget.usd is None and account.budget.tokens is None for account in accounts):
        return Amounts(requests=requests)
    tokens = terms.bound.tokens
    bounded = Amounts(_usd_to_reserve(terms), 1 if tokens is None else tokens, requests)
    if not any(account.goes_by_expectations for account in accounts):
        return bounded
    return bounded._replace(expected_usd=terms.expected_usd, expected_tokens=terms.expected_tokens)


def _stinting(accounts: Iterable[Account], amounts: Amounts) -> tuple[Account, Measure]:
    """Return the innermost account that offers less than so much, and of what."""
    for account in accounts:
        offer = account.offer
        if offer.usd is not None and offer.usd < amounts.usd:
            return account, "usd"
        if offer.tokens is not None and offer.tokens < amounts.tokens:
            return account, "tokens"
    raise AssertionError("a request asks for less than it wants where it is offered less")


_SPENT_UNKNOWN: Final = (
    "nobody knows the cost of earlier spending in the same budget, and what is left of it: give it a price"
)


def _usd_to_reserve(terms: RequestTerms) -> Decimal:
    cost_usd = terms.bound.cost_usd
    return _LEAST_USD if cost_usd is None else cost_usd


def _check_all(terms: RequestTerms, accounts: Iterable[Account]) -> None:
    for account in accounts:
        budget = account.budget
        counts_money = budget.usd is not None
        _check(terms, budget, counts_money=counts_money, counts_tokens=budget.tokens is not None)
        # Models without a price that are allowed are not counted, whether they answer or not.
        if counts_money and _is_strict(budget) and account.usage.unbounded_requests:
            raise UnboundedRequestError(terms.model, terms.provider, _SPENT_UNKNOWN)


def _check(
    terms: RequestTerms, limit: Budget | SpendLimit, *, counts_money: bool, counts_tokens: bool
) -> None:
    """Refuse what a limit cannot reckon with."""
    unbounded_cost = counts_money and terms.bound.cost_usd is None  # with a bound there is a price
    if unbounded_cost and not terms.priced:
        if limit.on_unpriced == "refuse":
            near = near_reference(terms.provider, terms.model)
            raise UnpricedModelError(terms.model, terms.provider, _asked(terms), near)
        unbounded_cost = False
    if limit.on_unbounded == "allow" or terms.is_local:
        return
    if unbounded_cost or (counts_tokens and terms.bound.tokens is None):
        raise UnboundedRequestError(terms.model, terms.provider, terms.bound.why)


_LESS_RESERVED: Final = (
    "set max_tokens for the agent, or max_tokens_per_request= of the budget; raise the budget; or reserve "
    'what requests are expected to use, with admission="expected"'
)
_ADVICE: Final[dict[Measure, str]] = {
    "usd": _LESS_RESERVED,
    "tokens": _LESS_RESERVED,
    "requests": "raise the budget",
}


def _worded(measure: Measure, amounts: Amounts | Budget | Room) -> str:
    if measure == "usd":
        return format_cost(max(amounts.usd or Decimal(0), Decimal(0)))
    number = amounts.tokens if measure == "tokens" else amounts.requests
    return f"{number:,} {measure.removesuffix('s') if number == 1 else measure}"


def _committed(account: Account, measure: Measure) -> int:
    usage = account.usage
    if measure == "usd":
        return usd_to_microcents(usage.committed_usd)
    return usage.committed_tokens if measure == "tokens" else usage.request_count


def _reserved(account: Account, measure: Measure) -> int:
    if measure == "usd":
        return usd_to_microcents(account.reserved_usd)
    return account.reserved_tokens if measure == "tokens" else account.reserved_requests


def _refusal(scope: Scope, terms: RequestTerms, account: Account, measure: Measure) -> BudgetExceeded:
    bound = terms.bound
    usd = None if bound.cost_usd is None else usd_to_microcents(bound.cost_usd)
    requested = {"usd": usd, "tokens": bound.tokens, "requests": None}
    stop = _stop(scope, account, measure, requested[measure])
    stop.reserved = _reserved(account, measure)
    stop.stopped = _asked(terms)
    stop.why = None if measure == "requests" else terms.bound.why
    return stop


def _asked(terms: RequestTerms) -> Literal["request", "spend"]:
    return "request" if terms.is_request else "spend"


def _stop(scope: Scope, account: Account, measure: Measure, requested: int | None) -> BudgetExceeded:
    budget = account.budget
    limits = {"usd": budget.microcents, "tokens": budget.tokens, "requests": budget.requests}
    limit = limits[measure]
    assert limit is not None
    return _STOPS[measure](limit, _committed(account, measure), scope.step_id, requested, account.path)


_STOPS: Final[dict[Measure, type[BudgetExceeded]]] = {
    "usd": CostBudgetExceeded,
    "tokens": TokenBudgetExceeded,
    "requests": RequestBudgetExceeded,
}

"""Accounts of budgets, reservations in them, and the line before them: a state machine without clock or I/O.

Every scope with a budget has an `Account`. Accounts form the same tree as their scopes, and one `Ledger`
serves the whole tree: a request is reserved in all accounts above it, or in none. The caller of a ledger
holds the lock of the run. A call returns the claims of others that it changes, so that the caller wakes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from fastroai.records import EXACT, Usage, ratio
from fastroai.runtime.concurrency.line import Line

if TYPE_CHECKING:
    from fastroai.usage import Budget

Measure = Literal["usd", "tokens", "requests"]
"""The quantity that a limit of a budget counts."""
NumberT = TypeVar("NumberT", int, Decimal)

NOTHING: Final = Decimal(0)
"""0 US dollars."""


class Amounts(NamedTuple):
    """The most that one request can use, and the amounts that it is expected to use."""

    usd: Decimal = NOTHING
    tokens: int = 0
    requests: int = 1
    expected_usd: Decimal | None = None
    """US dollars that accounts reserve that go by expectations; `None` to reserve `usd` there, too."""
    expected_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """Amounts that are neither spent nor reserved: `None` without a limit, negative after an overdraft."""

    usd: Decimal | None
    tokens: int | None
    requests: int | None

    def within(self, other: Room) -> Room:
        """Return the room within both: the smaller of each two amounts."""
        return Room(
            _least(self.usd, other.usd),
            _least(self.tokens, other.tokens),
            _least(self.requests, other.requests),
        )


NO_LIMIT: Final = Room(None, None, None)


def equal_part(left_usd: Decimal, reserved_usd: Decimal, contenders: int) -> Decimal:
    """Return the US dollars that one of the contenders for an account may take, so that all get equal parts.

    The parts are of the money that is left and that the contenders have reserved. Never more than is left.
    """
    return min(left_usd, ratio(EXACT.add(left_usd, reserved_usd), contenders))


class Account:
    """One budget of a run, and the amounts that are spent and reserved of it."""

    def __init__(
        self, budget: Budget, usage: Usage, parent: Account | None = None, path: tuple[str, ...] = ()
    ) -> None:
        """Open an account under `parent`. The scope that it belongs to counts its spending in `usage`."""
        self.budget, self.usage, self.parent, self.path = budget, usage, parent, path
        self.ledger: Ledger = Ledger() if parent is None else parent.ledger
        self.goes_by_expectations = budget.admission == "expected"
        """Whether the account reserves the expected use of requests instead of the most they can use."""
        self.reserved_usd = NOTHING
        self.reserved_tokens = 0
        self.reserved_requests = 0
        self.waiting = 0
        """Number of claims in line that draw on the account."""
        self.contenders = 0
        """Number of requests that draw on the account: on their way to the line, in line, or in flight."""
        self.closed = False
        self.warnings_told = 0
        """Number of shares in `warn_at` of the budget that the account has reached."""
        self.told_of_waiting = False
        """Whether a log message already says that requests wait for the account."""

    @property
    def is_reserved(self) -> bool:
        """Whether requests in flight, or runs, hold a part of the budget."""
        return bool(self.reserved_usd or self.reserved_tokens or self.reserved_requests)

    def lineage(self) -> Iterator[Account]:
        """Yield this account and the accounts above it, innermost first."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    @property
    def room(self) -> Room:
        """The amounts that are left of the budget."""
        budget = self.budget
        return Room(
            None if budget.usd is None else EXACT.subtract(budget.usd, self._used_usd),
            None if budget.tokens is None else budget.tokens - self._used_tokens,
            None if budget.requests is None else budget.requests - self._used_requests,
        )

    @property
    def offer(self) -> Room:
        """The amounts that a flexible request may take, so that something is left for others.

        Each contender may take an equal part of everything that is not spent, as far as there is room. An
        account that goes by expectations does not divide its room.
        """
        if self.goes_by_expectations:
            return NO_LIMIT
        room, each = self.room, max(self.contenders, 1)
        return Room(
            None if room.usd is None else equal_part(room.usd, self.reserved_usd, each),
            None if room.tokens is None else min(room.tokens, (room.tokens + self.reserved_tokens) // each),
            None,
        )

    @property
    def limits_only_money(self) -> bool:
        """Whether the budget limits neither tokens nor requests."""
        return self.budget.tokens is None and self.budget.requests is None

    def reserved_for(self, amounts: Amounts) -> Amounts:
        """Return the amounts to set aside in this account for a request with these amounts."""
        if not self.goes_by_expectations:
            return amounts
        usd, tokens = amounts.expected_usd, amounts.expected_tokens
        return amounts._replace(
            usd=amounts.usd if usd is None else usd, tokens=amounts.tokens if tokens is None else tokens
        )

    def lacks(self, amounts: Amounts) -> Measure | None:
        """Return the first measure that has no room for these amounts; `None` if they fit."""
        budget, asked = self.budget, self.reserved_for(amounts)
        if budget.usd is not None and EXACT.add(self._used_usd, asked.usd) > budget.usd:
            return "usd"
        if budget.tokens is not None and self._used_tokens + asked.tokens > budget.tokens:
            return "tokens"
        if budget.requests is not None and self._used_requests + asked.requests > budget.requests:
            return "requests"
        return None

    @property
    def _used_usd(self) -> Decimal:
        return EXACT.add(self.usage.committed_usd, self.reserved_usd)

    @property
    def _used_tokens(self) -> int:
        return self.usage.committed_tokens + self.reserved_tokens

    @property
    def _used_requests(self) -> int:
        return self.usage.request_count + self.reserved_requests

    @property
    def share(self) -> Decimal:
        """The share that is spent of the limit that is nearest to its end; 0 without a limit."""
        budget, usage = self.budget, self.usage
        shares = [
            ratio(spent, limit)
            for spent, limit in (
                (usage.committed_usd, budget.usd),
                (usage.committed_tokens, budget.tokens),
                (usage.request_count, budget.requests),
            )
            if limit is not None
        ]
        return max(shares, default=NOTHING)

    def reserve(self, amounts: Amounts) -> None:
        """Set these amounts aside."""
        asked = self.reserved_for(amounts)
        self.reserved_usd = EXACT.add(self.reserved_usd, asked.usd)
        self.reserved_tokens += asked.tokens
        self.reserved_requests += asked.requests

    def free(self, amounts: Amounts) -> None:
        """Give back these amounts, which `reserve` has set aside."""
        asked = self.reserved_for(amounts)
        self.reserved_usd = EXACT.subtract(self.reserved_usd, asked.usd)
        self.reserved_tokens -= asked.tokens
        self.reserved_requests -= asked.requests

    @property
    def crossed(self) -> Measure | None:
        """The first measure of which more is spent than the budget allows; `None` if the budget holds."""
        usage, budget = self.usage, self.budget
        if budget.usd is not None and usage.committed_usd > budget.usd:
            return "usd"
        if budget.tokens is not None and usage.committed_tokens > budget.tokens:
            return "tokens"
        if budget.requests is not None and usage.request_count > budget.requests:
            return "requests"
        return None

    def close(self) -> list[Claim]:
        """Stop limiting anything, also for claims in line. Returns the claims that this changes."""
        self.closed = True
        return self.ledger.drop(self)

    def new_warnings(self) -> tuple[float, ...]:
        """Return the shares in `warn_at` that the account has newly reached, each of them once."""
        left = self.budget.warn_at[self.warnings_told :]
        if not left:
            return ()
        share = self.share
        reached = tuple(one for one in left if Decimal(str(one)) <= share)
        self.warnings_told += len(reached)
        return reached


class Hold:
    """The amounts that one request in flight has reserved, or one run, whose requests draw on the hold."""

    def __init__(self, accounts: tuple[Account, ...], amounts: Amounts, reserve: Hold | None = None) -> None:
        """Hold `amounts` of `accounts`, which are empty if nothing limits the request.

        Money that `reserve`, the hold of a run around the request, has in an account is not held twice.
        """
        self.accounts, self.amounts, self.reserve = accounts, amounts, reserve
        self.ledger: Ledger | None = accounts[0].ledger if accounts else None
        self.run: str | None = None
        """Name of the run that has this hold; `None` for a request, and after the end of the run."""
        self.drawing: dict[Hold, None] = {}
        """Holds that draw on this one."""
        self._drawn_usd = NOTHING
        self.dependents = 0
        """Number of requests that wait in line inside of this one, which ends only after them."""
        self.shared_dependents = 0
        """Number of requests inside of this one that wait for a spend limit: this one cannot end before."""
        self.stalled = False
        """Whether nobody reads the stream of the request."""
        self.has_slot = False
        """Whether the request has a slot under a `ProviderLimit`."""

    @property
    def may_end(self) -> bool:
        """Whether the request ends by itself, even if the requests in line do not go on."""
        return not (self.stalled or self.dependents)

    def review(self) -> list[Claim]:
        """Review the line after a change of this hold. Returns the claims that this changes."""
        return [] if self.ledger is None else self.ledger.review()

    @property
    def left_usd(self) -> Decimal:
        """US dollars of this hold of a run that the holds inside of the run can still draw."""
        if self.run is None:
            return NOTHING
        return EXACT.subtract(self.amounts.usd, self._drawn_usd)

    def covers(self, amounts: Amounts) -> bool:
        """Return whether enough of this hold is left to pay for another hold of these amounts."""
        return self.run is not None and amounts.usd <= self.left_usd

    def lend(self, other: Hold) -> None:
        """Pay for another hold, which then takes nothing from the accounts of this one."""
        self.drawing[other] = None
        self._drawn_usd = EXACT.add(self._drawn_usd, other.amounts.usd)

    def take_back(self, other: Hold) -> None:
        """Stop paying for another hold, and count its money as undrawn again."""
        del self.drawing[other]
        self._drawn_usd = EXACT.subtract(self._drawn_usd, other.amounts.usd)

    def pays_in(self, account: Account) -> bool:
        """Return whether this hold has money of the account. Requests that draw on it need none there."""
        return account in self.accounts

    def asked_of(self, account: Account) -> Amounts:
        """Return the amounts that this hold has of one account."""
        return _asked_of(account, self.amounts, self.reserve)

    def leave(self, account: Account) -> list[Claim]:
        """Give back everything that is held of one account. Returns the claims that this changes."""
        if account not in self.accounts:
            return []
        account.free(self.asked_of(account))
        account.contenders -= 1
        self.accounts = tuple(one for one in self.accounts if one is not account)
        return self.review()

    def spend(self, usd: Decimal) -> list[Claim]:
        """Hold less: the run has spent this much of the hold, and the accounts count it as spent.

        The holds on which this one draws hold less, too. Returns the claims that this changes.
        """
        return [] if self.ledger is None else self.ledger.spend(self, usd)

    def end(self, spent_usd: Decimal = NOTHING) -> list[Claim]:
        """Free the hold, after this much of it was spent. Returns the claims that this changes."""
        return [] if self.ledger is None else self.ledger.end(self, spent_usd)


def _asked_of(account: Account, amounts: Amounts, reserve: Hold | None) -> Amounts:
    """Return the amounts to hold of one account: no money, if the reserve already holds money there."""
    if reserve is None or not reserve.pays_in(account):
        return amounts
    return amounts._replace(usd=NOTHING, expected_usd=NOTHING)


ClaimState = Literal["coming", "waiting", "alone", "granted"]


class Claim:
    """A request, other spending or a run that asks for money, until it is granted or leaves.

    `coming`: the claim is counted, and has not asked yet. `waiting`: others stand in the way, and will end.
    `alone`: it does not fit, and there is nobody to wait for; it stays in line, and must ask for less or
    leave. `granted`: it has its `hold`.
    """

    def __init__(
        self,
        accounts: tuple[Account, ...],
        around: tuple[Hold, ...] = (),
        *,
        waits_for_others: bool = True,
    ) -> None:
        """Make a claim on `accounts`, innermost first, from inside the requests and runs of `around`.

        Without `waits_for_others`, the claim waits only for its turn: then it is granted or `alone`.
        """
        self.accounts, self.around, self.waits_for_others = accounts, around, waits_for_others
        self.reserves = tuple(hold for hold in around if hold.run is not None)
        """Holds of runs that may pay for the claim, innermost first."""
        self.amounts = Amounts()
        self.fitting: Callable[[Room], Amounts] | None = None
        """Function from an offer to the amounts to ask for: less than `amounts`, or more than the offer if
        the offer is too small to be useful. `None` if the claim asks for `amounts`, whatever the offer."""
        self.state: ClaimState = "coming"
        self.hold: Hold | None = None
        self.wake: Callable[[], None] | None = None
        """Function that is called, without the lock, when others have changed the state of the claim."""

    @property
    def reserve(self) -> Hold | None:
        """The reserve that pays for the claim: the innermost one that has enough; `None` if none has."""
        return next((hold for hold in self.reserves if hold.covers(self.amounts)), None)

    @property
    def room(self) -> Room:
        """The most that the claim can get: from its accounts, or from a reserve in place of some of them."""
        rooms = [self._least(lambda account: account.room, None)]
        for reserve in self.reserves:
            room = self._least(lambda account: account.room, reserve)
            rooms.append(replace(room, usd=_least(room.usd, reserve.left_usd)))
        return max(rooms, key=lambda room: (room.usd is None, room.usd))

    def _least(self, of: Callable[[Account], Room], reserve: Hold | None) -> Room:
        least = NO_LIMIT
        for account in self.accounts:
            room = of(account)
            is_paid = reserve is not None and reserve.pays_in(account)
            least = least.within(replace(room, usd=None) if is_paid else room)
        return least

    def fit(self) -> None:
        """Set `amounts` to those that fit the present offers of the accounts."""
        if self.fitting is not None and self.accounts:
            for reserve in (*self.reserves, None):
                self.amounts = self.fitting(self._least(lambda account: account.offer, reserve))
                if reserve is None or reserve.covers(self.amounts):
                    return

    @property
    def takes_from(self) -> Iterator[Account]:
        """The accounts from which the claim takes something: all but those that a reserve pays for."""
        reserve = self.reserve
        for account in self.accounts:
            is_paid = reserve is not None and reserve.pays_in(account)
            if not (is_paid and account.limits_only_money):
                yield account

    def count_in_line(self, number: int) -> None:
        """Count the claim as in line: 1 when it joins, -1 when it leaves.

        The requests inside of which it is made cannot end before it leaves.
        """
        for account in self.accounts:
            account.waiting += number
        for hold in self.around:
            hold.dependents += number

    def leave(self, account: Account) -> None:
        """Remove an account from the claim, because it has closed."""
        account.waiting -= 1
        account.contenders -= 1
        self.accounts = tuple(one for one in self.accounts if one is not account)

    def short(self) -> list[tuple[Account, Measure]]:
        """Return the accounts in which the claim does not fit, each with the measure that is short."""
        reserve = self.reserve
        return [
            (account, measure)
            for account in self.accounts
            if (measure := account.lacks(_asked_of(account, self.amounts, reserve))) is not None
        ]


class Ledger:
    """The reservations of one tree of accounts, and the line before them.

    First come, first served: while a claim waits for an account, no later one takes from that account. Claims
    from inside a request in flight go before all others, which may be waiting for the end of that request.
    """

    def __init__(self) -> None:
        self.arrivals = 0
        """Number of claims that have come so far."""
        self._line: Line[Claim] = Line()
        self._open: dict[Hold, None] = {}
        self._alone: list[Claim] = []
        self._taken: set[Account] = set()
        """Accounts for which a claim waits. The end of a hold that has none of them lets no claim go on."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is reserved and no claim waits."""
        return not self._open and not self._line

    @property
    def reserves(self) -> Iterator[Hold]:
        """The open holds of runs."""
        return (hold for hold in self._open if hold.run is not None)

    def expect(self, claim: Claim) -> None:
        """Count a claim that is about to ask, so that the offers to others leave something for it."""
        self.arrivals += 1
        for account in claim.accounts:
            account.contenders += 1

    def ask(
        self, claim: Claim, amounts: Amounts, fitting: Callable[[Room], Amounts] | None = None
    ) -> list[Claim]:
        """Grant a claim, or put it in line. Returns the other claims that this changes."""
        claim.amounts, claim.fitting, claim.state = amounts, fitting, "waiting"
        claim.accounts = tuple(account for account in claim.accounts if not account.closed)
        is_behind = self._is_behind(claim, Claim.fit)
        if not is_behind and not claim.reserves:
            claim.fit()
        if not is_behind and not claim.short():
            self._grant(claim)
            return self._left_alone() if self._line else []
        self._line.join(claim, inside=bool(claim.around))
        claim.count_in_line(1)
        if is_behind and not claim.around:
            return []
        return [changed for changed in self.review() if changed is not claim]

    def hold(self, hold: Hold) -> None:
        """Reserve the amounts of a request that was sent already, whether or not there is room."""
        self._open[hold] = None
        for account in hold.accounts:
            account.contenders += 1
            account.reserve(hold.asked_of(account))

    def amend(
        self, claim: Claim, amounts: Amounts, fitting: Callable[[Room], Amounts] | None = None
    ) -> list[Claim]:
        """Let a claim in line ask for other amounts, in its place. Returns the others that this changes."""
        claim.amounts, claim.fitting, claim.state = amounts, fitting, "waiting"
        return [changed for changed in self.review() if changed is not claim]

    def leave(self, claim: Claim) -> list[Claim]:
        """Withdraw a claim that is in line or coming. Returns the claims that this changes."""
        for account in claim.accounts:
            account.contenders -= 1
        if claim.state != "coming":
            claim.count_in_line(-1)
            self._line.leave(claim)
        return self.review()

    def end(self, hold: Hold, spent_usd: Decimal) -> list[Claim]:
        """Free the amounts that a request or a run has reserved. Returns the claims that this changes."""
        for inner in tuple(hold.drawing):  # requests that outlive the run
            self._change(inner, inner.amounts, hold.reserve)
        hold.run = None
        del self._open[hold]
        for account in hold.accounts:
            account.free(hold.asked_of(account))
            account.contenders -= 1
        if hold.reserve is not None:
            hold.reserve.take_back(hold)
            self._spend(hold.reserve, spent_usd)
        # An account that goes by expectations may have less room now, if the request cost more than was
        # reserved. So claims in line may lack room in it, although none waited for it until now.
        is_waited_for = not self._taken.isdisjoint(hold.accounts) or (
            bool(self._line) and any(account.goes_by_expectations for account in hold.accounts)
        )
        return self.review() if is_waited_for else []

    def spend(self, reserve: Hold, usd: Decimal) -> list[Claim]:
        """Let a reserve hold less, and the reserves that pay for it. Returns the claims that this changes."""
        self._spend(reserve, usd)
        return self.review()

    def _spend(self, reserve: Hold | None, usd: Decimal) -> None:
        while reserve is not None:
            left_usd = EXACT.subtract(reserve.amounts.usd, min(usd, reserve.left_usd))
            self._change(reserve, reserve.amounts._replace(usd=left_usd, expected_usd=None), reserve.reserve)
            reserve = reserve.reserve

    def drop(self, account: Account) -> list[Claim]:
        """Take an account that has closed out of all claims in line. Returns the claims that this changes."""
        if not account.waiting:
            return []
        for claim in self._line:
            if account in claim.accounts:
                claim.leave(account)
        return self.review()

    def grow(self, hold: Hold, amounts: Amounts) -> bool:
        """Let a request hold more, before all claims in line. Returns False if there is no room for it."""
        before = hold.amounts
        self._change(hold, amounts, hold.reserve)
        is_overdrawn = any(account.lacks(_NOTHING_MORE) is not None for account in hold.accounts)
        if is_overdrawn or (hold.reserve is not None and hold.reserve.left_usd < 0):
            self._change(hold, before, hold.reserve)
            return False
        return True

    def shrink(self, hold: Hold, amounts: Amounts) -> list[Claim]:
        """Lower the amounts that a request holds. Returns the claims that this changes."""
        self._change(hold, amounts, hold.reserve)
        return self.review()

    def _change(self, hold: Hold, amounts: Amounts, reserve: Hold | None) -> None:
        """Change the amounts of a hold, or the reserve that it draws on."""
        for account in hold.accounts:
            account.free(hold.asked_of(account))
            account.reserve(_asked_of(account, amounts, reserve))
        if hold.reserve is not None:
            hold.reserve.take_back(hold)
        hold.amounts, hold.reserve = amounts, reserve
        if reserve is not None:
            reserve.lend(hold)

    def review(self) -> list[Claim]:
        """Grant the claims that fit, in the order of the line, and note which ones are alone.

        Returns the claims that this changes.
        """
        if not self._line:
            self._taken = set()
            return []
        granted: list[Claim] = []
        for claim, lacking in self._first_in_line(Claim.fit):
            if not lacking:
                self._grant(claim)
                granted.append(claim)
        for claim in granted:
            claim.count_in_line(-1)
            self._line.leave(claim)
        return granted + self._left_alone()

    def _first_in_line(
        self, before: Callable[[Claim], None] | None = None
    ) -> Iterator[tuple[Claim, set[Account]]]:
        """Yield each claim that is behind no other, with the accounts in which it does not fit.

        `before` is called with each claim first.
        """
        taken = self._taken = set[Account]()
        for claim in self._line:
            if self._is_behind(claim, before):
                continue
            if before is not None and not claim.reserves:
                before(claim)
            lacking = {account for account, _ in claim.short()}
            taken |= lacking
            yield claim, lacking
            # A later claim from inside of a run may have a reserve that pays in these accounts.
            if lacking and not claim.around and self._everyone_draws_on(taken):
                return

    def _is_behind(self, claim: Claim, before: Callable[[Claim], None] | None) -> bool:
        """Return whether an earlier claim waits for an account from which this one takes something.

        If reserves may pay for the claim, its accounts depend on its amounts: `before` sets these first.
        """
        if not claim.reserves:
            return not self._taken.isdisjoint(claim.accounts)
        if before is not None:
            before(claim)
        return not self._taken.isdisjoint(claim.takes_from)

    def _everyone_draws_on(self, accounts: set[Account]) -> bool:
        """Return whether each claim in line draws on one of these accounts."""
        outermost = (one for one in accounts if accounts.isdisjoint(islice(one.lineage(), 1, None)))
        return sum(account.waiting for account in outermost) == len(self._line)

    def _left_alone(self) -> list[Claim]:
        """Mark the claims that do not fit and have nobody to wait for as `alone`. Returns the new ones."""
        alone = [
            claim
            for claim, lacking in self._first_in_line()
            if not (claim.waits_for_others and self._some_end(lacking))
        ]
        news = [claim for claim in alone if claim.state == "waiting"]
        for claim in self._alone:
            if claim.state == "alone":
                claim.state = "waiting"
        for claim in alone:
            claim.state = "alone"
        self._alone = alone
        return news

    def _some_end(self, accounts: set[Account]) -> bool:
        """Return whether some request that holds part of one of these accounts will end by itself."""
        return any(hold.may_end and not accounts.isdisjoint(hold.accounts) for hold in self._open)

    def _grant(self, claim: Claim) -> None:
        reserve = claim.reserve if claim.accounts else None  # no accounts: all closed while the claim waited
        hold = claim.hold = Hold(claim.accounts, claim.amounts, reserve)
        claim.state = "granted"
        if not claim.accounts:
            return
        self._open[hold] = None
        for account in claim.accounts:
            account.reserve(hold.asked_of(account))
        if hold.reserve is not None:
            hold.reserve.lend(hold)


_NOTHING_MORE: Final = Amounts(requests=0, expected_usd=NOTHING, expected_tokens=0)


def wake(claims: Iterable[Claim]) -> None:
    """Wake the requests whose claims have changed. Call this without the lock."""
    for claim in claims:
        if claim.wake is not None:
            claim.wake()


def _least(one: NumberT | None, other: NumberT | None) -> NumberT | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)

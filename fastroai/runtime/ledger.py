"""What is spent, what is reserved, and who waits for what: a state machine without clock or I/O.

Every scope with a budget has an `Account`. Accounts form the tree that their scopes do, and one `Ledger`
serves the whole tree: a request is reserved in all accounts above it, or in none. Whoever calls a ledger
holds the lock of its run; what a call changes for others is returned, so that they can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from fastroai.records import EXACT, Usage, ratio
from fastroai.runtime.line import Line

if TYPE_CHECKING:
    from fastroai.usage import Budget

Measure = Literal["usd", "tokens", "requests"]
"""What a budget limits."""
NumberT = TypeVar("NumberT", int, Decimal)

NOTHING: Final = Decimal(0)
"""No money."""


class Amounts(NamedTuple):
    """What one request can use at most, and what it is expected to use."""

    usd: Decimal = NOTHING
    tokens: int = 0
    requests: int = 1
    expected_usd: Decimal | None = None
    """What accounts reserve that go by expectations; `None` for what it can cost at most."""
    expected_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What is neither spent nor reserved; `None` where there is no limit, negative after an overdraft."""

    usd: Decimal | None
    tokens: int | None
    requests: int | None

    def within(self, other: Room) -> Room:
        """What both have room for."""
        return Room(
            _least(self.usd, other.usd),
            _least(self.tokens, other.tokens),
            _least(self.requests, other.requests),
        )


NO_LIMIT: Final = Room(None, None, None)


def equal_part(left_usd: Decimal, reserved_usd: Decimal, contenders: int) -> Decimal:
    """US dollars that one of those who draw on an account may take, so that the others find as much.

    Of what is left and what they have reserved already; never more than is left.
    """
    return min(left_usd, ratio(EXACT.add(left_usd, reserved_usd), contenders))


class Account:
    """One budget of a run, and what is reserved of it."""

    __slots__ = (
        "budget",
        "closed",
        "contenders",
        "ledger",
        "parent",
        "path",
        "reserved_requests",
        "reserved_tokens",
        "reserved_usd",
        "told_of_waiting",
        "usage",
        "waiting",
        "warnings_told",
    )

    def __init__(
        self, budget: Budget, usage: Usage, parent: Account | None = None, path: tuple[str, ...] = ()
    ) -> None:
        """An account under `parent`, whose spending is counted in `usage` by the scope that it belongs to."""
        self.budget, self.usage, self.parent, self.path = budget, usage, parent, path
        self.ledger: Ledger = Ledger() if parent is None else parent.ledger
        self.reserved_usd = NOTHING
        self.reserved_tokens = 0
        self.reserved_requests = 0
        self.waiting = 0
        """Claims in line that draw on it."""
        self.contenders = 0
        """Requests that draw on it: on their way to the line, in line, and in flight."""
        self.closed = False
        self.warnings_told = 0
        """How many of the shares to warn of it has reached."""
        self.told_of_waiting = False
        """Whether the log says that requests wait for it."""

    def lineage(self) -> Iterator[Account]:
        """This account and those above it, innermost first."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    @property
    def room(self) -> Room:
        """What is left of it."""
        budget = self.budget
        return Room(
            None if budget.usd is None else EXACT.subtract(budget.usd, self._used_usd),
            None if budget.tokens is None else budget.tokens - self._used_tokens,
            None if budget.requests is None else budget.requests - self._used_requests,
        )

    @property
    def offer(self) -> Room:
        """What one request may take if it can do with less than it asks for, so that others find something.

        That is an equal part of what is not spent, as far as there is room for it. An account that reserves
        expectations has no need to divide what it has.
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
        """Whether it limits neither tokens nor requests."""
        return self.budget.tokens is None and self.budget.requests is None

    @property
    def goes_by_expectations(self) -> bool:
        """Whether it reserves what requests are expected to use, instead of the most that they can use."""
        return self.budget.admission == "expected"

    def reserved_for(self, amounts: Amounts) -> Amounts:
        """Return the part to set aside here for a request that can use so much."""
        if not self.goes_by_expectations:
            return amounts
        usd, tokens = amounts.expected_usd, amounts.expected_tokens
        return amounts._replace(
            usd=amounts.usd if usd is None else usd, tokens=amounts.tokens if tokens is None else tokens
        )

    def lacks(self, amounts: Amounts) -> Measure | None:
        """What there is too little of for so much; `None` if it fits."""
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
        """The share of the limit that is spent: of the limit that is nearest to its end."""
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
        """Set so much aside."""
        asked = self.reserved_for(amounts)
        self.reserved_usd = EXACT.add(self.reserved_usd, asked.usd)
        self.reserved_tokens += asked.tokens
        self.reserved_requests += asked.requests

    def free(self, amounts: Amounts) -> None:
        """Give so much back."""
        asked = self.reserved_for(amounts)
        self.reserved_usd = EXACT.subtract(self.reserved_usd, asked.usd)
        self.reserved_tokens -= asked.tokens
        self.reserved_requests -= asked.requests

    @property
    def crossed(self) -> Measure | None:
        """What was spent more of than there was; `None` if the budget holds."""
        usage, budget = self.usage, self.budget
        if budget.usd is not None and usage.committed_usd > budget.usd:
            return "usd"
        if budget.tokens is not None and usage.committed_tokens > budget.tokens:
            return "tokens"
        if budget.requests is not None and usage.request_count > budget.requests:
            return "requests"
        return None

    def close(self) -> list[Claim]:
        """Limit nothing any more, not even those who wait. Returns the claims that this changes."""
        self.closed = True
        return self.ledger.drop(self)

    def new_warnings(self) -> tuple[float, ...]:
        """Return the shares to warn of that it has just reached; each of them once."""
        left = self.budget.warn_at[self.warnings_told :]
        if not left:
            return ()
        share = self.share
        reached = tuple(one for one in left if Decimal(str(one)) <= share)
        self.warnings_told += len(reached)
        return reached


class Hold:
    """What one request in flight has reserved; or what one run has, whose requests draw on it."""

    __slots__ = (
        "_drawn_usd",
        "accounts",
        "amounts",
        "dependents",
        "drawing",
        "has_slot",
        "ledger",
        "reserve",
        "run",
        "shared_dependents",
        "stalled",
    )

    def __init__(self, accounts: tuple[Account, ...], amounts: Amounts, reserve: Hold | None = None) -> None:
        """Hold `amounts` of `accounts`, which are empty if nothing limits the request.

        An amount that a `reserve` around it already holds of an account is not held twice.
        """
        self.accounts, self.amounts, self.reserve = accounts, amounts, reserve
        self.ledger: Ledger | None = accounts[0].ledger if accounts else None
        self.run: str | None = None
        """Name of the run that has reserved this; `None` for a request, and after the run."""
        self.drawing: dict[Hold, None] = {}
        """Holds that draw on this one."""
        self._drawn_usd = NOTHING
        self.dependents = 0
        """Requests that wait in line inside of this one, which ends after them."""
        self.shared_dependents = 0
        """Of these, those that wait for a spend limit: what this one has reserved there is free later."""
        self.stalled = False
        """Whether its stream has no reader."""
        self.has_slot = False
        """Whether it has a slot under a `ProviderLimit`."""

    @property
    def may_end(self) -> bool:
        """Whether it ends by itself, even if the requests in line do not go on."""
        return not (self.stalled or self.dependents)

    def review(self) -> list[Claim]:
        """The claims that are changed by what was noted here."""
        return [] if self.ledger is None else self.ledger.review()

    @property
    def left_usd(self) -> Decimal:
        """US dollars that other holds can still draw."""
        if self.run is None:
            return NOTHING
        return EXACT.subtract(self.amounts.usd, self._drawn_usd)

    def covers(self, amounts: Amounts) -> bool:
        """Whether another hold can draw these amounts."""
        return self.run is not None and amounts.usd <= self.left_usd

    def lend(self, other: Hold) -> None:
        """Begin to pay for another hold."""
        self.drawing[other] = None
        self._drawn_usd = EXACT.add(self._drawn_usd, other.amounts.usd)

    def take_back(self, other: Hold) -> None:
        """Stop paying for another hold."""
        del self.drawing[other]
        self._drawn_usd = EXACT.subtract(self._drawn_usd, other.amounts.usd)

    def pays_in(self, account: Account) -> bool:
        """Whether it holds money of this account, so that requests which draw on it need none there."""
        return account in self.accounts

    def asked_of(self, account: Account) -> Amounts:
        """Return what it holds of one account."""
        return _asked_of(account, self.amounts, self.reserve)

    def leave(self, account: Account) -> list[Claim]:
        """Hold nothing more of one account. Returns the claims that this changes."""
        if account not in self.accounts:
            return []
        account.free(self.asked_of(account))
        account.contenders -= 1
        self.accounts = tuple(one for one in self.accounts if one is not account)
        return self.review()

    def spend(self, usd: Decimal) -> list[Claim]:
        """Hold less: a run has spent this much of it, which is now in the accounts as spent.

        Holds that it draws on itself hold less, too. Returns the claims that this changes.
        """
        return [] if self.ledger is None else self.ledger.spend(self, usd)

    def end(self, spent_usd: Decimal = NOTHING) -> list[Claim]:
        """Free it after this much was spent of it. Returns the claims that this changes."""
        return [] if self.ledger is None else self.ledger.end(self, spent_usd)


def _asked_of(account: Account, amounts: Amounts, reserve: Hold | None) -> Amounts:
    """Return what to hold of one account: no money, if a reserve already holds it there."""
    if reserve is None or not reserve.pays_in(account):
        return amounts
    return amounts._replace(usd=NOTHING, expected_usd=NOTHING)


ClaimState = Literal["coming", "waiting", "alone", "granted"]


class Claim:
    """What one request asks for.

    `coming`: it is counted, and has not asked yet. `waiting`: others stand in the way, and will be gone.
    `alone`: it does not fit, and nobody is left to wait for; it stays in line, and must ask for less or
    leave. `granted`: it has its `hold`.
    """

    __slots__ = (
        "accounts",
        "amounts",
        "around",
        "fitting",
        "hold",
        "reserves",
        "state",
        "waits_for_others",
        "wake",
    )

    def __init__(
        self,
        accounts: tuple[Account, ...],
        around: tuple[Hold, ...] = (),
        *,
        waits_for_others: bool = True,
    ) -> None:
        """Come to draw on `accounts`, innermost first, from inside the requests and runs of `around`.

        A claim that does not wait for others only waits for its turn: then it is granted or `alone`.
        """
        self.accounts, self.around, self.waits_for_others = accounts, around, waits_for_others
        self.reserves = tuple(hold for hold in around if hold.run is not None)
        """Holds of runs that may pay for it, innermost first."""
        self.amounts = Amounts()
        self.fitting: Callable[[Room], Amounts] | None = None
        """What it asks for when it is offered so much: less than its `amounts`, or more than the offer if it
        can do no good with that. `None` if it asks for its `amounts`, whatever it is offered."""
        self.state: ClaimState = "coming"
        self.hold: Hold | None = None
        self.wake: Callable[[], None] | None = None
        """Called, without the lock, when others have changed its state."""

    @property
    def reserve(self) -> Hold | None:
        """The reserve of a run that pays for it: the innermost one that has enough; or `None`."""
        return next((hold for hold in self.reserves if hold.covers(self.amounts)), None)

    @property
    def room(self) -> Room:
        """The most that it can get: from its accounts, or from a reserve in place of some of them."""
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
        """Ask for the amounts that fit what its accounts offer now."""
        if self.fitting is not None and self.accounts:
            for reserve in (*self.reserves, None):
                self.amounts = self.fitting(self._least(lambda account: account.offer, reserve))
                if reserve is None or reserve.covers(self.amounts):
                    return

    @property
    def takes_from(self) -> Iterator[Account]:
        """The accounts that it takes anything from: not those for which a reserve pays everything."""
        reserve = self.reserve
        for account in self.accounts:
            is_paid = reserve is not None and reserve.pays_in(account)
            if not (is_paid and account.limits_only_money):
                yield account

    def start_waiting(self) -> None:
        """It is in line, and those inside of which it is made cannot end before it."""
        for account in self.accounts:
            account.waiting += 1
        for hold in self.around:
            hold.dependents += 1

    def stop_waiting(self) -> None:
        """It is no longer in line, and they can end again."""
        for account in self.accounts:
            account.waiting -= 1
        for hold in self.around:
            hold.dependents -= 1

    def leave(self, account: Account) -> None:
        """Ask for nothing of an account that has closed."""
        account.waiting -= 1
        account.contenders -= 1
        self.accounts = tuple(one for one in self.accounts if one is not account)

    def short(self) -> list[tuple[Account, Measure]]:
        """The accounts in which it does not fit, and what they lack."""
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

    __slots__ = ("_alone", "_line", "_open", "_taken", "arrivals")

    def __init__(self) -> None:
        self.arrivals = 0
        """Claims that have come so far."""
        self._line: Line[Claim] = Line()
        self._open: dict[Hold, None] = {}
        self._alone: list[Claim] = []
        self._taken: set[Account] = set()
        """Accounts for which somebody waits. What ends and has drawn on none of them lets nobody go."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is reserved and nobody waits."""
        return not self._open and not self._line

    @property
    def reserves(self) -> Iterator[Hold]:
        """Holds of runs."""
        return (hold for hold in self._open if hold.run is not None)

    def expect(self, claim: Claim) -> None:
        """Count a claim that is about to ask, so that what others are offered leaves something for it."""
        self.arrivals += 1
        for account in claim.accounts:
            account.contenders += 1

    def ask(
        self, claim: Claim, amounts: Amounts, fitting: Callable[[Room], Amounts] | None = None
    ) -> list[Claim]:
        """Grant a claim, or put it in line. Returns the other claims that this leaves alone."""
        claim.amounts, claim.fitting, claim.state = amounts, fitting, "waiting"
        claim.accounts = tuple(account for account in claim.accounts if not account.closed)
        is_behind = self._is_behind(claim, Claim.fit)
        if not is_behind and not claim.reserves:
            claim.fit()
        if not is_behind and not claim.short():
            self._grant(claim)
            return self._left_alone() if self._line else []
        self._line.join(claim, inside=bool(claim.around))
        claim.start_waiting()
        if is_behind and not claim.around:
            return []
        return [changed for changed in self.review() if changed is not claim]

    def amend(
        self, claim: Claim, amounts: Amounts, fitting: Callable[[Room], Amounts] | None = None
    ) -> list[Claim]:
        """Let a claim in line ask for something else, in its place. Returns the others that this changes."""
        claim.amounts, claim.fitting, claim.state = amounts, fitting, "waiting"
        return [changed for changed in self.review() if changed is not claim]

    def leave(self, claim: Claim) -> list[Claim]:
        """Take a claim out of the line, or let it not come. Returns the claims that this changes."""
        for account in claim.accounts:
            account.contenders -= 1
        if claim.state != "coming":
            claim.stop_waiting()
            self._line.leave(claim)
        return self.review()

    def end(self, hold: Hold, spent_usd: Decimal) -> list[Claim]:
        """Free what a request or a run has reserved. Returns the claims that this changes."""
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
        # One that goes by expectations may have less now than before: nobody waited for it until then.
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
        """Let nobody wait for an account that has closed. Returns the claims that this changes."""
        if not account.waiting:
            return []
        for claim in self._line:
            if account in claim.accounts:
                claim.leave(account)
        return self.review()

    def shrink(self, hold: Hold, amounts: Amounts) -> list[Claim]:
        """Let a request hold less than it did. Returns the claims that this changes."""
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
        """Grant what fits, in line; find out who is alone, and who is so no more."""
        if not self._line:
            self._taken = set()
            return []
        granted: list[Claim] = []
        for claim, lacking in self._first_in_line(Claim.fit):
            if not lacking:
                self._grant(claim)
                granted.append(claim)
        for claim in granted:
            claim.stop_waiting()
            self._line.leave(claim)
        return granted + self._left_alone()

    def _first_in_line(
        self, before: Callable[[Claim], None] | None = None
    ) -> Iterator[tuple[Claim, set[Account]]]:
        """Those whom no earlier one stands before, with the accounts in which they do not fit.

        `before` that, something is done with each.
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
            # Of those inside of others, some may have a reserve that pays in these accounts.
            if lacking and not claim.around and self._everyone_draws_on(taken):
                return

    def _is_behind(self, claim: Claim, before: Callable[[Claim], None] | None) -> bool:
        """Whether an earlier one waits for something that it asks for.

        What it asks for, and of whom, depends on what a reserve has for it: `before` that, it is found out.
        """
        if not claim.reserves:
            return not self._taken.isdisjoint(claim.accounts)
        if before is not None:
            before(claim)
        return not self._taken.isdisjoint(claim.takes_from)

    def _everyone_draws_on(self, accounts: set[Account]) -> bool:
        """Whether each claim in line draws on one of these."""
        outermost = (one for one in accounts if accounts.isdisjoint(islice(one.lineage(), 1, None)))
        return sum(account.waiting for account in outermost) == len(self._line)

    def _left_alone(self) -> list[Claim]:
        """Note who has nobody to wait for, now that all are gone who could go. Returns the new ones."""
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
        """Whether some request that holds part of one of these accounts will end by itself."""
        return any(hold.may_end and not accounts.isdisjoint(hold.accounts) for hold in self._open)

    def _grant(self, claim: Claim) -> None:
        reserve = claim.reserve if claim.accounts else None  # else all of them have closed while it waited
        hold = claim.hold = Hold(claim.accounts, claim.amounts, reserve)
        claim.state = "granted"
        if not claim.accounts:
            return
        self._open[hold] = None
        for account in claim.accounts:
            account.reserve(hold.asked_of(account))
        if hold.reserve is not None:
            hold.reserve.lend(hold)


def wake(claims: Iterable[Claim]) -> None:
    """Tell those whose claims have changed. To be called without the lock."""
    for claim in claims:
        if claim.wake is not None:
            claim.wake()


def _least(one: NumberT | None, other: NumberT | None) -> NumberT | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)

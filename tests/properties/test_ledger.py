"""The ledger alone: random trees of budgets, and requests that ask, wait, give way and end in any order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from fastroai.records import EXACT, RequestOutcome, RequestRecord, Tokens, Usage, exact_sum
from fastroai.runtime.budgets.ledger import Account, Amounts, Claim, Hold, Ledger, Room
from fastroai.usage import Budget

CENT = Decimal("0.01")

Kind = Literal[
    "ask",
    "ask inside",
    "set aside",
    "spend",
    "come",
    "refuse",
    "lower",
    "amend",
    "cancel",
    "end",
    "shrink",
    "stall",
    "close",
]
ENDS: tuple[RequestOutcome, ...] = ("settled", "released", "unmeasured")


@dataclass(frozen=True)
class Operation:
    """Something that happens to the ledger; to which of those that it can happen to, `which` tells."""

    kind: Kind
    which: int
    where: int
    cents: int
    tokens: int
    enough: int | None = None
    """Cents, and tokens, with which the request can do; `None` if it needs all it asks for."""
    expected: int = 0
    """Quarters of what it can use that it is expected to use."""

    @property
    def amounts(self) -> Amounts:
        return with_expectation(Amounts(self.cents * CENT, self.tokens), self.expected)

    def fitting(self, offer: Room) -> Amounts:
        """What the request asks for where it is offered so much: no less than enough."""
        whole, enough = self.amounts, self.enough or 0
        usd = whole.usd if offer.usd is None else min(whole.usd, max(enough * CENT, offer.usd))
        tokens = whole.tokens if offer.tokens is None else min(whole.tokens, max(enough, offer.tokens))
        return with_expectation(Amounts(usd, tokens), self.expected)


def with_expectation(amounts: Amounts, quarters: int) -> Amounts:
    return amounts._replace(
        expected_usd=amounts.usd * quarters / 4, expected_tokens=amounts.tokens * quarters // 4
    )


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """A budget of any of the units, perhaps of none that is counted here."""
    cents = draw(st.integers(1, 25) | st.none())
    return Budget(
        usd=None if cents is None else cents * CENT,
        tokens=draw(st.none() | st.integers(1, 25)),
        requests=draw(st.none() | st.integers(1, 5)),
        ms=1,
        admission=draw(st.sampled_from(("bound", "bound", "expected"))),
    )


trees = st.lists(st.tuples(budgets(), st.integers(0, 5)), min_size=1, max_size=6)
"""Budgets, and which of those before it each is under."""

KINDS: tuple[Kind, ...] = get_args(Kind)
OFTEN: tuple[Kind, ...] = ("ask", "ask", "ask inside", "ask inside", "set aside", "end")

operations = st.builds(
    Operation,
    kind=st.sampled_from((*KINDS, *OFTEN)),
    which=st.integers(0, 7),
    where=st.integers(0, 5),
    cents=st.integers(0, 12),
    tokens=st.integers(0, 12),
    enough=st.none() | st.integers(0, 12),
    expected=st.integers(0, 4),
)


def total(amounts: Iterable[Amounts]) -> Amounts:
    """The sum."""
    known = list(amounts)
    return Amounts(
        exact_sum(one.usd for one in known),
        sum(one.tokens for one in known),
        sum(one.requests for one in known),
    )


def as_expected(amounts: Amounts) -> Amounts:
    """What an account reserves that goes by expectations."""
    usd, tokens = amounts.expected_usd, amounts.expected_tokens
    return Amounts(
        amounts.usd if usd is None else usd, amounts.tokens if tokens is None else tokens, amounts.requests
    )


def quarters_of(amounts: Amounts) -> int:
    """How many quarters of what it can cost are expected, if that can be told."""
    return int(amounts.expected_usd * 4 / amounts.usd) if amounts.expected_usd and amounts.usd else 0


def unheard(amounts: Amounts) -> RequestRecord:
    """A request of which nothing more is heard."""
    return RequestRecord(
        model="m",
        provider="p",
        outcome="unmeasured",
        bound_usd=amounts.usd,
        bound_tokens=amounts.tokens,
    )


def reserved(account: Account) -> Amounts:
    return Amounts(account.reserved_usd, account.reserved_tokens, account.reserved_requests)


class Bookkeeping:
    """Does anything to a ledger, and looks after each operation whether the laws hold."""

    def __init__(self, tree: Sequence[tuple[Budget, int]]) -> None:
        self.accounts: list[Account] = []
        for budget, parent in tree:
            above = self.accounts[parent % len(self.accounts)] if self.accounts else None
            self.accounts.append(Account(budget, Usage(), above))
        self.ledger: Ledger = self.accounts[0].ledger
        self.line: list[Claim] = []
        """Who waits, in the order in which they came."""
        self.holds: dict[Hold, tuple[Hold, ...]] = {}
        """What is open, and inside of what."""
        self.runs: set[Claim] = set()
        """Those in line that ask for all that a run may cost."""
        self.coming: list[Claim] = []
        """Who is counted, and has not asked yet."""
        self.told_that_they_are_alone: set[Claim] = set()
        self.beyond: dict[Account, Amounts] = {}
        """What requests in flight together could use at most beyond what was expected of them."""

    # --- what can happen ---

    def perform(self, operation: Operation) -> None:
        match operation.kind:
            case "ask" | "ask inside":
                self.ask(operation, inside=operation.kind == "ask inside")
            case "set aside":
                self.ask(operation, inside=operation.which % 2 == 0, is_run=True)
            case "spend" if reserves := [hold for hold in self.holds if hold.run is not None]:
                self.spend(reserves[operation.which % len(reserves)], quarters=operation.cents % 5)
            case "come":
                account = self.accounts[operation.where % len(self.accounts)]
                self.coming.append(Claim(tuple(each for each in account.lineage() if not each.closed)))
                self.ledger.expect(self.coming[-1])
            case "refuse" if self.alone:
                self.leave(self.alone[operation.which % len(self.alone)])
            case "lower" if requests := [claim for claim in self.alone if claim not in self.runs]:
                self.lower(requests[operation.which % len(requests)])
            case "amend" if requests := [claim for claim in self.line if claim not in self.runs]:
                claim = requests[operation.which % len(requests)]
                self.check(claim, self.ledger.amend(claim, operation.amounts))
            case "cancel" if self.coming and operation.which % 2:
                claim = self.coming.pop()
                self.check(None, self.ledger.leave(claim))
            case "cancel" if self.line:
                self.leave(self.line[operation.which % len(self.line)])
            case "end" if self.holds:
                self.end(self.hold(operation), ENDS[operation.where % 3], spent=operation.cents % 5)
            case "shrink" if requests := [hold for hold in self.holds if hold.run is None]:
                hold = requests[operation.which % len(requests)]
                usd, tokens = min(hold.amounts.usd, operation.amounts.usd), hold.amounts.tokens // 2
                smaller = with_expectation(Amounts(usd, tokens), quarters_of(hold.amounts))
                self.check(None, self.ledger.shrink(hold, smaller))
            case "stall" if self.holds:  # or, the second time, goes on
                hold = self.hold(operation)
                hold.stalled = not hold.stalled
                self.check(None, hold.review())
            case "close":  # while requests that were made in it are in flight
                self.close(self.accounts[operation.where % len(self.accounts)])
            case _:
                return
        self.check_laws()

    def hold(self, operation: Operation) -> Hold:
        return list(self.holds)[operation.which % len(self.holds)]

    def ask(self, operation: Operation, *, inside: bool, is_run: bool = False) -> None:
        """A request is made in some scope, or a run; perhaps from inside of others there or further out."""
        account = self.accounts[operation.where % len(self.accounts)]
        accounts = tuple(each for each in account.lineage() if not each.closed)
        outer = [hold for hold in self.holds if set(hold.accounts) <= set(accounts)]
        around: tuple[Hold, ...] = ()
        if inside and outer:
            hold = outer[operation.which % len(outer)]
            around = (hold, *self.holds[hold])
        if accounts and is_run:
            claim = Claim(accounts, around, waits_for_others=False)
            self.ledger.expect(claim)
            self.line.append(claim)
            self.runs.add(claim)
            self.check(claim, self.ledger.ask(claim, Amounts(operation.cents * CENT, requests=0)))
        elif accounts:
            if self.coming and not around:
                claim = self.coming.pop(0)
            else:
                claim = Claim(accounts, around)
                self.ledger.expect(claim)
            self.line.append(claim)
            fitting = None if operation.enough is None else operation.fitting
            self.check(claim, self.ledger.ask(claim, operation.amounts, fitting))

    def leave(self, claim: Claim) -> None:
        self.line.remove(claim)
        self.check(None, self.ledger.leave(claim))

    def lower(self, claim: Claim) -> None:
        """One that is alone asks for no more than there is room for."""
        room = claim.room
        if room.requests is not None and room.requests < 1:
            return
        usd = claim.amounts.usd if room.usd is None else min(claim.amounts.usd, room.usd)
        tokens = claim.amounts.tokens if room.tokens is None else min(claim.amounts.tokens, room.tokens)
        if usd < 0 or tokens < 0:
            return  # more was used than was expected
        self.check(claim, self.ledger.amend(claim, with_expectation(Amounts(usd, tokens), 4)))
        assert claim.state == "granted", "it was alone, and asks for what there is"

    def close(self, account: Account) -> None:
        """What is in flight counts there at its bound, and goes on in the accounts around it."""
        changed: list[Claim] = []
        for hold in [hold for hold in self.holds if account in hold.accounts and hold.run is None]:
            account.usage.add(unheard(hold.amounts))
            changed += hold.leave(account)
        changed += account.close()
        self.check(None, list(dict.fromkeys(changed)))

    def end(self, hold: Hold, outcome: RequestOutcome, *, spent: int) -> None:
        """A request ends, and has cost no more than it held: so many quarters of it. Or a run ends."""
        del self.holds[hold]
        if hold.run is not None:
            self.check(None, hold.end())
            return
        usd, tokens = hold.amounts.usd * spent / 4, hold.amounts.tokens * spent // 4
        record = RequestRecord(
            model="m",
            provider="p",
            outcome=outcome,
            tokens=Tokens(input_tokens=0 if outcome == "released" else tokens),
            cost_usd=usd if outcome == "settled" else None,
            bound_usd=hold.amounts.usd if outcome == "unmeasured" else None,
            bound_tokens=hold.amounts.tokens if outcome == "unmeasured" else None,
        )
        for account in hold.accounts:
            account.usage.add(record)
        assert isinstance(record.committed_usd, Decimal)
        self.check(None, hold.end(record.committed_usd))

    def spend(self, reserve: Hold, *, quarters: int) -> None:
        """Something is spent in a run that nobody has admitted: so many quarters of what the run has left."""
        usd = reserve.left_usd * quarters / 4
        record = RequestRecord(model="m", provider="p", outcome="settled", cost_usd=usd, kind="spend")
        for account in reserve.accounts:
            account.usage.add(record)
        self.check(None, reserve.spend(usd))

    # --- what must hold of an operation ---

    def check(self, asking: Claim | None, changed: Sequence[Claim]) -> None:
        """Whom it has granted something or left alone, it has told, and it has let nobody overtake others."""
        granted = [claim for claim in self.in_order() if claim.state == "granted"]
        assert len(set(changed)) == len(changed)
        assert set(granted) <= {*changed, asking}, "granted, and not told"
        for position, claim in enumerate(granted):
            self.nobody_was_overtaken_by(claim, by=granted[position:])
        for claim in granted:
            assert claim.hold is not None
            self.line.remove(claim)
            if claim.hold.accounts:  # else all of them have closed while it waited, and nothing limits it
                self.holds[claim.hold] = claim.around
                claim.hold.run = "run" if claim in self.runs else None
        for account in self.accounts:
            self.note_risk(account)
        alone = set(self.alone)
        assert alone <= {*self.told_that_they_are_alone, *changed, asking}, "alone, and not told"
        self.told_that_they_are_alone = alone

    def nobody_was_overtaken_by(self, claim: Claim, *, by: Sequence[Claim]) -> None:
        """What it got, nobody waited for who was before it, though those `by` it and after it had nothing."""
        holds = [each.hold for each in by if each.hold is not None]
        assert claim.hold is not None
        taken_from = self.taken_from(claim.hold)
        for hold in holds:
            for account in hold.accounts:
                account.free(hold.asked_of(account))
            if hold.reserve is not None:
                hold.reserve.take_back(hold)
        waited_for: set[Account] = set()
        for earlier in self.in_order():
            if earlier is claim:
                break
            if earlier.state != "granted" and waited_for.isdisjoint(earlier.takes_from):
                waited_for.update(account for account, _ in earlier.short())
        assert waited_for.isdisjoint(taken_from), "it took what an earlier one waits for"
        for hold in holds:
            for account in hold.accounts:
                account.reserve(hold.asked_of(account))
            if hold.reserve is not None:
                hold.reserve.lend(hold)

    def taken_from(self, hold: Hold) -> list[Account]:
        """The accounts that have less left for others: not those in which a run's reserve pays for it all."""
        paid = () if hold.reserve is None else hold.reserve.accounts
        return [
            account
            for account in hold.accounts
            if account not in paid or account.budget.tokens is not None or account.budget.requests is not None
        ]

    def in_order(self) -> list[Claim]:
        """First come, first served; but requests from inside of others go before all that are not."""
        return sorted(self.line, key=lambda claim: not claim.around)  # sorting is stable

    @property
    def able(self) -> list[Hold]:
        """What ends by itself: it is read, if it is a stream, and nobody waits inside of it."""
        waiting_inside = {hold for claim in self.line for hold in claim.around}
        return [hold for hold in self.holds if not hold.stalled and hold not in waiting_inside]

    @property
    def alone(self) -> list[Claim]:
        return [claim for claim in self.line if claim.state == "alone"]

    # --- what must hold at any time ---

    def check_laws(self) -> None:
        for account in self.accounts:
            self.check_balance(account)
        self.check_who_waits()
        assert self.ledger.is_idle == (not self.holds and not self.line)

    def note_risk(self, account: Account) -> None:
        """Remember the most that requests in flight together could use beyond what was reserved for them."""
        could, aside = self.most_in_flight(account), reserved(account)
        known = self.beyond.get(account, Amounts())
        self.beyond[account] = Amounts(
            max(known.usd, could.usd - aside.usd), max(known.tokens, could.tokens - aside.tokens)
        )

    def most_in_flight(self, account: Account) -> Amounts:
        return total(
            hold.amounts if hold.run is None else hold.amounts._replace(usd=hold.left_usd)
            for hold in self.holds
            if account in hold.accounts
        )

    def check_balance(self, account: Account) -> None:
        """No budget is crossed, or by no more than was said, and what is reserved is what is held."""
        usage, budget, aside = account.usage, account.budget, reserved(account)
        here = [hold.asked_of(account) for hold in self.holds if account in hold.accounts]
        could = self.most_in_flight(account)
        if account.closed:
            return
        for hold in self.holds:
            drawn = exact_sum(inner.amounts.usd for inner in hold.drawing)
            left = EXACT.subtract(hold.amounts.usd, drawn)
            assert hold.run is None or hold.left_usd == left >= 0
        if budget.admission == "expected":
            assert aside == total(map(as_expected, here))
        else:
            assert aside == could
        beyond = (
            self.beyond.get(account, Amounts()) if budget.admission == "expected" else Amounts(requests=0)
        )
        assert budget.usd is None or usage.committed_usd + could.usd <= budget.usd + beyond.usd
        assert budget.tokens is None or usage.committed_tokens + could.tokens <= budget.tokens + beyond.tokens
        assert budget.requests is None or usage.request_count + aside.requests <= budget.requests
        drawn_on = [claim for claim in (*self.line, *self.coming) if account in claim.accounts]
        assert account.contenders == len(drawn_on) + len(here)

    def check_who_waits(self) -> None:
        """Of the claims that no earlier one stands before, those that fit have gone; the others wait for a
        request that may end, or have been told that there is none."""
        waited_for: set[Account] = set()
        for claim in self.in_order():
            assert claim.state != "granted"
            if not waited_for.isdisjoint(claim.takes_from):
                assert claim.state == "waiting", "somebody is before it, who will go or leave"
                continue
            short = {account for account, _ in claim.short()}
            assert short, "it fits, and nobody is before it"
            somebody_ends = any(not short.isdisjoint(hold.accounts) for hold in self.able)
            somebody_ends = somebody_ends and claim not in self.runs
            assert claim.state == ("waiting" if somebody_ends else "alone")
            waited_for |= short

    def finish(self) -> None:
        """Everything comes to its end: nobody waits for ever, and nothing stays reserved."""
        while self.line:
            if self.alone:
                self.leave(self.alone[0])
            else:
                assert self.able, "they wait, and nothing will end"
                self.end(self.able[0], "settled", spent=4)
            self.check_laws()
        for claim in self.coming:
            self.ledger.leave(claim)
        for hold in list(self.holds):
            assert not hold.dependents
            self.end(hold, "settled", spent=4)
        assert self.ledger.is_idle
        for account in self.accounts:
            assert reserved(account) == Amounts(requests=0)
            assert account.closed or not account.contenders


@settings(max_examples=examples(75))
@given(trees, st.lists(operations, max_size=30))
def test_whatever_happens_the_books_are_right_and_nobody_waits_for_ever(
    tree: list[tuple[Budget, int]], happens: list[Operation]
) -> None:
    books = Bookkeeping(tree)
    for operation in happens:
        books.perform(operation)
    books.finish()

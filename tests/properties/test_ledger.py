"""The ledger alone: random trees of budgets, and requests that ask, wait, give way and end in any order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fastroai.records import RequestRecord, Tokens, Usage
from fastroai.runtime.ledger import Account, Amounts, Claim, Hold, Ledger
from fastroai.usage import Budget

CENT = Decimal("0.01")

some_amounts = st.builds(
    Amounts,
    usd=st.integers(0, 12).map(lambda cents: cents * CENT),
    tokens=st.integers(0, 12),
    requests=st.just(1),
)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """A budget of any of the units; one that limits nothing here has milliseconds."""
    cents = draw(st.none() | st.integers(1, 25))
    return Budget(
        usd=None if cents is None else cents * CENT,
        tokens=draw(st.none() | st.integers(1, 25)),
        requests=draw(st.none() | st.integers(1, 6)),
        ms=1,
    )


def total(amounts: Iterable[Amounts]) -> Amounts:
    """The sum."""
    known = list(amounts)
    return Amounts(
        sum((one.usd for one in known), Decimal(0)),
        sum(one.tokens for one in known),
        sum(one.requests for one in known),
    )


def reserved(account: Account) -> Amounts:
    return Amounts(account.reserved_usd, account.reserved_tokens, account.reserved_requests)


class Bookkeeping(RuleBasedStateMachine):
    """Does anything to a ledger, and looks after each operation whether the laws hold."""

    def __init__(self) -> None:
        super().__init__()
        self.accounts: list[Account] = []
        self.line: list[Claim] = []
        """Who waits, in the order in which they came."""
        self.holds: dict[Hold, tuple[Hold, ...]] = {}
        """What is open, and inside of what."""

    @property
    def ledger(self) -> Ledger:
        return self.accounts[0].ledger

    @initialize(first=budgets(), more=st.lists(st.tuples(budgets(), st.integers(0, 5)), max_size=5))
    def plant(self, first: Budget, more: Sequence[tuple[Budget, int]]) -> None:
        self.accounts = [Account(first, Usage())]
        for budget, parent in more:
            self.accounts.append(Account(budget, Usage(), self.accounts[parent % len(self.accounts)]))

    # --- what can happen ---

    @rule(data=st.data(), amounts=some_amounts)
    def ask(self, data: st.DataObject, amounts: Amounts) -> None:
        """A request is made in some scope; perhaps from inside of others, of the same scope or further out."""
        account = data.draw(st.sampled_from(self.accounts))
        accounts = tuple(each for each in account.lineage() if not each.closed)
        assume(accounts)
        within = [hold for hold in self.holds if set(hold.accounts) <= set(accounts)]
        around = data.draw(st.just(()) | st.sampled_from(within).map(self.inside_of)) if within else ()
        claim = Claim(accounts, amounts, around)
        self.line.append(claim)
        self.check(claim, self.ledger.ask(claim))

    def inside_of(self, hold: Hold) -> tuple[Hold, ...]:
        return (*self.holds[hold], hold)

    @precondition(lambda self: self.alone)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """One that is alone gives up."""
        self.leave(data.draw(st.sampled_from(self.alone)))

    @precondition(lambda self: self.alone)
    @rule(data=st.data())
    def lower(self, data: st.DataObject) -> None:
        """One that is alone asks for no more than there is room for."""
        claim = data.draw(st.sampled_from(self.alone))
        room = claim.room
        assume(room.requests is None or room.requests > 0)
        usd = claim.amounts.usd if room.usd is None else min(claim.amounts.usd, room.usd)
        tokens = claim.amounts.tokens if room.tokens is None else min(claim.amounts.tokens, room.tokens)
        self.check(claim, self.ledger.amend(claim, Amounts(usd, tokens)))
        assert claim.state == "granted", "it was alone, and asks for what there is"

    @precondition(lambda self: self.line)
    @rule(data=st.data(), amounts=some_amounts)
    def amend(self, data: st.DataObject, amounts: Amounts) -> None:
        claim = data.draw(st.sampled_from(self.line))
        self.check(claim, self.ledger.amend(claim, amounts))

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Whoever waits can be cancelled."""
        self.leave(data.draw(st.sampled_from(self.line)))

    def leave(self, claim: Claim) -> None:
        self.line.remove(claim)
        self.check(None, self.ledger.leave(claim))

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), parts=st.integers(0, 4), fate=st.sampled_from(("settled", "released", "unmeasured")))
    def end(self, data: st.DataObject, parts: int, fate: str) -> None:
        """A request ends, and has cost no more than it held."""
        self.finish(data.draw(st.sampled_from(list(self.holds))), fate, parts)

    def finish(self, hold: Hold, fate: str, parts: int = 4) -> None:
        usd, tokens = hold.amounts.usd * parts / 4, hold.amounts.tokens * parts // 4
        record = RequestRecord(
            model="m",
            provider="p",
            outcome=fate,  # type: ignore[arg-type]
            tokens=Tokens(input_tokens=tokens),
            cost_usd=usd if fate == "settled" else None,
        )
        if fate == "unmeasured":
            record = replace(record, bound_usd=hold.amounts.usd, bound_tokens=hold.amounts.tokens)
        for account in hold.accounts:
            account.usage.add(record)
        del self.holds[hold]
        self.check(None, hold.end())

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), parts=st.integers(0, 3))
    def shrink(self, data: st.DataObject, parts: int) -> None:
        hold = data.draw(st.sampled_from(list(self.holds)))
        smaller = Amounts(hold.amounts.usd * parts / 4, hold.amounts.tokens * parts // 4)
        self.check(None, self.ledger.shrink(hold, smaller))

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def stall(self, data: st.DataObject) -> None:
        """A stream is read no more, or again."""
        hold = data.draw(st.sampled_from(list(self.holds)))
        hold.stalled = not hold.stalled
        self.check(None, hold.review())

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """A scope ends while requests that were made in it are in flight."""
        data.draw(st.sampled_from(self.accounts)).closed = True

    # --- what must hold ---

    def check(self, asking: Claim | None, changed: Sequence[Claim]) -> None:
        """What an operation has changed, it has told."""
        granted = [claim for claim in self.line if claim.state == "granted"]
        assert len(set(changed)) == len(changed)
        assert set(granted) <= {*changed, asking}, "granted, and not told"
        for claim in granted:
            assert claim.hold is not None
            self.nobody_was_overtaken_by(claim, [each for each in granted if each is not claim])
            self.line.remove(claim)
            self.holds[claim.hold] = claim.around
        alone = {claim for claim in self.line if claim.state == "alone"}
        assert alone <= {*self.told_that_they_are_alone, *changed, asking}, "alone, and not told"
        self.told_that_they_are_alone = alone

    told_that_they_are_alone: set[Claim] = set()

    def nobody_was_overtaken_by(self, claim: Claim, others: Sequence[Claim]) -> None:
        """First come, first served, but for requests from inside of others, which go before all that are not."""
        for earlier in self.in_order(self.line):
            if earlier is claim:
                return
            if earlier.state == "granted":
                continue
            later = [each.hold for each in (*others, claim) if self.goes_before(earlier, each)]
            waited_for = {
                account for account in earlier.accounts if self.lacked(account, earlier, later)
            }
            assert waited_for.isdisjoint(claim.accounts), "a later claim took what an earlier one waits for"

    def goes_before(self, one: Claim, other: Claim) -> bool:
        order = self.in_order(self.line)
        return order.index(one) < order.index(other)

    def lacked(self, account: Account, claim: Claim, without: Sequence[Hold | None]) -> bool:
        """Whether an account had too little for a claim before some others got theirs."""
        taken = [hold.amounts for hold in without if hold is not None and account in hold.accounts]
        for amounts in taken:
            account.free(amounts)
        lacked = account.lacks(claim.amounts) is not None
        for amounts in taken:
            account.reserve(amounts)
        return lacked

    @staticmethod
    def in_order(claims: Sequence[Claim]) -> list[Claim]:
        return sorted(claims, key=lambda claim: not claim.around)  # sorting is stable

    @property
    def alone(self) -> list[Claim]:
        return [claim for claim in self.line if claim.state == "alone"]

    @invariant()
    def no_budget_is_crossed(self) -> None:
        for account in self.accounts:
            room = account.room
            assert room.usd is None or room.usd >= 0
            assert room.tokens is None or room.tokens >= 0
            assert room.requests is None or room.requests >= 0

    @invariant()
    def what_is_reserved_is_what_is_held(self) -> None:
        for account in self.accounts:
            held = total(hold.amounts for hold in self.holds if account in hold.accounts)
            assert reserved(account) == held
            children = [reserved(child) for child in self.accounts if child.parent is account]
            own = [hold.amounts for hold in self.holds if hold.accounts[0] is account]
            if not any(each.closed for each in self.accounts):
                assert reserved(account) == total((*children, *own))

    @invariant()
    def whoever_waits_waits_for_somebody_and_whoever_does_not_fit_is_alone(self) -> None:
        """Of the claims that no earlier one stands before, all who fit have gone; the others wait for a hold
        that may end, or are told that there is none."""
        waited_for: set[Account] = set()
        for claim in self.in_order(self.line):
            assert claim.state != "granted"
            if not waited_for.isdisjoint(claim.accounts):
                assert claim.state == "waiting", "somebody is before it, who will go or leave"
                continue
            short = {account for account, _ in claim.short()}
            assert short, "it fits, and nobody is before it"
            others_end = any(hold.may_end and not short.isdisjoint(hold.accounts) for hold in self.holds)
            assert claim.state == ("waiting" if others_end else "alone")
            waited_for |= short

    @invariant()
    def idle_is_when_nothing_is_held_and_nobody_waits(self) -> None:
        if self.accounts:
            assert self.ledger.is_idle == (not self.holds and not self.line)

    def teardown(self) -> None:
        """Everything comes to its end: nobody waits for ever, and nothing stays reserved."""
        if not self.accounts:
            return
        while self.line:
            able = [hold for hold in self.holds if hold.may_end]
            if self.alone:
                self.leave(self.alone[0])
            else:
                assert able, "they wait, and nothing will end"
                self.finish(able[0], "settled")
            self.whoever_waits_waits_for_somebody_and_whoever_does_not_fit_is_alone()
        for hold in list(self.holds):
            assert not hold.dependents
            self.finish(hold, "settled")
        assert self.ledger.is_idle
        for account in self.accounts:
            assert reserved(account) == Amounts(requests=0)


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(deadline=None, stateful_step_count=30)

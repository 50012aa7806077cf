"""Random claims against every store of spending, and against a model that is told what time it is."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.spend_stores import KINDS, Kept, make_kept

from fastroai.usage import SpendAccount, SpendBalance, SpendClaim, Window

LIMIT: Final = Decimal(10)
WEEK: Final = timedelta(days=7)

IDS = st.sampled_from("abcde")
AMOUNTS = st.sampled_from(["0", "0.000000000000000001", "2.5", "3.999999999999999999", "6", "10", "11"]).map(
    Decimal
)
LEASES = st.sampled_from([1000, 2000])
# No sum of pauses is a lease, so that the time that a test itself takes decides nothing.
PAUSES = st.sampled_from([600, 1500, 6 * 86_400])

Act = tuple[str, str, Decimal, int]
ACTS = st.lists(
    st.tuples(st.sampled_from(["reserve", "mark_sent", "settle"]), IDS, AMOUNTS, LEASES)
    | st.tuples(st.just("reserve"), IDS, AMOUNTS, LEASES)
    | st.tuples(st.just("renew"), IDS, st.just(Decimal(0)), LEASES)
    | st.tuples(st.sampled_from(["pass", "close"]), st.just(""), st.just(Decimal(0)), PAUSES),
    max_size=40,
)


@dataclass
class Held:
    state: Literal["waiting", "reserved", "sent", "lapsed"]
    amount: Decimal
    until: datetime
    window: int = 0


@dataclass
class Model:
    """The rules, as plainly as they can be said."""

    now: datetime
    closes: datetime | None
    window: int = 0
    costs: dict[int, Decimal] = field(default_factory=dict)
    """What was spent in each window, without the lapsed claims that can still be corrected."""
    claims: dict[str, Held] = field(default_factory=dict)
    """In the order in which they came."""

    def advance(self, now: datetime, closes: datetime | None) -> None:
        self.now = now
        for name, held in list(self.claims.items()):
            if held.until > now:
                continue
            if held.state == "sent" and held.window == self.window:
                self.claims[name] = replace(held, state="lapsed", until=now + WEEK)
                continue
            if held.state == "lapsed":
                self.spend(held.window, held.amount)
            del self.claims[name]
        if self.closes is not None and self.closes <= now:
            self.window += 1
            self.closes = closes
        assert self.closes == closes

    def spend(self, window: int, cost: Decimal) -> None:
        self.costs[window] = self.costs.get(window, Decimal(0)) + cost

    def total(self, *states: str) -> Decimal:
        counted = [
            held.amount
            for held in self.claims.values()
            if held.window == self.window and held.state in states
        ]
        return sum(counted, Decimal(0))

    @property
    def spent(self) -> Decimal:
        return self.costs.get(self.window, Decimal(0)) + self.total("lapsed")

    @property
    def reserved(self) -> Decimal:
        return self.total("reserved", "sent")

    def reserve(self, name: str, amount: Decimal, lease: int) -> tuple[bool, bool]:
        held = self.claims.get(name)
        if held and held.state in ("sent", "lapsed"):
            return amount <= held.amount, True
        until = self.now + timedelta(seconds=lease)
        if held and held.state == "reserved" and amount <= held.amount:
            held.amount, held.until = amount, until
            return True, True
        if held and held.state == "reserved":
            del self.claims[name]
        held = self.claims.setdefault(name, Held("waiting", amount, until))
        held.amount, held.until = amount, until
        first = next(each for each, held in self.claims.items() if held.state == "waiting") == name
        if first and self.spent + self.reserved + amount <= LIMIT:
            held.state, held.window = "reserved", self.window
        return held.state == "reserved", first

    def mark_sent(self, name: str, lease: int) -> bool:
        held = self.claims.get(name)
        if held is None or held.state not in ("reserved", "sent"):
            return False
        held.state, held.until = "sent", self.now + timedelta(seconds=lease)
        return True

    def settle(self, name: str, cost: Decimal) -> None:
        if held := self.claims.pop(name, None):
            self.spend(self.window if held.state == "waiting" else held.window, cost)

    def renew(self, name: str, lease: int) -> None:
        held = self.claims.get(name)
        if held and held.state != "lapsed":
            held.until = self.now + timedelta(seconds=lease)


class Run:
    """One sequence of operations on a new account, each compared with what the model does."""

    def __init__(self, kept: Kept, window: Window) -> None:
        self.kept = kept
        self.account = SpendAccount(key=uuid.uuid4().hex, window=window)

    async def perform(self, acts: list[Act]) -> None:
        # So that the account is there, and its window known, before time passes.
        await self.kept.store.reserve(self.claim("first", Decimal(0), 1000))
        await self.kept.store.settle(self.claim("first", Decimal(0), 1000), Decimal(0))
        balance = await self.kept.store.balance(self.account)
        model = Model(*self.times(balance))
        for act in acts:
            await self.compare(model, *act)
        self.kept.clear()

    async def compare(self, model: Model, act: str, name: str, amount: Decimal, seconds: int) -> None:
        store, claim = self.kept.store, self.claim(name, amount, seconds)
        if act in ("pass", "close"):
            self.pass_time(model, act, seconds)
            model.advance(*self.times(await store.balance(self.account)))
        elif act == "reserve":
            verdict = await store.reserve(claim)
            model.advance(*self.times(verdict.balance))
            assert (verdict.granted, verdict.first) == model.reserve(name, amount, seconds)
        elif act == "mark_sent":
            sent = await store.mark_sent(claim)
            model.advance(*self.times(await store.balance(self.account)))
            assert sent == model.mark_sent(name, seconds)
        elif act == "settle":
            balance = await store.settle(claim, amount)
            model.advance(*self.times(balance))
            model.settle(name, amount)
        else:
            await store.renew([claim])
            model.advance(*self.times(await store.balance(self.account)))
            model.renew(name, seconds)
        balance = await store.balance(self.account)
        assert (balance.spent_usd, balance.reserved_usd) == (model.spent, model.reserved)

    def pass_time(self, model: Model, act: str, seconds: int) -> None:
        if act == "close" and model.closes is not None:
            self.kept.pass_time((model.closes - model.now).total_seconds() + 1)
        else:
            self.kept.pass_time(seconds)

    def times(self, balance: SpendBalance) -> tuple[datetime, datetime | None]:
        """Now, and the end of the window, on a clock that knows of all the time that has passed."""
        skipped = self.kept.skipped
        return balance.now + skipped, balance.resets_at and balance.resets_at + skipped

    def claim(self, name: str, amount: Decimal, lease: int) -> SpendClaim:
        return SpendClaim(id=name, account=self.account, amount_usd=amount, limit_usd=LIMIT, lease=lease)


@pytest.mark.parametrize("kind", KINDS)
def test_every_store_keeps_the_rules(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kept = make_kept(kind, request, tmp_path)
    examples = settings.default.max_examples

    @settings(max_examples=examples if kind == "memory" else examples // 2, deadline=None)
    @given(window=st.sampled_from(["hour", "month", "total"]), acts=ACTS)
    def check(window: Window, acts: list[Act]) -> None:
        asyncio.run(Run(kept, window).perform(acts))

    try:
        check()
    finally:
        kept.end()

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
from support.examples import examples
from support.spend_stores import KINDS, Kept, make_kept

from fastroai.usage import SpendAccount, SpendBalance, SpendChange, SpendClaim, Window
from fastroai.usage.shared.spend_rules import end_of_window

LIMIT: Final = Decimal(10)
WEEK: Final = timedelta(days=7)
KEEP: Final = timedelta(days=2)
SHARES: Final = (0.25, 0.5, 1.0)
YEAR: Final = 365 * 86_400
START: Final = datetime.now().year

IDS = st.sampled_from("abcde")
AMOUNTS = st.sampled_from(["0", "0.000000000000000001", "2.5", "3.999999999999999999", "6", "10", "11"]).map(
    Decimal
)
LEASES = st.sampled_from([1000, 2000])
# No sum of pauses is a lease, so that the time that a test itself takes decides nothing.
PAUSES = st.sampled_from([600, 1500, 6 * 86_400])
JUMPS = st.sampled_from([-315_360_300, -200_100, -90_300, -3_900, 3_900, 90_300, 200_100, 315_360_300])

Act = tuple[str, str, Decimal, int]
ACTS = st.lists(
    st.tuples(st.sampled_from(["reserve", "mark_sent", "settle"]), IDS, AMOUNTS, LEASES)
    | st.tuples(st.sampled_from(["reserve", "draw"]), IDS, AMOUNTS, LEASES)
    | st.tuples(st.just("renew"), IDS, st.just(Decimal(0)), LEASES)
    | st.tuples(st.sampled_from(["pass", "close"]), st.just(""), st.just(Decimal(0)), PAUSES)
    | st.tuples(st.just("set"), st.just(""), st.just(Decimal(0)), JUMPS)
    | st.tuples(st.just("bury"), IDS, st.just(Decimal(0)), st.just(0))
    | st.tuples(st.sampled_from(["limit", "reset"]), st.just(""), AMOUNTS, st.just(0)),
    min_size=12,
    max_size=40,
)


@dataclass
class Held:
    state: Literal["waiting", "reserved", "sent", "lapsed"]
    amount: Decimal
    until: float
    window: int = 0
    within: str = ""


@dataclass
class Model:
    """The rules, as plainly as they can be said."""

    steady: float
    """Seconds of the clock that ends leases."""
    closes: datetime | None
    """The end of the window that the clock shows."""
    window: int = 0
    """What is charged. It counts, and so does what was opened later."""
    ends: dict[int, datetime | None] = field(default_factory=dict)
    """The windows that are known."""
    costs: dict[int, Decimal] = field(default_factory=dict)
    """What was spent in each window, without the lapsed claims that can still be corrected."""
    claims: dict[str, Held] = field(default_factory=dict)
    """In the order in which they came."""
    limits: dict[int, Decimal] = field(default_factory=dict)
    """What was set by hand."""
    told: dict[int, dict[float, str]] = field(default_factory=dict)
    """Which claim has told which share in each window."""
    adjusted: dict[int, list[tuple[str, Decimal, Decimal]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ends[0] = self.closes

    def advance(self, now: datetime, steady: float, closes: datetime | None) -> None:
        for held in self.claims.values():
            held.until += min(steady - self.steady, 0)
        self.steady = steady
        for name, held in list(self.claims.items()):
            if held.until <= steady:
                self.end_lease(name)
        if closes != self.closes:
            self.turn_to(closes, now)

    def turn_to(self, closes: datetime | None, now: datetime) -> None:
        assert closes is not None
        assert self.closes is not None
        known = [number for number, end in self.ends.items() if end == closes]
        if known:
            [self.window] = known
        elif closes > self.closes:
            self.window = max(self.ends) + 1
            self.ends[self.window] = closes
            for number, end in list(self.ends.items()):
                if number <= self.window - 4 and end is not None and end <= now - KEEP:
                    del self.ends[number]
        self.closes = closes

    def end_lease(self, name: str) -> None:
        held = self.claims.pop(name)
        if held.state == "lapsed":
            self.spend(held.window, held.amount)
        elif held.state == "sent" and held.window in self.ends:
            until = self.steady + WEEK.total_seconds()
            self.claims[name] = replace(held, state="lapsed", until=until, within="")
        elif held.state == "reserved":
            self.give_back(held, held.amount)

    def bury(self, name: str) -> None:
        if name in self.claims and self.claims[name].state != "lapsed":
            self.end_lease(name)

    def spend(self, window: int, cost: Decimal) -> None:
        self.costs[window] = self.costs.get(window, Decimal(0)) + cost

    def held_in(self, window: int, *states: str) -> Decimal:
        held_there = [held for held in self.claims.values() if held.window == window]
        return sum((held.amount for held in held_there if held.state in states), Decimal(0))

    def spent_in(self, window: int) -> Decimal:
        return self.costs.get(window, Decimal(0)) + self.held_in(window, "lapsed")

    def reserved_in(self, window: int) -> Decimal:
        return self.held_in(window, "reserved", "sent")

    @property
    def counting(self) -> list[int]:
        return [number for number in self.ends if number >= self.window]

    @property
    def spent(self) -> Decimal:
        return sum(map(self.spent_in, self.counting), Decimal(0))

    @property
    def reserved(self) -> Decimal:
        return sum(map(self.reserved_in, self.counting), Decimal(0))

    def limit_of(self, window: int) -> Decimal:
        return self.limits.get(window, LIMIT)

    def set_limit(self, limit: Decimal | None) -> None:
        before = self.limit_of(self.window)
        if limit is None:
            self.limits.pop(self.window, None)
        else:
            self.limits[self.window] = limit
        self.adjust("limit", before, self.limit_of(self.window))

    def reset(self) -> None:
        before = self.spent
        for name, held in list(self.claims.items()):
            if held.state == "lapsed" and held.window >= self.window:
                del self.claims[name]
        for number in self.counting:
            self.costs.pop(number, None)
        self.adjust("spent", before, Decimal(0))

    def adjust(self, changes: str, before: Decimal, after: Decimal) -> None:
        self.adjusted.setdefault(self.window, []).append((changes, before, after))
        told = self.told.get(self.window, {})
        self.told[self.window] = {share: name for share, name in told.items() if self.has_reached(share)}

    def has_reached(self, share: float) -> bool:
        return self.spent >= self.limit_of(self.window) * Decimal(str(share))

    def reached(self, name: str) -> set[float]:
        told = self.told.setdefault(self.window, {})
        for share in SHARES:
            if self.has_reached(share):
                told.setdefault(share, name)
        return {share for share in SHARES if told.get(share) == name}

    def give_back(self, held: Held, amount: Decimal) -> None:
        other = self.claims.get(held.within)
        if other and other.state == "reserved":
            other.amount += max(amount, Decimal(0))

    def reserve(self, name: str, amount: Decimal, lease: int, within: str = "") -> tuple[bool, bool]:
        held = self.claims.get(name)
        if held and held.state in ("sent", "lapsed"):
            return amount <= held.amount, True
        until = self.steady + lease
        if held and held.state == "reserved" and amount <= held.amount:
            self.give_back(held, held.amount - amount)
            held.amount, held.until = amount, until
            return True, not held.within
        if held and held.state == "reserved":
            del self.claims[name]
            self.give_back(held, held.amount)
        held = self.claims.setdefault(name, Held("waiting", amount, until))
        held.amount, held.until = amount, until
        first = next(each for each, held in self.claims.items() if held.state == "waiting") == name
        other = self.claims.get(within)
        if other and other.state == "reserved" and other.window >= self.window and other.amount >= amount:
            other.amount -= amount
            held.state, held.window, held.within = "reserved", other.window, within
        elif first and self.spent + self.reserved + amount <= self.limit_of(self.window):
            held.state, held.window = "reserved", self.window
        return held.state == "reserved", first and not held.within

    def mark_sent(self, name: str, lease: int) -> bool:
        held = self.claims.get(name)
        if held is None or held.state not in ("reserved", "sent"):
            return False
        held.state, held.until = "sent", self.steady + lease
        return True

    def settle(self, name: str, cost: Decimal) -> None:
        if held := self.claims.pop(name, None):
            self.spend(self.window if held.state == "waiting" else held.window, cost)
            self.give_back(held, held.amount - cost)

    def renew(self, name: str, lease: int) -> None:
        held = self.claims.get(name)
        if held and held.state != "lapsed":
            held.until = self.steady + lease


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
        model = Model(*self.times(balance)[1:])
        for act in acts:
            await self.compare(model, *act)
        self.kept.clear()

    async def compare(self, model: Model, act: str, name: str, amount: Decimal, seconds: int) -> None:
        store, claim = self.kept.store, self.claim(name, amount, seconds)
        if act in ("pass", "close", "set"):
            await self.pass_time(act, seconds)
            model.advance(*self.times(await store.balance(self.account)))
        elif act in ("reserve", "draw"):
            within = {"a": "b", "b": "c", "c": "b"}.get(name, "a") if act == "draw" else ""
            verdict = await store.reserve(replace(claim, within=within))
            model.advance(*self.times(verdict.balance))
            assert (verdict.granted, verdict.first) == model.reserve(name, amount, seconds, within)
            living = {each for each, held in model.claims.items() if held.state != "lapsed"}
            assert set(verdict.holders) == (set() if verdict.granted else living)
        elif act == "mark_sent":
            sent = await store.mark_sent(claim)
            model.advance(*self.times(await store.balance(self.account)))
            assert sent == model.mark_sent(name, seconds)
        elif act == "settle":
            balance = await store.settle(claim, amount)
            model.advance(*self.times(balance))
            model.settle(name, amount)
            assert set(balance.reached) == model.reached(name)
        elif act in ("limit", "reset"):
            await self.adjust(model, act, amount)
        elif act == "bury":
            await store.end_leases(self.account, [name])
            model.advance(*self.times(await store.balance(self.account)))
            model.bury(name)
        else:
            await store.renew([claim])
            model.advance(*self.times(await store.balance(self.account)))
            model.renew(name, seconds)
        balance = await store.balance(self.account)
        assert (balance.spent_usd, balance.reserved_usd) == (model.spent, model.reserved)
        assert balance.limit_usd == model.limits.get(model.window)
        await self.look_back(model)

    async def adjust(self, model: Model, act: str, amount: Decimal) -> None:
        limit = None if act == "reset" or amount == 0 else amount
        change = SpendChange(
            id=uuid.uuid4().hex,
            changes="limit" if act == "limit" else "spent",
            limit_usd=limit,
            by="Mia",
            reason="a test",
        )
        made = await self.kept.store.adjust(self.account, change)
        model.advance(*self.times(await self.kept.store.balance(self.account)))
        if act == "limit":
            model.set_limit(limit)
        else:
            model.reset()
        assert await self.kept.store.adjust(self.account, change) == made

    async def look_back(self, model: Model) -> None:
        """Compare all windows that are kept: what each has spent, and what was changed in it by hand."""
        found = await self.kept.store.windows(self.account)
        closed = [number for number in sorted(model.ends, reverse=True) if number < model.window]
        assert [
            (status.is_open, status.spent_usd, status.reserved_usd, status.limit_usd) for status in found
        ] == [
            (True, model.spent, model.reserved, model.limit_of(model.window)),
            *(
                (False, model.spent_in(number), model.reserved_in(number), model.limit_of(number))
                for number in closed
            ),
        ]
        for number, status in zip((model.window, *closed), found, strict=True):
            made = [(each.changes, each.from_usd, each.to_usd) for each in status.adjustments]
            assert made == model.adjusted.get(number, [])

    async def pass_time(self, act: str, seconds: int) -> None:
        balance = await self.kept.store.balance(self.account)
        if act == "set":
            if abs(balance.now.year + seconds // YEAR - START) <= 40:
                self.kept.set_clock(seconds)
        elif act == "close" and balance.resets_at is not None:
            self.kept.pass_time((balance.resets_at - balance.now).total_seconds() + 1)
        else:
            self.kept.pass_time(seconds)

    def times(self, balance: SpendBalance) -> tuple[datetime, float, datetime | None]:
        """Of both clocks: the time, seconds, and the end of the window."""
        assert balance.resets_at == end_of_window(self.account.window, balance.now)
        steady = self.kept.steady_clock() if self.kept.steady else None  # type: ignore[attr-defined]
        return balance.now, balance.now.timestamp() if steady is None else steady, balance.resets_at

    def claim(self, name: str, amount: Decimal, lease: int) -> SpendClaim:
        return SpendClaim(
            id=name,
            account=self.account,
            amount_usd=amount,
            limit_usd=LIMIT,
            lease=lease,
            holder=name,
            keep=KEEP,
            warn_at=SHARES,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_every_store_keeps_the_rules(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kept = make_kept(kind, request, tmp_path)

    @settings(max_examples=examples(300 if kind == "memory" else 15))
    @given(window=st.sampled_from(["hour", "month", "total"]), acts=ACTS)
    def check(window: Window, acts: list[Act]) -> None:
        asyncio.run(Run(kept, window).perform(acts))

    try:
        check()
    finally:
        kept.end()

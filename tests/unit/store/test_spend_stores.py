"""What every store of spending does. More of its rules: `tests/properties/test_spend_stores.py`."""

import asyncio
import math
import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from support.spend_stores import Kept, account, claim

from fastroai.errors import ConfigurationError
from fastroai.usage import SpendBalance, SpendClaim, SpendStore, Window

DAY = 86_400
WEEK = 7 * DAY


async def granted(store: SpendStore, wanted: SpendClaim) -> bool:
    return (await store.reserve(wanted)).granted


async def send(store: SpendStore, wanted: SpendClaim) -> None:
    assert await granted(store, wanted)
    assert await store.mark_sent(wanted)


async def amounts(kept: Kept, window: Window = "total") -> tuple[Decimal, Decimal]:
    """What is spent, and what is reserved."""
    balance = await kept.store.balance(account(window))
    return balance.spent_usd, balance.reserved_usd


# --- amounts ---


async def test_what_was_never_used_holds_nothing(either: Kept) -> None:
    assert await amounts(either) == (0, 0)
    assert (await either.store.balance(account("day"))).resets_at is not None


async def test_the_limit_is_reached_to_the_last_decimal_and_never_crossed(kept: Kept) -> None:
    tenth, unit = "0.1", "0.000000000000000001"
    for name in "abcdefghi":
        await send(kept.store, claim(name, tenth, limit=1))
        await kept.store.settle(claim(name), Decimal(tenth))
    assert not await granted(kept.store, claim("more", "0.100000000000000001", limit=1))
    await kept.store.settle(claim("more"), Decimal(0))
    assert await granted(kept.store, claim("last", "0.099999999999999999", limit=1))
    assert await granted(kept.store, claim("unit", unit, limit=1))
    assert not await granted(kept.store, claim("too much", unit, limit=1))
    assert await amounts(kept) == (Decimal("0.9"), Decimal("0.1"))


@pytest.mark.parametrize(
    "amount", ["0.000000000000000001", "0.999999999999999999", "123456789.123456789012345678", "499999999"]
)
async def test_amounts_are_exact_to_eighteen_decimals(either: Kept, amount: str) -> None:
    for name in "ab":
        await send(either.store, claim(name, amount, limit="999999999.999999999999999999"))
        await either.store.settle(claim(name), Decimal(amount))
    assert await amounts(either) == (2 * Decimal(amount), 0)
    await either.store.reserve(claim("c", "0.000000000000000003", limit=999_999_999))
    assert (await amounts(either))[0] == 2 * Decimal(amount)


async def test_beyond_eighteen_decimals_it_is_rounded_on_the_safe_side(either: Kept) -> None:
    await send(either.store, claim("a", "0.1000000000000000001"))
    assert await amounts(either) == (0, Decimal("0.100000000000000001"))
    await either.store.settle(claim("a"), Decimal("0.1000000000000000005"))
    assert await amounts(either) == (Decimal("0.1"), 0)
    await send(either.store, claim("b", "0.1"))
    await either.store.settle(claim("b"), Decimal("0.1000000000000000015"))
    assert await amounts(either) == (Decimal("0.200000000000000002"), 0)
    assert not await granted(either.store, claim("c", "0.000000000000000001", limit="0.2000000000000000029"))


@pytest.mark.parametrize("amount", ["-1", "NaN", "Infinity", "1000000000"])
async def test_what_is_no_amount_is_refused(either: Kept, amount: str) -> None:
    with pytest.raises(ConfigurationError, match="a finite number of US dollars"):
        await either.store.reserve(claim("a", amount))
    with pytest.raises(ConfigurationError, match="cost=.*a finite number of US dollars"):
        await either.store.settle(claim("a"), Decimal(amount))
    assert await amounts(either) == (0, 0)


@pytest.mark.parametrize("lease", [math.inf, math.nan])
async def test_a_lease_that_is_not_finite_is_refused_and_the_account_stays_as_it_is(
    either: Kept, lease: float
) -> None:
    await send(either.store, claim("a", "0.5"))
    with pytest.raises(ConfigurationError, match="lease=.*a finite number of seconds"):
        await either.store.reserve(claim("b", lease=lease))
    with pytest.raises(ConfigurationError, match="lease=.*a finite number of seconds"):
        await either.store.renew([claim("a", lease=lease)])
    assert await amounts(either) == (0, Decimal("0.5"))


async def test_windows_can_be_kept_for_ever(either: Kept) -> None:
    hour = account("hour")
    for name in "abcdef":
        await either.store.reserve(claim(name, of=hour, keep=timedelta.max))
        await either.store.settle(claim(name, of=hour), Decimal(1))
        either.pass_time(3600)
    assert hour in (await either.store.accounts()).accounts
    await either.store.reserve(claim("now", of=hour, keep=timedelta.max))
    assert [each.spent_usd for each in await either.store.windows(hour)] == [0, 1, 1, 1, 1, 1, 1]


# --- the same call again ---


async def test_reserving_again_reserves_once(either: Kept) -> None:
    for _ in range(3):
        assert await granted(either.store, claim("a", 6))
    assert await amounts(either) == (0, 6)


async def test_a_claim_that_grows_gives_back_what_it_took_from_another_and_takes_it_anew(
    either: Kept,
) -> None:
    assert await granted(either.store, claim("run", 6))
    for amount in (1, 4):
        assert await granted(either.store, replace(claim("request", amount), within="run"))
        assert await amounts(either) == (0, 6)
    assert await granted(either.store, replace(claim("other", 2), within="run"))
    assert await amounts(either) == (0, 6)
    await either.store.settle(claim("request"), Decimal(1))
    assert await amounts(either) == (1, 5)


async def test_settling_again_counts_once(either: Kept) -> None:
    await send(either.store, claim("a", 6))
    for _ in range(3):
        balance = await either.store.settle(claim("a", 6), Decimal(2))
    assert (balance.spent_usd, balance.reserved_usd) == (2, 0)


async def test_marking_sent_again_is_still_sent(either: Kept) -> None:
    await send(either.store, claim("a"))
    assert await either.store.mark_sent(claim("a"))


async def test_only_what_is_reserved_can_be_sent(either: Kept) -> None:
    assert not await either.store.mark_sent(claim("unknown"))
    await send(either.store, claim("a", 10))
    await either.store.reserve(claim("waiting", 10))
    assert not await either.store.mark_sent(claim("waiting", 10))
    await either.store.settle(claim("a"), Decimal(0))
    assert not await either.store.mark_sent(claim("a"))
    assert await amounts(either) == (0, 0)


async def test_a_reservation_can_shrink(either: Kept) -> None:
    await either.store.reserve(claim("a", 10))
    await either.store.reserve(claim("waiting", 10))
    verdict = await either.store.reserve(claim("a", 4))
    assert (verdict.granted, verdict.first, verdict.balance.reserved_usd) == (True, True, 4)


async def test_a_reservation_that_grows_is_a_new_claim(either: Kept) -> None:
    await either.store.reserve(claim("a", 3))
    assert await granted(either.store, claim("a", 4))
    await either.store.reserve(claim("b", 6))
    verdict = await either.store.reserve(claim("a", 5))
    assert (verdict.granted, verdict.first, verdict.balance.reserved_usd) == (False, True, 6)
    assert not await either.store.mark_sent(claim("a", 5))

    await either.store.settle(claim("b"), Decimal(0))
    await either.store.reserve(claim("c", 8))
    await either.store.reserve(claim("d", 8))
    await either.store.settle(claim("a"), Decimal(0))
    assert await granted(either.store, claim("c", 8))
    verdict = await either.store.reserve(claim("c", 9))
    assert (verdict.granted, verdict.first, verdict.balance.reserved_usd) == (False, False, 0)
    assert await granted(either.store, claim("d", 8))


async def test_what_was_sent_stays_as_it_is(either: Kept) -> None:
    await send(either.store, claim("a", 3))
    assert await granted(either.store, claim("a", 2))
    assert not await granted(either.store, claim("a", 4))
    assert await amounts(either) == (0, 3)


async def test_a_reservation_that_was_cancelled_can_be_given_back(either: Kept) -> None:
    for turns in range(6):
        task = asyncio.create_task(either.store.reserve(claim("a", 10)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        balance = await either.store.settle(claim("a", 10), Decimal(0))
        assert (balance.spent_usd, balance.reserved_usd) == (0, 0)
    assert await amounts(either) == (0, 0)


# --- the line ---


async def test_what_was_spent_without_leave_is_counted_all_the_same(either: Kept) -> None:
    await send(either.store, claim("a", 10))
    await either.store.reserve(claim("waiting", 5))
    await either.store.settle(claim("waiting", 5), Decimal(3))
    assert await amounts(either) == (3, 10)


async def test_each_claim_is_held_to_its_own_limit(either: Kept) -> None:
    await send(either.store, claim("a", 5, limit=5))
    assert not await granted(either.store, claim("b", 1, limit=5))
    await either.store.settle(claim("b"), Decimal(0))
    assert await granted(either.store, claim("c", 1, limit=6))


# --- leases ---


async def test_an_unsent_claim_whose_lease_is_over_is_dropped(either: Kept) -> None:
    await either.store.reserve(claim("a", 10))
    either.pass_time(31)
    assert not await either.store.mark_sent(claim("a", 10))
    await either.store.settle(claim("a", 10), Decimal(7))
    assert await amounts(either) == (0, 0)


async def test_a_sent_claim_whose_lease_is_over_counts_as_spent_until_its_cost_is_known(either: Kept) -> None:
    await send(either.store, claim("a", 6))
    either.pass_time(31)
    assert await amounts(either) == (6, 0)
    assert not await either.store.mark_sent(claim("a", 6))
    await either.store.renew([claim("a", 6)])
    assert await granted(either.store, claim("a", 6))
    assert await amounts(either) == (6, 0)
    for _ in range(2):
        await either.store.settle(claim("a", 6), Decimal(2))
    assert await amounts(either) == (2, 0)


async def test_after_a_week_what_counts_as_spent_is_spent(either: Kept) -> None:
    for name in "ab":
        await send(either.store, claim(name, 3))
    either.pass_time(31)
    assert await amounts(either) == (6, 0)
    either.pass_time(WEEK - 60)
    await either.store.settle(claim("a", 3), Decimal(1))
    either.pass_time(120)
    await either.store.settle(claim("b", 3), Decimal(1))
    assert await amounts(either) == (4, 0)


async def test_who_waits_too_long_without_asking_leaves_the_line(either: Kept) -> None:
    await send(either.store, claim("a", 8, lease=100))
    await either.store.reserve(claim("b", 8))
    either.pass_time(20)
    assert not await granted(either.store, claim("c", 2))
    either.pass_time(20)
    assert await granted(either.store, claim("c", 2))
    assert not (await either.store.reserve(claim("b", 8))).granted


async def test_leases_of_several_accounts_are_renewed_together(either: Kept) -> None:
    other = account(key="other")
    mine, theirs, line = claim("a", 10), claim("a", 10, of=other), claim("b", 5)
    for each in (mine, theirs, line):
        await either.store.reserve(each)
    either.pass_time(20)
    await either.store.renew([mine, theirs, line, claim("x", of=account("day", "never used"))])
    either.pass_time(20)
    assert await either.store.mark_sent(mine)
    assert await either.store.mark_sent(theirs)
    await either.store.settle(mine, Decimal(0))
    assert await granted(either.store, line)


async def test_thousands_of_leases_are_renewed_at_once(either: Kept) -> None:
    first, last = claim("0"), claim("2499")
    await either.store.reserve(first)
    await either.store.reserve(last)
    either.pass_time(20)
    await either.store.renew([claim(str(number)) for number in range(2500)])
    either.pass_time(20)
    assert await amounts(either) == (0, 2)


async def test_a_renewal_does_not_bring_back_what_was_given_up(either: Kept) -> None:
    await either.store.reserve(claim("a"))
    either.pass_time(31)
    await either.store.renew([claim("a")])
    assert not await either.store.mark_sent(claim("a"))


# --- windows ---


async def close_window(kept: Kept, window: Window = "day") -> None:
    balance: SpendBalance = await kept.store.balance(account(window))
    assert balance.resets_at is not None
    kept.pass_time((balance.resets_at - balance.now).total_seconds() + 1)


@pytest.mark.parametrize("window", ["hour", "day", "month"])
async def test_a_new_window_starts_from_zero(either: Kept, window: Window) -> None:
    of = account(window)
    await send(either.store, claim("a", 10, of=of))
    await either.store.settle(claim("a", 10, of=of), Decimal(10))
    assert not await granted(either.store, claim("b", 10, of=of))
    before = await either.store.balance(of)
    await either.store.settle(claim("b", 10, of=of), Decimal(0))
    await close_window(either, window)
    after = await either.store.balance(of)
    assert (after.spent_usd, after.reserved_usd) == (0, 0)
    assert after.now > before.now
    assert after.resets_at > after.now
    assert await granted(either.store, claim("c", 10, of=of))


async def test_a_request_is_charged_to_the_window_in_which_it_was_reserved(either: Kept) -> None:
    day = account("day")
    sent, unsent = claim("sent", 6, of=day, lease=86_400), claim("unsent", 4, of=day, lease=86_400)
    await send(either.store, sent)
    await either.store.reserve(unsent)
    await close_window(either)
    assert await amounts(either, "day") == (0, 0)
    assert await either.store.mark_sent(unsent)
    assert await granted(either.store, claim("new", 10, of=day))
    await either.store.settle(sent, Decimal(5))
    await either.store.reserve(claim("unsent", 1, of=day))
    await either.store.settle(unsent, Decimal(4))
    assert await amounts(either, "day") == (0, 10)


async def test_an_unsent_reservation_of_an_earlier_window_can_shrink_and_grow(either: Kept) -> None:
    day = account("day")
    await either.store.reserve(claim("a", 6, of=day, lease=86_400))
    await close_window(either)
    assert await granted(either.store, claim("a", 5, of=day))
    assert await amounts(either, "day") == (0, 0)
    assert await granted(either.store, claim("a", 7, of=day))
    assert await amounts(either, "day") == (0, 7)


async def test_what_lapses_counts_in_its_own_window_only(either: Kept) -> None:
    day = account("day")
    await send(either.store, claim("a", 6, of=day))
    either.pass_time(31)
    await close_window(either)
    await send(either.store, claim("b", 3, of=day))
    await either.store.settle(claim("a", 6, of=day), Decimal(1))
    assert await amounts(either, "day") == (0, 3)
    either.pass_time(31)
    assert (await amounts(either, "day"))[1] == 0


async def test_who_waits_is_still_in_line_in_the_next_window(either: Kept) -> None:
    day = account("day")
    await send(either.store, claim("a", 10, of=day))
    await either.store.reserve(claim("b", 10, of=day, lease=86_400))
    await either.store.reserve(claim("c", 1, of=day, lease=86_400))
    await close_window(either)
    assert not await granted(either.store, claim("c", 1, of=day))
    assert await granted(either.store, claim("b", 10, of=day))
    assert await amounts(either, "day") == (0, 10)


# --- clocks that are set ---


async def spend(kept: Kept, name: str, amount: str | int, window: Window = "day") -> None:
    wanted = claim(name, amount, of=account(window))
    await send(kept.store, wanted)
    await kept.store.settle(wanted, Decimal(amount))


@pytest.mark.parametrize("days", [1, 30, 3650])
@pytest.mark.parametrize("window", ["hour", "day", "month"])
async def test_a_window_to_which_the_clock_comes_back_counts_what_was_spent_before_and_since(
    either: Kept, window: Window, days: int
) -> None:
    await spend(either, "before", 4, window)
    closes_at = (await either.store.balance(account(window))).resets_at
    either.set_clock(max(days, 32 if window == "month" else 0) * DAY)
    await spend(either, "ahead", 3, window)
    either.set_clock(-max(days, 32 if window == "month" else 0) * DAY)
    balance = await either.store.balance(account(window))
    assert (balance.spent_usd, balance.resets_at) == (7, closes_at)
    assert not await granted(either.store, claim("too much", 4, of=account(window)))
    await either.store.settle(claim("too much", of=account(window)), Decimal(0))
    await spend(either, "after", 3, window)
    assert await amounts(either, window) == (10, 0)


@pytest.mark.parametrize("days", [70, 3650])
@pytest.mark.parametrize("window", ["hour", "day", "month"])
async def test_after_a_clock_that_was_ahead_the_next_window_starts_from_zero(
    either: Kept, window: Window, days: int
) -> None:
    await spend(either, "before", 10, window)
    either.set_clock(days * DAY)
    await spend(either, "ahead", 10, window)
    either.set_clock(-days * DAY)
    assert await amounts(either, window) == (20, 0)
    await close_window(either, window)
    assert await amounts(either, window) == (0, 0)
    await spend(either, "next", 10, window)


@pytest.mark.parametrize("days", [3, 3650])
async def test_a_clock_that_is_set_back_opens_no_window_again_until_its_own_day_is_over(
    either: Kept, days: int
) -> None:
    await spend(either, "before", 6)
    day_of_before = (await either.store.balance(account("day"))).resets_at
    either.set_clock(-days * DAY)
    balance = await either.store.balance(account("day"))
    assert (balance.spent_usd, balance.resets_at) == (6, day_of_before - timedelta(days=days))
    await spend(either, "behind", 4)
    assert not await granted(either.store, claim("too much", 1, of=account("day")))
    await either.store.settle(claim("too much", of=account("day")), Decimal(0))
    await close_window(either)
    assert await amounts(either, "day") == (0, 0)


async def test_a_window_that_the_clock_left_backwards_goes_on_when_it_returns(either: Kept) -> None:
    await spend(either, "before", 6)
    either.set_clock(-3 * DAY)
    await spend(either, "behind", 3)
    either.set_clock(3 * DAY)
    assert await amounts(either, "day") == (9, 0)
    either.set_clock(-900 * DAY)
    either.set_clock(900 * DAY)
    assert await amounts(either, "day") == (9, 0)


async def test_a_day_that_comes_twice_keeps_what_was_counted_on_it(either: Kept) -> None:
    await spend(either, "first", 4)
    await close_window(either)
    await spend(either, "second", 5)
    either.set_clock(-DAY)
    assert await amounts(either, "day") == (9, 0)
    either.set_clock(DAY)
    assert await amounts(either, "day") == (5, 0)


async def test_a_request_in_flight_is_charged_to_its_window_wherever_the_clock_is(either: Kept) -> None:
    day, far = account("day"), 400 * DAY
    wanted = [claim(name, 2, of=day, lease=2 * far) for name in "abcd"]
    for each in wanted:
        await send(either.store, each)
    either.set_clock(far)
    await either.store.settle(wanted[0], Decimal(1))
    assert await amounts(either, "day") == (0, 0)
    either.set_clock(-far)
    assert await amounts(either, "day") == (1, 6)
    await either.store.settle(wanted[1], Decimal(1))
    either.set_clock(-far)
    await either.store.settle(wanted[2], Decimal(1))
    assert await amounts(either, "day") == (3, 2)
    either.set_clock(far)
    await either.store.settle(wanted[3], Decimal(1))
    assert await amounts(either, "day") == (4, 0)


@pytest.mark.parametrize("days", [3650, -3650])
@pytest.mark.parametrize("window", ["day", "total"])
async def test_no_jump_of_the_clock_holds_up_the_claims_of_the_dead(
    either: Kept, window: Window, days: int
) -> None:
    of = account(window)
    either.set_clock(days * DAY)
    await send(either.store, claim("sent", 3, of=of))
    await either.store.reserve(claim("unsent", 6, of=of))
    either.set_clock(-days * DAY)
    await either.store.reserve(claim("a", 8, of=of))
    either.pass_time(31)
    assert (await amounts(either, window))[1] == 0
    await either.store.settle(claim("a", of=of), Decimal(0))
    assert await granted(either.store, claim("b", 7, of=of))


async def test_a_lease_is_not_longer_for_a_clock_that_was_ahead(either: Kept) -> None:
    either.set_clock(3650 * DAY)
    await either.store.reserve(claim("a", 10))
    either.pass_time(20)
    await either.store.balance(account())
    either.set_clock(-3650 * DAY)
    assert await amounts(either) == (0, 10)
    either.pass_time(5)
    assert await amounts(either) == (0, 10)
    either.pass_time(6)
    assert await amounts(either) == (0, 0)


async def test_who_waits_while_the_clock_is_set_is_served_in_the_end(either: Kept) -> None:
    day = account("day")
    await send(either.store, claim("a", 10, of=day))
    await either.store.reserve(claim("b", 10, of=day))
    for jump in (3650, -3650, -3650, 3650):
        either.set_clock(jump * DAY)
        await either.store.reserve(claim("b", 10, of=day))
        await either.store.renew([claim("a", 10, of=day)])
    await either.store.settle(claim("b", 10, of=day), Decimal(0))
    await either.store.settle(claim("a", 10, of=day), Decimal(2))
    balance = await either.store.balance(day)
    assert balance.spent_usd <= 10
    assert balance.reserved_usd == 0
    await close_window(either)
    assert await granted(either.store, claim("c", 10, of=day))


async def test_with_a_steady_clock_a_jump_ends_no_lease(either: Kept) -> None:
    if not either.steady:
        pytest.skip("the server has one clock")
    await send(either.store, claim("sent", 4))
    await either.store.reserve(claim("unsent", 4))
    await either.store.reserve(claim("waiting", 4))
    either.set_clock(3650 * DAY)
    assert await amounts(either) == (0, 8)
    assert await either.store.mark_sent(claim("unsent", 4))
    await either.store.settle(claim("sent", 4), Decimal(1))
    assert await granted(either.store, claim("waiting", 4))


async def test_with_one_clock_a_jump_ends_leases_on_the_safe_side(kept: Kept) -> None:
    if kept.steady:
        pytest.skip("it has a steady clock")
    await send(kept.store, claim("sent", 4))
    await kept.store.reserve(claim("unsent", 4))
    kept.set_clock(3650 * DAY)
    kept.set_clock(-3650 * DAY)
    assert await amounts(kept) == (0, 8), "nobody has looked at the clock meanwhile"
    kept.set_clock(3650 * DAY)
    assert await amounts(kept) == (4, 0)
    assert not await kept.store.mark_sent(claim("unsent", 4))
    kept.set_clock(-3650 * DAY)
    await kept.store.settle(claim("sent", 4), Decimal(1))
    assert await amounts(kept) == (1, 0)


# --- processes that are dead ---


async def test_who_is_not_granted_is_told_who_else_has_claims(either: Kept) -> None:
    assert (await either.store.reserve(claim("a", 6, holder="pid 1"))).holders == ()
    await send(either.store, claim("b", 1, holder="pid 2"))
    await send(either.store, claim("c", 1, holder="pid 2"))
    verdict = await either.store.reserve(claim("d", 9, holder="pid 3"))
    assert set(verdict.holders) == {"pid 1", "pid 2", "pid 3"}
    verdict = await either.store.reserve(claim("e", 1, holder="pid 4"))
    assert set(verdict.holders) == {"pid 1", "pid 2", "pid 3", "pid 4"}
    await either.store.settle(claim("a"), Decimal(0))
    await either.store.settle(claim("d"), Decimal(0))
    await either.store.settle(claim("b"), Decimal(1))
    assert set((await either.store.reserve(claim("e", 9, holder="pid 4"))).holders) == {"pid 2", "pid 4"}
    either.pass_time(31)
    await send(either.store, claim("f", 1, holder="pid 5"))
    assert set((await either.store.reserve(claim("g", 9, holder="pid 6"))).holders) == {"pid 5", "pid 6"}


async def test_the_leases_of_the_dead_end_at_once_and_what_they_sent_is_spent(either: Kept) -> None:
    dead, living = "vm pid 7 (a:1 5)", "vm pid 8 (a:1 6)"
    await send(either.store, claim("sent", 3, holder=dead))
    await either.store.reserve(claim("unsent", 3, holder=dead))
    await send(either.store, claim("living", 2, holder=living))
    await either.store.reserve(claim("line of the dead", 10, holder=dead))
    assert not await granted(either.store, claim("mine", 5, holder=living))
    for _ in range(2):
        await either.store.end_leases(account(), [dead, "somebody who has nothing"])
        assert await amounts(either) == (3, 2)
    assert await granted(either.store, claim("mine", 5, holder=living))
    assert not await either.store.mark_sent(claim("unsent", 3))
    await either.store.settle(claim("sent", 3), Decimal(1))
    assert await amounts(either) == (1, 7)
    verdict = await either.store.reserve(claim("more", 10, holder=living))
    assert verdict.holders == (living,)


async def test_ending_leases_of_an_unknown_account_does_nothing(either: Kept) -> None:
    await either.store.end_leases(account("day"), ["somebody"])
    assert await amounts(either, "day") == (0, 0)


# --- accounts ---


async def test_keys_and_windows_are_counted_apart(either: Kept) -> None:
    accounts = [account("total"), account("month"), account("total", "ACME"), account("total", "acme ")]
    for number, each in enumerate(accounts, start=1):
        await send(either.store, claim("a", 10, of=each))
        await either.store.settle(claim("a", 10, of=each), Decimal(number))
    assert [(await either.store.balance(each)).spent_usd for each in accounts] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "key",
    [
        "'; DROP TABLE spend_account; --",
        '"',
        "}",
        "{}",
        "a:b:*?[x]",
        "../../etc",
        "%s",
        "naïve 🦔",
        "k" * 200,
    ],
)
async def test_a_key_is_only_a_key(either: Kept, key: str) -> None:
    of = account(key=key)
    await send(either.store, claim(key, 10, of=of))
    assert not await granted(either.store, claim("b", 1, of=of))
    assert (await either.store.settle(claim(key, 10, of=of), Decimal(4))).spent_usd == 4
    assert await amounts(either) == (0, 0)


async def test_what_one_client_writes_the_other_reads(shared: Kept) -> None:
    other = shared.another()
    await send(shared.store, claim("a", 7))
    assert not await granted(other, claim("b", 5))
    await other.settle(claim("a", 7), Decimal(1))
    assert await granted(other, claim("b", 5))
    assert await amounts(shared) == (1, 5)
    await other.aclose()  # type: ignore[attr-defined]


async def test_many_threads_with_loops_of_their_own_never_reserve_more_than_the_limit(kept: Kept) -> None:
    results: Counter[bool] = Counter()
    barrier = threading.Barrier(6)

    async def ask(thread: int) -> None:
        asked = [granted(kept.store, claim(f"{thread}-{number}")) for number in range(5)]
        results.update(await asyncio.gather(*asked))

    def in_thread(thread: int) -> None:
        barrier.wait()
        asyncio.run(ask(thread))

    threads = [threading.Thread(target=in_thread, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert results == {True: 10, False: 20}
    assert await amounts(kept) == (0, 10)

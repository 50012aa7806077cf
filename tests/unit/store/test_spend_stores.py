"""What every store of spending does, whatever it is made of."""

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import get_args

import pytest
from support.spend_stores import Kept, account, claim

from fastroai.errors import ConfigurationError
from fastroai.usage import SpendBalance, SpendClaim, SpendStore, Window
from fastroai.usage.spend_rules import end_of_window

WEEK = 7 * 86_400


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


async def test_what_was_never_used_holds_nothing(kept: Kept) -> None:
    assert await amounts(kept) == (0, 0)
    assert (await kept.store.balance(account("day"))).resets_at is not None


async def test_a_request_reserves_is_sent_and_costs_what_it_costs(kept: Kept) -> None:
    verdict = await kept.store.reserve(claim("a", "0.5"))
    assert (verdict.granted, verdict.first) == (True, True)
    assert (verdict.balance.spent_usd, verdict.balance.reserved_usd) == (0, Decimal("0.5"))
    assert await kept.store.mark_sent(claim("a", "0.5"))
    balance = await kept.store.settle(claim("a", "0.5"), Decimal("0.2"))
    assert (balance.spent_usd, balance.reserved_usd) == (Decimal("0.2"), 0)
    assert await amounts(kept) == (Decimal("0.2"), 0)


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
async def test_amounts_are_exact_to_eighteen_decimals(kept: Kept, amount: str) -> None:
    for name in "ab":
        await send(kept.store, claim(name, amount, limit="999999999.999999999999999999"))
        await kept.store.settle(claim(name), Decimal(amount))
    assert await amounts(kept) == (2 * Decimal(amount), 0)
    await kept.store.reserve(claim("c", "0.000000000000000003", limit=999_999_999))
    assert (await amounts(kept))[0] == 2 * Decimal(amount)


async def test_beyond_eighteen_decimals_it_is_rounded_on_the_safe_side(kept: Kept) -> None:
    await send(kept.store, claim("a", "0.1000000000000000001"))
    assert await amounts(kept) == (0, Decimal("0.100000000000000001"))
    await kept.store.settle(claim("a"), Decimal("0.1000000000000000005"))
    assert await amounts(kept) == (Decimal("0.1"), 0)
    await send(kept.store, claim("b", "0.1"))
    await kept.store.settle(claim("b"), Decimal("0.1000000000000000015"))
    assert await amounts(kept) == (Decimal("0.200000000000000002"), 0)
    assert not await granted(kept.store, claim("c", "0.000000000000000001", limit="0.2000000000000000029"))


@pytest.mark.parametrize("amount", ["-1", "NaN", "Infinity", "1000000000"])
async def test_what_is_no_amount_is_refused(kept: Kept, amount: str) -> None:
    with pytest.raises(ConfigurationError, match="a finite number of US dollars"):
        await kept.store.reserve(claim("a", amount))
    with pytest.raises(ConfigurationError, match="cost=.*a finite number of US dollars"):
        await kept.store.settle(claim("a"), Decimal(amount))
    assert await amounts(kept) == (0, 0)


async def test_a_cost_above_the_reservation_counts_in_full(kept: Kept) -> None:
    await send(kept.store, claim("a", 0))
    await kept.store.settle(claim("a"), Decimal("12.5"))
    assert await amounts(kept) == (Decimal("12.5"), 0)
    assert not await granted(kept.store, claim("b", 0, limit=10))


# --- the same call again ---


async def test_reserving_again_reserves_once(kept: Kept) -> None:
    for _ in range(3):
        assert await granted(kept.store, claim("a", 6))
    assert await amounts(kept) == (0, 6)


async def test_settling_again_counts_once(kept: Kept) -> None:
    await send(kept.store, claim("a", 6))
    for _ in range(3):
        balance = await kept.store.settle(claim("a", 6), Decimal(2))
    assert (balance.spent_usd, balance.reserved_usd) == (2, 0)


async def test_marking_sent_again_is_still_sent(kept: Kept) -> None:
    await send(kept.store, claim("a"))
    assert await kept.store.mark_sent(claim("a"))


async def test_only_what_is_reserved_can_be_sent(kept: Kept) -> None:
    assert not await kept.store.mark_sent(claim("unknown"))
    await send(kept.store, claim("a", 10))
    await kept.store.reserve(claim("waiting", 10))
    assert not await kept.store.mark_sent(claim("waiting", 10))
    await kept.store.settle(claim("a"), Decimal(0))
    assert not await kept.store.mark_sent(claim("a"))
    assert await amounts(kept) == (0, 0)


async def test_a_reservation_can_shrink(kept: Kept) -> None:
    await kept.store.reserve(claim("a", 10))
    await kept.store.reserve(claim("waiting", 10))
    verdict = await kept.store.reserve(claim("a", 4))
    assert (verdict.granted, verdict.first, verdict.balance.reserved_usd) == (True, True, 4)


async def test_a_reservation_that_grows_is_a_new_claim(kept: Kept) -> None:
    await kept.store.reserve(claim("a", 3))
    assert await granted(kept.store, claim("a", 4))
    await kept.store.reserve(claim("b", 6))
    verdict = await kept.store.reserve(claim("a", 5))
    assert (verdict.granted, verdict.first, verdict.balance.reserved_usd) == (False, True, 6)
    assert not await kept.store.mark_sent(claim("a", 5))

    await kept.store.settle(claim("b"), Decimal(0))
    await kept.store.reserve(claim("c", 8))
    await kept.store.reserve(claim("d", 8))
    await kept.store.settle(claim("a"), Decimal(0))
    assert await granted(kept.store, claim("c", 8))
    verdict = await kept.store.reserve(claim("c", 9))
    assert (verdict.granted, verdict.first, verdict.balance.reserved_usd) == (False, False, 0)
    assert await granted(kept.store, claim("d", 8))


async def test_what_was_sent_stays_as_it_is(kept: Kept) -> None:
    await send(kept.store, claim("a", 3))
    assert await granted(kept.store, claim("a", 2))
    assert not await granted(kept.store, claim("a", 4))
    assert await amounts(kept) == (0, 3)


async def test_a_reservation_that_was_cancelled_can_be_given_back(kept: Kept) -> None:
    for turns in range(6):
        task = asyncio.create_task(kept.store.reserve(claim("a", 10)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        balance = await kept.store.settle(claim("a", 10), Decimal(0))
        assert (balance.spent_usd, balance.reserved_usd) == (0, 0)
    assert await amounts(kept) == (0, 0)


# --- the line ---


async def test_nobody_is_overtaken_in_line(kept: Kept) -> None:
    await send(kept.store, claim("a", 8))
    verdicts = [await kept.store.reserve(claim(name, amount)) for name, amount in (("b", 5), ("c", 1))]
    assert [(verdict.granted, verdict.first) for verdict in verdicts] == [(False, True), (False, False)]
    assert not await granted(kept.store, claim("c", 1))
    await kept.store.settle(claim("a"), Decimal(4))
    assert not await granted(kept.store, claim("c", 1))
    assert await granted(kept.store, claim("b", 5))
    assert await granted(kept.store, claim("c", 1))
    assert await amounts(kept) == (4, 6)


async def test_who_asks_for_another_amount_keeps_the_place_in_line(kept: Kept) -> None:
    await send(kept.store, claim("a", 8))
    await kept.store.reserve(claim("b", 5))
    await kept.store.reserve(claim("c", 1))
    assert (await kept.store.reserve(claim("b", 7))).first
    assert await granted(kept.store, claim("b", 2))
    assert not await granted(kept.store, claim("c", 1))


async def test_who_leaves_the_line_makes_room_for_the_next(kept: Kept) -> None:
    await send(kept.store, claim("a", 8))
    for name in "bcd":
        await kept.store.reserve(claim(name, 2 if name == "d" else 5))
    await kept.store.settle(claim("c"), Decimal(0))
    assert not await granted(kept.store, claim("d", 2))
    await kept.store.settle(claim("b"), Decimal(0))
    assert await granted(kept.store, claim("d", 2))


async def test_what_was_spent_without_leave_is_counted_all_the_same(kept: Kept) -> None:
    await send(kept.store, claim("a", 10))
    await kept.store.reserve(claim("waiting", 5))
    await kept.store.settle(claim("waiting", 5), Decimal(3))
    assert await amounts(kept) == (3, 10)


async def test_each_claim_is_held_to_its_own_limit(kept: Kept) -> None:
    await send(kept.store, claim("a", 5, limit=5))
    assert not await granted(kept.store, claim("b", 1, limit=5))
    await kept.store.settle(claim("b"), Decimal(0))
    assert await granted(kept.store, claim("c", 1, limit=6))


# --- leases ---


async def test_an_unsent_claim_whose_lease_is_over_is_dropped(kept: Kept) -> None:
    await kept.store.reserve(claim("a", 10))
    kept.pass_time(31)
    assert not await kept.store.mark_sent(claim("a", 10))
    await kept.store.settle(claim("a", 10), Decimal(7))
    assert await amounts(kept) == (0, 0)


async def test_a_sent_claim_whose_lease_is_over_counts_as_spent_until_its_cost_is_known(kept: Kept) -> None:
    await send(kept.store, claim("a", 6))
    kept.pass_time(31)
    assert await amounts(kept) == (6, 0)
    assert not await kept.store.mark_sent(claim("a", 6))
    await kept.store.renew([claim("a", 6)])
    assert await granted(kept.store, claim("a", 6))
    assert await amounts(kept) == (6, 0)
    for _ in range(2):
        await kept.store.settle(claim("a", 6), Decimal(2))
    assert await amounts(kept) == (2, 0)


async def test_after_a_week_what_counts_as_spent_is_spent(kept: Kept) -> None:
    for name in "ab":
        await send(kept.store, claim(name, 3))
    kept.pass_time(31)
    assert await amounts(kept) == (6, 0)
    kept.pass_time(WEEK - 60)
    await kept.store.settle(claim("a", 3), Decimal(1))
    kept.pass_time(120)
    await kept.store.settle(claim("b", 3), Decimal(1))
    assert await amounts(kept) == (4, 0)


async def test_who_waits_too_long_without_asking_leaves_the_line(kept: Kept) -> None:
    await send(kept.store, claim("a", 8, lease=100))
    await kept.store.reserve(claim("b", 8))
    kept.pass_time(20)
    assert not await granted(kept.store, claim("c", 2))
    kept.pass_time(20)
    assert await granted(kept.store, claim("c", 2))
    assert not (await kept.store.reserve(claim("b", 8))).granted


@pytest.mark.parametrize("how", ["renew", "reserve", "mark_sent"])
async def test_a_lease_is_renewed_by_asking_and_by_sending(kept: Kept, how: str) -> None:
    await kept.store.reserve(claim("a"))
    for _ in range(3):
        kept.pass_time(20)
        if how == "renew":
            await kept.store.renew([claim("a"), claim("unknown")])
        elif how == "reserve":
            await kept.store.reserve(claim("a"))
        else:
            assert await kept.store.mark_sent(claim("a"))
    assert await amounts(kept) == (0, 1)


async def test_leases_of_several_accounts_are_renewed_together(kept: Kept) -> None:
    other = account(key="other")
    mine, theirs, line = claim("a", 10), claim("a", 10, of=other), claim("b", 5)
    for each in (mine, theirs, line):
        await kept.store.reserve(each)
    kept.pass_time(20)
    await kept.store.renew([mine, theirs, line, claim("x", of=account("day", "never used"))])
    kept.pass_time(20)
    assert await kept.store.mark_sent(mine)
    assert await kept.store.mark_sent(theirs)
    await kept.store.settle(mine, Decimal(0))
    assert await granted(kept.store, line)


async def test_thousands_of_leases_are_renewed_at_once(kept: Kept) -> None:
    first, last = claim("0"), claim("2499")
    await kept.store.reserve(first)
    await kept.store.reserve(last)
    kept.pass_time(20)
    await kept.store.renew([claim(str(number)) for number in range(2500)])
    kept.pass_time(20)
    assert await amounts(kept) == (0, 2)


async def test_a_renewal_does_not_bring_back_what_was_given_up(kept: Kept) -> None:
    await kept.store.reserve(claim("a"))
    kept.pass_time(31)
    await kept.store.renew([claim("a")])
    assert not await kept.store.mark_sent(claim("a"))


# --- windows ---


@pytest.mark.parametrize("window", get_args(Window))
async def test_windows_end_where_the_calendar_says(kept: Kept, window: Window) -> None:
    balance: SpendBalance = (await kept.store.reserve(claim("a", of=account(window)))).balance
    assert balance.resets_at == end_of_window(window, balance.now)
    assert balance.now.utcoffset() == timedelta(0)


async def close_window(kept: Kept, window: Window = "day") -> None:
    balance: SpendBalance = await kept.store.balance(account(window))
    assert balance.resets_at is not None
    kept.pass_time((balance.resets_at - balance.now).total_seconds() + 1)


@pytest.mark.parametrize("window", ["hour", "day", "month"])
async def test_a_new_window_starts_from_zero(kept: Kept, window: Window) -> None:
    of = account(window)
    await send(kept.store, claim("a", 10, of=of))
    await kept.store.settle(claim("a", 10, of=of), Decimal(10))
    assert not await granted(kept.store, claim("b", 10, of=of))
    before = await kept.store.balance(of)
    await kept.store.settle(claim("b", 10, of=of), Decimal(0))
    await close_window(kept, window)
    after = await kept.store.balance(of)
    assert (after.spent_usd, after.reserved_usd) == (0, 0)
    assert after.now + kept.skipped > before.now
    assert after.resets_at > after.now
    assert await granted(kept.store, claim("c", 10, of=of))


async def test_a_request_is_charged_to_the_window_in_which_it_was_reserved(kept: Kept) -> None:
    day = account("day")
    sent, unsent = claim("sent", 6, of=day, lease=86_400), claim("unsent", 4, of=day, lease=86_400)
    await send(kept.store, sent)
    await kept.store.reserve(unsent)
    await close_window(kept)
    assert await amounts(kept, "day") == (0, 0)
    assert await kept.store.mark_sent(unsent)
    assert await granted(kept.store, claim("new", 10, of=day))
    await kept.store.settle(sent, Decimal(5))
    await kept.store.reserve(claim("unsent", 1, of=day))
    await kept.store.settle(unsent, Decimal(4))
    assert await amounts(kept, "day") == (0, 10)


async def test_an_unsent_reservation_of_an_earlier_window_can_shrink_and_grow(kept: Kept) -> None:
    day = account("day")
    await kept.store.reserve(claim("a", 6, of=day, lease=86_400))
    await close_window(kept)
    assert await granted(kept.store, claim("a", 5, of=day))
    assert await amounts(kept, "day") == (0, 0)
    assert await granted(kept.store, claim("a", 7, of=day))
    assert await amounts(kept, "day") == (0, 7)


async def test_what_lapses_counts_in_its_own_window_only(kept: Kept) -> None:
    day = account("day")
    await send(kept.store, claim("a", 6, of=day))
    kept.pass_time(31)
    await close_window(kept)
    await send(kept.store, claim("b", 3, of=day))
    await kept.store.settle(claim("a", 6, of=day), Decimal(1))
    assert await amounts(kept, "day") == (0, 3)
    kept.pass_time(31)
    assert (await amounts(kept, "day"))[1] == 0


async def test_who_waits_is_still_in_line_in_the_next_window(kept: Kept) -> None:
    day = account("day")
    await send(kept.store, claim("a", 10, of=day))
    await kept.store.reserve(claim("b", 10, of=day, lease=86_400))
    await kept.store.reserve(claim("c", 1, of=day, lease=86_400))
    await close_window(kept)
    assert not await granted(kept.store, claim("c", 1, of=day))
    assert await granted(kept.store, claim("b", 10, of=day))
    assert await amounts(kept, "day") == (0, 10)


async def test_a_clock_that_is_set_back_opens_no_window_again(kept: Kept) -> None:
    day = account("day")
    await send(kept.store, claim("a", 10, of=day))
    await kept.store.settle(claim("a", 10, of=day), Decimal(10))
    before = await kept.store.balance(day)
    kept.pass_time(-3 * 86_400)
    after = await kept.store.balance(day)
    assert after.now + kept.skipped >= before.now
    assert (after.resets_at + kept.skipped, after.spent_usd) == (before.resets_at, 10)
    assert not await granted(kept.store, claim("b", 1, of=day))


async def test_time_stands_still_until_a_clock_that_was_set_back_has_caught_up(kept: Kept) -> None:
    await send(kept.store, claim("a", 10))
    kept.pass_time(-100)
    stopped_at = (await kept.store.balance(account())).now + kept.skipped
    kept.pass_time(90)
    assert (await kept.store.balance(account())).now + kept.skipped == stopped_at
    kept.pass_time(10 + 31)
    assert await amounts(kept) == (10, 0)


# --- accounts ---


async def test_keys_and_windows_are_counted_apart(kept: Kept) -> None:
    accounts = [account("total"), account("month"), account("total", "ACME"), account("total", "acme ")]
    for number, each in enumerate(accounts, start=1):
        await send(kept.store, claim("a", 10, of=each))
        await kept.store.settle(claim("a", 10, of=each), Decimal(number))
    assert [(await kept.store.balance(each)).spent_usd for each in accounts] == [1, 2, 3, 4]


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
async def test_a_key_is_only_a_key(kept: Kept, key: str) -> None:
    of = account(key=key)
    await send(kept.store, claim(key, 10, of=of))
    assert not await granted(kept.store, claim("b", 1, of=of))
    assert (await kept.store.settle(claim(key, 10, of=of), Decimal(4))).spent_usd == 4
    assert await amounts(kept) == (0, 0)


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

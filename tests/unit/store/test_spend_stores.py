"""What every store of spending does. Its rules: `tests/properties/test_spend_stores.py`."""

import asyncio
import math
import threading
from collections import Counter
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


async def test_each_claim_is_held_to_its_own_limit(either: Kept) -> None:
    await send(either.store, claim("a", 5, limit=5))
    assert not await granted(either.store, claim("b", 1, limit=5))
    await either.store.settle(claim("b"), Decimal(0))
    assert await granted(either.store, claim("c", 1, limit=6))


# --- leases ---


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


# --- windows ---


async def close_window(kept: Kept, window: Window = "day") -> None:
    balance: SpendBalance = await kept.store.balance(account(window))
    assert balance.resets_at is not None
    kept.pass_time((balance.resets_at - balance.now).total_seconds() + 1)


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


# --- clocks that are set ---


# --- processes that are dead ---


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

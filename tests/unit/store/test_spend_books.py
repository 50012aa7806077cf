"""What every store of spending keeps for people: its accounts, their windows, changes by hand, and alerts."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any, Literal

import pytest
from support.spend_stores import Kept, account, claim

from fastroai.errors import ConfigurationError
from fastroai.usage import SpendAccount, SpendBook, SpendChange, SpendClaim, SpendStore, Window

DAY = 86_400
SHARES = (0.5, 0.8, 1.0)


def change(
    limit: str | int | None = None, changes: Literal["limit", "spent"] = "limit", change_id: str = "c"
) -> SpendChange:
    limit_usd = None if limit is None else Decimal(limit)
    return SpendChange(id=change_id, changes=changes, limit_usd=limit_usd, by="Mia", reason="a test")


async def spend(store: SpendStore, wanted: SpendClaim, cost: str | int | None = None) -> tuple[float, ...]:
    """Reserve, send and settle; returns the shares that are to be told."""
    assert (await store.reserve(wanted)).granted
    assert await store.mark_sent(wanted)
    balance = await store.settle(wanted, wanted.amount_usd if cost is None else Decimal(cost))
    return balance.reached


async def next_window(kept: Kept, of: SpendAccount) -> None:
    balance = await kept.store.balance(of)
    assert balance.resets_at is not None
    kept.pass_time((balance.resets_at - balance.now).total_seconds() + 1)


async def all_accounts(store: SpendStore) -> list[SpendAccount]:
    found, page = [], await store.accounts()
    while True:
        found += page.accounts
        if page.after is None:
            return found
        page = await store.accounts(page.after)


# --- accounts and windows ---


async def test_the_accounts_are_those_that_something_was_reserved_in(either: Kept) -> None:
    assert await all_accounts(either.store) == []
    await either.store.balance(account(key="only asked"))
    wanted = [account("day", "a"), account("hour", "a"), account("total", "b:}{ ü*?[")]
    for of in wanted:
        await either.store.reserve(claim("x", of=of))
    assert sorted(await all_accounts(either.store), key=repr) == sorted(wanted, key=repr)


async def test_any_number_of_accounts_is_told_page_by_page(shared: Kept, monkeypatch: Any) -> None:
    monkeypatch.setattr("fastroai.store.shared_spending.spend_keyed._ACCOUNTS_A_PAGE", 10)
    wanted = {account("day", f"customer {number}") for number in range(30)}
    for of in wanted:
        await shared.store.reserve(claim("x", of=of))
    found = await all_accounts(shared.store)
    assert set(found) == wanted
    assert (await shared.store.accounts()).after is not None


async def test_windows_are_told_newest_first_with_what_each_has_spent_and_its_limit(either: Kept) -> None:
    of = account("hour")
    await spend(either.store, claim("a", 3, of=of, limit=10))
    await next_window(either, of)
    await spend(either.store, claim("b", 2, of=of, limit=20))
    await either.store.reserve(claim("c", 1, of=of, limit=20))
    now, before = await either.store.windows(of)
    assert [each.is_open for each in await either.store.windows(of, closed=False)] == [True]
    assert (now.is_open, now.spent_usd, now.reserved_usd, now.limit_usd) == (True, 2, 1, 20)
    assert (now.remaining_usd, now.key, now.window, now.adjustments) == (17, of.key, "hour", ())
    assert (before.is_open, before.spent_usd, before.reserved_usd, before.limit_usd) == (False, 3, 0, 10)
    assert now.resets_at is not None
    assert before.resets_at is not None
    assert before.resets_at <= now.now < now.resets_at


async def test_an_account_whose_window_is_over_has_an_open_one_in_which_nothing_is_spent(
    either: Kept,
) -> None:
    of = account("hour")
    await spend(either.store, claim("a", 3, of=of))
    await next_window(either, of)
    now, before = await either.store.windows(of)
    assert (now.is_open, now.spent_usd, now.limit_usd) == (True, 0, 10)
    assert (before.is_open, before.spent_usd) == (False, 3)


@pytest.mark.parametrize("window", ["day", "total"])
async def test_to_look_changes_nothing_and_sees_leases_that_are_over(either: Kept, window: Window) -> None:
    of = account(window)
    assert (await either.store.reserve(claim("sent", 3, of=of))).granted
    assert await either.store.mark_sent(claim("sent", 3, of=of))
    assert (await either.store.reserve(claim("unsent", 4, of=of))).granted
    either.pass_time(31)
    for _ in range(2):
        (now,) = await either.store.windows(of)
        assert (now.spent_usd, now.reserved_usd) == (3, 0)
    assert await either.store.windows(account(window, "unknown")) == ()
    assert await all_accounts(either.store) == [of]


async def test_an_account_is_forgotten_although_somebody_looks_at_it_every_day(either: Kept) -> None:
    of = account("hour", "left")
    await either.store.reserve(claim("a", of=of, keep=timedelta(days=3)))
    for days in range(7):
        assert len(await either.store.windows(of)) == (0 if days > 3 else 1 if days == 0 else 2)
        either.pass_time(DAY)
        await either.store.reserve(claim(str(days), of=account("hour", "another")))
    assert [each.key for each in await all_accounts(either.store)] == ["another"]


async def test_what_is_settled_late_counts_in_the_window_that_is_over(either: Kept) -> None:
    of = account("hour")
    late = claim("late", 6, of=of, lease=2 * DAY, keep=timedelta(days=90))
    assert (await either.store.reserve(late)).granted
    assert await either.store.mark_sent(late)
    for number in range(6):
        await next_window(either, of)
        await spend(either.store, claim(str(number), 1, of=of, keep=timedelta(days=90)))
    await either.store.settle(late, Decimal(5))
    assert [each.spent_usd for each in await either.store.windows(of)] == [1, 1, 1, 1, 1, 1, 5]


# --- changes by hand ---


async def test_a_limit_that_is_raised_holds_for_all_claims_of_its_window(either: Kept) -> None:
    of = account("day")
    await spend(either.store, claim("a", 10, of=of))
    assert not (await either.store.reserve(claim("b", 5, of=of))).granted
    made = await either.store.adjust(of, change(20))
    assert (made.changes, made.from_usd, made.to_usd, made.by, made.reason) == (
        "limit",
        10,
        20,
        "Mia",
        "a test",
    )
    verdict = await either.store.reserve(claim("b", 5, of=of))
    assert (verdict.granted, verdict.balance.limit_usd) == (True, 20)
    assert not (await either.store.reserve(claim("c", 6, of=of))).granted
    await either.store.settle(claim("c", of=of), Decimal(0))
    (now,) = await either.store.windows(of)
    assert (now.limit_usd, now.adjustments) == (20, (made,))

    await next_window(either, of)
    assert (await either.store.balance(of)).limit_usd is None
    assert not (await either.store.reserve(claim("d", 11, of=of))).granted
    assert [each.limit_usd for each in await either.store.windows(of)] == [10, 20]


async def test_a_limit_can_be_lowered_below_what_is_spent_and_then_admits_nothing(either: Kept) -> None:
    await spend(either.store, claim("a", 6))
    await either.store.reserve(claim("held", 3))
    await either.store.adjust(account(), change(5))
    assert not (await either.store.reserve(claim("b", "0.000000000000000001"))).granted
    assert await either.store.mark_sent(claim("held", 3))
    (now,) = await either.store.windows(account())
    assert (now.limit_usd, now.spent_usd, now.reserved_usd, now.remaining_usd) == (5, 6, 3, 0)


async def test_a_limit_can_be_given_back_to_the_code(either: Kept) -> None:
    await spend(either.store, claim("a", 1))
    await either.store.adjust(account(), change(2))
    back = await either.store.adjust(account(), change(None, change_id="back"))
    assert (back.from_usd, back.to_usd) == (2, 10)
    assert (await either.store.balance(account())).limit_usd is None
    assert (await either.store.reserve(claim("b", 9))).granted


async def test_spending_that_is_reset_starts_from_zero_and_keeps_what_is_in_flight(either: Kept) -> None:
    await spend(either.store, claim("a", 6))
    assert (await either.store.reserve(claim("flying", 3))).granted
    assert await either.store.mark_sent(claim("flying", 3))
    made = await either.store.adjust(account(), change(changes="spent"))
    assert (made.changes, made.from_usd, made.to_usd) == ("spent", 6, 0)
    balance = await either.store.settle(claim("flying", 3), Decimal(2))
    assert (balance.spent_usd, balance.reserved_usd) == (2, 0)
    (now,) = await either.store.windows(account())
    assert (now.spent_usd, now.adjustments) == (2, (made,))


async def test_what_lapsed_before_a_reset_is_not_corrected_after_it(either: Kept) -> None:
    assert (await either.store.reserve(claim("lost", 6))).granted
    assert await either.store.mark_sent(claim("lost", 6))
    either.pass_time(31)
    assert (await either.store.balance(account())).spent_usd == 6
    await either.store.adjust(account(), change(changes="spent"))
    assert (await either.store.settle(claim("lost", 6), Decimal(1))).spent_usd == 0


async def test_the_same_change_is_made_once(either: Kept) -> None:
    await spend(either.store, claim("a", 6))
    first = await either.store.adjust(account(), change(changes="spent"))
    await spend(either.store, claim("b", 2))
    assert await either.store.adjust(account(), change(changes="spent")) == first
    assert (await either.store.balance(account())).spent_usd == 2


async def test_an_unknown_account_is_not_changed(either: Kept) -> None:
    assert await either.store.adjust(account(), change(5)) is None
    assert await all_accounts(either.store) == []


async def test_changes_are_kept_in_order_and_exact_with_whatever_text_there_is(either: Kept) -> None:
    await spend(either.store, claim("a", 1))
    amounts = ["0.000000000000000001", "123456789.123456789012345678", "3"]
    for number, amount in enumerate(amounts):
        made = SpendChange(
            id=f"{number} : %s", changes="limit", limit_usd=Decimal(amount), by='M"\\ü', reason="a\nb {}"
        )
        await either.store.adjust(account(), made)
    (now,) = await either.store.windows(account())
    assert [each.to_usd for each in now.adjustments] == [Decimal(amount) for amount in amounts]
    assert [each.from_usd for each in now.adjustments] == [10, *(Decimal(each) for each in amounts[:2])]
    assert {(each.by, each.reason) for each in now.adjustments} == {('M"\\ü', "a\nb {}")}
    assert {each.at.utcoffset() for each in now.adjustments} == {timedelta(0)}


# --- alerts ---


async def test_each_share_is_told_once_by_whoever_settles_first_after_it_is_reached(either: Kept) -> None:
    other = either.another()
    told = [
        await spend(store, claim(name, 2, warn_at=SHARES))
        for name, store in zip("abcde", [either.store, other, other, either.store, other], strict=True)
    ]
    assert told == [(), (), (0.5,), (0.8,), (1.0,)]
    if other is not either.store:
        await other.aclose()  # type: ignore[attr-defined]


async def test_settling_again_tells_the_same_shares(either: Kept) -> None:
    wanted = claim("a", 8, warn_at=SHARES)
    assert await spend(either.store, wanted) == (0.5, 0.8)
    assert (await either.store.settle(wanted, Decimal(8))).reached == (0.5, 0.8)
    assert (await either.store.settle(claim("b", warn_at=SHARES), Decimal(0))).reached == ()


async def test_who_tells_nothing_leaves_the_share_to_others(either: Kept) -> None:
    assert await spend(either.store, claim("a", 9)) == ()
    assert await spend(either.store, claim("b", 0, warn_at=SHARES)) == (0.5, 0.8)


async def test_each_window_tells_anew(either: Kept) -> None:
    of = account("day")
    assert await spend(either.store, claim("a", 5, of=of, warn_at=SHARES)) == (0.5,)
    await next_window(either, of)
    assert await spend(either.store, claim("b", 5, of=of, warn_at=SHARES)) == (0.5,)


async def test_limits_of_different_amounts_tell_each_of_their_own(either: Kept) -> None:
    assert await spend(either.store, claim("a", 5, limit=10, warn_at=(0.5,))) == (0.5,)
    assert await spend(either.store, claim("b", 5, limit=20, warn_at=(0.5,))) == (0.5,)
    assert await spend(either.store, claim("c", 0, limit=20, warn_at=(0.5,))) == ()


async def test_a_raised_limit_can_tell_again_what_is_not_reached_any_more(either: Kept) -> None:
    assert await spend(either.store, claim("a", 8, warn_at=SHARES)) == (0.5, 0.8)
    await either.store.adjust(account(), change(16))
    assert await spend(either.store, claim("b", 1, warn_at=SHARES)) == ()
    assert await spend(either.store, claim("c", 4, warn_at=SHARES)) == (0.8,)
    await either.store.adjust(account(), change(13, change_id="lower"))
    assert await spend(either.store, claim("d", 0, warn_at=SHARES)) == (1.0,)
    await either.store.adjust(account(), change(changes="spent", change_id="reset"))
    assert await spend(either.store, claim("e", "6.5", warn_at=SHARES)) == (0.5,)


@pytest.mark.parametrize("limit", ["0.000000000000000003", "3", "999999999.999999999999999999", "0.1"])
@pytest.mark.parametrize("share", [1 / 3, 0.000001, 0.999999, 1])
async def test_shares_are_reached_to_the_last_decimal(either: Kept, limit: str, share: float) -> None:
    units = ceil(Fraction(str(share)) * 1_000_000) * Fraction(limit) * 10**12
    least = Decimal(ceil(units)).scaleb(-18)
    below = least - Decimal("1e-18")
    assert await spend(either.store, claim("a", 0, limit=limit, warn_at=(share,)), str(below)) == ()
    told = await spend(either.store, claim("b", 0, limit=limit, warn_at=(share,)), "0.000000000000000001")
    assert told == (share,)


async def test_many_who_cross_at_once_tell_once(either: Kept) -> None:
    claims = [claim(str(number), "0.1", limit=10, warn_at=SHARES) for number in range(100)]
    told = await asyncio.gather(*(spend(either.store, each) for each in claims))
    assert sorted(share for shares in told for share in shares) == list(SHARES)


# --- the book ---


async def test_the_book_lists_open_windows_by_key_and_closed_ones_on_demand(either: Kept) -> None:
    book, of = SpendBook(either.store), account("hour", "b")
    await spend(either.store, claim("x", 1, of=of))
    await next_window(either, of)
    await spend(either.store, claim("y", 2, of=account("day", "a")))
    await spend(either.store, claim("z", 3, of=account("total", "b")))

    def shown(statuses: Any) -> list[tuple[str, str, Decimal, bool]]:
        return [(each.key, each.window, each.spent_usd, each.is_open) for each in statuses]

    opened = [("a", "day", 2, True), ("b", "hour", 0, True), ("b", "total", 3, True)]
    assert shown(await book.list()) == opened
    assert shown(await book.list(closed=True)) == [*opened[:2], ("b", "hour", 1, False), opened[2]]
    assert shown(await book.list(key="b", window="hour")) == [opened[1]]
    with pytest.raises(ConfigurationError, match="window='week'"):
        await book.list(window="week")  # type: ignore[arg-type]


async def test_the_book_changes_limits_and_resets_spending(either: Kept) -> None:
    book = SpendBook(either.store)
    await spend(either.store, claim("x", 1, of=account("day")))
    raised = await book.set_limit("acme", "20.50", by="Mia", reason="a large order")
    assert (raised.limit_usd, raised.remaining_usd) == (Decimal("20.5"), Decimal("19.5"))
    assert raised.adjustments[-1].reason == "a large order"
    assert (await book.reset("acme", by="Mia", reason="a bug")).spent_usd == 0
    back = await book.set_limit("acme", None, by="Mia", reason="enough")
    assert (back.limit_usd, len(back.adjustments)) == (10, 3)


async def test_the_book_asks_whether_a_tenant_was_meant(either: Kept) -> None:
    book = SpendBook(either.store)
    await spend(either.store, claim("x", 1, of=SpendAccount(key="tenant:ada", window="hour")))
    with pytest.raises(ConfigurationError, match=r"key='ada'.*spend limits.*Did you mean 'tenant:ada'\?"):
        await book.set_limit("ada", 5, window="hour", by="Mia", reason="a test")


async def test_a_limit_can_be_set_before_anything_is_spent(either: Kept) -> None:
    book = SpendBook(either.store)
    status = await book.set_limit("new", "0.50", by="Mia", reason="a trial")
    assert (status.limit_usd, status.spent_usd, status.reserved_usd) == (Decimal("0.5"), 0, 0)
    asked = claim("x", 1, of=SpendAccount(key="new", window="day"))
    assert not (await either.store.reserve(asked)).granted, "a dollar is more than half of one"


async def test_the_book_says_what_it_does_not_know(either: Kept) -> None:
    book = SpendBook(either.store)
    reason = {"by": "Mia", "reason": "a test"}
    with pytest.raises(ConfigurationError, match=r"key='acme'.*the store has none yet"):
        await book.set_limit("acme", None, **reason)
    await spend(either.store, claim("x", 1, of=account("hour")))
    with pytest.raises(ConfigurationError, match=r"window='day': expected a window of 'acme': 'hour'"):
        await book.reset("acme", **reason)
    with pytest.raises(ConfigurationError, match=r"key='acmee'.*Did you mean 'acme'\?"):
        await book.reset("acmee", window="hour", **reason)
    with pytest.raises(ConfigurationError, match=r"window='day': expected a window of 'acme': 'hour'"):
        await book.set_limit("acme", 5, **reason)
    for usd in (0, -1, 0.1 + 0.2, "nan", 10**9):
        with pytest.raises(ConfigurationError, match="^usd="):
            await book.set_limit("acme", usd, window="hour", **reason)
    for option in ("by", "reason"):
        with pytest.raises(ConfigurationError, match=f"{option}=' '.*stored with the change"):
            await book.set_limit("acme", 5, window="hour", **{**reason, option: " "})
    (now,) = await book.list()
    assert (now.limit_usd, now.adjustments) == (10, ())

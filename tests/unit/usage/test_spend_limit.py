import asyncio
import dataclasses
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fastroai.errors import ConfigurationError
from fastroai.usage import SpendAccount, SpendClaim, SpendLimit, SpendStatus
from fastroai.usage.shared.memory_spend_store import MemorySpendStore


@dataclass
class Deps:
    tenant: Any = "acme"


def tenant_of(deps: Deps) -> str:
    return deps.tenant  # type: ignore[no-any-return]


# --- what it is ---


def test_what_is_not_said_is_the_cautious_choice() -> None:
    limit = SpendLimit(usd=1)
    assert (limit.window, limit.key, limit.warn_at, limit.lease) == ("day", "default", (0.8,), 30.0)
    assert (limit.on_unpriced, limit.on_unbounded, limit.on_unavailable) == ("refuse", "refuse", "refuse")


def test_a_limit_cannot_be_changed_and_can_be_compared() -> None:
    limit = SpendLimit(usd=1, key=tenant_of)
    with pytest.raises(dataclasses.FrozenInstanceError):
        limit.usd = Decimal(9)  # type: ignore[misc]
    assert (
        len({limit, SpendLimit(microcents=1_000_000, key=tenant_of), SpendLimit(usd=2, key=tenant_of)}) == 2
    )


# --- what cannot be meant ---


def test_a_limit_above_what_stores_can_count_is_refused() -> None:
    assert SpendLimit(usd="999999999.99").usd == Decimal("999999999.99")
    with pytest.raises(ConfigurationError, match="below a billion"):
        SpendLimit(usd=10**9)


def test_a_limit_has_exactly_one_amount() -> None:
    with pytest.raises(ConfigurationError, match="SpendLimit needs exactly one of usd= and microcents="):
        SpendLimit()
    with pytest.raises(
        ConfigurationError, match=r"SpendLimit=\{'usd': 1, .*exactly one of usd= and microcents="
    ):
        SpendLimit(usd=1, microcents=1_000_000)


def test_an_unknown_window_is_refused_with_the_nearest_known_one() -> None:
    expected = "window='dayly': expected one of 'hour', 'day', 'month', 'total'. Did you mean 'day'?"
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        SpendLimit(usd=1, window="dayly")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="window=7: expected one of 'hour'"):
        SpendLimit(usd=1, window=7)  # type: ignore[arg-type]


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_unavailable='alow': expected 'refuse' or 'allow'"):
        SpendLimit(usd=1, on_unavailable="alow")  # type: ignore[arg-type]
    assert SpendLimit(usd=1, on_unavailable="allow").on_unavailable == "allow"


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan"), True, "0.8"])
def test_a_warning_comes_at_a_share_of_the_limit(share: object) -> None:
    with pytest.raises(ConfigurationError, match="warn_at=.*a share of the limit, above 0 and at most 1"):
        SpendLimit(usd=1, warn_at=share)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "shares"), [(None, ()), (1, (1,)), (0.5, (0.5,)), ([0.9, 0.5, 0.9], (0.5, 0.9))]
)
def test_a_warning_can_come_at_the_end_or_never_or_several_times(given: Any, shares: object) -> None:
    assert SpendLimit(usd=1, warn_at=given).warn_at == shares


@pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf"), 86_401, True, None, "30"])
def test_a_lease_is_a_number_of_seconds(lease: object) -> None:
    with pytest.raises(ConfigurationError, match="lease=.*seconds, above 0 and at most 86,400"):
        SpendLimit(usd=1, lease=lease)  # type: ignore[arg-type]


@pytest.mark.parametrize("store", ["", object(), MemorySpendStore])
def test_what_is_no_store_is_refused(store: object) -> None:
    with pytest.raises(ConfigurationError, match="a SpendStore, or the path or URL|the path of a file"):
        SpendLimit(usd=1, store=store)  # type: ignore[arg-type]


# --- keys ---


def test_a_key_is_text_or_comes_from_the_deps() -> None:
    assert SpendLimit(usd=1, key="team a").account_for(None) == SpendAccount(key="team a", window="day")
    account = SpendLimit(usd=1, key=tenant_of, window="month").account_for(Deps("größe 🦔"))
    assert account == SpendAccount(key="größe 🦔", window="month")


@pytest.mark.parametrize("key", ["", "k" * 201, "line\nbreak", "nul\0", "\ud800", None, 7, b"key"])
def test_a_key_that_no_store_can_keep_is_refused(key: object) -> None:
    with pytest.raises(ConfigurationError, match="key=.*printable text of 1 to 200 characters"):
        SpendLimit(usd=1, key=key)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="key='tenant_of': .*; the function returned") as caught:
        SpendLimit(usd=1, key=tenant_of).account_for(Deps(key))
    assert caught.value.value == "tenant_of"


def test_a_key_function_that_fails_is_named_and_so_is_why() -> None:
    with pytest.raises(ConfigurationError, match="key='tenant_of': .*raised AttributeError") as caught:
        SpendLimit(usd=1, key=tenant_of).account_for(None)
    assert isinstance(caught.value.__cause__, AttributeError)


def test_an_async_key_function_is_refused_before_it_is_called() -> None:
    async def tenant(deps: Deps) -> str:
        return ""

    with pytest.raises(ConfigurationError, match="key='.*tenant': .*a function that is not async"):
        SpendLimit(usd=1, key=tenant)  # type: ignore[arg-type]


def test_an_object_that_gives_keys_is_named_by_what_it_is() -> None:
    class Keys:
        def __call__(self, deps: object) -> str:
            return ""

        def __repr__(self) -> str:
            return "<keys>"

    with pytest.raises(ConfigurationError, match="key='<keys>': .*the function returned ''"):
        SpendLimit(usd=1, key=Keys()).account_for(None)


# --- status ---


async def test_the_status_says_what_is_spent_reserved_and_left() -> None:
    store = MemorySpendStore(clock=lambda: datetime(2026, 3, 10, 12, 30, tzinfo=UTC))
    limit = SpendLimit(usd="0.5", key=tenant_of, store=store)

    async def reserve(name: str, amount: str) -> SpendClaim:
        claim = SpendClaim(
            id=name,
            account=limit.account_for(Deps()),
            amount_usd=Decimal(amount),
            limit_usd=limit.usd,
            lease=limit.lease,
        )
        assert (await store.reserve(claim)).granted
        return claim

    await store.settle(await reserve("a", "0.1"), Decimal("0.0000015"))
    await reserve("b", "0.2")
    status = await limit.status(Deps())
    assert status == SpendStatus(
        key="acme",
        window="day",
        limit_usd=Decimal("0.5"),
        spent_usd=Decimal("0.0000015"),
        reserved_usd=Decimal("0.2"),
        now=datetime(2026, 3, 10, 12, 30, tzinfo=UTC),
        resets_at=datetime(2026, 3, 11, tzinfo=UTC),
    )
    assert status.remaining_usd == Decimal("0.2999985")
    assert (await limit.status(Deps("other"))).spent_usd == 0


async def test_what_is_left_is_never_less_than_nothing() -> None:
    store = MemorySpendStore()
    limit = SpendLimit(usd=1, window="total", store=store)
    claim = SpendClaim(
        id="a", account=limit.account_for(None), amount_usd=Decimal(0), limit_usd=limit.usd, lease=30
    )
    await store.reserve(claim)
    await store.settle(claim, Decimal(3))
    status = await limit.status()
    assert (status.spent_usd, status.remaining_usd, status.resets_at) == (3, 0, None)


async def test_the_status_of_a_limit_by_deps_needs_deps() -> None:
    with pytest.raises(ConfigurationError, match="tenant_of"):
        await SpendLimit(usd=1, key=tenant_of).status()


@pytest.mark.parametrize("keep", [90, "90d", True, timedelta(hours=23), timedelta(days=3651), None])
def test_how_long_windows_are_kept_is_a_time_of_days(keep: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"keep=.*a timedelta, or seconds, of 1 to 3,650 days"):
        SpendLimit(usd=1, keep=keep)
    assert SpendLimit(usd=1).keep == timedelta(days=90)
    assert SpendLimit(usd=1, keep=timedelta(days=7)).keep == timedelta(days=7)
    assert SpendLimit(usd=1, keep=7 * 86_400).keep == timedelta(days=7)


# --- limits by plan ---


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_limit_by_plan_asks_a_function_of_key_and_tenant(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    asked: list[tuple[str, str | None]] = []
    plans = {"acme": "50"}

    def plan(key: str, tenant: str | None) -> str:
        asked.append((key, tenant))
        return plans.get(tenant or "", "1")

    async def plan_of_database(key: str, tenant: str | None) -> str:
        return plan(key, tenant)

    now = 100.0
    monkeypatch.setattr("fastroai.usage.shared.spend_limit.monotonic", lambda: now)
    limit = SpendLimit(usd=plan_of_database if is_async else plan, key="tenant")
    assert limit.last_amount_for("tenant:acme", "acme") is None
    assert [await limit.amount_for("tenant:acme", "acme") for _ in range(3)] == [50] * 3
    assert asked == [("tenant:acme", "acme")], "what it said holds for a second"
    plans["acme"], now = "5", now + 1.5
    assert limit.last_amount_for("tenant:acme", "acme") == 50
    assert await limit.amount_for("tenant:acme", "acme") == 5
    assert limit.microcents is None


async def test_while_one_request_asks_for_a_plan_anew_the_others_go_by_the_known_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answer = 0, asyncio.Event()

    async def plan(key: str, tenant: str | None) -> int:
        nonlocal asked
        asked += 1
        await answer.wait()
        return asked

    now = 100.0
    monkeypatch.setattr("fastroai.usage.shared.spend_limit.monotonic", lambda: now)
    limit = SpendLimit(usd=plan)
    answer.set()
    assert await limit.amount_for("k") == 1
    answer.clear()
    now += 1.5
    first = asyncio.create_task(limit.amount_for("k"))
    await asyncio.sleep(0)
    assert [await limit.amount_for("k") for _ in range(3)] == [1] * 3
    answer.set()
    assert (await first, asked) == (2, 2)


async def test_requests_that_come_before_the_first_answer_about_a_plan_each_ask() -> None:
    asked = 0

    async def plan(key: str, tenant: str | None) -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return 5

    limit = SpendLimit(usd=plan)
    assert await asyncio.gather(*(limit.amount_for("k") for _ in range(3))) == [5] * 3
    assert (asked, await limit.amount_for("k"), asked) == (3, 5, 3)


async def test_a_plan_that_could_not_be_asked_for_is_asked_for_again() -> None:
    async def plan(key: str, tenant: str | None) -> int:
        nonlocal is_down
        if is_down:
            raise OSError("the database is down")
        return 7

    is_down, limit = True, SpendLimit(usd=plan)
    with pytest.raises(ConfigurationError, match=r"^usd='.*plan': .*the database is down"):
        await limit.amount_for("k")
    is_down = False
    assert await limit.amount_for("k") == 7


@pytest.mark.parametrize("said", [0, -1, 0.1 + 0.2, None, "many"])
async def test_a_function_that_gives_no_amount_is_named(said: Any) -> None:
    def plan(key: str, tenant: str | None) -> Any:
        return said

    with pytest.raises(ConfigurationError, match=r"^usd='.*plan': expected a positive amount .*key 'k'"):
        await SpendLimit(usd=plan).amount_for("k")


# --- limits by tag ---


def test_a_limit_by_tag_has_a_key_of_its_own() -> None:
    assert SpendLimit(usd=1, tag="experiment").account_for(None).key == "tag:experiment"
    assert SpendLimit(usd=1, tag="experiment", key="night").account_for(None).key == "tag:experiment/night"
    by_both = SpendLimit(usd=1, tag="experiment", key="tenant")
    assert by_both.account_for(None, "acme").key == "tag:experiment/tenant:acme"


@pytest.mark.parametrize("tag", ["", "a\nb", 3, "x" * 201, ["experiment"]])
def test_a_tag_is_printable_text(tag: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^tag=.*printable text of 1 to 200 characters"):
        SpendLimit(usd=1, tag=tag)


def test_a_limit_fails_unless_it_is_to_wait_and_bounds_only_waits() -> None:
    limit = SpendLimit(usd=1)
    assert (limit.on_limit, limit.deadline) == ("fail", None)
    for deadline in (timedelta(hours=2), 7_200):
        patient = SpendLimit(usd=1, on_limit="wait", deadline=deadline)
        assert (patient.on_limit, patient.deadline) == ("wait", timedelta(hours=2))
        assert patient != limit


def test_a_total_never_opens_again_so_nothing_waits_for_it() -> None:
    with pytest.raises(
        ConfigurationError, match="'fail', because a limit with window='total' never opens again"
    ):
        SpendLimit(usd=1, window="total", on_limit="wait")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on_limit": "pause"}, "on_limit='pause': expected one of 'fail', 'wait'"),
        ({"on_limit": "wiat"}, "Did you mean 'wait'"),
        ({"on_limit": None}, "expected one of"),
        ({"deadline": 60}, "on_limit='wait' as well"),
        ({"deadline": 0, "on_limit": "wait"}, "above 0"),
        ({"deadline": timedelta(seconds=-1), "on_limit": "wait"}, "above 0"),
        ({"deadline": float("nan"), "on_limit": "wait"}, "above 0"),
        ({"deadline": timedelta(days=4_000), "on_limit": "wait"}, "at most 3,650 days"),
        ({"deadline": True, "on_limit": "wait"}, "above 0"),
        ({"deadline": "1h", "on_limit": "wait"}, "above 0"),
    ],
)
def test_how_to_wait_is_checked(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SpendLimit(usd=1, **options)
    assert expected.lower() in str(caught.value).lower()

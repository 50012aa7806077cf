"""What only the store in Redis can do wrong."""

import socket
import sys
import traceback
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.resources import files

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from support.spend_stores import KeptInRedis, account, claim

from fastroai.errors import ConfigurationError, MissingExtraError, SpendStoreUnavailable
from fastroai.store import RedisSpendStore
from fastroai.usage import SpendChange, SpendStore
from fastroai.usage.spend_rules import end_of_window

DAY = 86_400
SECRET = "s3cret-word"


@pytest.fixture
async def kept(redis_url: str) -> AsyncIterator[KeptInRedis]:
    new = KeptInRedis(redis_url)
    yield new
    await new.store.aclose()
    new.end()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody who takes calls and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def refused(store: SpendStore) -> SpendStoreUnavailable:
    """The error of each operation, of which the last is as good as the others."""
    with pytest.raises(SpendStoreUnavailable):
        await store.reserve(claim("a"))
    with pytest.raises(SpendStoreUnavailable):
        await store.mark_sent(claim("a"))
    with pytest.raises(SpendStoreUnavailable):
        await store.settle(claim("a"), Decimal(0))
    with pytest.raises(SpendStoreUnavailable):
        await store.renew([claim("a")])
    with pytest.raises(SpendStoreUnavailable) as caught:
        await store.balance(account())
    return caught.value


async def test_a_server_that_is_down_is_an_unavailable_store(closed_port: int) -> None:
    error = await refused(RedisSpendStore(f"redis://user:{SECRET}@127.0.0.1:{closed_port}/0"))
    assert error.store == f"Redis 127.0.0.1:{closed_port}/0"
    assert isinstance(error.__cause__, redis.ConnectionError)
    assert SECRET not in "".join(traceback.format_exception(error))


async def test_a_server_that_does_not_answer_is_an_unavailable_store(silent_port: int) -> None:
    store = RedisSpendStore(f"redis://127.0.0.1:{silent_port}", timeout=0.05)
    assert "Timeout" in str(await refused(store)) or "no answer" in str(await refused(store))


async def test_a_wrong_password_is_an_unavailable_store_and_is_not_told(redis_url: str) -> None:
    address = redis_url.rpartition("@")[2].removeprefix("redis://")
    store = RedisSpendStore(f"redis://nobody:{SECRET}@{address}")
    error = await refused(store)
    assert SECRET not in "".join(traceback.format_exception(error))
    assert SECRET not in repr(store)
    await store.aclose()


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@localhost",
        f"redis://user:{SECRET}@localhost:port",
        f"redis://:{SECRET}/@host:1",
        "",
        None,
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_telling_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="a URL such as 'redis://localhost:6379/0'") as caught:
        RedisSpendStore(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("prefix", ["", "a{b", "a}b", "line\nbreak"])
def test_a_prefix_that_would_tear_keys_apart_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix=.*printable text without braces"):
        RedisSpendStore("redis://localhost", prefix=prefix)


def test_a_store_shows_where_it_is() -> None:
    shown = "<RedisSpendStore 'Redis example.org:6380/3' prefix='fastroai:spend'>"
    assert repr(RedisSpendStore(f"rediss://u:{SECRET}@example.org:6380/3")) == shown
    assert "Redis /run/redis.sock/0" in repr(RedisSpendStore("unix:///run/redis.sock"))


def test_without_redis_py_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtraError, match=r"the extra 'redis'"):
        RedisSpendStore("redis://localhost")


async def test_stores_with_different_prefixes_know_nothing_of_each_other(kept: KeptInRedis) -> None:
    other = RedisSpendStore(kept.url, prefix=f"{kept.prefix}-other")
    await kept.store.reserve(claim("a", 10))
    assert (await other.balance(account())).reserved_usd == 0
    await other.aclose()


@pytest.mark.parametrize("key", ["acme", "a}b", "{}", "{a}{b}"])
async def test_all_keys_of_an_account_are_in_one_slot(kept: KeptInRedis, key: str) -> None:
    of = account(key=key)
    await kept.store.reserve(claim("a", 10, of=of))
    await kept.store.reserve(claim("b", 10, of=of))
    await kept.store.adjust(of, SpendChange(id="c", changes="spent", by="Mia", reason="a test"))
    keys = kept.names()
    assert len(keys) == 7
    assert len({key_slot(name.encode()) for name in keys}) == 1


async def test_what_a_window_left_expires_and_a_total_does_not(kept: KeptInRedis) -> None:
    await kept.store.reserve(claim("a", 10, of=account("month")))
    await kept.store.reserve(claim("b", 10, of=account("month")))
    balance = await kept.store.balance(account("month"))
    left = (balance.resets_at - balance.now).total_seconds()
    for key in kept.names():
        assert left + DAY - 10 < kept.client.pttl(key) / 1000 <= left + DAY + 10
    await kept.store.reserve(claim("long", 0, of=account("month"), lease=DAY))
    for key in kept.names():
        assert kept.client.pttl(key) / 1000 > 2 * DAY - 10
    kept.clear()
    await kept.store.reserve(claim("a", 10))
    assert [kept.client.pttl(key) for key in kept.names()] == [-1] * 5


async def test_what_a_window_left_expires_although_somebody_looks_at_it(kept: KeptInRedis) -> None:
    hour = account("hour")
    await kept.store.reserve(claim("a", 10, of=hour))
    before = kept.client.pttl(kept.names("account")[0])
    kept.pass_time(20 * DAY)
    assert len(await kept.store.windows(hour)) == 2
    assert kept.client.pttl(kept.names("account")[0]) <= before


async def test_asking_for_the_balance_of_an_unknown_account_keeps_nothing(kept: KeptInRedis) -> None:
    await kept.store.balance(account())
    await kept.store.settle(claim("a"), Decimal(1))
    assert kept.names() == []


async def test_a_server_that_forgot_the_script_is_told_again(kept: KeptInRedis) -> None:
    await kept.store.reserve(claim("a"))
    kept.client.script_flush()
    assert (await kept.store.reserve(claim("b"))).balance.reserved_usd == 2


async def test_a_connection_that_was_cut_is_opened_again(redis_url: str, kept: KeptInRedis) -> None:
    name = uuid.uuid4().hex
    store = RedisSpendStore(f"{redis_url}?client_name={name}", prefix=kept.prefix)
    await store.reserve(claim("a"))
    mine = [client["id"] for client in kept.client.client_list() if client["name"] == name]
    assert len(mine) == 1
    kept.client.client_kill_filter(_id=mine[0])
    assert (await store.reserve(claim("b"))).balance.reserved_usd == 2
    await store.aclose()


def test_months_end_as_the_calendar_says(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url, protocol=2)
    source = files("fastroai.store").joinpath("spend_redis.lua").read_text("utf-8")
    function = source.partition("-- Time\n")[2].partition("\n-- The account")[0]
    script = client.register_script(
        "local WINDOW, HOUR, DAY = ARGV[1], 3600e6, 86400e6\n"
        "local function digits(number) return string.format('%.0f', number) end\n"
        f"{function}\nreturn digits(end_of_window(tonumber(ARGV[2])))"
    )

    @given(
        window=st.sampled_from(["hour", "day", "month"]),
        now=st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    )
    def check(window: str, now: datetime) -> None:
        end = end_of_window(window, now)  # type: ignore[arg-type]
        assert end is not None
        for moment in (now, end, end - timedelta(microseconds=1)):
            expected = end_of_window(window, moment)  # type: ignore[arg-type]
            assert int(script(args=[window, microseconds(moment)])) == microseconds(expected)

    check()
    client.close()


def microseconds(moment: datetime | None) -> int:
    assert moment is not None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * DAY + since.seconds) * 1_000_000 + since.microseconds

"""What only the stores of spending on servers can do wrong."""

import socket
import traceback
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path

import pytest
import redis
from redis.crc import key_slot
from support.spend_stores import KeptInPostgres, KeptInRedis, account, claim, kept_in

from fastroai.errors import ConfigurationError, SpendStoreUnavailable
from fastroai.store import PostgresSpendStore, RedisSpendStore
from fastroai.usage import SpendStore

SECRET = "s3cret-word"

Kept = KeptInRedis | KeptInPostgres


@pytest.fixture(params=["redis", "postgres"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    async with kept_in(request.param, request, tmp_path) as new:
        assert isinstance(new, KeptInRedis | KeptInPostgres)
        yield new


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def refused(store: SpendStore) -> SpendStoreUnavailable:
    """The error of each operation, of which the last is as good as the others."""
    for operation in (
        lambda: store.reserve(claim("a")),
        lambda: store.mark_sent(claim("a")),
        lambda: store.settle(claim("a"), Decimal(0)),
        lambda: store.renew([claim("a")]),
        lambda: store.windows(account()),
        lambda: store.accounts(),
    ):
        with pytest.raises(SpendStoreUnavailable):
            await operation()
    with pytest.raises(SpendStoreUnavailable) as caught:
        await store.balance(account())
    return caught.value


async def test_a_server_that_is_down_is_an_unavailable_store(closed_port: int) -> None:
    error = await refused(RedisSpendStore(f"redis://user:{SECRET}@127.0.0.1:{closed_port}/0"))
    assert error.store == f"Redis 127.0.0.1:{closed_port}/0"
    assert isinstance(error.__cause__, redis.ConnectionError)
    assert SECRET not in "".join(traceback.format_exception(error))

    store = PostgresSpendStore(f"postgresql://user:{SECRET}@127.0.0.1:{closed_port}/db")
    error = await refused(store)
    assert error.store == f"PostgreSQL 127.0.0.1:{closed_port}/db"
    assert "OperationalError" in str(error)
    assert error.__cause__ is None, "psycopg's errors hold the password"
    assert SECRET not in "".join(traceback.format_exception(error)) + repr(store)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: RedisSpendStore(f"http://user:{SECRET}@localhost"), "a URL such as 'redis:"),
        (lambda: RedisSpendStore("redis://localhost", prefix="a{b"), "printable text without braces"),
        (lambda: PostgresSpendStore(f"host=h pasword={SECRET}"), "a connection string such as 'postgresql:"),
        (
            lambda: PostgresSpendStore("", schema="a b"),
            "letters, digits and underscores, no digit first, at most 63",
        ),
    ],
)
def test_what_cannot_be_opened_is_refused_without_telling_it(
    make: Callable[[], SpendStore], expected: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected) as caught:
        make()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_store_shows_where_it_is() -> None:
    in_redis = RedisSpendStore(f"rediss://u:{SECRET}@example.org:6380/3")
    shown = "RedisSpendStore(<RedisRunStore 'Redis example.org:6380/3' prefix='fastroai:spend'>)"
    assert repr(in_redis) == shown
    in_postgres = PostgresSpendStore(f"postgresql://u:{SECRET}@example.org:5433/db", schema="limits")
    shown = "PostgresSpendStore(<PostgresRunStore 'PostgreSQL example.org:5433/db' schema='limits'>)"
    assert repr(in_postgres) == shown


async def test_stores_with_different_places_on_one_server_know_nothing_of_each_other(kept: Kept) -> None:
    other = type(kept)(kept.url)
    await kept.store.reserve(claim("a", 10))
    assert (await other.store.balance(account())).reserved_usd == 0
    await other.store.aclose()
    other.clear()
    other.end()


async def test_all_keys_of_a_prefix_are_in_one_slot_of_a_cluster(redis_url: str) -> None:
    kept = KeptInRedis(redis_url)
    for key in ("acme", "a}b", "{}", "{a}{b}"):
        await kept.store.reserve(claim("a", 10, of=account(key=key)))
    assert len(kept.names()) == 6, "four accounts, the index of their names, and their revisions"
    assert len({key_slot(name.encode()) for name in kept.names()}) == 1
    await kept.store.aclose()
    kept.end()

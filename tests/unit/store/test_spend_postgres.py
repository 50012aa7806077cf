"""What only the store in PostgreSQL can do wrong."""

import asyncio
import socket
import sys
import traceback
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo
from support.examples import examples
from support.spend_stores import KeptInPostgres, account, claim

from fastroai.errors import ConfigurationError, MissingExtraError, SpendStoreUnavailable
from fastroai.store import PostgresSpendStore
from fastroai.usage.spend_rules import end_of_window

SECRET = "s3cret-word"


@pytest.fixture
async def kept(postgres_dsn: str) -> AsyncIterator[KeptInPostgres]:
    new = KeptInPostgres(postgres_dsn)
    yield new
    await new.store.aclose()
    new.end()


def with_options(kept: KeptInPostgres, **options: str) -> PostgresSpendStore:
    return PostgresSpendStore(make_conninfo(kept.dsn, **options), schema=kept.schema)


async def test_a_server_that_is_down_is_an_unavailable_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    store = PostgresSpendStore(f"postgresql://user:{SECRET}@127.0.0.1:{port}/db")
    for operation in (
        store.reserve(claim("a")),
        store.mark_sent(claim("a")),
        store.settle(claim("a"), Decimal(0)),
        store.renew([claim("a")]),
        store.balance(account()),
    ):
        with pytest.raises(SpendStoreUnavailable) as caught:
            await operation
    assert caught.value.store == f"PostgreSQL 127.0.0.1:{port}/db"
    assert "OperationalError" in str(caught.value)
    assert caught.value.__cause__ is None, "psycopg's errors hold the password"
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(store)


async def test_a_server_that_does_not_answer_is_an_unavailable_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        store = PostgresSpendStore(f"host=127.0.0.1 port={port} user=u", timeout=0.2)
        with pytest.raises(SpendStoreUnavailable, match=r"no answer within 0\.4 s"):
            await store.balance(account())


async def test_a_connection_that_never_answers_is_hung_up(kept: KeptInPostgres) -> None:
    store = PostgresSpendStore(kept.dsn, schema=kept.schema, timeout=2)

    def hang(connection: psycopg.Connection[object]) -> None:
        connection.execute("SET statement_timeout = 0")
        connection.execute("SELECT pg_sleep(30)")

    await store.reserve(claim("a"))
    store._driver.timeout = 0.2
    hanging = [asyncio.create_task(store._connections.run(hang)) for _ in range(8)]
    for each in hanging:
        with pytest.raises(SpendStoreUnavailable, match="no answer"):
            await each
    store._driver.timeout = 10
    assert (await store.balance(account())).reserved_usd == 1
    await store.aclose()


@pytest.mark.parametrize(
    "dsn", [f"postgresql://u:{SECRET}%zz@h/db", f"host=h pasword={SECRET}", f"'{SECRET}"]
)
def test_a_connection_string_that_cannot_be_read_is_refused_without_telling_it(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="a connection string such as 'postgresql:") as caught:
        PostgresSpendStore(dsn)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("schema", ["", "s" * 64, "ü" * 32, "a b", "a-b", '"', "%s", "1st"])
def test_what_is_no_name_of_a_schema_is_refused(schema: str) -> None:
    with pytest.raises(ConfigurationError, match="schema=.*letters, digits and underscores, at most 63"):
        PostgresSpendStore("", schema=schema)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"the extra 'postgres'"):
        PostgresSpendStore("")


def test_a_store_shows_where_it_is() -> None:
    store = PostgresSpendStore(f"postgresql://u:{SECRET}@example.org:5433/db", schema="limits")
    assert repr(store) == "<PostgresSpendStore 'PostgreSQL example.org:5433/db' schema='limits'>"


async def test_a_schema_can_have_a_name_that_must_be_quoted(postgres_dsn: str) -> None:
    kept = KeptInPostgres(postgres_dsn, schema=f"Größe_{uuid.uuid4().hex}")
    assert (await kept.store.reserve(claim("a"))).granted
    assert kept.execute("SELECT count(*) FROM spend_claim").fetchone() == (1,)
    await kept.store.aclose()
    kept.end()


async def test_a_user_without_rights_gets_an_unavailable_store_and_with_rights_needs_no_more(
    kept: KeptInPostgres,
) -> None:
    role = f"role_{uuid.uuid4().hex}"
    kept.connection.execute(f"CREATE ROLE {role}".encode())
    limited = with_options(kept, options=f"-c role={role}")
    with pytest.raises(SpendStoreUnavailable, match="permission denied"):
        await limited.reserve(claim("a"))
    await kept.store.reserve(claim("a"))
    kept.execute(f'GRANT USAGE ON SCHEMA "{kept.schema}" TO {role}')
    kept.execute(f'GRANT ALL ON ALL TABLES IN SCHEMA "{kept.schema}" TO {role}')
    assert (await limited.reserve(claim("b"))).balance.reserved_usd == 2
    await limited.aclose()
    kept.execute(f"DROP OWNED BY {role}")
    kept.execute(f"DROP ROLE {role}")


@pytest.mark.slow
async def test_who_finds_an_account_locked_for_too_long_changes_nothing(kept: KeptInPostgres) -> None:
    await kept.store.reserve(claim("a"))
    impatient = PostgresSpendStore(kept.dsn, schema=kept.schema, timeout=1)
    await impatient.balance(account())
    with kept.connection.transaction():
        kept.execute("SELECT FROM spend_account FOR UPDATE")
        with pytest.raises(SpendStoreUnavailable, match="statement timeout|no answer"):
            await impatient.reserve(claim("b"))
    balance = await kept.store.balance(account())
    assert balance.reserved_usd == 1
    await impatient.aclose()


async def test_a_connection_that_was_cut_is_opened_again(kept: KeptInPostgres) -> None:
    name = f"cut {uuid.uuid4().hex}"
    store = with_options(kept, application_name=name)
    await store.reserve(claim("a"))
    cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s"
    assert kept.execute(cut, name).fetchall() == [(True,)]
    assert (await store.reserve(claim("b"))).balance.reserved_usd == 2
    await store.aclose()


@pytest.mark.parametrize(
    "options",
    ["-c TimeZone=America/New_York", "-c default_transaction_isolation=serializable", "-c DateStyle=German"],
)
async def test_settings_of_the_session_change_nothing(kept: KeptInPostgres, options: str) -> None:
    store = with_options(kept, options=options)
    verdicts = await asyncio.gather(*(store.reserve(claim(str(n), of=account("day"))) for n in range(20)))
    assert sum(verdict.granted for verdict in verdicts) == 10
    balance = verdicts[0].balance
    assert balance.resets_at == end_of_window("day", balance.now)
    assert balance.resets_at.tzinfo is UTC
    await store.aclose()


async def test_accounts_that_nobody_uses_are_forgotten_a_day_after_their_window(kept: KeptInPostgres) -> None:
    for number in range(5):
        await kept.store.reserve(claim("a", of=account("hour", f"customer {number}")))
    long = claim("a", of=account("hour", "long"), lease=5 * 86_400)
    await kept.store.reserve(long)
    await kept.store.reserve(claim("a", of=account("total", "for ever")))

    kept.pass_time(20 * 3600)
    await kept.store.reserve(claim("a", of=account("hour", "new")))
    assert kept.execute("SELECT count(*) FROM spend_account").fetchone() == (8,)

    kept.pass_time(6 * 3600)
    await kept.store.reserve(claim("b", of=account("hour", "new")))
    assert kept.execute("SELECT count(*) FROM spend_account").fetchone() == (3,)
    assert kept.execute("SELECT count(*) FROM spend_claim").fetchone() == (3,)
    assert await kept.store.mark_sent(long)


async def test_an_account_of_long_ago_is_used_again(kept: KeptInPostgres) -> None:
    await kept.store.reserve(claim("a", 10, of=account("hour")))
    kept.pass_time(3 * 86_400)
    assert (await kept.store.reserve(claim("b", 10, of=account("hour")))).granted
    assert (await kept.store.balance(account("hour"))).reserved_usd == 10


async def test_asking_for_the_balance_of_an_unknown_account_keeps_nothing(kept: KeptInPostgres) -> None:
    await kept.store.balance(account("day"))
    await kept.store.settle(claim("a"), Decimal(1))
    assert kept.execute("SELECT count(*) FROM spend_account").fetchone() == (0,)


async def test_windows_end_as_the_calendar_says(kept: KeptInPostgres) -> None:
    await kept.store.balance(account())

    @settings(max_examples=examples(50))
    @given(
        window=st.sampled_from(["hour", "day", "month"]),
        now=st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    )
    def check(window: str, now: datetime) -> None:
        end = end_of_window(window, now)  # type: ignore[arg-type]
        assert end is not None
        for moment in (now, end, end - timedelta(microseconds=1)):
            expected = end_of_window(window, moment)  # type: ignore[arg-type]
            found = kept.execute("SELECT spend_end_of_window_v1(%s, %s)", window, moment).fetchone()
            assert found == (expected,)

    check()

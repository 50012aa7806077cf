"""Shared spending of the processes of many machines, in PostgreSQL."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastroai.errors import ConfigurationError, MissingExtraError
from fastroai.store.connections import Connections
from fastroai.store.place import KeptAtPlace
from fastroai.usage.spend_amounts import exact_units, spend_units, spend_usd
from fastroai.usage.spend_store import SpendAccount, SpendBalance, SpendClaim, SpendVerdict

if TYPE_CHECKING:
    from psycopg import Connection

_CONNECTIONS: Final = 4
_LONGEST_NAME: Final = 63
_CREATION: Final = 0x666173747261
"""The advisory lock under which one process creates what the others wait for."""
_CONNECTION_ENDED: Final = ("08", "57P")
"""Classes of SQLSTATE: connection exceptions, and the server's shutting down.
https://www.postgresql.org/docs/current/errcodes-appendix.html
"""


class PostgresSpendStore(KeptAtPlace):
    """A `SpendStore` in PostgreSQL 12 or later, for the processes of many machines.

    Its tables and functions are in a schema of their own, made on first use; the user needs the right to
    create it, or to use one that another has made. A pooler in between must pool sessions, not statements.
    """

    def __init__(self, dsn: str, *, schema: str = "fastroai", timeout: float = 5.0) -> None:
        """Connects when it is first used.

        Args:
            dsn: A URL or connection string, as libpq takes it.
            schema: Where its tables are.
            timeout: Seconds to wait for a connection, and for an answer.

        Raises:
            ConfigurationError: the connection string cannot be read, the schema is no plain name, or the
                timeout is not above 0.
            MissingExtraError: psycopg is not installed (the extra `postgres`).
        """
        if not schema.isidentifier() or len(schema.encode()) > _LONGEST_NAME:
            expected = f"letters, digits and underscores, at most {_LONGEST_NAME} bytes"
            raise ConfigurationError("schema", schema, expected)
        self._driver = _PostgresDriver(dsn, schema, timeout)
        self._connections = Connections(self._driver, _CONNECTIONS)

    def __repr__(self) -> str:
        return f"<PostgresSpendStore {self._driver.name!r} schema={self._driver.schema!r}>"

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """See `SpendStore`."""
        answer = await self._call(
            "spend_reserve_v1",
            claim.account,
            claim.id,
            spend_usd(spend_units(claim.amount_usd, "reservation")),
            spend_usd(spend_units(claim.limit_usd, "limit")),
            timedelta(seconds=claim.lease),
        )
        return SpendVerdict(granted=answer.yes, first=answer.first, balance=answer.balance)

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore`."""
        lease = timedelta(seconds=claim.lease)
        return (await self._call("spend_mark_sent_v1", claim.account, claim.id, lease)).yes

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """See `SpendStore`."""
        cost = spend_usd(spend_units(cost_usd, "cost"))
        return (await self._call("spend_settle_v1", claim.account, claim.id, cost)).balance

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        """See `SpendStore`."""
        of_account: defaultdict[SpendAccount, list[SpendClaim]] = defaultdict(list)
        for claim in claims:
            of_account[claim.account].append(claim)
        for account, some in of_account.items():
            ids, leases = [claim.id for claim in some], [timedelta(seconds=claim.lease) for claim in some]
            await self._call("spend_renew_v1", account, ids, leases)

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """See `SpendStore`."""
        return (await self._call("spend_balance_v1", account)).balance

    async def aclose(self) -> None:
        """Close the idle connections. New ones are opened when it is used again."""
        await self._connections.aclose()

    async def _call(self, function: str, account: SpendAccount, *arguments: object) -> _Answer:
        from psycopg.sql import SQL, Identifier, Placeholder

        parameters = (account.key, account.window, *arguments)
        query = SQL("SELECT * FROM {}({})").format(
            Identifier(self._driver.schema, function), SQL(", ").join([Placeholder()] * len(parameters))
        )
        rows = await self._connections.run(
            lambda connection: connection.execute(query, parameters).fetchall()
        )
        return _Answer.of(*rows[0])


class _Answer(NamedTuple):
    yes: bool
    first: bool
    balance: SpendBalance

    @classmethod
    def of(
        cls,
        yes: bool,
        first: bool,
        spent_usd: Decimal,
        reserved_usd: Decimal,
        seen: datetime,
        resets_at: datetime | None,
    ) -> _Answer:
        balance = SpendBalance(
            spent_usd=spend_usd(exact_units(spent_usd)),
            reserved_usd=spend_usd(exact_units(reserved_usd)),
            now=seen.astimezone(UTC),
            resets_at=resets_at and resets_at.astimezone(UTC),
        )
        return cls(yes, first, balance)


class _PostgresDriver:
    """Opens connections for `Connections`, and makes the schema where there is none."""

    def __init__(self, dsn: str, schema: str, timeout: float) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtraError("PostgresSpendStore", "postgres", "psycopg") from error
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        try:
            given = conninfo_to_dict(dsn)
        except psycopg.Error:
            # Neither the string nor the error, which may quote it, is told: a password can be in there.
            expected = "a connection string such as 'postgresql://user@localhost/database'"
            raise ConfigurationError("dsn", "(not shown)", expected) from None
        self.timeout, self.schema = timeout, schema
        self.errors: tuple[type[Exception], ...] = (psycopg.Error, OSError)
        defaults: dict[str, str | int | None] = {
            "connect_timeout": max(2, ceil(timeout)),  # the least that libpq takes
            "tcp_user_timeout": ceil(timeout * 1000),
            "application_name": "fastroai",
        }
        self._dsn = make_conninfo("", **defaults | given)
        host, port = given.get("host", "localhost"), given.get("port", 5432)
        self.name = f"PostgreSQL {host}:{port}/{given.get('dbname', '')}"

    def connect(self) -> Connection[tuple[Any, ...]]:
        from psycopg import connect

        connection = connect(self._dsn, autocommit=True, prepare_threshold=None)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection[tuple[Any, ...]]) -> None:
        connection.execute(
            "SELECT set_config('statement_timeout', %s, false), "
            "set_config('default_transaction_isolation', 'read committed', false), "
            "set_config('DateStyle', 'ISO', false)",
            [str(ceil(self.timeout * 1000))],
        )
        if self._is_made(connection):
            return
        from psycopg.sql import SQL, Identifier

        schema = Identifier(self.schema)
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATION])
            if not self._is_made(connection):
                connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
                connection.execute(SQL("SET LOCAL search_path TO {}").format(schema))
                connection.execute(files("fastroai.store").joinpath("spend_postgres.sql").read_bytes())

    def _is_made(self, connection: Connection[tuple[Any, ...]]) -> bool:
        # Not to_regprocedure(), which would ask a cache that remembers what was not there before the lock.
        last_made = (
            "SELECT FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace "
            "WHERE nspname = %s AND proname = 'spend_balance_v1'"
        )
        return connection.execute(last_made, [self.schema]).fetchone() is not None

    def close(self, connection: Connection[tuple[Any, ...]]) -> None:
        connection.close()

    def hang_up(self, connection: Connection[tuple[Any, ...]]) -> None:
        with suppress(*self.errors), _socket_of(connection) as line:
            line.shutdown(socket.SHUT_RDWR)

    def is_lost(self, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None)
        return state is None or state.startswith(_CONNECTION_ENDED)


def _socket_of(connection: Connection[tuple[Any, ...]]) -> socket.socket:
    """A second handle of its socket, which can be closed without ending the connection."""
    return socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)

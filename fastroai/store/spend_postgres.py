"""A store of shared spending in PostgreSQL, for the processes of many machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal, LiteralString

from fastroai.errors import SpendStoreUnavailable
from fastroai.records import Duration
from fastroai.store.connections import Connections
from fastroai.store.kept_at import KeptAt
from fastroai.store.postgres_server import PostgresServer
from fastroai.usage.spend_amounts import exact_units, millionths, spend_units, spend_usd
from fastroai.usage.spend_store import (
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendPage,
    SpendStatus,
    SpendVerdict,
)

_CONNECTIONS: Final = 4
_ACCOUNTS_A_PAGE: Final = 1_000


class PostgresSpendStore(KeptAt):
    """A `SpendStore` in PostgreSQL 12 or later, for the processes of many machines.

    Its tables and functions are in a schema of their own, made on first use. The user of the database needs
    the right to create that schema, or to use an existing one. A connection pooler in between must pool
    sessions, not statements.
    """

    def __init__(self, dsn: str, *, schema: str = "fastroai", timeout: Duration = 5.0) -> None:
        """Configure the store, which connects when it is first used.

        Args:
            dsn: A URL or connection string, as libpq takes it.
            schema: The schema for the tables.
            timeout: Seconds to wait for a connection, and for an answer.

        Raises:
            ConfigurationError: the connection string cannot be read, the schema is no plain name, or the
                timeout is not above 0.
            MissingExtraError: psycopg is not installed (the extra `postgres`).
        """
        self._driver = PostgresServer(
            dsn,
            schema,
            timeout,
            store="PostgresSpendStore",
            script="spend_postgres.sql",
            last_made="spend_balance_v1",
            unavailable=SpendStoreUnavailable,
        )
        self._address = self._driver.address
        self._connections = Connections(self._driver, _CONNECTIONS)

    def __repr__(self) -> str:
        return f"<PostgresSpendStore {self._driver.name!r} schema={self._driver.schema!r}>"

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """See `SpendStore`."""
        return await self._call(
            "spend_reserve_v1",
            claim.account,
            claim.id,
            spend_usd(spend_units(claim.amount_usd, "reservation")),
            spend_usd(spend_units(claim.limit_usd, "limit")),
            timedelta(seconds=claim.lease),
            claim.holder,
            claim.keep,
            claim.within,
        )

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore`."""
        lease = timedelta(seconds=claim.lease)
        return (await self._call("spend_mark_sent_v1", claim.account, claim.id, lease)).granted

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """See `SpendStore`."""
        cost = spend_usd(spend_units(cost_usd, "cost"))
        limit = spend_usd(spend_units(claim.limit_usd, "limit"))
        shares = [millionths(share) for share in claim.warn_at]
        rows = await self._rows("spend_settle_v1", claim.account, claim.id, cost, limit, shares)
        reached = tuple(share for share in claim.warn_at if millionths(share) in rows[0][-1])
        return replace(_verdict(*rows[0]).balance, reached=reached)

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        """See `SpendStore`."""
        of_account: defaultdict[SpendAccount, list[SpendClaim]] = defaultdict(list)
        for claim in claims:
            of_account[claim.account].append(claim)
        for account, some in of_account.items():
            ids, leases = [claim.id for claim in some], [timedelta(seconds=claim.lease) for claim in some]
            await self._call("spend_renew_v1", account, ids, leases)

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        """See `SpendStore`."""
        await self._call("spend_end_leases_v1", account, list(holders))

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """See `SpendStore`."""
        return (await self._call("spend_balance_v1", account)).balance

    async def adjust(self, account: SpendAccount, change: SpendChange) -> SpendAdjustment | None:
        """See `SpendStore`."""
        limit_usd = change.limit_usd
        limit = None if limit_usd is None else spend_usd(spend_units(limit_usd, "limit"))
        rows = await self._rows(
            "spend_adjust_v1", account, change.id, change.changes, limit, change.by, change.reason
        )
        return _adjustment(*rows[0]) if rows else None

    async def windows(self, account: SpendAccount, *, closed: bool = True) -> tuple[SpendStatus, ...]:
        """See `SpendStore`."""
        rows = await self._rows("spend_windows_v1", account, closed)
        adjustments: defaultdict[int, list[SpendAdjustment]] = defaultdict(list)
        for columns in await self._query(
            "SELECT {table}.* FROM {table} JOIN {accounts} ON {accounts}.id = account_id "
            "WHERE account_key = %s AND time_window = %s ORDER BY place",
            (account.key, account.window),
            table="spend_adjustment",
            accounts="spend_account",
        ):
            adjustments[columns[3]].append(_adjustment(*columns))
        return tuple(_status(account, adjustments[columns[0]], *columns) for columns in rows)

    async def accounts(self, after: str | None = None) -> SpendPage:
        """See `SpendStore`."""
        rows = await self._query(
            "SELECT id, account_key, time_window FROM {accounts} WHERE id > %s ORDER BY id LIMIT %s",
            (int(after or 0), _ACCOUNTS_A_PAGE),
            accounts="spend_account",
        )
        accounts = tuple(SpendAccount(key=key, window=window) for _, key, window in rows)
        return SpendPage(accounts=accounts, after=str(rows[-1][0]) if len(rows) == _ACCOUNTS_A_PAGE else None)

    async def aclose(self) -> None:
        """Close the idle connections. New ones are opened when it is used again."""
        await self._connections.aclose()

    async def _call(self, function: str, account: SpendAccount, *arguments: object) -> SpendVerdict:
        return _verdict(*(await self._rows(function, account, *arguments))[0])

    async def _rows(self, function: str, account: SpendAccount, *arguments: object) -> list[tuple[Any, ...]]:
        parameters = (account.key, account.window, *arguments)
        return await self._query("SELECT * FROM {function}({parameters})", parameters, function=function)

    async def _query(
        self, statement: LiteralString, parameters: tuple[object, ...], **names: str
    ) -> list[tuple[Any, ...]]:
        """Run a statement, with names of the schema in place of `{...}` and a mark for each parameter."""
        from psycopg.sql import SQL, Identifier, Placeholder

        query = SQL(statement).format(
            parameters=SQL(", ").join([Placeholder()] * len(parameters)),
            **{name: Identifier(self._driver.schema, full) for name, full in names.items()},
        )
        return await self._connections.run(
            lambda connection: connection.execute(query, parameters).fetchall()
        )


def _verdict(
    granted: bool,
    first: bool,
    spent_usd: Decimal,
    reserved_usd: Decimal,
    seen: datetime,
    resets_at: datetime | None,
    holders: list[str],
    limit_usd: Decimal | None,
    reached: list[int],
) -> SpendVerdict:
    """Read the row that every function returns, except those of windows and adjustments."""
    balance = SpendBalance(
        spent_usd=_usd(spent_usd),
        reserved_usd=_usd(reserved_usd),
        now=seen.astimezone(UTC),
        resets_at=resets_at and resets_at.astimezone(UTC),
        limit_usd=None if limit_usd is None else _usd(limit_usd),
    )
    return SpendVerdict(granted=granted, first=first, balance=balance, holders=tuple(holders))


def _status(
    account: SpendAccount,
    adjustments: list[SpendAdjustment],
    number: int,
    spent_usd: Decimal,
    reserved_usd: Decimal,
    seen: datetime,
    resets_at: datetime | None,
    is_open: bool,
    limit_usd: Decimal,
) -> SpendStatus:
    return SpendStatus(
        key=account.key,
        window=account.window,
        limit_usd=_usd(limit_usd),
        spent_usd=_usd(spent_usd),
        reserved_usd=_usd(reserved_usd),
        now=seen.astimezone(UTC),
        resets_at=resets_at and resets_at.astimezone(UTC),
        is_open=is_open,
        adjustments=tuple(adjustments),
    )


def _adjustment(
    account_id: int,
    change_id: str,
    place: int,
    number: int,
    made_at: datetime,
    changes: Literal["limit", "spent"],
    from_usd: Decimal,
    to_usd: Decimal,
    by: str,
    reason: str,
) -> SpendAdjustment:
    return SpendAdjustment(
        id=change_id,
        at=made_at.astimezone(UTC),
        changes=changes,
        from_usd=_usd(from_usd),
        to_usd=_usd(to_usd),
        by=by,
        reason=reason,
    )


def _usd(amount: Decimal) -> Decimal:
    return spend_usd(exact_units(amount))

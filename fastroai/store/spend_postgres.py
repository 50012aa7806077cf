"""Shared spending of the processes of many machines, in PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from fastroai.errors import SpendStoreUnavailable
from fastroai.store.connections import Connections
from fastroai.store.kept_at import KeptAt
from fastroai.store.postgres_server import PostgresServer
from fastroai.usage.spend_amounts import exact_units, spend_units, spend_usd
from fastroai.usage.spend_store import SpendAccount, SpendBalance, SpendClaim, SpendVerdict

_CONNECTIONS: Final = 4


class PostgresSpendStore(KeptAt):
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
        self._driver = PostgresServer(
            dsn,
            schema,
            timeout,
            store="PostgresSpendStore",
            script="spend_postgres.sql",
            last_made="spend_balance_v1",
            unavailable=SpendStoreUnavailable,
        )
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
            claim.within,
        )

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore`."""
        lease = timedelta(seconds=claim.lease)
        return (await self._call("spend_mark_sent_v1", claim.account, claim.id, lease)).granted

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

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        """See `SpendStore`."""
        await self._call("spend_end_leases_v1", account, list(holders))

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """See `SpendStore`."""
        return (await self._call("spend_balance_v1", account)).balance

    async def aclose(self) -> None:
        """Close the idle connections. New ones are opened when it is used again."""
        await self._connections.aclose()

    async def _call(self, function: str, account: SpendAccount, *arguments: object) -> SpendVerdict:
        from psycopg.sql import SQL, Identifier, Placeholder

        parameters = (account.key, account.window, *arguments)
        query = SQL("SELECT * FROM {}({})").format(
            Identifier(self._driver.schema, function), SQL(", ").join([Placeholder()] * len(parameters))
        )
        rows = await self._connections.run(
            lambda connection: connection.execute(query, parameters).fetchall()
        )
        return _verdict(*rows[0])


def _verdict(
    granted: bool,
    first: bool,
    spent_usd: Decimal,
    reserved_usd: Decimal,
    seen: datetime,
    resets_at: datetime | None,
    holders: list[str],
) -> SpendVerdict:
    """What every function gives back."""
    balance = SpendBalance(
        spent_usd=spend_usd(exact_units(spent_usd)),
        reserved_usd=spend_usd(exact_units(reserved_usd)),
        now=seen.astimezone(UTC),
        resets_at=resets_at and resets_at.astimezone(UTC),
    )
    return SpendVerdict(granted=granted, first=first, balance=balance, holders=tuple(holders))

"""Shared spending of the processes of many machines, in Redis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal

from fastroai.errors import SpendStoreUnavailable
from fastroai.store.connections import Connections
from fastroai.store.kept_at import KeptAt
from fastroai.store.redis_server import RedisServer, check_prefix
from fastroai.usage.spend_amounts import UNITS_PER_MICROCENT, spend_units, spend_usd
from fastroai.usage.spend_store import SpendAccount, SpendBalance, SpendClaim, SpendVerdict

_CONNECTIONS: Final = 4
_RENEWED_AT_ONCE: Final = 1_000
"""Claims, each of which is two arguments: Lua takes no more than 8,000."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS: Final = ("account", "windows", "claims", "line", "leases", "holders", "within")

_Operation = Literal["reserve", "mark_sent", "settle", "renew", "end_leases", "balance"]


class RedisSpendStore(KeptAt):
    """A `SpendStore` in Redis or Valkey, for the processes of many machines.

    The server must keep what it is given: no eviction (`maxmemory-policy noeviction`), and persistence, or a
    restart starts from zero. A replica that takes over may not know of the last moments.
    """

    def __init__(self, url: str, *, prefix: str = "fastroai:spend", timeout: float = 5.0) -> None:
        """Connects when it is first used.

        Args:
            url: `redis://`, `rediss://` or `unix://`, as redis-py takes it, options included.
            prefix: What the names of all keys start with. Stores with different ones know nothing of each
                other.
            timeout: Seconds to wait for a connection, and for an answer.

        Raises:
            ConfigurationError: the URL cannot be read, the prefix is not printable text without braces, or
                the timeout is not above 0.
            MissingExtraError: redis-py is not installed (the extra `redis`).
        """
        check_prefix(prefix)
        self._prefix = prefix
        self._driver = RedisServer(
            url,
            timeout,
            store="RedisSpendStore",
            script="spend_redis.lua",
            unavailable=SpendStoreUnavailable,
        )
        self._connections = Connections(self._driver, _CONNECTIONS)

    def __repr__(self) -> str:
        return f"<RedisSpendStore {self._driver.name!r} prefix={self._prefix!r}>"

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """See `SpendStore`."""
        return await self._perform(
            "reserve",
            claim.account,
            claim.id,
            _amount(spend_units(claim.amount_usd, "reservation")),
            _amount(spend_units(claim.limit_usd, "limit")),
            _microseconds(claim.lease),
            claim.holder,
            claim.within,
        )

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore`."""
        lease = _microseconds(claim.lease)
        return (await self._perform("mark_sent", claim.account, claim.id, lease)).granted

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """See `SpendStore`."""
        cost = _amount(spend_units(cost_usd, "cost"))
        return (await self._perform("settle", claim.account, claim.id, cost)).balance

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        """See `SpendStore`."""
        arguments: defaultdict[SpendAccount, list[str]] = defaultdict(list)
        for claim in claims:
            arguments[claim.account] += (claim.id, _microseconds(claim.lease))
        for account, ids_and_leases in arguments.items():
            for start in range(0, len(ids_and_leases), 2 * _RENEWED_AT_ONCE):
                some = ids_and_leases[start : start + 2 * _RENEWED_AT_ONCE]
                await self._perform("renew", account, *some)

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        """See `SpendStore`."""
        await self._perform("end_leases", account, *holders)

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """See `SpendStore`."""
        return (await self._perform("balance", account)).balance

    async def aclose(self) -> None:
        """Close the idle connections. New ones are opened when it is used again."""
        await self._connections.aclose()

    async def _perform(self, operation: _Operation, account: SpendAccount, *arguments: str) -> SpendVerdict:
        # Redis Cluster keeps keys together whose names have the same text in the first braces.
        together = f"{self._prefix}:{{{account.window}:{account.key}}}"
        keys = [f"{together}:{part}" for part in _PARTS]
        reply = await self._connections.run(
            lambda script: script(keys=keys, args=[operation, account.window, *arguments])
        )
        return _verdict(reply)


def _verdict(reply: list[Any]) -> SpendVerdict:
    """What the script gives back, whatever the operation."""
    *numbers, holders = reply
    granted, first, now, closes, spent, rest_of_spent, reserved, rest_of_reserved = map(int, numbers)
    balance = SpendBalance(
        spent_usd=spend_usd(spent * UNITS_PER_MICROCENT + rest_of_spent),
        reserved_usd=spend_usd(reserved * UNITS_PER_MICROCENT + rest_of_reserved),
        now=_EPOCH + timedelta(microseconds=now),
        resets_at=_EPOCH + timedelta(microseconds=closes) if closes else None,
    )
    names = tuple(holder.decode() for holder in holders)
    return SpendVerdict(granted=bool(granted), first=bool(first), balance=balance, holders=names)


def _amount(units: int) -> str:
    microcents, rest = divmod(units, UNITS_PER_MICROCENT)
    return f"{microcents}:{rest}"


def _microseconds(seconds: float) -> str:
    return str(round(seconds * 1_000_000))

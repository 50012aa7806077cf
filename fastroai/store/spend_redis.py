"""A store of shared spending in Redis, for the processes of many machines."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final, Literal, cast

from fastroai.errors import SpendStoreUnavailable
from fastroai.records import Duration
from fastroai.store.connections import Connections
from fastroai.store.kept_at import KeptAt
from fastroai.store.redis_server import RedisServer, check_prefix
from fastroai.usage.spend_amounts import UNITS_PER_MICROCENT, millionths, spend_units, spend_usd
from fastroai.usage.spend_store import (
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendPage,
    SpendStatus,
    SpendVerdict,
    Window,
)

_CONNECTIONS: Final = 4
_RENEWED_AT_ONCE: Final = 1_000
"""Claims that one call renews. Each claim is two arguments, and Lua takes no more than 8,000."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS: Final = ("account", "windows", "claims", "line", "leases", "holders", "adjusted", "within")
_LOOKED_AT_ONCE: Final = 1_000
"""Number of keys that the server looks through for accounts in one call."""

_Operation = Literal["reserve", "mark_sent", "settle", "renew", "end_leases", "balance", "adjust", "windows"]


class RedisSpendStore(KeptAt):
    """A `SpendStore` in Redis or Valkey, for the processes of many machines.

    The server must never drop data: no eviction (`maxmemory-policy noeviction`), and persistence, because a
    restart without it begins at zero. A replica that takes over may lack the last writes.
    """

    def __init__(self, url: str, *, prefix: str = "fastroai:spend", timeout: Duration = 5.0) -> None:
        """Configure the store, which connects when it is first used.

        Args:
            url: `redis://`, `rediss://` or `unix://`, as redis-py takes it, options included.
            prefix: Start of the names of all keys. Stores with different prefixes are independent.
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
        self._address = self._driver.address
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
            _microseconds(claim.keep.total_seconds()),
            claim.within,
        )

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore`."""
        lease = _microseconds(claim.lease)
        return (await self._perform("mark_sent", claim.account, claim.id, lease)).granted

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """See `SpendStore`."""
        cost = _amount(spend_units(cost_usd, "cost"))
        limit = _amount(spend_units(claim.limit_usd, "limit"))
        shares = {str(millionths(share)): share for share in claim.warn_at}
        reply = await self._run("settle", claim.account, claim.id, cost, limit, *shares)
        told = {str(share) for share in reply[-1]}
        reached = tuple(share for millionth, share in shares.items() if millionth in told)
        return replace(_verdict(reply).balance, reached=reached)

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

    async def adjust(self, account: SpendAccount, change: SpendChange) -> SpendAdjustment | None:
        """See `SpendStore`."""
        to_usd = "-" if change.limit_usd is None else _amount(spend_units(change.limit_usd, "limit"))
        reply = await self._run(
            "adjust", account, change.id, change.changes, to_usd, change.by, change.reason
        )
        return _adjustment(json.loads(reply[-1][0])) if reply[-1] else None

    async def windows(self, account: SpendAccount, *, closed: bool = True) -> tuple[SpendStatus, ...]:
        """See `SpendStore`."""
        reply = await self._run("windows", account, "closed" if closed else "open")
        return _statuses(account, _verdict(reply).balance, *reply[-1]) if reply[-1] else ()

    async def accounts(self, after: str | None = None) -> SpendPage:
        """See `SpendStore`. All names of keys in the database are looked through, some for each page."""
        together, end = f"{self._prefix}:{{", "}:account"
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", together) + f"*{end}"
        cursor, names = await self._connections.run(
            lambda script: script.registered_client.scan(
                int(after or 0), match=pattern, count=_LOOKED_AT_ONCE
            )
        )
        named = [cast("bytes", name).decode()[len(together) : -len(end)].partition(":") for name in names]
        accounts = tuple(SpendAccount(key=key, window=cast("Window", window)) for window, _, key in named)
        return SpendPage(accounts=accounts, after=str(cursor) if cursor else None)

    async def aclose(self) -> None:
        """Close the idle connections. New ones are opened when it is used again."""
        await self._connections.aclose()

    async def _perform(self, operation: _Operation, account: SpendAccount, *arguments: str) -> SpendVerdict:
        return _verdict(await self._run(operation, account, *arguments))

    async def _run(self, operation: _Operation, account: SpendAccount, *arguments: str) -> list[Any]:
        # Redis Cluster keeps keys together whose names have the same text in the first braces.
        together = f"{self._prefix}:{{{account.window}:{account.key}}}"
        keys = [f"{together}:{part}" for part in _PARTS]
        reply: list[Any] = await self._connections.run(
            lambda script: script(keys=keys, args=[operation, account.window, *arguments])
        )
        return reply


def _verdict(reply: list[Any]) -> SpendVerdict:
    """Read the reply of the script, which has the same form for all operations."""
    *numbers, set_limit, holders, _ = reply
    granted, first, now, closes, spent, rest_of_spent, reserved, rest_of_reserved = map(int, numbers)
    balance = SpendBalance(
        spent_usd=spend_usd(spent * UNITS_PER_MICROCENT + rest_of_spent),
        reserved_usd=spend_usd(reserved * UNITS_PER_MICROCENT + rest_of_reserved),
        now=_time(now),
        resets_at=_time(closes) if closes else None,
        limit_usd=_usd(set_limit.decode()) if set_limit else None,
    )
    names = tuple(holder.decode() for holder in holders)
    return SpendVerdict(granted=bool(granted), first=bool(first), balance=balance, holders=names)


def _statuses(
    account: SpendAccount, balance: SpendBalance, windows: list[bytes], adjusted: list[bytes]
) -> tuple[SpendStatus, ...]:
    adjustments: defaultdict[int, list[SpendAdjustment]] = defaultdict(list)
    for made in sorted(map(json.loads, adjusted), key=itemgetter("place")):
        adjustments[made["number"]].append(_adjustment(made))
    parted = (text.decode().split(" ") for text in windows)
    of_number = {int(number): rest for number, *rest in parted}
    charged = max(of_number)

    def status(number: int) -> SpendStatus:
        closes, spent, reserved, limit, set_limit, *_ = of_number[number]
        is_open = number == charged
        return SpendStatus(
            key=account.key,
            window=account.window,
            limit_usd=_usd(limit if set_limit == "-" else set_limit),
            spent_usd=balance.spent_usd if is_open else _usd(spent),
            reserved_usd=balance.reserved_usd if is_open else _usd(reserved),
            now=balance.now,
            resets_at=balance.resets_at if is_open else _time(int(closes)),
            is_open=is_open,
            adjustments=tuple(adjustments[number]),
        )

    return tuple(map(status, sorted(of_number, reverse=True)))


def _adjustment(made: dict[str, Any]) -> SpendAdjustment:
    return SpendAdjustment(
        id=made["id"],
        at=_time(int(made["at"])),
        changes=made["changes"],
        from_usd=_usd(made["from"]),
        to_usd=_usd(made["to"]),
        by=made["by"],
        reason=made["reason"],
    )


def _amount(units: int) -> str:
    microcents, rest = divmod(units, UNITS_PER_MICROCENT)
    return f"{microcents}:{rest}"


def _usd(amount: str) -> Decimal:
    microcents, rest = map(int, amount.split(":"))
    return spend_usd(microcents * UNITS_PER_MICROCENT + rest)


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _microseconds(seconds: float) -> str:
    return str(round(seconds * 1_000_000))

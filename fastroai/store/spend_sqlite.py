"""A store of shared spending in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import inf
from typing import Final, Literal, TypeVar, overload

from fastroai.errors import SpendStoreUnavailable
from fastroai.records import Duration
from fastroai.runtime.options import seconds_above_zero
from fastroai.store.clock import check_clock
from fastroai.store.connections import Connections
from fastroai.store.kept_at import KeptAt
from fastroai.store.sqlite_file import SQLiteFile, file_path
from fastroai.usage.memory_spend_store import utc_now
from fastroai.usage.spend_amounts import exact_units, spend_usd
from fastroai.usage.spend_rules import (
    RETENTION,
    AccountRow,
    ClaimRow,
    ClaimState,
    OpenAccount,
    WindowRow,
    open_new,
)
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

T = TypeVar("T")

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS spend_account (
        account_key TEXT NOT NULL,
        time_window TEXT NOT NULL,
        steady REAL NOT NULL,
        closes_at TEXT,
        charged INTEGER NOT NULL,
        keep_seconds REAL NOT NULL,
        kept_until TEXT,
        PRIMARY KEY (account_key, time_window)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS spend_window (
        account_key TEXT NOT NULL,
        time_window TEXT NOT NULL,
        number INTEGER NOT NULL,
        closes_at TEXT,
        spent_usd TEXT NOT NULL,
        reserved_usd TEXT NOT NULL,
        limit_usd TEXT NOT NULL,
        set_limit_usd TEXT,
        told TEXT NOT NULL,
        PRIMARY KEY (account_key, time_window, number)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS spend_adjustment (
        account_key TEXT NOT NULL,
        time_window TEXT NOT NULL,
        id TEXT NOT NULL,
        place INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        at TEXT NOT NULL,
        changes TEXT NOT NULL,
        from_usd TEXT NOT NULL,
        to_usd TEXT NOT NULL,
        made_by TEXT NOT NULL,
        reason TEXT NOT NULL,
        UNIQUE (account_key, time_window, id)
    )""",
    """CREATE TABLE IF NOT EXISTS spend_claim (
        place INTEGER PRIMARY KEY,
        account_key TEXT NOT NULL,
        time_window TEXT NOT NULL,
        id TEXT NOT NULL,
        state TEXT NOT NULL,
        amount_usd TEXT NOT NULL,
        lease_until REAL NOT NULL,
        holder TEXT NOT NULL,
        window_number INTEGER,
        within TEXT NOT NULL,
        UNIQUE (account_key, time_window, id)
    )""",
    "CREATE INDEX IF NOT EXISTS spend_account_kept ON spend_account (kept_until)",
    "CREATE INDEX IF NOT EXISTS spend_claim_lease ON spend_claim (account_key, time_window, lease_until)",
    """CREATE INDEX IF NOT EXISTS spend_claim_line ON spend_claim (account_key, time_window, place)
        WHERE state = 'waiting'""",
)
_WINDOW_COLUMNS: Final = "number, closes_at, spent_usd, reserved_usd, limit_usd, set_limit_usd, told"
_ADJUSTMENT_COLUMNS: Final = "id, number, at, changes, from_usd, to_usd, made_by, reason"
_CLAIM_COLUMNS: Final = "id, state, amount_usd, lease_until, holder, window_number, within"
_OF_ACCOUNT: Final = "account_key = ? AND time_window = ?"
_FORGOTTEN_AT_ONCE: Final = 100
_ACCOUNTS_A_PAGE: Final = 1_000


class _Seen(Exception):
    """Rolls a transaction back that only looks at an account."""


class SQLiteSpendStore(KeptAt):
    """A `SpendStore` in a file, for the processes of one machine. It needs no server.

    The file must be on a local disk: SQLite's locks do not hold on network file systems. Counted spending
    survives the death of every process; a power failure can lose the last changes before it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: Duration = 5.0,
        clock: Callable[[], datetime] = utc_now,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the store. The file is opened, and made if there is none, when the store is first used.

        Args:
            path: The file; its folder exists.
            timeout: Seconds to wait for other processes, before the store counts as unavailable.
            clock: Returns the calendar time, with its time zone. It names windows.
            steady_clock: Returns seconds that nobody can set. They end leases. Both clocks must be the same
                for all processes, like those of a machine.

        Raises:
            ConfigurationError: `path` is not the path of a file, or another option is invalid.
        """
        check_clock("clock", clock)
        check_clock("steady_clock", steady_clock)
        self._clock, self._steady_clock = clock, steady_clock
        self._driver = SQLiteFile(
            file_path(path, "MemorySpendStore()"),
            seconds_above_zero("timeout", timeout),
            _SCHEMA,
            "spend_claim_line",
            SpendStoreUnavailable,
        )
        # One connection, because SQLite has one writer at a time.
        self._connections = Connections(self._driver, limit=1)

    def __repr__(self) -> str:
        return f"SQLiteSpendStore({self._driver.path!r})"

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """See `SpendStore`."""
        return await self._with(claim.account, lambda account: account.reserve(claim), create=True)

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore`."""
        return await self._with(claim.account, lambda account: account.mark_sent(claim))

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """See `SpendStore`."""
        return await self._with(claim.account, lambda account: account.settle(claim, cost_usd))

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        """See `SpendStore`."""

        def renew_all(connection: sqlite3.Connection) -> None:
            for claim in claims:
                with self._open(connection, claim.account) as account:
                    account.renew(claim)

        await self._connections.run(renew_all)

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        """See `SpendStore`."""
        await self._with(account, lambda opened: opened.end_leases(holders))

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """See `SpendStore`."""
        return await self._with(account, OpenAccount.balance)

    async def adjust(self, account: SpendAccount, change: SpendChange) -> SpendAdjustment | None:
        """See `SpendStore`."""

        def adjust(connection: sqlite3.Connection) -> SpendAdjustment | None:
            with self._open(connection, account) as opened:
                return opened.adjust(change) if _read_account(connection, account) else None

        return await self._connections.run(adjust)

    async def windows(self, account: SpendAccount, *, closed: bool = True) -> tuple[SpendStatus, ...]:
        """See `SpendStore`."""

        def look(connection: sqlite3.Connection) -> tuple[SpendStatus, ...]:
            found: tuple[SpendStatus, ...] = ()
            with suppress(_Seen), self._open(connection, account) as opened:
                if _read_account(connection, account) is not None:
                    found = opened.statuses(account, closed)
                raise _Seen
            return found

        return await self._connections.run(look)

    async def accounts(self, after: str | None = None) -> SpendPage:
        """See `SpendStore`."""
        window, _, key = (after or ":").partition(":")

        def look(connection: sqlite3.Connection) -> list[tuple[str, Window]]:
            return connection.execute(
                "SELECT account_key, time_window FROM spend_account "
                "WHERE (account_key, time_window) > (?, ?) ORDER BY account_key, time_window LIMIT ?",
                (key, window, _ACCOUNTS_A_PAGE),
            ).fetchall()

        found = await self._connections.run(look)
        accounts = tuple(SpendAccount(key=key, window=window) for key, window in found)
        is_full = len(accounts) == _ACCOUNTS_A_PAGE
        return SpendPage(
            accounts=accounts, after=f"{accounts[-1].window}:{accounts[-1].key}" if is_full else None
        )

    async def aclose(self) -> None:
        """Close the file. It is opened again when it is used again."""
        await self._connections.aclose()
        self._driver.forget()

    async def _with(
        self, account: SpendAccount, act: Callable[[OpenAccount], T], *, create: bool = False
    ) -> T:
        def operation(connection: sqlite3.Connection) -> T:
            with self._open(connection, account, create=create) as opened:
                return act(opened)

        return await self._connections.run(operation)

    @contextmanager
    def _open(
        self, connection: sqlite3.Connection, account: SpendAccount, *, create: bool = False
    ) -> Iterator[OpenAccount]:
        """Open an account for one transaction, at whose end changes are written."""
        with self._driver.transaction(connection):
            now, steady = self._clock().astimezone(UTC), self._steady_clock()
            kept = _read_account(connection, account)
            closed = kept and kept.closes_at
            windows = _SQLiteWindows(connection, account)
            row = kept or open_new(windows, account.window, now, steady)
            claims = _SQLiteClaims(connection, account)
            yield OpenAccount(row, windows, claims, account.window, now, steady)
            if kept or create:
                _write_account(connection, account, row)
                windows.write()
            if row.closes_at != closed:
                _forget_old_accounts(connection, now, steady)


def _read_account(connection: sqlite3.Connection, account: SpendAccount) -> AccountRow | None:
    found = connection.execute(
        f"SELECT steady, closes_at, charged, keep_seconds FROM spend_account WHERE {_OF_ACCOUNT}",
        (account.key, account.window),
    ).fetchone()
    if found is None:
        return None
    steady, closes_at, charged, keep = found
    return AccountRow(steady, _to_time(closes_at), charged, timedelta(seconds=keep))


def _write_account(connection: sqlite3.Connection, account: SpendAccount, row: AccountRow) -> None:
    connection.execute(
        "REPLACE INTO spend_account "
        "(account_key, time_window, steady, closes_at, charged, keep_seconds, kept_until) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            account.key,
            account.window,
            row.steady,
            _from_time(row.closes_at),
            row.charged,
            row.keep.total_seconds(),
            _from_time(row.kept_until),
        ),
    )


def _forget_old_accounts(connection: sqlite3.Connection, now: datetime, steady: float) -> None:
    """Delete old accounts that hold nothing: more than are opened, but never too many at once.

    The calendar clock alone may have jumped ahead, so the steady clock must agree. It agrees also if it went
    back, because that means that the machine was started again, which no process has survived.
    """
    old = connection.execute(
        "SELECT account_key, time_window FROM spend_account AS account WHERE kept_until <= :now "
        "AND (steady > :steady OR steady <= :unused_since AND NOT EXISTS ("
        "SELECT 1 FROM spend_claim AS claim WHERE claim.account_key = account.account_key "
        "AND claim.time_window = account.time_window AND claim.lease_until > :steady)) LIMIT :at_once",
        {
            "now": _from_time(now),
            "steady": steady,
            "unused_since": steady - RETENTION.total_seconds(),
            "at_once": _FORGOTTEN_AT_ONCE,
        },
    ).fetchall()
    for table in ("spend_claim", "spend_adjustment", "spend_window", "spend_account"):
        connection.executemany(f"DELETE FROM {table} WHERE {_OF_ACCOUNT}", old)


class _SQLiteWindows:
    """`WindowRows` in a table. Changes to its rows are written by `write`."""

    def __init__(self, connection: sqlite3.Connection, account: SpendAccount) -> None:
        self._connection = connection
        self._account = (account.key, account.window)
        self._rows: dict[int, WindowRow] = {}
        self._as_read: dict[int, WindowRow] = {}
        self._read_since: float = inf

    def get(self, number: int) -> WindowRow | None:
        if number not in self._rows and number < self._read_since:
            self._read("number = ?", number)
        return self._rows.get(number)

    def since(self, number: int) -> list[WindowRow]:
        if number < self._read_since:
            self._read("number >= ?", number)
            self._read_since = number
        return [self._rows[each] for each in sorted(self._rows) if each >= number]

    def closing_at(self, closes_at: datetime) -> WindowRow | None:
        self._read("closes_at = ?", _from_time(closes_at))
        return next((row for row in self._rows.values() if row.closes_at == closes_at), None)

    def add(self, row: WindowRow) -> None:
        self._rows[row.number] = row

    def forget(self, before: datetime, up_to: int) -> None:
        over = "closes_at <= ? AND number <= ?"
        self._read(over, _from_time(before), up_to)
        for number, row in list(self._rows.items()):
            if number <= up_to and row.closes_at is not None and row.closes_at <= before:
                del self._rows[number]
                for table in ("spend_adjustment", "spend_window"):
                    self._connection.execute(
                        f"DELETE FROM {table} WHERE {_OF_ACCOUNT} AND number = ?", (*self._account, number)
                    )

    def adjusted(self, change_id: str) -> SpendAdjustment | None:
        found = self._connection.execute(
            f"SELECT {_ADJUSTMENT_COLUMNS} FROM spend_adjustment WHERE {_OF_ACCOUNT} AND id = ?",
            (*self._account, change_id),
        ).fetchone()
        return None if found is None else _adjustment(*found)

    def note(self, number: int, adjustment: SpendAdjustment) -> None:
        self._connection.execute(
            f"INSERT INTO spend_adjustment (account_key, time_window, {_ADJUSTMENT_COLUMNS}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *self._account,
                adjustment.id,
                number,
                _from_time(adjustment.at),
                adjustment.changes,
                f"{adjustment.from_usd:f}",
                f"{adjustment.to_usd:f}",
                adjustment.by,
                adjustment.reason,
            ),
        )

    def adjustments(self) -> Mapping[int, Sequence[SpendAdjustment]]:
        found: defaultdict[int, list[SpendAdjustment]] = defaultdict(list)
        for columns in self._connection.execute(
            f"SELECT {_ADJUSTMENT_COLUMNS} FROM spend_adjustment WHERE {_OF_ACCOUNT} ORDER BY place",
            self._account,
        ):
            found[columns[1]].append(_adjustment(*columns))
        return found

    def write(self) -> None:
        """Write the rows that have changed since they were read."""
        changed = [row for number, row in self._rows.items() if self._as_read.get(number) != row]
        self._connection.executemany(
            f"REPLACE INTO spend_window (account_key, time_window, {_WINDOW_COLUMNS}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*self._account, *_window_values(row)) for row in changed],
        )

    def _read(self, condition: str, *values: object) -> None:
        """Read the rows for which a condition holds, except those already read."""
        found = self._connection.execute(
            f"SELECT {_WINDOW_COLUMNS} FROM spend_window WHERE {_OF_ACCOUNT} AND {condition}",
            (*self._account, *values),
        )
        for columns in found:
            if columns[0] not in self._rows:
                row = self._rows[columns[0]] = _window_row(*columns)
                self._as_read[row.number] = copy(row)


class _SQLiteClaims:
    """`ClaimRows` in a table. The `place` of a new claim is above those of all claims in the table."""

    def __init__(self, connection: sqlite3.Connection, account: SpendAccount) -> None:
        self._connection = connection
        self._account = (account.key, account.window)

    def get(self, claim_id: str) -> ClaimRow | None:
        found = self._connection.execute(
            f"SELECT {_CLAIM_COLUMNS} FROM spend_claim WHERE {_OF_ACCOUNT} AND id = ?",
            (*self._account, claim_id),
        ).fetchone()
        return None if found is None else _claim_row(*found)

    def add(self, row: ClaimRow) -> None:
        self._connection.execute(
            f"INSERT INTO spend_claim (account_key, time_window, {_CLAIM_COLUMNS}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*self._account, row.id, *_claim_values(row)),
        )

    def update(self, row: ClaimRow) -> None:
        self._connection.execute(
            "UPDATE spend_claim SET state = ?, amount_usd = ?, lease_until = ?, holder = ?, "
            f"window_number = ?, within = ? WHERE {_OF_ACCOUNT} AND id = ?",
            (*_claim_values(row), *self._account, row.id),
        )

    def remove(self, claim_id: str) -> None:
        self._connection.execute(
            f"DELETE FROM spend_claim WHERE {_OF_ACCOUNT} AND id = ?", (*self._account, claim_id)
        )

    def first_in_line(self) -> str | None:
        found = self._connection.execute(
            f"SELECT id FROM spend_claim WHERE {_OF_ACCOUNT} AND state = 'waiting' ORDER BY place LIMIT 1",
            self._account,
        ).fetchone()
        return None if found is None else str(found[0])

    def over(self, steady: float) -> list[ClaimRow]:
        found = self._connection.execute(
            f"SELECT {_CLAIM_COLUMNS} FROM spend_claim WHERE {_OF_ACCOUNT} AND lease_until <= ?",
            (*self._account, steady),
        )
        return [_claim_row(*columns) for columns in found]

    def shift_leases(self, seconds: float) -> None:
        self._connection.execute(
            f"UPDATE spend_claim SET lease_until = lease_until + ? WHERE {_OF_ACCOUNT}",
            (seconds, *self._account),
        )

    def holders(self) -> list[str]:
        found = self._connection.execute(
            f"SELECT DISTINCT holder FROM spend_claim WHERE {_OF_ACCOUNT} AND state <> 'lapsed'",
            self._account,
        )
        return [str(holder) for (holder,) in found]

    def held_by(self, holders: Collection[str]) -> list[ClaimRow]:
        found = self._connection.execute(
            f"SELECT {_CLAIM_COLUMNS} FROM spend_claim WHERE {_OF_ACCOUNT} AND state <> 'lapsed'",
            self._account,
        )
        return [row for row in (_claim_row(*columns) for columns in found) if row.holder in holders]

    def lapsed(self) -> list[ClaimRow]:
        found = self._connection.execute(
            f"SELECT {_CLAIM_COLUMNS} FROM spend_claim WHERE {_OF_ACCOUNT} AND state = 'lapsed'",
            self._account,
        )
        return [_claim_row(*columns) for columns in found]


def _window_row(
    number: int,
    closes_at: str | None,
    spent: str,
    reserved: str,
    limit: str,
    set_limit: str | None,
    told: str,
) -> WindowRow:
    return WindowRow(
        number,
        _to_time(closes_at),
        _to_units(spent),
        _to_units(reserved),
        _to_units(limit),
        None if set_limit is None else _to_units(set_limit),
        {(share, _to_units(limit_usd)): claim_id for share, limit_usd, claim_id in json.loads(told)},
    )


def _window_values(row: WindowRow) -> tuple[int, str | None, str, str, str, str | None, str]:
    return (
        row.number,
        _from_time(row.closes_at),
        _from_units(row.spent),
        _from_units(row.reserved),
        _from_units(row.limit),
        None if row.set_limit is None else _from_units(row.set_limit),
        json.dumps([(share, _from_units(limit), claim) for (share, limit), claim in row.told.items()]),
    )


def _adjustment(
    change_id: str,
    number: int,
    at: str,
    changes: Literal["limit", "spent"],
    from_usd: str,
    to_usd: str,
    by: str,
    reason: str,
) -> SpendAdjustment:
    return SpendAdjustment(
        id=change_id,
        at=datetime.fromisoformat(at),
        changes=changes,
        from_usd=Decimal(from_usd),
        to_usd=Decimal(to_usd),
        by=by,
        reason=reason,
    )


def _claim_row(
    claim_id: str,
    state: ClaimState,
    amount: str,
    lease_until: float,
    holder: str,
    window: int | None,
    within: str,
) -> ClaimRow:
    return ClaimRow(claim_id, state, _to_units(amount), lease_until, holder, window, within)


def _claim_values(row: ClaimRow) -> tuple[str, str, float, str, int | None, str]:
    return row.state, _from_units(row.amount), row.lease_until, row.holder, row.window, row.within


def _from_units(units: int) -> str:
    return f"{spend_usd(units):f}"


def _to_units(usd: str) -> int:
    return exact_units(Decimal(usd))


@overload
def _from_time(time: datetime) -> str: ...
@overload
def _from_time(time: None) -> None: ...
def _from_time(time: datetime | None) -> str | None:
    """Return a time as text. Such texts have the order of the times."""
    return None if time is None else time.isoformat(timespec="microseconds")


def _to_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)

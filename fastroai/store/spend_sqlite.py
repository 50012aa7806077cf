"""Shared spending of the processes of one machine, in one SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeVar, overload

from fastroai.errors import SpendStoreUnavailable
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
    new_account,
)
from fastroai.usage.spend_store import SpendAccount, SpendBalance, SpendClaim, SpendVerdict

T = TypeVar("T")

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS spend_account (
        account_key TEXT NOT NULL,
        time_window TEXT NOT NULL,
        steady REAL NOT NULL,
        closes_at TEXT,
        charged INTEGER NOT NULL,
        PRIMARY KEY (account_key, time_window)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS spend_window (
        account_key TEXT NOT NULL,
        time_window TEXT NOT NULL,
        number INTEGER NOT NULL,
        closes_at TEXT,
        spent_usd TEXT NOT NULL,
        reserved_usd TEXT NOT NULL,
        PRIMARY KEY (account_key, time_window, number)
    ) WITHOUT ROWID""",
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
    "CREATE INDEX IF NOT EXISTS spend_account_closed ON spend_account (closes_at)",
    "CREATE INDEX IF NOT EXISTS spend_claim_lease ON spend_claim (account_key, time_window, lease_until)",
    """CREATE INDEX IF NOT EXISTS spend_claim_line ON spend_claim (account_key, time_window, place)
        WHERE state = 'waiting'""",
)
_CLAIM_COLUMNS: Final = "id, state, amount_usd, lease_until, holder, window_number, within"
_OF_ACCOUNT: Final = "account_key = ? AND time_window = ?"
_FORGOTTEN_AT_ONCE: Final = 100


class SQLiteSpendStore(KeptAt):
    """A `SpendStore` in a file, for the processes of one machine. It needs no server.

    The file must be on a local disk: SQLite's locks do not hold on network file systems. What was counted
    survives the death of every process; a power failure can lose the last moments before it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float = 5.0,
        clock: Callable[[], datetime] = utc_now,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the file, and makes it if there is none, when it is first used.

        Args:
            path: The file; its folder exists.
            timeout: Seconds to wait for other processes, before the store counts as unavailable.
            clock: Gives the time of the calendar, with its time zone. It names windows.
            steady_clock: Gives seconds that nobody sets. They end leases. Both clocks are the same for all
                processes, as those of a machine are.

        Raises:
            ConfigurationError: `path` is no file's, or `timeout` is not above 0.
        """
        self._clock, self._steady_clock = clock, steady_clock
        self._driver = SQLiteFile(
            file_path(path, "MemorySpendStore()"), timeout, _SCHEMA, "spend_claim_line", SpendStoreUnavailable
        )
        # One, because SQLite has one writer at a time.
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
        """The account, for one transaction."""
        with self._driver.transaction(connection):
            now, steady = self._clock().astimezone(UTC), self._steady_clock()
            kept = _read_account(connection, account)
            row = kept or new_account(account.window, now, steady)
            closed = kept and kept.closes_at
            windows = {} if kept is None else {window.number: replace(window) for window in kept.windows}
            yield OpenAccount(row, _SQLiteClaims(connection, account), account.window, now, steady)
            if kept or create:
                _write_account(connection, account, row)
                _write_windows(connection, account, windows, row.windows)
            if row.closes_at != closed:
                _forget_old_accounts(connection, now, steady)


def _read_account(connection: sqlite3.Connection, account: SpendAccount) -> AccountRow | None:
    of_account = (account.key, account.window)
    found = connection.execute(
        f"SELECT steady, closes_at, charged FROM spend_account WHERE {_OF_ACCOUNT}", of_account
    ).fetchone()
    if found is None:
        return None
    steady, closes_at, charged = found
    windows = connection.execute(
        "SELECT number, closes_at, spent_usd, reserved_usd FROM spend_window "
        f"WHERE {_OF_ACCOUNT} ORDER BY number",
        of_account,
    )
    return AccountRow(steady, _to_time(closes_at), charged, [_window_row(*columns) for columns in windows])


def _write_account(connection: sqlite3.Connection, account: SpendAccount, row: AccountRow) -> None:
    connection.execute(
        "REPLACE INTO spend_account (account_key, time_window, steady, closes_at, charged) "
        "VALUES (?, ?, ?, ?, ?)",
        (account.key, account.window, row.steady, _from_time(row.closes_at), row.charged),
    )


def _write_windows(
    connection: sqlite3.Connection,
    account: SpendAccount,
    kept: Mapping[int, WindowRow],
    windows: Sequence[WindowRow],
) -> None:
    """Write the windows that have changed, and delete those that are not kept any more."""
    of_account = (account.key, account.window)
    changed = [window for window in windows if kept.get(window.number) != window]
    connection.executemany(
        "REPLACE INTO spend_window "
        "(account_key, time_window, number, closes_at, spent_usd, reserved_usd) VALUES (?, ?, ?, ?, ?, ?)",
        [(*of_account, *_window_values(window)) for window in changed],
    )
    oldest = windows[0].number
    connection.executemany(
        f"DELETE FROM spend_window WHERE {_OF_ACCOUNT} AND number = ?",
        [(*of_account, number) for number in kept if number < oldest],
    )


def _forget_old_accounts(connection: sqlite3.Connection, now: datetime, steady: float) -> None:
    """Delete accounts that are over and hold nothing: more than are opened, and never too many at once.

    The clock of the calendar alone may have jumped ahead, so the steady one must agree; or it has gone back,
    because the machine was started again, which no process has survived.
    """
    old = connection.execute(
        "SELECT account_key, time_window FROM spend_account AS account WHERE closes_at <= :closed_before "
        "AND (steady > :steady OR steady <= :unused_since AND NOT EXISTS ("
        "SELECT 1 FROM spend_claim AS claim WHERE claim.account_key = account.account_key "
        "AND claim.time_window = account.time_window AND claim.lease_until > :steady)) LIMIT :at_once",
        {
            "closed_before": _from_time(now - RETENTION),
            "steady": steady,
            "unused_since": steady - RETENTION.total_seconds(),
            "at_once": _FORGOTTEN_AT_ONCE,
        },
    ).fetchall()
    for table in ("spend_claim", "spend_window", "spend_account"):
        connection.executemany(f"DELETE FROM {table} WHERE {_OF_ACCOUNT}", old)


class _SQLiteClaims:
    """`ClaimRows` in a table. A claim's `place` is above those of all that were there when it was added."""

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


def _window_row(number: int, closes_at: str | None, spent: str, reserved: str) -> WindowRow:
    return WindowRow(number, _to_time(closes_at), _to_units(spent), _to_units(reserved))


def _window_values(row: WindowRow) -> tuple[int, str | None, str, str]:
    return row.number, _from_time(row.closes_at), _from_units(row.spent), _from_units(row.reserved)


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
    """Text that is ordered as time is."""
    return None if time is None else time.isoformat(timespec="microseconds")


def _to_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)

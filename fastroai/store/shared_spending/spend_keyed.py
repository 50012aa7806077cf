"""Shared spending in a store of runs: an account is one value, which is replaced by compare-and-set."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

from fastroai.errors import RevisionConflict, SpendStoreUnavailable, StoreUnavailable
from fastroai.forks import in_forked_process
from fastroai.runtime.concurrency.sync import in_background
from fastroai.store.row_codec import RowCodec
from fastroai.store.run_store import RunStore, StoredKey, StoredValues, deletes_at_revision
from fastroai.store.shared_values import SharedValues
from fastroai.usage.shared.ruled_spend_store import RuledSpendStore
from fastroai.usage.shared.spend_amounts import Window
from fastroai.usage.shared.spend_rows import AccountRow
from fastroai.usage.shared.spend_rules import OpenAccount
from fastroai.usage.shared.spend_store import SpendAccount, SpendPage

T = TypeVar("T")

logger: Final = logging.getLogger("fastroai.store")

_PREFIX: Final = "spend:"
_CODEC: Final = RowCodec(AccountRow, 2)
_ACCOUNTS_A_PAGE: Final = 200
_SWEPT_AT_ONCE: Final = 20
"""Accounts that are looked at whenever one opens a window, so that more are forgotten than are opened."""
_MOST_REVISIONS: Final = 2**24
"""Accounts at this revision or a higher one are kept. New keys begin above the highest deleted revision, and
the revisions of a store must not run out."""


class KeyedSpendStore(SharedValues[SpendAccount, OpenAccount], RuledSpendStore):
    """A `SpendStore` in any `RunStore`, beside the runs there. An account is one of its `SharedValues`."""

    lost = "restore a backup, or give the SpendLimit another store"

    def __init__(
        self,
        runs: RunStore,
        *,
        steady_clock: Callable[[], float] | None = None,
    ) -> None:
        """Keep accounts in a store of runs.

        Args:
            runs: The store of runs.
            steady_clock: Returns seconds that nobody can set, for leases. It must be the same clock in all
                processes. By default, leases end by the clock of the store.
        """
        super().__init__(runs)
        self._steady_clock = steady_clock
        self._swept_up_to = ""
        self._start()
        in_forked_process(self._start)

    def _start(self) -> None:
        self._is_sweeping = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.runs!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyedSpendStore) and self.runs == other.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    async def accounts(self, after: str | None = None) -> SpendPage:
        """See `SpendStore`."""
        try:
            page, now = await self._page(after or "", _ACCOUNTS_A_PAGE)
        except StoreUnavailable as error:
            raise _unavailable(error) from error.__cause__
        is_full = len(page) == _ACCOUNTS_A_PAGE
        accounts = tuple(_account(found.key) for found in page if not self._is_over(found, now))
        return SpendPage(accounts=accounts, after=page[-1].key if is_full else None)

    async def aclose(self) -> None:
        """Close the store of runs, if it can be closed. It is opened again when it is used again."""
        close: Any = getattr(self.runs, "aclose", None)
        if close is not None:
            await close()

    async def _act(self, account: SpendAccount, act: Callable[[OpenAccount], T], *, keeps: bool = True) -> T:
        try:
            return await self.ask(account, act, keeps=keeps)
        except StoreUnavailable as error:  # one of its own for each who asked
            raise _unavailable(error) from error.__cause__

    # --- deciding ---

    def key_of(self, name: SpendAccount) -> str:
        """See `SharedValues`."""
        return f"{_PREFIX}{name.window}:{name.key}"

    def _described(self, name: SpendAccount) -> str:
        return f"the account {name.key!r} ({name.window})"

    def _open(self, name: SpendAccount, value: bytes | None, now: datetime) -> OpenAccount:
        row = None if value is None else _CODEC.decode(value)
        return OpenAccount(row, name.window, now.astimezone(UTC), self._steady(now))

    def _encode(self, opened: OpenAccount) -> bytes | None:
        if not opened.is_known:
            return None
        opened.row.pack()  # its earlier windows
        return _CODEC.encode(opened.row)

    def _decided(
        self, name: SpendAccount, opened: OpenAccount, found: StoredValues, *, is_written: bool
    ) -> None:
        if is_written and opened.opens_window:
            self._start_sweep(found.now)

    def _steady(self, now: datetime) -> float:
        return now.timestamp() if self._steady_clock is None else self._steady_clock()

    # --- forgetting ---

    def _start_sweep(self, now: datetime) -> None:
        if not self._is_sweeping:
            self._is_sweeping = True
            in_background(self._sweep(now))

    async def _sweep(self, begun: datetime) -> None:
        """Delete the next accounts that nobody used any more then, if the store can do that at a revision."""
        try:
            if not deletes_at_revision(self.runs):
                return
            page, now = await self._page(self._swept_up_to, _SWEPT_AT_ONCE)
            self._swept_up_to = page[-1].key if len(page) == _SWEPT_AT_ONCE else ""
            for found in page:
                if self._is_over(found, min(now, begun)) and found.revision < _MOST_REVISIONS:
                    with suppress(RevisionConflict):  # somebody uses it again
                        await self.runs.delete(found.key, revision=found.revision)
        except Exception as error:  # a store can be the user's, and raise anything
            logger.warning("unused accounts of spending could not be removed: %s", error)
        finally:
            self._is_sweeping = False

    async def _page(self, after: str, limit: int) -> tuple[Sequence[StoredKey], datetime]:
        """Return some accounts, and the time, the earlier one if the clock is set meanwhile."""
        before = (await self.runs.read(_PREFIX)).now
        page = await self.runs.list(_PREFIX, after=after, limit=limit)
        return page, min(before, (await self.runs.read(_PREFIX)).now)

    def _is_over(self, found: StoredKey, now: datetime) -> bool:
        """Return whether nobody uses an account any more. One that cannot be read is kept."""
        try:
            return _CODEC.decode(found.value).is_over(now.astimezone(UTC), self._steady(now))
        except ValueError:
            return False


def _account(key: str) -> SpendAccount:
    window, _, name = key.removeprefix(_PREFIX).partition(":")
    return SpendAccount(key=name, window=cast("Window", window))


def _unavailable(error: StoreUnavailable) -> SpendStoreUnavailable:
    return SpendStoreUnavailable(error.store, error.reason, error.advice)

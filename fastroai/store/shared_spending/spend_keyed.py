"""Shared spending in a store of runs: an account is one value, which is replaced by compare-and-set."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from random import random
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar, cast

from fastroai.errors import RevisionConflict, SpendStoreUnavailable, StoreUnavailable
from fastroai.forks import in_forked_process
from fastroai.runtime.concurrency.sync import in_background
from fastroai.runtime.owner import steady_seconds
from fastroai.store.backends.groups import Groups
from fastroai.store.reading.earlier_spending import refuse_earlier
from fastroai.store.run_store import RunStore, StoredKey, StoredValues, deletes_at_revision
from fastroai.store.shared_spending.spend_values import decode_account, encode_account
from fastroai.usage.shared.ruled_spend_store import RuledSpendStore
from fastroai.usage.shared.spend_rows import AccountRow
from fastroai.usage.shared.spend_rules import OpenAccount
from fastroai.usage.shared.spend_store import SpendAccount, SpendPage, Window

T = TypeVar("T")

logger: Final = logging.getLogger("fastroai.store")

_PREFIX: Final = "spend:"
_ACCOUNTS_A_PAGE: Final = 200
_SWEPT_AT_ONCE: Final = 20
"""Accounts that are looked at whenever one opens a window, so that more are forgotten than are opened."""
_MOST_REVISIONS: Final = 2**24
"""Accounts at this revision or a higher one are kept. New keys begin above the highest deleted revision, and
the revisions of a store must not run out."""
_PAUSE: Final = 0.001
"""Most seconds to wait after the first conflict. Each further conflict adds as many."""
_LONGEST_PAUSE: Final = 0.02
_PATIENCE: Final = 20.0
"""Seconds after which a change is given up if others change the account all the time."""
_STALE: Final = 60.0
"""Seconds after which an account is read again before it is written: this process may have been stopped."""
_LOST: Final = "restore a backup, or give the SpendLimit another store"

_sweeps: Final[set[concurrent.futures.Future[None]]] = set()
in_forked_process(_sweeps.clear)


_Act: TypeAlias = tuple[Callable[[OpenAccount], Any], bool]
"""Something to do with an account, and whether the account is written afterwards."""


class KeyedSpendStore(RuledSpendStore):
    """A `SpendStore` in any `RunStore`, beside the runs there.

    An account is read, changed by the rules of `OpenAccount`, and written at the revision at which it was
    read. If somebody else has written meanwhile, all of that is done again. What one process asks of an
    account while that is under way is decided together after it, in one write.

    A store that has lost the value of an account, or has a damaged one, counts as unavailable: a limit that
    starts from zero again would not hold.
    """

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
        self.runs = runs
        """The store of runs that keeps the accounts."""
        self._steady_clock, self._refuse_earlier = steady_clock, partial(refuse_earlier, runs)
        self._groups: Groups[SpendAccount, _Act, Any] = Groups(self._decide)
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
            if not page and not after:
                await self._refuse_earlier(None)
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
            answer: T = await self._groups.ask(account, (act, keeps))
            return answer
        except StoreUnavailable as error:  # one of its own for each who asked
            raise _unavailable(error) from error.__cause__

    # --- deciding ---

    async def _decide(self, account: SpendAccount, acts: Sequence[_Act]) -> Sequence[Any]:
        """Do all of this with an account, in one write. Each act can be repeated: see `SpendStore`."""
        key, until, pause = _key(account), monotonic() + _PATIENCE, 0.0
        while monotonic() < until:
            asked_at = steady_seconds()
            found = await self.runs.read(key)
            if not found.revision:
                await self._refuse_earlier(account)
            opened, answers = self._after(account, found, acts)
            if not opened.is_known or not any(keeps for _, keeps in acts):
                return answers
            if steady_seconds() - asked_at > _STALE:
                continue
            try:
                await self.runs.compare_and_set(key, encode_account(opened.row), revision=found.revision)
            except RevisionConflict:
                pause = min(pause + _PAUSE, _LONGEST_PAUSE)
                await asyncio.sleep(pause * random())
            else:
                if opened.opens_window:
                    self._start_sweep(found.now)
                return answers
        reason = f"other processes changed the account {account.key!r} at every attempt for {_PATIENCE:g} s"
        raise SpendStoreUnavailable(repr(self.runs), reason, "see how many processes share it")

    def _after(
        self, account: SpendAccount, found: StoredValues, acts: Sequence[_Act]
    ) -> tuple[OpenAccount, Sequence[Any]]:
        """Return the account after these acts, and the answer to each. One that fails leaves no trace."""
        failed: dict[int, Exception] = {}
        while True:
            opened, answers = self._opened(account, found), list[Any]()
            try:
                for act, _ in acts:
                    answers.append(failed.get(len(answers)) or act(opened))
            except Exception as error:
                failed[len(answers)] = error
            else:
                return opened, answers

    def _opened(self, account: SpendAccount, found: StoredValues) -> OpenAccount:
        row: AccountRow | None = None
        if found.revision:
            try:
                row = decode_account(found.values[-1] if found.values else b"")
            except ValueError as error:
                what = str(error) if found.values else "its value is gone"
                reason = f"the account {account.key!r} ({account.window}) cannot be read: {what}"
                raise SpendStoreUnavailable(repr(self.runs), reason, _LOST) from error
        return OpenAccount(row, account.window, found.now.astimezone(UTC), self._steady(found.now))

    def _steady(self, now: datetime) -> float:
        return now.timestamp() if self._steady_clock is None else self._steady_clock()

    # --- forgetting ---

    def _start_sweep(self, now: datetime) -> None:
        if not self._is_sweeping:
            self._is_sweeping = True
            in_background(self._sweep(now), _sweeps)

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
            return decode_account(found.value).is_over(now.astimezone(UTC), self._steady(now))
        except ValueError:
            return False


def _key(account: SpendAccount) -> str:
    return f"{_PREFIX}{account.window}:{account.key}"


def _account(key: str) -> SpendAccount:
    window, _, name = key.removeprefix(_PREFIX).partition(":")
    return SpendAccount(key=name, window=cast("Window", window))


def _unavailable(error: StoreUnavailable) -> SpendStoreUnavailable:
    return SpendStoreUnavailable(error.store, error.reason, error.advice)

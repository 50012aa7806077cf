"""The spend limits of a store: their spent and remaining amounts, now and before, and changes by hand."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.usage.money import Amount, exact_dollars
from fastroai.usage.shared.spend_amounts import TOO_MUCH_USD, Window
from fastroai.usage.shared.spend_limit import BY_TAG, BY_TENANT, SpendStoreLike, known_window, usable_store
from fastroai.usage.shared.spend_store import (
    SpendAccount,
    SpendChange,
    SpendClaim,
    SpendStatus,
)

_LIMIT: Final = "a positive amount of US dollars, below a billion; or None for the amount in code"


class SpendBook:
    """The spent and remaining amounts of all `SpendLimit`s that count in one store, and changes by hand.

        book = SpendBook(SQLiteSpendStore("spend.db"))
        for status in await book.list():
            print(status.key, status.window, status.remaining_usd)
        await book.set_limit("tenant:acme", 50, by="Mia", reason="a large order")

    A key is the name under which a limit counts; a window is one hour, day or month, or all time. A store
    knows a key from its first request, or from `set_limit`, until `SpendLimit(keep=...)` (90 days by default)
    after the end of its last window.
    """

    def __init__(self, store: SpendStoreLike | None = None) -> None:
        """`store` is the store of the limits, or its path or URL; by default the memory of this process.

        Raises:
            ConfigurationError: it is no `SpendStore`, and neither the path nor the URL of one.
        """
        self.store = usable_store(store)

    async def list(
        self, *, key: str | None = None, window: Window | None = None, closed: bool = False
    ) -> tuple[SpendStatus, ...]:
        """Return the open windows of all keys, one for each key and kind of window, sorted by key.

        Each is a `SpendStatus` with its limit, its spent and remaining amounts and, in `adjustments`, its
        changes by hand. The result is empty if the store knows no such key. Nothing is changed.

        Args:
            key: Return only windows of this key.
            window: Return only windows of this kind.
            closed: Return also windows that are over. For each key and kind of window, the open window comes
                first, then these, newest first.

        Raises:
            ConfigurationError: there is no such kind of window.
            SpendStoreUnavailable: the store cannot be reached.
        """
        if window is not None:
            known_window(window)
        found: list[SpendStatus] = []
        for account in await self._accounts():
            if key in (None, account.key) and window in (None, account.window):
                found += await self.store.windows(account, closed=closed)
        return tuple(found)

    async def set_limit(
        self, key: str, usd: Amount | None, *, window: Window = "day", by: str, reason: str
    ) -> SpendStatus:
        """Raise or lower the limit of the open window of a key, for all processes from their next request on.

        The next window has the amount in code again, that of the `SpendLimit`. The spent and reserved amounts
        stay, and count against the new limit. A request for which too little is left is not sent, unless it
        is paid from a quote that its run has reserved before. A key that the store does not know yet is
        added, so a limit can be set before the first request.

        Args:
            key: The key that the limit counts by, as `list` shows it.
            usd: The new limit in US dollars; `None` for the amount in code.
            window: The kind of window that the limit has.
            by: The person who changes it, not empty; stored with the change.
            reason: The reason, not empty; stored with the change.

        Returns:
            The open window, with the adjustment as the last of its `adjustments`.

        Raises:
            ConfigurationError: the store does not know the key with this window, but with another one, or as
                that of a tenant or a tag; or it does not know the key, and `usd` is `None`; or an argument
                is invalid.
            SpendStoreUnavailable: the store cannot be reached; the limit may have changed.
        """
        limit_usd = None if usd is None else exact_dollars("usd", usd, _LIMIT)
        if limit_usd is not None and not 0 < limit_usd < TOO_MUCH_USD:
            raise ConfigurationError("usd", usd, _LIMIT)
        change = SpendChange(id=_new_id(), changes="limit", limit_usd=limit_usd, by=by, reason=reason)
        return await self._adjust(SpendAccount(key=key, window=window), change)

    async def reset(self, key: str, *, window: Window = "day", by: str, reason: str) -> SpendStatus:
        """Set the spending of the open window of a key to zero. Requests in flight stay reserved.

        The limit stays as it is. The cost of a request in flight counts when the request ends.

        Args:
            key: The key that the limit counts by, as `list` shows it.
            window: The kind of window that the limit has.
            by: The person who resets it, not empty; stored with the change.
            reason: The reason, not empty; stored with the change.

        Returns:
            The open window, with the adjustment as the last of its `adjustments`.

        Raises:
            ConfigurationError: the store does not know the key with this window, or an argument is invalid.
            SpendStoreUnavailable: the store cannot be reached; the spending may have been reset.
        """
        change = SpendChange(id=_new_id(), changes="spent", by=by, reason=reason)
        return await self._adjust(SpendAccount(key=key, window=window), change)

    async def check_known(self, key: str, *, window: Window = "day") -> None:
        """Check that the store knows a key: that something was spent or set under it before.

        It returns nothing if the store knows the key with this kind of window, and raises otherwise.

        Raises:
            ConfigurationError: the store does not know the key with this window, or there is no such kind of
                window. The message names the likely key or window, if there is one.
            SpendStoreUnavailable: the store cannot be reached.
        """
        known_window(window)
        account = SpendAccount(key=key, window=window)
        known = await self._accounts()
        if account not in known:
            raise _unknown(account, known)

    async def _adjust(self, account: SpendAccount, change: SpendChange) -> SpendStatus:
        known_window(account.window)
        for option, text in (("by", change.by), ("reason", change.reason)):
            if not isinstance(text, str) or not text.strip():
                raise ConfigurationError(option, text, "a text, which is stored with the change")
        if await self.store.adjust(account, change) is None:
            known = await self._accounts()
            if change.limit_usd is None or _is_mistaken(account, known):
                raise _unknown(account, known)
            await self._open(account, change.limit_usd)
            await self.store.adjust(account, change)
        return (await self.store.windows(account, closed=False))[0]

    async def _open(self, account: SpendAccount, limit_usd: Decimal) -> None:
        """Let the store know an account for which nothing was spent yet."""
        nothing = Decimal(0)
        claim = SpendClaim(id=_new_id(), account=account, amount_usd=nothing, limit_usd=limit_usd, lease=1.0)
        await self.store.reserve(claim)
        await self.store.settle(claim, nothing)

    async def _accounts(self) -> Sequence[SpendAccount]:
        found: set[SpendAccount] = set()
        after: str | None = None
        while True:
            page = await self.store.accounts(after)
            found.update(page.accounts)
            if (after := page.after) is None:
                return sorted(found, key=lambda account: (account.key, account.window))


def _new_id() -> str:
    return uuid.uuid4().hex


def _is_mistaken(account: SpendAccount, known: Sequence[SpendAccount]) -> bool:
    """Return whether the store knows the key with another window, or as that of a tenant or a tag."""
    return any(each.key in (account.key, *_longer(account.key)) for each in known)


def _longer(key: str) -> tuple[str, str]:
    """Return the keys of the tenant and of the tag with this name."""
    return f"{BY_TENANT}:{key}", f"{BY_TAG}:{key}"


def _unknown(account: SpendAccount, known: Sequence[SpendAccount]) -> ConfigurationError:
    """Return the error for a key or window that the store does not know, with the likely one."""
    if windows := [each.window for each in known if each.key == account.key]:
        return ConfigurationError(
            "window", account.window, f"a window of {account.key!r}: {', '.join(map(repr, windows))}"
        )
    keys = {each.key for each in known}
    if not keys:
        return ConfigurationError("key", account.key, "a key; the store has none yet")
    longer = next((each for each in _longer(account.key) if each in keys), None)
    hint = nearest_hint(account.key, sorted(keys)) if longer is None else f" Did you mean {longer!r}?"
    expected = "a key that the store counts for; SpendBook.list and `fastroai spend limits` show them"
    return ConfigurationError("key", account.key, f"{expected}.{hint}")

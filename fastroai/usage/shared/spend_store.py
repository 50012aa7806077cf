"""The protocol of stores that count spending for runs and processes together, and its values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, Protocol, runtime_checkable

from fastroai.usage.shared.spend_amounts import KEEP, Window, spend_units, spend_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendAccount:
    """The account where a store counts spending: one key and one kind of window.

    All `SpendLimit`s with this key and window count in it if they use the same store.
    """

    key: str
    window: Window


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendClaim:
    """A claim for one request or run: the amount that a `SpendStore` is to reserve, the limit and the lease.

    The same claim, with the same id, is passed to `reserve`, `mark_sent`, `renew` and `settle`. `lease` is
    the number of seconds after which the store gives it up, unless it is renewed. With `within`, another
    claim pays for this one.
    """

    id: str
    """The id of the claim. It is unique, and not used again once the claim is settled."""
    account: SpendAccount
    amount_usd: Decimal
    """The most that the request can cost, in US dollars."""
    limit_usd: Decimal
    """The most that may be spent and reserved in the window, in US dollars."""
    lease: float
    """Seconds after which the store gives the claim up, unless it is renewed."""
    holder: str = ""
    """Id of the process that asks. Other processes on its machine see by it whether the process is dead;
    empty if they cannot."""
    keep: timedelta = KEEP
    """The time for which windows of the account are kept after their end. The latest claim decides."""
    warn_at: tuple[float, ...] = ()
    """The shares of the limit to warn of, which `settle` looks at. They are rounded up to a millionth."""
    within: str = ""
    """The id of a reserved claim on the same account that pays for this one, if it has enough left. The part
    that this one does not spend is given back to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendBalance:
    """The spent and the reserved amount of an account in its current window, by the store's own clock.

    `limit_usd` is only a limit that was set by hand; it is `None` if there is none. `resets_at` is the end of
    the window; it is `None` for the window `total`. `reached` is empty, except from `settle`: it then has the
    shares of the limit of which the settled claim is to warn.
    """

    spent_usd: Decimal
    """The cost of settled requests, and the bounds of requests that were sent and never settled."""
    reserved_usd: Decimal
    """Bounds of the requests in flight."""
    now: datetime
    """The store's clock, in UTC."""
    resets_at: datetime | None
    """The end of the window, when the next one starts from zero; `None` for `total`."""
    limit_usd: Decimal | None = None
    """The limit that was set by hand for the window; `None` if each claim is held to its own limit."""
    reached: tuple[float, ...] = ()
    """Shares that are reached, and of which this claim is to warn. Only `settle` gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendVerdict:
    """The answer of `SpendStore.reserve` to a claim: whether it is granted, and the account's amounts.

    A claim that is not granted waits in line: `first` says whether it is the first there, and `holders` has
    the processes that hold the claims on the account.
    """

    granted: bool
    """Whether the amount is reserved now. If not, the claim waits in line."""
    first: bool
    """Whether the claim is the first in line. Only the first may give up, or ask for less, because it is too
    large. Without meaning if another claim pays for this one."""
    balance: SpendBalance
    holders: tuple[str, ...] = ()
    """Ids of the processes that hold claims on the account or wait in line, unless it was granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendChange:
    """A change that a person makes to the open window of an account: to its limit, or its spending to zero.

    It is an argument of `SpendStore.adjust`, and `SpendBook` makes these changes. A limit of `None` means
    that the amount in code applies again.
    """

    id: str
    """The id of the change. It is unique: a change that is sent twice is made once."""
    changes: Literal["limit", "spent"]
    """`limit`: the limit of the window. `spent`: its spending, which starts from zero again."""
    limit_usd: Decimal | None = None
    """The new limit in US dollars; `None` lets each claim be held to its own limit again."""
    by: str
    """The person who makes the change."""
    reason: str
    """The reason for the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendAdjustment:
    """A change that was made by hand, on record. Amounts in US dollars are exact."""

    id: str
    at: datetime
    """Time of the change, by the clock of the store, in UTC."""
    changes: Literal["limit", "spent"]
    """The changed value: the limit of the window, or its spending."""
    from_usd: Decimal
    to_usd: Decimal
    by: str
    """The person who made the change."""
    reason: str
    """The reason for the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendStatus:
    """The limit of one key in one window, and the amounts that are spent and reserved of it.

    `SpendLimit.status` and `SpendBook.list` return it. Amounts are exact US dollars. `reserved_usd` is the
    most that requests in flight can cost, and the quotes that runs have reserved. `remaining_usd` is what is
    left of the limit; it is 0 if the limit is exceeded.

    `resets_at` is the end of the window; it is `None` for the window `total`. `is_open` is false if the
    window is over. `adjustments` has the changes that people made by hand; only a `SpendBook` gives them.
    """

    key: str
    window: Window
    limit_usd: Decimal
    """The limit that applies: the one set by hand for this window, or that of the `SpendLimit`. `SpendBook`
    shows that of the latest request, if limits of different amounts count here."""
    spent_usd: Decimal
    """Known cost, and the bounds of requests whose process ended before they did."""
    reserved_usd: Decimal
    """Bounds of the requests in flight, and quotes that runs have reserved. Those of a process that has died
    count until its leases end."""
    now: datetime
    """The store's clock, in UTC."""
    resets_at: datetime | None
    """The past or coming end of the window, when the next one starts from zero; `None` for `total`."""
    is_open: bool = True
    """Whether new requests are counted in this window."""
    adjustments: tuple[SpendAdjustment, ...] = ()
    """The changes by hand in this window, in order. Only a `SpendBook` gives them."""

    @property
    def remaining_usd(self) -> Decimal:
        """US dollars of the limit that are neither spent nor reserved; 0 if the limit is exceeded."""
        committed = spend_units(self.spent_usd, "cost") + spend_units(self.reserved_usd, "cost")
        return spend_usd(max(0, spend_units(self.limit_usd, "limit") - committed))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendPage:
    """Some of the accounts of a store."""

    accounts: tuple[SpendAccount, ...]
    """The accounts, in no particular order. An account that is used between two pages may be on both."""
    after: str | None
    """The argument that asks for the next page; `None` on the last page."""


@runtime_checkable
class SpendStore(Protocol):
    """A store that counts the spending of many processes together.

    Every operation is atomic in the store and may be called from any event loop and thread. It can be
    repeated: if the answer was lost, the same call has its effect once. An operation that is cancelled after
    it has begun still takes effect, before any later one of the same object for the account: settle a claim
    that it may have reserved. An operation that found the store unavailable may have taken effect, or may
    later; its reservation ends with its lease.

    Amounts are exact to 18 decimals of a dollar; beyond these, reservations are rounded up, costs half to
    even, and limits down.

    Windows are those of the calendar in UTC, by the store's own clock. A claim counts in the window that the
    clock shows when it is reserved, and so does its cost, however late it is settled. If the clock is set
    back into a window that the store still knows, the window counts again, together with all later ones. If
    it is set back further, the window that was left continues to the end of the one that the clock shows. A
    store knows the windows of an account that ended less than `SpendClaim.keep` ago, and the latest four
    while the account is known. It forgets an account when the last window ended longer ago than that, and
    nobody has used the account for a day.

    A limit that was set by hand applies in its window, instead of the limits of all claims.

    Claims of one account are granted in the order in which they came: while one waits in line, no later one
    overtakes it, except claims `within` another one. A claim ends with its lease. If it was in line or never
    marked as sent, it is dropped; otherwise its full amount counts as spent, until `settle` corrects it. A
    clock that is set back does not make a lease longer.

    Raises:
        SpendStoreUnavailable: from every operation, if the store cannot be reached or does not answer.
        ConfigurationError: for amounts that are negative, not finite, or a billion dollars and more, and for
            leases that are not finite.
    """

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """Reserve the amount, if it fits into the limit and no other claim is in line before.

        It fits if spent + reserved + amount is at most the limit. The call does not wait: if the claim is not
        granted, it is put in line, and `granted` of the verdict is `False`. Ask again later with the same id.

        Asking again renews the lease. A claim in line keeps its place, whatever it asks for. A reserved claim
        stays reserved if it asks for as much or less. If it asks for more, it is a new claim: the amount it
        had reserved is free, and it goes to the end of the line. A claim that was sent is not changed.

        A new claim, or one in line, that is `within` another claim is granted at once if that one has enough
        left, in a window that counts. The amount is then taken from that claim, in the window of that claim.
        Otherwise it is a claim like any other.
        """
        ...

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """Note that a request is about to be sent, and renew the lease of its claim.

        Return `True` if its claim is reserved, or was marked before. On `False`, do not send the request: its
        claim waits in line, or is not reserved any more; nothing was changed.

        If the lease of a marked claim ends before `settle`, its full amount counts as spent.
        """
        ...

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """End a claim: free its amount, count `cost_usd` as spent, and return the balance of the account.

        A cost of 0 releases a claim that was reserved, and takes a claim that still waits out of the line.
        The cost is charged to the window that the claim was reserved in. If the claim was counted as spent
        when its lease ended, it is corrected to `cost_usd`; this is possible for 7 days. If the claim is not
        known, nothing changes. The part that it took from another claim and did not spend is given back to
        that claim, if it is still there.

        `reached` of the balance has the shares of `claim.warn_at` that the spending of the window has
        reached, except those of which a claim with the same limit has warned before. Each share is given once
        in a window. If the limit is raised by hand, or the spending is reset, shares that are then not
        reached can be given again.
        """
        ...

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        """Extend the leases of claims that are reserved, sent or in line, by `claim.lease` seconds from now.

        Claims that are not known, or whose leases have ended, are left as they are.
        """
        ...

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        """End the leases of the claims on an account that dead processes hold, as if their time were over.

        `holders` has the ids of these processes: `SpendClaim.holder`. Claims that were in line or reserved
        are dropped. The full amounts of claims that were sent count as spent, until `settle` corrects them.
        """
        ...

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """Return the spent and the reserved amount of the current window of the account.

        Both are zero if the account is not known.
        """
        ...

    async def adjust(self, account: SpendAccount, change: SpendChange) -> SpendAdjustment | None:
        """Change the limit or the spending of the current window, and keep the change with the window.

        Reserved amounts stay reserved. Return the change as it is on record, with the amount before and
        after; if the same change (by its id) was made before, return that one. Return `None`, and change
        nothing, if the account is not known.
        """
        ...

    async def windows(self, account: SpendAccount, *, closed: bool = True) -> tuple[SpendStatus, ...]:
        """Return the open window of an account, then with `closed` those that are over, newest first.

        Each has its amounts and its changes by hand. The result is empty if the account is not known. Nothing
        is changed.
        """
        ...

    async def accounts(self, after: str | None = None) -> SpendPage:
        """Return the known accounts, a page at a time. Nothing is changed.

        `after` is that of the page before; `None` asks for the first page. `after` of the last page is
        `None`.
        """
        ...

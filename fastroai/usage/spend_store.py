"""What a ceiling shared between runs and processes asks of the store that keeps it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, Protocol, runtime_checkable

from fastroai.records import usd_to_microcents
from fastroai.usage.spend_amounts import spend_units, spend_usd

KEEP: Final = timedelta(days=90)
"""How long a window is kept after its end, unless a claim says otherwise."""

Window = Literal["hour", "day", "month", "total"]
"""What a ceiling is for: each calendar hour, day or month, in UTC, or all time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendAccount:
    """Where spending is counted: one key, one kind of window."""

    key: str
    window: Window


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendClaim:
    """What one request wants to reserve."""

    id: str
    """Unique, and not used again once it is settled."""
    account: SpendAccount
    amount_usd: Decimal
    """What the request can cost at most, in US dollars."""
    limit_usd: Decimal
    """What may be spent and reserved together in the window, in US dollars."""
    lease: float
    """Seconds after which a claim that was not renewed is given up."""
    holder: str = ""
    """The process that asks. Others on its machine can tell whether it is dead. Empty: nobody can."""
    keep: timedelta = KEEP
    """How long windows of the account are kept after their end: what the latest claim says."""
    warn_at: tuple[float, ...] = ()
    """The shares of the limit that `settle` tells of. They are rounded up to a millionth."""
    within: str = ""
    """The id of a reserved claim on the same account, which pays for this one if it has as much left. It gets
    back what is not spent of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendBalance:
    """What an account holds, by the store's own clock."""

    spent_usd: Decimal
    """Settled requests, and the bounds of those that were sent and never settled."""
    reserved_usd: Decimal
    """Bounds of the requests in flight."""
    now: datetime
    """The store's clock, in UTC."""
    resets_at: datetime | None
    """When the window ends and the next one starts from zero; `None` for `total`."""
    limit_usd: Decimal | None = None
    """The limit that was set by hand for the window. `None`: each claim is held to its own."""
    reached: tuple[float, ...] = ()
    """Shares to warn of that this claim alone tells of, in the whole window. Only `settle` gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendVerdict:
    """What became of a claim."""

    granted: bool
    """Whether the amount is reserved now. Otherwise the claim waits in line."""
    first: bool
    """Whether no other claim is before it in line; only then may one that is too large give up or ask for
    less. Not said of a claim that another one pays for."""
    balance: SpendBalance
    holders: tuple[str, ...] = ()
    """If it was not granted: the processes that hold claims on the account or wait in line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendChange:
    """A change that a person makes to the open window of an account."""

    id: str
    """Unique: the same change is made once."""
    changes: Literal["limit", "spent"]
    """The limit of the window, or its spending, which starts from zero again."""
    limit_usd: Decimal | None = None
    """The new limit in US dollars. `None`: each claim is held to its own again."""
    by: str
    """Who makes it."""
    reason: str
    """Why it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendAdjustment:
    """A change that was made by hand, on record. Amounts in US dollars are exact."""

    id: str
    at: datetime
    """When it was made, by the clock of the store, in UTC."""
    changes: Literal["limit", "spent"]
    """The limit of the window, or its spending."""
    from_usd: Decimal
    to_usd: Decimal
    by: str
    """Who made it."""
    reason: str
    """Why it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendStatus:
    """What a `SpendLimit` has let through and has left, in one window. Amounts in US dollars are exact."""

    key: str
    window: Window
    limit_usd: Decimal
    """The limit that holds: the one set by hand for this window, or that of the `SpendLimit`."""
    spent_usd: Decimal
    """Known cost, and the bounds of requests whose process ended before they did."""
    reserved_usd: Decimal
    """Bounds of the requests in flight."""
    now: datetime
    """The store's clock, in UTC."""
    resets_at: datetime | None
    """When the window ends, or has ended, and the next one starts from zero; `None` for `total`."""
    is_open: bool = True
    """Whether new requests are counted in this window."""
    adjustments: tuple[SpendAdjustment, ...] = ()
    """What was changed by hand in this window, in order. Only a `SpendBook` gives them."""

    @property
    def remaining_usd(self) -> Decimal:
        """What is neither spent nor reserved; 0 if more than the limit is."""
        committed = spend_units(self.spent_usd, "cost") + spend_units(self.reserved_usd, "cost")
        return spend_usd(max(0, spend_units(self.limit_usd, "limit") - committed))

    @property
    def limit_microcents(self) -> int:
        """The limit in microcents, rounded once, half to even, as are the others."""
        return usd_to_microcents(self.limit_usd)

    @property
    def spent_microcents(self) -> int:
        """What is spent, in microcents."""
        return usd_to_microcents(self.spent_usd)

    @property
    def reserved_microcents(self) -> int:
        """What is reserved, in microcents."""
        return usd_to_microcents(self.reserved_usd)

    @property
    def remaining_microcents(self) -> int:
        """What is left, in microcents."""
        return usd_to_microcents(self.remaining_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendPage:
    """Some of the accounts of a store."""

    accounts: tuple[SpendAccount, ...]
    """In no particular order. One that is counted in meanwhile may be on two pages."""
    after: str | None
    """What the next page is asked for with; `None` if there is none."""


@runtime_checkable
class SpendStore(Protocol):
    """Counts what many processes spend together.

    Every operation is atomic where the data is, may be called from any event loop and thread, and can be
    repeated: after a lost connection the same call has the same effect once. One that is cancelled after it
    has begun still takes effect, before anything that is called then: settle what it may have reserved. One
    that found the store unavailable may have taken effect, or may still; what it leaves ends with its lease.

    Amounts are exact to 18 decimals of a dollar; beyond these, reservations are rounded up, costs half to
    even, and limits down.

    Windows are those of the calendar in UTC, by the store's own clock. Spending counts in the window that the
    clock shows. If the clock is set back into a window that the store still knows, the window counts again,
    together with all later ones. If it is set back further, the window that was left goes on, until the clock
    comes to the end of the one that it shows. A store knows the windows of an account that ended less than
    `SpendClaim.keep` ago, and in any case the latest four.

    A limit that was set by hand holds in its window, in the place of the limits of all claims.

    Claims of one account are granted in the order in which they came: while one waits in line, no later one
    overtakes it. A claim whose lease ends is given up: dropped if it was waiting or never marked sent, else
    counted as spent with its full amount, until `settle` says better. A clock that is set back does not make
    a lease longer.

    Raises:
        SpendStoreUnavailable: from every operation, if the store cannot be reached or does not answer.
        ConfigurationError: for amounts that are negative, not finite, or a billion dollars and more.
    """

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """Reserve, if spent + reserved + amount is within the limit and nobody is in line before.

        Asking again, by the same id, renews the lease. In line, a claim keeps its place whatever it asks for.
        A reserved one stays reserved if it asks for as much or less, and for more it is a new claim: what it
        had is free, and its place is the last. One that was sent stays as it is, and is granted no more.

        A new one, or one in line, that is `within` another is granted at once if that has as much, in a
        window that counts: the amount is then taken from there, in the window of that one. Otherwise it is a
        claim like any other.
        """
        ...

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """Note that the request goes out now. False if the claim is not held any more: then do not send."""
        ...

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """End a claim: what it reserved is free, and `cost_usd` is spent. 0 releases it, or leaves the line.

        It is charged to the window that it was reserved in. A claim that was counted as spent when its lease
        ended is corrected to `cost_usd`, for 7 days. One that is not known, or not any more, changes nothing.
        What it has taken from another claim and not spent is reserved by that one again, if it is there.

        The balance has the shares of `claim.warn_at` which the spending of the window has reached and which
        no claim with the same limit has told before. Each is told once in a window; but where a limit is
        raised by hand, or the spending reset, shares that are not reached any more can be told again.
        """
        ...

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        """Extend the leases of claims that are still held or in line."""
        ...

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        """End the leases of processes that are dead, as if their time were over."""
        ...

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """What the account holds in the window of now."""
        ...

    async def adjust(self, account: SpendAccount, change: SpendChange) -> SpendAdjustment | None:
        """Change the limit or the spending of the window of now, and keep that on record with the window.

        What is reserved stays reserved. `None`: the account is not known, and nothing was changed.
        """
        ...

    async def windows(self, account: SpendAccount, *, closed: bool = True) -> tuple[SpendStatus, ...]:
        """The open window of an account, and with `closed` those that are over, newest first.

        None of an account that is not known. Changes nothing.
        """
        ...

    async def accounts(self, after: str | None = None) -> SpendPage:
        """The accounts that are known, a page at a time. Changes nothing."""
        ...

"""What a ceiling shared between runs and processes asks of the store that keeps it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol, runtime_checkable

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
    clock shows. If the clock is set back into a window that the store still knows (it keeps the latest four
    of an account), the window counts again, together with all later ones. If it is set back further, the
    window that was left goes on, until the clock comes to the end of the one that it shows.

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

"""The operations of `SpendStore`, for stores that read and write an account as a whole."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from decimal import Decimal
from functools import partial
from typing import TypeVar

from fastroai.usage.shared.spend_rules import OpenAccount
from fastroai.usage.shared.spend_store import (
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendStatus,
    SpendVerdict,
)

T = TypeVar("T")


class RuledSpendStore(ABC):
    """A base class of stores that decide by the rules of `OpenAccount`."""

    @abstractmethod
    async def _act(self, account: SpendAccount, act: Callable[[OpenAccount], T], *, keeps: bool = True) -> T:
        """Open an account, and act on it. With `keeps`, keep the account as it is then, if it is known."""

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """See `SpendStore`."""
        return await self._act(claim.account, lambda account: account.reserve(claim))

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore`."""
        return await self._act(claim.account, lambda account: account.mark_sent(claim))

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """See `SpendStore`."""
        return await self._act(claim.account, lambda account: account.settle(claim, cost_usd))

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        """See `SpendStore`."""
        renewed = [self._act(claim.account, partial(OpenAccount.renew, claim=claim)) for claim in claims]
        await asyncio.gather(*renewed)

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        """See `SpendStore`."""
        await self._act(account, lambda opened: opened.end_leases(holders))

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """See `SpendStore`."""
        return await self._act(account, OpenAccount.balance)

    async def adjust(self, account: SpendAccount, change: SpendChange) -> SpendAdjustment | None:
        """See `SpendStore`."""
        return await self._act(account, lambda opened: opened.adjust(change))

    async def windows(self, account: SpendAccount, *, closed: bool = True) -> tuple[SpendStatus, ...]:
        """See `SpendStore`."""
        return await self._act(account, lambda opened: opened.statuses(account, closed), keeps=False)

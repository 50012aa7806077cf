"""What scopes know of requests: records in the account, and requests that have not ended yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from fastroai.records import RequestRecord, RequestUse

if TYPE_CHECKING:
    from fastroai.runtime.ledger import Account, Claim, Hold
    from fastroai.usage import SpendClaim
    from fastroai.usage.limits import Ceiling


class Charge:
    """A record in the account; what became of the request's answer may be learned later."""

    __slots__ = ("_before", "record")

    def __init__(self, record: RequestRecord, before: Charge | None = None) -> None:
        """Of a request for which scopes that have closed had charged `before`."""
        self.record, self._before = record, before

    @property
    def first(self) -> Charge:
        """The same for all charges of one request, in whichever scopes they are."""
        return self if self._before is None else self._before

    def mark(self, use: RequestUse) -> None:
        """Note what became of it."""
        if self.record.use != use:
            self.record = replace(self.record, use=use)


class InFlight(Protocol):
    """A request that was admitted and has not ended."""

    written_off: Charge | None
    """What scopes that have closed meanwhile have charged, if there are any."""

    def write_off(self) -> Charge:
        """Charge its bound, as unmeasured, in a scope that closes."""
        ...

    def leave(self, account: Account) -> list[Claim]:
        """Hold nothing more of an account. Returns the claims that this changes."""
        ...

    def interrupt(self) -> None:
        """End it, as the run is over. It raises `ScopeClosedError` where it was made, soon."""
        ...


class Payer(Protocol):
    """What a run has set aside of one spend limit."""

    claim: SpendClaim
    """The claim, with the amount that no request draws on yet."""


class SetAside(Protocol):
    """Money that is set aside for a run, on which all requests inside of the run draw."""

    @property
    def hold(self) -> Hold | None:
        """Its hold of budgets; `None` after the end of the run."""
        ...

    def payer_at(self, ceiling: Ceiling) -> Payer | None:
        """Return what pays for requests under a spend limit; `None` if nothing is set aside there."""
        ...

"""Requests as scopes know them: the records of ended requests, the requests in flight, and their sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from fastroai.records import AgentCallUsage, RequestRecord, RequestUse, Usage

if TYPE_CHECKING:
    from fastroai.runtime.budgets.ledger import Account, Claim, Hold
    from fastroai.usage import SpendClaim
    from fastroai.usage.limits import Ceiling


@dataclass(slots=True, eq=False)
class Charge:
    """A record that was added to scopes; the use of the request's answer may be learned later."""

    record: RequestRecord
    before: Charge | None = None
    """The charge in scopes that closed earlier, while the request was in flight."""

    @property
    def first(self) -> Charge:
        """The first charge of the request, the same object for all its charges in whichever scopes."""
        return self if self.before is None else self.before

    def mark(self, use: RequestUse) -> None:
        """Note how the answer of the request was used. One that was thrown away stays `retried`."""
        if self.record.use not in (use, "retried"):
            self.record = replace(self.record, use=use)


@dataclass(slots=True, eq=False)
class AgentCharges:
    """An agent run, with its charges and those of agent runs inside of it."""

    agent: str
    _charges: list[Sequence[Charge]] = field(default_factory=list, init=False)

    def add(self, charges: Sequence[Charge]) -> None:
        """Add charges, of which the run may have some already. A list may grow while the run goes on."""
        self._charges.append(charges)

    def charges(self) -> Iterator[Charge]:
        """Yield the charges, each once."""
        return iter({charge.first: charge for part in self._charges for charge in part}.values())


class InFlight(Protocol):
    """A request that was admitted and has not ended."""

    written_off: Charge | None
    """The charge in scopes that closed while the request was in flight; `None` if none did."""

    def write_off(self) -> Charge:
        """Return the charge for a scope that closes: the bound of the request, as unmeasured."""
        ...

    def leave(self, account: Account) -> list[Claim]:
        """Give back everything that the request holds of an account. Returns the claims that this changes."""
        ...

    def interrupt(self) -> None:
        """End the request, because the run is over. It soon raises `ScopeClosedError` where it was made."""
        ...


class Spending:
    """The usage of one scope and of those below it, as it grows. The caller of each method holds the lock."""

    __slots__ = ("_agent_calls", "charges", "in_flight", "usage")

    def __init__(self) -> None:
        """Begin with nothing spent."""
        self.usage = Usage()
        self.charges: list[Charge] = []
        """Charges of all requests that have ended, in the order in which they did."""
        self._agent_calls: list[AgentCharges] = []
        self.in_flight: dict[InFlight, bool] = {}
        """Requests that have not ended, each with whether its bound was already charged here."""

    @property
    def records(self) -> list[RequestRecord]:
        """The records of `charges`, as they are now."""
        return [charge.record for charge in self.charges]

    @property
    def agent_calls(self) -> tuple[AgentCallUsage, ...]:
        """The usage of each agent run by itself, in the order of their starts."""
        # A call comes after those that it is inside of.
        innermost = {charge.first: call for call in self._agent_calls for charge in call.charges()}
        return tuple(
            AgentCallUsage(
                agent=call.agent,
                records=tuple(one.record for one in call.charges() if innermost[one.first] is call),
            )
            for call in self._agent_calls
        )

    def count(self, charge: Charge) -> None:
        """Count a request that has ended."""
        self.usage.add(charge.record)
        self.charges.append(charge)

    def take_back(self, charge: Charge) -> None:
        """Stop counting a request of an earlier process, which is in flight again."""
        if charge not in self.charges:  # a run around this one has read the log by itself
            same = (one for one in self.charges if one.record == charge.record)
            if (found := next(same, None)) is None:
                return
            charge = found
        self.charges.remove(charge)
        self.usage.take_back(charge.record)

    def forget(self) -> None:
        """Keep only the sums of what is known, for a scope whose single requests are not read."""
        self.charges[:] = [charge for charge in self.charges if charge.record.outcome == "unmeasured"]
        self._agent_calls.clear()

    def count_agent_calls(self, calls: Sequence[AgentCharges]) -> None:
        """Count the starts of agent runs."""
        self.usage.agent_call_count += len(calls)
        self._agent_calls.extend(calls)

    def mark(self, use: RequestUse, since: int = 0, was: RequestUse | None = None) -> None:
        """Set the use of the charges from index `since` on; with `was`, only of those that have this use."""
        for charge in self.charges[since:]:
            if was in (None, charge.record.use):
                charge.mark(use)

    def mark_records(self, records: Iterable[RequestRecord], use: RequestUse) -> None:
        """Set the use of those requests whose records are in `records`, by identity."""
        marked = set(map(id, records))
        for charge in self.charges:
            if id(charge.record) in marked:
                charge.mark(use)

    def write_off(self, accounts: Iterable[Account]) -> list[Claim]:
        """Charge the bounds of the requests in flight, and let them leave the accounts of the scope.

        Returns the claims that this changes.
        """
        requests = [request for request, is_charged in self.in_flight.items() if not is_charged]
        for request in requests:
            self.in_flight[request] = True
            self.count(request.write_off())
        return [claim for account in accounts for request in requests for claim in request.leave(account)]


class Payer(Protocol):
    """The money that a run has set aside of one spend limit."""

    claim: SpendClaim
    """The claim of the run, with the amount on which no request draws yet."""


class SetAside(Protocol):
    """Money that is set aside for a run, on which all requests inside of the run draw."""

    @property
    def hold(self) -> Hold | None:
        """The hold of the run in its budgets; `None` after the end of the run."""
        ...

    def payer_at(self, ceiling: Ceiling) -> Payer | None:
        """Return the payer of requests under a spend limit; `None` if nothing is set aside there."""
        ...

"""The line before a provider that processes share: the rules of its value, as pure code.

A claim waits, is granted, is sent and ends, and then counts for the rest of its minute.
Times are seconds of a clock that all processes share. What a process tells can be told twice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from fastroai.runtime.providers import provider_line
from fastroai.runtime.providers.provider_line import ProviderLimitStatus, ProviderLine, Ticket

Limits: TypeAlias = tuple[int | None, int | None, int | None]
"""The arguments of `ProviderLine`."""

_GRAINS: Final = 240
"""Parts of a minute. Of ended requests, only the sums are kept of those that were sent in the same part."""


@dataclass(slots=True)
class ClaimRow:
    """One request in line, or on its way."""

    holder: str
    tokens: int
    inside: bool = False
    granted: bool = False
    sent_at: float | None = None


@dataclass(slots=True)
class HolderRow:
    """A process with claims."""

    owner: str
    """Name of the process. Others on its machine see by it whether the process is dead."""
    until: float
    """Time at which its claims are given up, unless it comes again before."""


@dataclass(slots=True)
class LineRow:
    """A line, as it was when it was last changed."""

    clock: float
    """Time of that change."""
    holders: dict[str, HolderRow] = field(default_factory=dict)
    claims: dict[str, ClaimRow] = field(default_factory=dict)
    """The claims by id. Those that wait are in the order in which they came."""
    counted: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Requests and tokens of ended requests, by the part of a minute after which they were not sent."""
    held_until: float = 0.0

    def move(self, seconds: float) -> None:
        """Move all times back, because the clock was set back."""
        for holder in self.holders.values():
            holder.until -= seconds
        for claim in self.claims.values():
            if claim.sent_at is not None:
                claim.sent_at -= seconds
        parts = math.floor(seconds / _grain())
        self.counted = {part - parts: amounts for part, amounts in self.counted.items()}
        self.held_until -= seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a process tells a line."""

    holder: str
    owner: str
    lease: float
    """Seconds after which its claims are given up, unless it comes again before."""
    limits: Limits
    waiting: Sequence[tuple[str, int, bool]] = ()
    """The claims that wait, in order: ids, expected tokens, and whether they are inside of others."""
    sent: Mapping[str, float] = field(default_factory=dict)
    """Claims that were sent, each with the seconds since then."""
    ended: Mapping[str, tuple[float | None, int]] = field(default_factory=dict)
    """Claims that have ended: seconds since they were sent, or `None` if nothing counts; and used tokens."""
    held_back_for: float = 0.0
    """Seconds for which the provider wants no request."""
    dead: Collection[str] = ()
    """Owners that have certainly ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a process sees of a line."""

    granted: Collection[str]
    """Those of its claims that are granted, or were sent."""
    lease_left: float
    """Seconds for which it has its claims."""
    next_in: float | None
    """Seconds until the first in line may go, if only time must pass."""
    owners: Collection[str]
    """Other processes with claims."""
    status: ProviderLimitStatus


class OpenLine:
    """A line at one moment, for what processes tell then."""

    def __init__(self, row: LineRow | None, now: float) -> None:
        """Bring the line up to date: leases that are over end. `row` is changed; `None` is a new line."""
        self.row = LineRow(now) if row is None else row
        self.is_changed = False
        """Whether the line must be written."""
        self._now = now
        if now < self.row.clock:
            self.row.move(self.row.clock - now)
            self.is_changed = True
        self.row.clock = now
        for name, holder in list(self.row.holders.items()):
            if holder.until <= now:
                self._give_up(name)
        self.row.counted = {
            part: amounts
            for part, amounts in self.row.counted.items()
            if part * _grain() + provider_line.MINUTE > now
        }

    def exchange(self, told: Told) -> Seen:
        """Take in what a process tells, grant what may go, and return what the process sees."""
        claims = self.row.claims
        for name, holder in list(self.row.holders.items()):
            if holder.owner in told.dead:
                self._give_up(name)
        for claim_id, (ago, tokens) in told.ended.items():
            if claim_id in claims:
                self._end(claim_id, None if ago is None else self._now - ago, tokens)
        for claim_id, ago in told.sent.items():
            if (claim := claims.get(claim_id)) is not None and claim.sent_at is None:
                claim.sent_at, self.is_changed = self._now - ago, True
        for claim_id, tokens, inside in told.waiting:
            if claim_id not in claims:
                claims[claim_id], self.is_changed = ClaimRow(told.holder, tokens, inside), True
        held_until = self._now + told.held_back_for
        if told.held_back_for > 0 and held_until > self.row.held_until:
            self.row.held_until, self.is_changed = held_until, True
        lease_left = self._renew(told)
        line = self._review(told.limits)
        next_at = line.next_at(self._now)
        return Seen(
            granted={key for key, each in claims.items() if each.granted and each.holder == told.holder},
            lease_left=lease_left,
            next_in=None if next_at is None else next_at - self._now,
            owners={each.owner for name, each in self.row.holders.items() if name != told.holder},
            status=line.status(self._now),
        )

    def _renew(self, told: Told) -> float:
        """Renew the lease of a process if a third of it is over. Return the seconds that are left."""
        holder = self.row.holders.get(told.holder)
        if not any(claim.holder == told.holder for claim in self.row.claims.values()):
            if holder is not None:
                del self.row.holders[told.holder]
                self.is_changed = True
            return told.lease
        if holder is None or holder.until - self._now < told.lease * 2 / 3:
            self.row.holders[told.holder] = holder = HolderRow(told.owner, self._now + told.lease)
            self.is_changed = True
        return holder.until - self._now

    def _review(self, limits: Limits) -> ProviderLine:
        """Grant what may go under these limits, and return the line as they see it."""
        row, line, waiting = self.row, ProviderLine(*limits), dict[Ticket, ClaimRow]()
        line.hold_back(row.held_until)
        sent = [(part * _grain(), *amounts) for part, amounts in row.counted.items()]
        sent += [(each.sent_at, 1, each.tokens) for each in row.claims.values() if each.sent_at is not None]
        for sent_at, requests, tokens in sorted(sent):
            line.count(requests, tokens, sent_at)
        for claim in row.claims.values():
            if not claim.granted:
                ticket = Ticket(claim.tokens, inside=claim.inside)
                waiting[ticket] = claim
                line.join(ticket)
                continue
            line.in_flight += not claim.inside
            if claim.sent_at is None:
                line.count(1, claim.tokens, None)
        for ticket in line.review(self._now):
            waiting[ticket].granted = self.is_changed = True
        return line

    def _end(self, claim_id: str, sent_at: float | None, tokens: int) -> None:
        """Forget a claim. If it was sent, count what it used for the rest of its minute."""
        claim = self.row.claims.pop(claim_id)
        self.is_changed = True
        if sent_at is not None:
            part = math.ceil((sent_at if claim.sent_at is None else claim.sent_at) / _grain())
            requests, before = self.row.counted.get(part, (0, 0))
            self.row.counted[part] = requests + 1, before + tokens

    def _give_up(self, name: str) -> None:
        """End the claims of a process. It may have sent those that were granted, until its lease was over."""
        holder = self.row.holders.pop(name)
        self.is_changed = True
        for claim_id, claim in list(self.row.claims.items()):
            if claim.holder == name:
                self._end(claim_id, min(holder.until, self._now) if claim.granted else None, claim.tokens)


def _grain() -> float:
    return provider_line.MINUTE / _GRAINS

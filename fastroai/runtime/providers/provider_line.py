"""The line of requests before a provider: a state machine without clock or I/O.

Times are seconds of one clock that never goes back. The caller of a line holds its lock. A call returns the
tickets that it grants, so that the caller can wake their requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from fastroai.runtime.concurrency.line import Line

MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class ProviderLimitStatus:
    """The present use of one provider under a `ProviderLimit`, as `ProviderLimit.status` returns it.

    `waiting` is the number of requests in line. `requests_last_minute` and `tokens_last_minute` are `None` if
    the limit does not limit them. `held_back_for` is 0 if the provider has not asked to wait. For a limit
    with a `store`, it is the use by all processes, as this process last read it.
    """

    in_flight: int
    """Requests that have a slot, until their response or stream has ended."""
    waiting: int
    requests_last_minute: int | None
    """Requests sent, or about to be sent; `None` if requests per minute are not limited."""
    tokens_last_minute: int | None
    """Tokens used, or expected to be used; `None` if tokens per minute are not limited."""
    held_back_for: float
    """Seconds for which the provider has asked everybody to wait (`Retry-After`)."""


@dataclass(slots=True, eq=False)
class _Entry:
    """The amount that one request takes of a window."""

    amount: int
    sent_at: float | None = None
    expired: bool = False


class SlidingWindow:
    """A window that lets at most `limit` requests or tokens through in any minute.

    It is not a bucket that fills up again: that would let twice its size through within a minute, half of it
    at the beginning. An amount counts from when it is taken until a minute after it is sent. An amount above
    the limit is let through when nothing else is in the window.
    """

    __slots__ = ("_sent", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        """Amount sent within a minute before the last `expire`, and amount taken but not sent yet."""
        self._sent: deque[_Entry] = deque()

    def fits(self, amount: int, now: float) -> bool:
        """Return whether this amount may be taken now."""
        self.expire(now)
        return self._has_room(self.used, amount)

    def fits_at(self, amount: int) -> float | None:
        """Return the time at which this amount may be taken; `None` if another one must be sent first."""
        used = self.used
        for entry in self._sent:
            assert entry.sent_at is not None
            used -= entry.amount
            if self._has_room(used, amount):
                return entry.sent_at + MINUTE
        return None

    def take(self, amount: int) -> _Entry:
        """Take this amount, which is not sent yet."""
        self.used += amount
        return _Entry(amount)

    def send(self, entry: _Entry, now: float) -> None:
        """Note that the amount is sent now: its minute begins."""
        entry.sent_at = now
        self._sent.append(entry)

    def correct(self, entry: _Entry, amount: int) -> None:
        """Change the amount of an entry to the one that was really used."""
        if not entry.expired:
            self.used += amount - entry.amount
            entry.amount = amount

    def expire(self, now: float) -> None:
        """Forget the entries that were sent a minute ago or earlier."""
        while self._sent and (sent_at := self._sent[0].sent_at) is not None and sent_at + MINUTE <= now:
            entry = self._sent.popleft()
            self.used -= entry.amount
            entry.expired = True

    def _has_room(self, used: int, amount: int) -> bool:
        return used + amount <= self.limit or used == 0


TicketState = Literal["waiting", "granted", "sent", "ended"]


class Ticket:
    """One request in line, and then on its way."""

    __slots__ = ("entries", "failure", "inside", "state", "tokens", "wake")

    def __init__(self, tokens: int, *, inside: bool = False) -> None:
        """Make a ticket for a request that is expected to use this number of tokens.

        A request made `inside` of another one with a slot, which ends only after it, has no slot of its own.
        It shares the slot of the other one, and goes before requests that may be waiting for that slot.
        """
        self.tokens, self.inside = tokens, inside
        self.state: TicketState = "waiting"
        self.entries: tuple[_Entry | None, _Entry | None] = (None, None)
        """Entries in the windows of requests and of tokens."""
        self.wake: Callable[[], bool] | None = None
        """Function to call, without the lock, when the ticket is granted; False if its loop is closed."""
        self.failure: Exception | None = None
        """The error that keeps the ticket from being granted."""

    @property
    def is_granted(self) -> bool:
        """Whether the request may be sent."""
        return self.state == "granted"


class ProviderLine:
    """The line before one provider: first come, first served.

    No request overtakes another, not even a small one that needs fewer tokens.
    """

    __slots__ = ("_line", "held_until", "in_flight", "max_concurrency", "requests", "tokens")

    def __init__(self, max_concurrency: int | None, requests: int | None, tokens: int | None) -> None:
        """Limit the requests in flight at once, and the requests and tokens that are sent in a minute."""
        self.max_concurrency = max_concurrency
        self.requests = None if requests is None else SlidingWindow(requests)
        self.tokens = None if tokens is None else SlidingWindow(tokens)
        self.in_flight = 0
        """Number of slots that are taken."""
        self.held_until = float("-inf")
        self._line: Line[Ticket] = Line()

    @property
    def waiting(self) -> int:
        """Number of requests in line."""
        return len(self._line)

    def status(self, now: float) -> ProviderLimitStatus:
        """Return the present use."""
        for window in (self.requests, self.tokens):
            if window is not None:
                window.expire(now)
        return ProviderLimitStatus(
            in_flight=self.in_flight,
            waiting=self.waiting,
            requests_last_minute=None if self.requests is None else self.requests.used,
            tokens_last_minute=None if self.tokens is None else self.tokens.used,
            held_back_for=max(0.0, self.held_until - now),
        )

    def count(self, requests: int, tokens: int, sent_at: float | None) -> None:
        """Count requests in the minute, without slots; `None` for those that are granted and not sent yet."""
        for window, amount in ((self.requests, requests), (self.tokens, tokens)):
            if window is not None:
                entry = window.take(amount)
                if sent_at is not None:
                    window.send(entry, sent_at)

    def join(self, ticket: Ticket) -> None:
        """Put a ticket in line, even if it could go at once."""
        self._line.join(ticket, inside=ticket.inside)

    def ask(self, ticket: Ticket, now: float) -> list[Ticket]:
        """Grant a ticket, or put it in line. Returns the other tickets that are granted."""
        granted = self.review(now)
        if not self._line.is_behind_others(inside=ticket.inside) and self._fits(ticket, now):
            self._grant(ticket)
        else:
            self.join(ticket)
        return granted

    def leave(self, ticket: Ticket, now: float) -> list[Ticket]:
        """Take a ticket out of the line. Returns the tickets that are granted."""
        self._line.leave(ticket)
        ticket.state = "ended"
        return self.review(now)

    def send(self, ticket: Ticket, now: float) -> None:
        """Note that the request goes out now."""
        assert ticket.state == "granted"
        ticket.state = "sent"
        for window, entry in zip((self.requests, self.tokens), ticket.entries, strict=True):
            if window is not None and entry is not None:
                window.send(entry, now)

    def end(self, ticket: Ticket, now: float, *, tokens: int | None = None) -> list[Ticket]:
        """End a request that used `tokens`; with `None`, the expected ones. Returns the granted tickets."""
        assert ticket.state == "sent"
        if tokens is not None:
            self._correct(ticket, None, tokens)
        return self._free(ticket, now)

    def give_back(self, ticket: Ticket, now: float) -> list[Ticket]:
        """Give everything back, since the request never reached the provider. Returns the granted tickets."""
        assert ticket.state in ("granted", "sent")
        self._correct(ticket, 0, 0)
        return self._free(ticket, now)

    def hold_back(self, until: float) -> None:
        """Grant nothing before the time `until`, because the provider asked for that."""
        self.held_until = max(self.held_until, until)

    def review(self, now: float) -> list[Ticket]:
        """Grant the tickets whose turn it is, and return them."""
        granted: list[Ticket] = []
        while (first := self._line.first) is not None and self._fits(first, now):
            self._line.leave(first)
            self._grant(first)
            granted.append(first)
        return granted

    def next_at(self, now: float) -> float | None:
        """Return the time of the next review; `None` if a request must be sent or end first."""
        first = self._line.first
        if first is None or not self._has_slot(first):
            return None
        times = [self.held_until]
        for window, amount in ((self.requests, 1), (self.tokens, first.tokens)):
            if window is not None and not window.fits(amount, now):
                fits_at = window.fits_at(amount)
                if fits_at is None:
                    return None
                times.append(fits_at)
        return max(times)

    def _has_slot(self, ticket: Ticket) -> bool:
        return ticket.inside or self.max_concurrency is None or self.in_flight < self.max_concurrency

    def _fits(self, ticket: Ticket, now: float) -> bool:
        return (
            now >= self.held_until
            and self._has_slot(ticket)
            and (self.requests is None or self.requests.fits(1, now))
            and (self.tokens is None or self.tokens.fits(ticket.tokens, now))
        )

    def _grant(self, ticket: Ticket) -> None:
        ticket.state = "granted"
        ticket.entries = (
            None if self.requests is None else self.requests.take(1),
            None if self.tokens is None else self.tokens.take(ticket.tokens),
        )
        self.in_flight += not ticket.inside

    def _correct(self, ticket: Ticket, requests: int | None, tokens: int) -> None:
        of_requests, of_tokens = ticket.entries
        if self.requests is not None and of_requests is not None and requests is not None:
            self.requests.correct(of_requests, requests)
        if self.tokens is not None and of_tokens is not None:
            self.tokens.correct(of_tokens, tokens)

    def _free(self, ticket: Ticket, now: float) -> list[Ticket]:
        ticket.state = "ended"
        self.in_flight -= not ticket.inside
        return self.review(now)

"""The queue before a provider whose line is shared with other processes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from functools import partial
from typing import Final

from fastroai.errors import StoreUnavailable
from fastroai.runtime.concurrency.line import Line
from fastroai.runtime.concurrency.wakeup import wait_for
from fastroai.runtime.owner import is_dead, process_owner, steady_seconds
from fastroai.runtime.providers.provider_line import ProviderLimitStatus, ProviderLine, Ticket
from fastroai.runtime.providers.provider_queue import Queue, Waiting
from fastroai.runtime.providers.shared_line import Limits, OpenLine, Seen, Told
from fastroai.runtime.providers.sharing import Sharing

logger: Final = logging.getLogger("fastroai.runtime")

PLACES: Final = 32
"""The most places that one process has in the line; its other requests wait behind them, in order."""
_RENEWALS_PER_LEASE: Final = 3
_LOOKS_FOR_DEAD: Final = 1.0
"""Seconds between two looks for processes in the line that are dead."""
_RETRY: Final = 0.5
"""Seconds until a store that was unavailable is asked again, if nobody comes before."""


class SharedQueue(Queue):
    """Requests of this process that wait in a line with those of other processes.

    One task on the background loop tells the line what has happened here, all of it at once, and learns who
    may go. The loop of a request would not do, because it may be blocked, cancelled or closed.
    """

    def __init__(self, provider: str, limits: Limits, sharing: Sharing, alone: Queue) -> None:
        """`alone` is the queue to use while the store is unavailable, if that is allowed."""
        super().__init__(counts_tokens=alone.counts_tokens)
        self._limits, self._sharing, self._alone = limits, sharing, alone
        self._name, self._provider = f"{sharing.key}:{provider}", provider
        self._holder, self._numbers = uuid.uuid4().hex[:12], itertools.count()
        self._line: Line[Ticket] = Line()
        """The tickets that wait."""
        self._tickets: dict[str, Ticket] = {}
        """Those that wait, are granted or were sent, by the ids of their claims."""
        self._ids: dict[Ticket, str] = {}
        self._sent: dict[str, float] = {}
        """Times at which claims were sent, by the steady clock, for those that have not ended."""
        self._ended: dict[str, tuple[float | None, int]] = {}
        """Claims of which the line must be told that they have ended: when they were sent, and tokens."""
        self._held_until = 0.0
        self._has_until = 0.0
        """Time until which this process has its claims, by the steady clock."""
        self._status = ProviderLine(*limits).status(0.0)
        self._stirred = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The background loop, once it has begun to serve."""
        self._is_serving = False
        self._dead: list[str] = []
        self._looked_at = 0.0
        """Time of the last look for processes that are dead."""

    def status(self) -> ProviderLimitStatus:
        """See `Queue`."""
        return self._status

    # --- waiting ---

    async def wait_turn(self, ticket: Ticket, waiting: Waiting) -> Queue:
        """See `Queue`.

        Raises:
            StoreUnavailable: the store cannot be reached, and `on_unavailable` is `refuse`.
        """
        with self._lock:
            claim_id = f"{self._holder}.{next(self._numbers)}"
            self._tickets[claim_id], self._ids[ticket] = ticket, claim_id
            self._line.join(ticket, inside=ticket.inside)
            self._stir()
        try:
            with waiting.in_line():
                while not await self._woken(ticket, waiting):
                    pass
        except StoreUnavailable as error:
            self._end(ticket, None)
            self._sharing.allow(error, f"the provider limit of {self._provider}")
        except BaseException:
            self._end(ticket, None)
            raise
        else:
            return self
        ticket.state, ticket.failure = "waiting", None
        return await self._alone.wait_turn(ticket, waiting)

    # --- on its way ---

    def send(self, ticket: Ticket) -> bool:
        """See `Queue`. The turn is over when the lease is: other processes may have been let go since."""
        with self._lock:
            claim_id = self._ids.get(ticket)
            if claim_id is None or (now := steady_seconds()) >= self._has_until:
                return False
            ticket.state, self._sent[claim_id] = "sent", now
            return True

    def end(self, ticket: Ticket, tokens: int | None) -> None:
        """See `Queue`."""
        self._end(ticket, ticket.tokens if tokens is None else tokens)

    def give_back(self, ticket: Ticket) -> None:
        """See `Queue`."""
        self._end(ticket, None)

    def hold_back(self, seconds: float) -> None:
        """See `Queue`."""
        with self._lock:
            self._held_until = max(self._held_until, steady_seconds() + seconds)
            self._stir()

    def _end(self, ticket: Ticket, tokens: int | None) -> None:
        """Take a ticket back. With `None` for its tokens, nothing of it counts."""
        with self._lock:
            if ticket.state == "waiting":
                self._line.leave(ticket)
            ticket.state = "ended"
            if (claim_id := self._forget(ticket)) is None:
                return
            sent_at = self._sent.pop(claim_id, None)
            self._ended[claim_id] = (None, 0) if tokens is None else (sent_at, tokens)
            self._stir()

    def _forget(self, ticket: Ticket) -> str | None:
        claim_id = self._ids.pop(ticket, None)
        if claim_id is not None:
            del self._tickets[claim_id]
        return claim_id

    # --- the line ---

    def _stir(self) -> None:
        """Have the line told soon of what has happened. The caller holds the lock."""
        if not self._is_serving:
            self._sharing.store.in_background(self._serve(), finishes=True)
            self._is_serving = True
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._stirred.set)

    async def _serve(self) -> None:
        """Tell the line, and learn from it, while there is anything here that it knows or must know."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._stirred.clear()
            if (told := self._told()) is None:
                return
            began = steady_seconds()
            try:
                seen = await self._sharing.store.lines.ask(self._name, partial(OpenLine.exchange, told=told))
            except Exception as error:  # a store can be the user's, and raise anything
                self._fail(error)
                await wait_for(self._stirred, _RETRY)
                continue
            for ticket in self._learn(told, seen, began):
                if ticket.wake is not None and not ticket.wake():
                    self.give_back(ticket)
            if not (told.waiting and self._finds_dead(seen, began)):
                await self._rest(told, seen)

    def _told(self) -> Told | None:
        """Return what there is to tell; `None`, and then nobody serves any more, if that is nothing."""
        now = steady_seconds()
        with self._lock:
            if now >= self._has_until:  # the line has given up all that it had from here
                self._ended.clear()
            held_back_for = max(0.0, self._held_until - now)
            if not (self._tickets or self._ended or held_back_for):
                self._is_serving = False
                return None
            places = itertools.count()
            waiting = [
                (self._ids[ticket], ticket.tokens, ticket.inside)
                for ticket in self._line
                if ticket.inside or next(places) < PLACES
            ]
            return Told(
                holder=self._holder,
                owner=process_owner(),
                lease=self._sharing.lease,
                limits=self._limits,
                waiting=waiting,
                sent={claim_id: now - sent_at for claim_id, sent_at in self._sent.items()},
                ended={
                    claim_id: (None if sent_at is None else now - sent_at, tokens)
                    for claim_id, (sent_at, tokens) in self._ended.items()
                },
                held_back_for=held_back_for,
                dead=self._dead,
            )

    def _learn(self, told: Told, seen: Seen, began: float) -> list[Ticket]:
        """Take in what was seen of the line. Return the tickets that are granted now."""
        granted = list[Ticket]()
        with self._lock:
            for claim_id in told.ended:
                self._ended.pop(claim_id, None)
            if self._held_until <= began + told.held_back_for:
                self._held_until = 0.0
            self._has_until, self._status = began + seen.lease_left, seen.status
            for claim_id, ticket in list(self._tickets.items()):
                if claim_id not in seen.granted:
                    if ticket.state != "waiting":  # its lease was over
                        self._sent.pop(self._forget(ticket) or "", None)
                elif ticket.state == "waiting":
                    self._line.leave(ticket)
                    ticket.state = "granted"
                    granted.append(ticket)
        return granted

    def _finds_dead(self, seen: Seen, now: float) -> bool:
        """Return whether processes in the line are found dead, of which the line is then told."""
        self._dead = []
        if now >= self._looked_at + _LOOKS_FOR_DEAD:
            self._looked_at = now
            self._dead = [owner for owner in seen.owners if is_dead(owner)]
        return bool(self._dead)

    async def _rest(self, told: Told, seen: Seen) -> None:
        """Rest until there is something to tell, or to learn for those who wait."""
        seconds = self._sharing.lease / _RENEWALS_PER_LEASE
        if not told.waiting:
            if self._tickets:  # else there is nothing to renew
                await wait_for(self._stirred, seconds)
            return
        seconds = min(seconds, seen.next_in if seen.next_in is not None else seconds)
        stirred = asyncio.ensure_future(self._stirred.wait())
        looks = asyncio.ensure_future(self._sharing.store.lines.changed(self._name, seconds))
        try:
            await asyncio.wait([stirred, looks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stirred.cancel()
            looks.cancel()
            await asyncio.wait([stirred, looks])
        if not looks.cancelled():
            looks.exception()  # the next exchange finds out, too

    def _fail(self, error: Exception) -> None:
        """Have those who wait fail, each with an error of its own, because the line cannot be asked."""
        with self._lock:
            waiting = list(self._line)
        if not waiting:
            logger.warning("the provider limit of %s cannot be told of ends: %s", self._provider, error)
        for ticket in waiting:
            if isinstance(error, StoreUnavailable):
                ticket.failure = StoreUnavailable(error.store, error.reason, error.advice)
                ticket.failure.__cause__ = error
            else:
                ticket.failure = error
            if ticket.wake is not None and not ticket.wake():
                self.give_back(ticket)

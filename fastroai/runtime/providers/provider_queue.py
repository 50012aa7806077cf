"""The queue at which requests to one provider wait, whoever decides which of them may go."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from fastroai.runtime.concurrency.wakeup import Wakeup
from fastroai.runtime.providers.provider_line import ProviderLimitStatus, Ticket


class Waiting(NamedTuple):
    """What a request does while it waits for its turn."""

    give_up: Callable[[], None]
    """Raises if waiting is useless."""
    watched: Callable[[Callable[[], None]], AbstractContextManager[None]]
    """Has a function called, inside of the context manager, when `give_up` must be asked again."""
    in_line: Callable[[], AbstractContextManager[None]]
    """Returns the context manager in which the request waits."""


class Queue(ABC):
    """A queue for requests of any thread and event loop. Its lock guards its tickets."""

    def __init__(self, *, counts_tokens: bool) -> None:
        self.counts_tokens = counts_tokens
        self._lock = threading.Lock()
        self._usual_output: dict[str, float] = {}

    @abstractmethod
    def status(self) -> ProviderLimitStatus:
        """Return the present use of the provider."""

    @abstractmethod
    async def wait_turn(self, ticket: Ticket, waiting: Waiting) -> Queue:
        """Wait until the request may be sent. Return the queue that has granted the ticket."""

    @abstractmethod
    def send(self, ticket: Ticket) -> bool:
        """Note that the request goes out now. Returns False if its turn is over: then give it back."""

    @abstractmethod
    def end(self, ticket: Ticket, tokens: int | None) -> None:
        """Note that the request has ended and used `tokens`; with `None`, the expected number counts."""

    @abstractmethod
    def give_back(self, ticket: Ticket) -> None:
        """Give the slot and the amounts back, because the request never reached the provider."""

    @abstractmethod
    def hold_back(self, seconds: float) -> None:
        """Send no request for `seconds`, because the provider asked for that."""

    async def _woken(self, ticket: Ticket, waiting: Waiting) -> bool:
        """Wait until the ticket may have changed. Returns whether it is the request's turn."""
        wakeup = Wakeup()
        loop = asyncio.get_running_loop()

        def wake() -> bool:
            wakeup.set()
            return not loop.is_closed()

        with self._lock:
            if ticket.failure is not None:
                raise ticket.failure
            if ticket.state != "waiting":
                return True
            ticket.wake = wake
        with waiting.watched(wakeup.set):
            waiting.give_up()
            await wakeup.wait()
        if ticket.failure is not None:
            raise ticket.failure
        return ticket.is_granted

    # --- what requests use ---

    def usual_output(self, model: str) -> int | None:
        """Return the usual number of tokens in recent answers of a model; `None` before the first."""
        usual = self._usual_output.get(model)
        return None if usual is None else round(usual)

    def learn(self, model: str, output_tokens: int) -> None:
        """Note the tokens of an answer. The usual number moves a fifth of the way to it."""
        with self._lock:
            usual = self._usual_output.get(model, output_tokens)
            self._usual_output[model] = usual + (output_tokens - usual) / 5

"""`ProviderLimit`: a limit on the requests of a process to a provider, at once and in a minute."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from fastroai.callers import warn_caller
from fastroai.errors import ConfigurationError
from fastroai.forks import in_forked_process
from fastroai.runtime.concurrency.wakeup import Wakeup, running_loop
from fastroai.runtime.options import check_count
from fastroai.runtime.providers.circuit_breaker import CircuitBreaker, check_circuit_breaker
from fastroai.runtime.providers.provider_line import ProviderLine, Ticket
from fastroai.usage.near_misses import NearMissWarning, misspelt_provider
from fastroai.usage.prices.overrides import PROVIDERS_OF_REFERENCES

ALL_OTHERS: Final = "*"
"""The key of the limit for providers that have no key of their own."""

_serial: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class ProviderLimitStatus:
    """The present use of one provider under a `ProviderLimit`."""

    in_flight: int
    """Requests that have a slot, until their response or stream has ended."""
    waiting: int
    requests_last_minute: int | None
    """Requests sent, or about to be sent; `None` if requests per minute are not limited."""
    tokens_last_minute: int | None
    """Tokens used, or expected to be used; `None` if tokens per minute are not limited."""
    held_back_for: float
    """Seconds for which the provider has asked everybody to wait (`Retry-After`)."""


class ProviderLimit:
    """A limit on the requests to a provider, at once and in a minute; one object is one limit everywhere.

    Requests wait their turn before they are sent, first come, first served, across all agents, steps,
    pipelines, threads and event loops of the process. In any 60 seconds at most `requests_per_minute` are
    sent. Tokens are estimated before a request is sent, and corrected by its usage. After a 429 with
    `Retry-After`, no request is sent before that time.

        openai = ProviderLimit(max_concurrency=20, requests_per_minute=500, tokens_per_minute=200_000)
        agent = FastroAgent("openai:gpt-5-mini", provider_limits={"openai": openai})

    Under the key `"*"`, the limit applies to each provider that has no key of its own, each by itself.
    """

    def __init__(
        self,
        *,
        max_concurrency: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        circuit_breaker: CircuitBreaker | None = None,
    ) -> None:
        """Set the limits; `None` means no limit.

        Raises:
            ConfigurationError: an invalid value, or no limit at all.
        """
        check_count("max_concurrency", max_concurrency, least=1)
        check_count("requests_per_minute", requests_per_minute, least=1)
        check_count("tokens_per_minute", tokens_per_minute, least=1)
        check_circuit_breaker(circuit_breaker)
        limits = (max_concurrency, requests_per_minute, tokens_per_minute, circuit_breaker)
        if all(limit is None for limit in limits):
            needs = "a limit: max_concurrency=, requests_per_minute=, tokens_per_minute= or circuit_breaker="
            raise ConfigurationError("ProviderLimit", ..., needs)
        self.max_concurrency = max_concurrency
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self.circuit_breaker = circuit_breaker
        self.serial = next(_serial)
        """Requests under several limits wait for them in this order, so that no two wait for each other."""
        self._start()
        in_forked_process(self._start)  # requests of the parent process hold no slots in a forked one

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, ProviderQueue] = {}

    def __repr__(self) -> str:
        options = ("max_concurrency", "requests_per_minute", "tokens_per_minute", "circuit_breaker")
        given = ((option, getattr(self, option)) for option in options)
        return f"ProviderLimit({', '.join(f'{name}={value}' for name, value in given if value is not None)})"

    def status(self, provider: str) -> ProviderLimitStatus:
        """Return the present use of one provider, by PydanticAI's name of the provider."""
        return self.queue(provider).status()

    def queue(self, provider: str) -> ProviderQueue:
        """Return the queue at which requests to one provider wait."""
        with self._lock:
            queue = self._queues.get(provider)
            if queue is None:
                queue = self._queues[provider] = ProviderQueue(self)
            return queue


ProviderLimits = Mapping[str, ProviderLimit]
"""Limits by the provider's name as PydanticAI gives it (`Model.system`), or `"*"` for all others."""


def check_provider_limits(limits: ProviderLimits | None) -> None:
    """Check that a value is a mapping of provider names to `ProviderLimit`s, or `None`.

    A `NearMissWarning` says of each name that no provider has, but that nearly is one.

    Raises:
        ConfigurationError: it is another value.
    """
    expected = "a mapping of providers to ProviderLimits, such as {'openai': ProviderLimit(...)}"
    given: object = limits
    if given is None:
        return
    if not isinstance(given, Mapping) or not all(
        isinstance(provider, str) and isinstance(limit, ProviderLimit) for provider, limit in given.items()
    ):
        raise ConfigurationError("provider_limits", given, expected)
    for provider in limits or ():
        name, colon, _ = provider.partition(":")  # a model, though the limit is for all of its provider
        meant = PROVIDERS_OF_REFERENCES.get(name) or misspelt_provider(name) or (name if colon else None)
        if meant is not None and provider != ALL_OTHERS:
            warn_caller(
                f"provider_limits[{provider!r}]: no provider has this name, so nothing is limited. "
                f"Did you mean {meant!r}? If it is a provider of your own, ignore this warning.",
                NearMissWarning,
            )


def limits_for(provider: str, mappings: Iterable[ProviderLimits]) -> list[ProviderLimit]:
    """Return the limits that apply to a provider, each once, in the order in which requests wait for them."""
    found = (mapping.get(provider) or mapping.get(ALL_OTHERS) for mapping in mappings)
    return sorted({limit for limit in found if limit is not None}, key=lambda limit: limit.serial)


class ProviderQueue:
    """The line before one provider, for requests of any thread and event loop."""

    def __init__(self, limit: ProviderLimit) -> None:
        self._lock = threading.Lock()
        self._line = ProviderLine(limit.max_concurrency, limit.requests_per_minute, limit.tokens_per_minute)
        self._alarms: dict[asyncio.AbstractEventLoop, _Alarm] = {}
        """Alarms of the event loops on which requests wait."""
        self.counts_tokens = limit.tokens_per_minute is not None
        self._usual_output: dict[str, float] = {}

    def status(self) -> ProviderLimitStatus:
        """Return the present use of the provider."""
        with self._lock:
            now, line = monotonic(), self._line
            for window in (line.requests, line.tokens):
                if window is not None:
                    window.expire(now)
            return ProviderLimitStatus(
                in_flight=line.in_flight,
                waiting=line.waiting,
                requests_last_minute=None if line.requests is None else line.requests.used,
                tokens_last_minute=None if line.tokens is None else line.tokens.used,
                held_back_for=max(0.0, line.held_until - now),
            )

    # --- waiting ---

    async def wait_turn(
        self,
        ticket: Ticket,
        give_up: Callable[[], None],
        in_line: Callable[[], AbstractContextManager[None]],
        watched: Callable[[Callable[[], None]], AbstractContextManager[None]],
    ) -> None:
        """Wait until the request may be sent.

        `give_up()` raises if waiting is useless. `watched(wake)` calls `wake` when `give_up` must be asked
        again. `in_line()` is entered while the request waits.
        """
        with self._lock:
            others = self._line.ask(ticket, monotonic())
        self._tell(others)
        if ticket.state == "granted":
            return
        try:
            with in_line(), self._alarm_set():
                while not await self._woken(ticket, give_up, watched):
                    pass
        except BaseException:
            self._withdraw(ticket)
            raise

    async def _woken(
        self,
        ticket: Ticket,
        give_up: Callable[[], None],
        watched: Callable[[Callable[[], None]], AbstractContextManager[None]],
    ) -> bool:
        """Wait until the ticket may have changed. Returns whether it is the request's turn."""
        wakeup = Wakeup()
        loop = asyncio.get_running_loop()

        def wake() -> bool:
            wakeup.set()
            return not loop.is_closed()

        with self._lock:
            if ticket.state != "waiting":
                return True
            ticket.wake = wake
        with watched(wakeup.set):
            give_up()
            await wakeup.wait()
        return ticket.is_granted

    @contextmanager
    def _alarm_set(self) -> Iterator[None]:
        """Keep an alarm on the running loop, which reviews the line when a request may go by then."""
        loop = asyncio.get_running_loop()
        with self._lock:
            alarm = self._alarms.get(loop)
            if alarm is None:
                alarm = self._alarms[loop] = _Alarm(loop, self._look_again)
            alarm.waiters += 1
            self._set_alarms()
        try:
            yield
        finally:
            with self._lock:
                alarm.waiters -= 1
                if not alarm.waiters:
                    del self._alarms[loop]
                    alarm.stop()

    def _withdraw(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket.state == "ended":  # another loop ended the ticket, because the ticket's loop was closed
                return
            withdraw = self._line.leave if ticket.state == "waiting" else self._line.give_back
            granted = withdraw(ticket, monotonic())
            self._set_alarms()
        self._tell(granted)

    def _look_again(self) -> None:
        with self._lock:
            granted = self._line.review(monotonic())
            self._set_alarms()
        self._tell(granted)

    def _set_alarms(self) -> None:
        """Set the alarms of all loops to the time of the next review. The caller holds the lock."""
        if self._alarms:
            at = self._line.next_at(monotonic())
            for alarm in self._alarms.values():
                alarm.set(at)

    def _tell(self, granted: list[Ticket]) -> None:
        """Wake the granted requests. If the loop of one is closed, its slot goes to the next in line."""
        for ticket in granted:
            if ticket.wake is not None and not ticket.wake():
                self._change(self._line.give_back, ticket)

    # --- on its way ---

    def send(self, ticket: Ticket) -> None:
        """Note that the request goes out now."""
        with self._lock:
            self._line.send(ticket, monotonic())
            self._set_alarms()

    def end(self, ticket: Ticket, tokens: int | None) -> None:
        """Note that the request has ended and used `tokens`; with `None`, the expected number counts."""
        self._change(lambda ticket, now: self._line.end(ticket, now, tokens=tokens), ticket)

    def give_back(self, ticket: Ticket) -> None:
        """Give the slot and the amounts back, because the request never reached the provider."""
        self._change(self._line.give_back, ticket)

    def hold_back(self, seconds: float) -> None:
        """Send no request for `seconds`, because the provider asked for that."""
        with self._lock:
            self._line.hold_back(monotonic() + seconds)
            self._set_alarms()

    def _change(self, change: Callable[[Ticket, float], list[Ticket]], ticket: Ticket) -> None:
        with self._lock:
            granted = change(ticket, monotonic())
            self._set_alarms()
        self._tell(granted)

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


class _Alarm:
    """A timer on one of the loops on which requests wait, which has the line of a queue reviewed.

    Each loop has its own timer, so that a blocked or closed loop does not hold up the others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self.waiters = 0
        self._loop, self._ring = loop, ring
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float | None) -> None:
        """Ring at the monotonic time `at`; with `None`, never."""
        if at == self._at:
            return
        self._at = at
        if running_loop() is self._loop:
            self._start()
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._start)

    def stop(self) -> None:
        """Stop the timer, because nobody waits on this loop any more. Called on the loop itself."""
        self._at = None
        self._start()

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (at := self._at) is not None:
            self._timer = self._loop.call_later(max(0.0, at - monotonic()), self._go_off)

    def _go_off(self) -> None:
        self._timer = self._at = None
        self._ring()


@contextmanager
def all_of(managers: Iterable[AbstractContextManager[None]]) -> Iterator[None]:
    """Enter all context managers."""
    with ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        yield

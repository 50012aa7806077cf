"""`ProviderLimit`: a limit on the requests of a process to a provider, at once and in a minute."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Final

from fastroai.callers import warn_caller
from fastroai.errors import ConfigurationError
from fastroai.forks import in_forked_process
from fastroai.other_names import other_names
from fastroai.records import Duration
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.options import check_count
from fastroai.runtime.providers.circuit_breaker import CircuitBreaker, check_circuit_breaker
from fastroai.runtime.providers.provider_line import ProviderLimitStatus, ProviderLine, Ticket
from fastroai.runtime.providers.provider_queue import Queue, Waiting
from fastroai.runtime.providers.sharing import DEFAULT_KEY, DEFAULT_LEASE, StoreLike, sharing_by
from fastroai.usage.budget import OnUncertain
from fastroai.usage.near_misses import NearMissWarning, misspelt_provider
from fastroai.usage.prices.overrides import PROVIDERS_OF_REFERENCES

ALL_OTHERS: Final = "*"
"""The key of the limit for providers that have no key of their own."""

_SAME_KEY: Final = (
    "a key of its own for each ProviderLimit of a request: two of them with different numbers have the same "
    "store and key, so they would be one limit"
)

_serial: Final = itertools.count()


@other_names()
class ProviderLimit:
    """A limit on the requests to a provider, at one time and per minute.

        openai = ProviderLimit(max_concurrency=20, requests_per_minute=500, tokens_per_minute=200_000)
        agent = FastroAgent("openai:gpt-5-mini", provider_limits={"openai": openai})

    Requests wait their turn before they are sent, first come, first served, across all agents, steps,
    pipelines, threads and event loops of the process. In any 60 seconds at most `requests_per_minute` are
    sent. Tokens are estimated before a request is sent, and corrected by its usage. After a 429, a 503 or the
    like with `Retry-After`, no request is sent before that time. At least one limit or a `circuit_breaker` is
    needed; a limit that is `None` does not apply.

    With a `store`, one limit applies to all processes and machines that use the same store and `key`.

        openai = ProviderLimit(max_concurrency=20, store="postgresql://db/app")

    One object is one limit for each provider, wherever it is used: under two providers, it applies to each
    separately, and so do limits with the same store and `key`. Under the provider `"*"`, it applies
    separately to each provider without its own limit.
    """

    def __init__(
        self,
        *,
        max_concurrency: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        store: StoreLike | None = None,
        key: str = DEFAULT_KEY,
        on_unavailable: OnUncertain = "refuse",
        lease: Duration = DEFAULT_LEASE,
    ) -> None:
        """Set the limits; `None` means no limit.

        Args:
            max_concurrency: The most requests at one time.
            requests_per_minute: The most requests that are sent in any 60 seconds.
            tokens_per_minute: The most tokens that are expected or used in any 60 seconds.
            circuit_breaker: Stops requests while the provider fails. Without a store of its own, it is shared
                as the limit is.
            store: The store by which processes share the limit: a `RunStore`, or the path or URL of one. By
                default, each process has a limit of its own.
            key: The name of the limit in the store. Limits with the same store and key are one limit for
                each provider.
            on_unavailable: While the store cannot be reached, `refuse` requests, or `allow` them under this
                limit for each process by itself.
            lease: Seconds after which the slots of a process that has died are free again.

        Raises:
            ConfigurationError: an invalid value, or no limit at all.
            MissingExtraError: the client of the database at a URL is not installed.
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
        self.sharing = sharing_by(store, key, on_unavailable, lease)
        """How other processes share the limit; `None` if they do not."""
        if circuit_breaker is not None and self.sharing is not None:
            circuit_breaker.share(self.sharing)
        self.serial = next(_serial)
        self._start()
        in_forked_process(self._start)  # requests of the parent process hold no slots in a forked one

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}

    def __repr__(self) -> str:
        options = ("max_concurrency", "requests_per_minute", "tokens_per_minute", "circuit_breaker")
        given = ((option, getattr(self, option)) for option in options)
        return f"ProviderLimit({', '.join(f'{name}={value}' for name, value in given if value is not None)})"

    def status(self, provider: str) -> ProviderLimitStatus:
        """Return the present use of one provider under this limit: requests in flight, waiting, and sent.

        `provider` is PydanticAI's name of the provider, such as `openai`. Before the first request, nothing
        is in use. With a `store`, the numbers count all processes, as this process last read them.
        """
        return self.queue(provider).status()

    def queue(self, provider: str) -> Queue:
        """Return the queue in which requests to one provider wait for their turn. It is made if needed."""
        with self._lock:
            queue = self._queues.get(provider)
            if queue is None:
                queue = ProviderQueue(self)
                if self.sharing is not None:
                    from fastroai.runtime.providers.shared_queue import SharedQueue  # late: few are shared

                    queue = SharedQueue(provider, self.limits, self.sharing, alone=queue)
                self._queues[provider] = queue
            return queue

    @property
    def limits(self) -> tuple[int | None, int | None, int | None]:
        """The most requests at one time, requests in a minute, and tokens in a minute; `None`: no limit."""
        return self.max_concurrency, self.requests_per_minute, self.tokens_per_minute

    @property
    def order(self) -> tuple[bool, str, str, int]:
        """Sort key of this limit: a request under several limits waits for the limits in this order.

        With one order for all requests, no two wait for each other. Limits without a store come first, in the
        order in which they were made. Limits with a store come last, by their `key` and by the address of
        their store, so that they have the same order in all processes.
        """
        if self.sharing is None:
            return False, "", "", self.serial
        return True, self.sharing.key, repr(self.sharing.store), self.serial


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
    """Return the limits that apply to a provider, each once, in the order in which requests wait for them.

    Raises:
        ConfigurationError: two different limits have the same store and key.
    """
    mapped = (mapping.get(provider) or mapping.get(ALL_OTHERS) for mapping in mappings)
    found = sorted({limit for limit in mapped if limit is not None}, key=lambda limit: limit.order)
    if len(found) < 2:
        return found
    known = dict[object, ProviderLimit]()
    for limit in found:
        sharing = limit.sharing
        same = known.setdefault(limit if sharing is None else (sharing.store, sharing.key), limit)
        if same.limits != limit.limits:
            raise ConfigurationError("key", "" if sharing is None else sharing.key, _SAME_KEY)
    return list(known.values())


class ProviderQueue(Queue):
    """The line before one provider, for requests of any thread and event loop of this process."""

    def __init__(self, limit: ProviderLimit) -> None:
        super().__init__(counts_tokens=limit.tokens_per_minute is not None)
        self._line = ProviderLine(*limit.limits)
        self._alarms: dict[asyncio.AbstractEventLoop, _Alarm] = {}
        """Alarms of the event loops on which requests wait."""

    def status(self) -> ProviderLimitStatus:
        """Return the present use of the provider."""
        with self._lock:
            return self._line.status(monotonic())

    # --- waiting ---

    async def wait_turn(self, ticket: Ticket, waiting: Waiting) -> Queue:
        """See `Queue`."""
        with self._lock:
            others = self._line.ask(ticket, monotonic())
        self._tell(others)
        if ticket.state == "granted":
            return self
        try:
            with waiting.in_line(), self._alarm_set():
                while not await self._woken(ticket, waiting):
                    pass
        except BaseException:
            self._withdraw(ticket)
            raise
        return self

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
        def withdraw(now: float) -> list[Ticket]:
            if ticket.state == "ended":  # another loop ended the ticket, because the ticket's loop was closed
                return []
            leave = self._line.leave if ticket.state == "waiting" else self._line.give_back
            return leave(ticket, now)

        self._change(withdraw)

    def _look_again(self) -> None:
        self._change(self._line.review)

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
                self.give_back(ticket)

    # --- on its way ---

    def send(self, ticket: Ticket) -> bool:
        """See `Queue`."""
        with self._lock:
            self._line.send(ticket, monotonic())
            self._set_alarms()
            return True

    def end(self, ticket: Ticket, tokens: int | None) -> None:
        """See `Queue`."""
        self._change(partial(self._line.end, ticket, tokens=tokens))

    def give_back(self, ticket: Ticket) -> None:
        """See `Queue`."""
        self._change(partial(self._line.give_back, ticket))

    def hold_back(self, seconds: float) -> None:
        """See `Queue`."""
        with self._lock:
            self._line.hold_back(monotonic() + seconds)
            self._set_alarms()

    def _change(self, change: Callable[[float], list[Ticket]]) -> None:
        """Change the line at the present time, and wake the requests that are granted by that."""
        with self._lock:
            granted = change(monotonic())
            self._set_alarms()
        self._tell(granted)


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

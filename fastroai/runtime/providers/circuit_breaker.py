"""`CircuitBreaker`: no requests to a provider that keeps failing, until it has had time to recover."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from fastroai.errors import ConfigurationError, FastroAIError, StoreUnavailable
from fastroai.forks import in_forked_process
from fastroai.other_names import other_names
from fastroai.records import Duration
from fastroai.runtime.options import check_count, seconds_above_zero
from fastroai.runtime.providers.circuit import SEVERITY, Circuit, CircuitOptions, CircuitState, Health, Pass
from fastroai.runtime.providers.sharing import (
    DEFAULT_KEY,
    DEFAULT_LEASE,
    Sharing,
    StoreLike,
    sharing_by,
)
from fastroai.usage.budget import OnUncertain

if TYPE_CHECKING:
    from fastroai.runtime.providers.shared_circuit import OpenCircuit, SeenCircuit

logger: Final = logging.getLogger("fastroai.runtime")

_BETWEEN: Final = 0.25
"""Least seconds between two looks at a shared circuit, for those who wait in line."""
_UNHINTED: Final = 5.0
"""Most seconds between two looks, if the store tells of changes."""


@other_names(
    arguments={
        "failure_threshold": "failures=",
        "fail_max": "failures=",
        "recovery_timeout": "cooldown=",
        "reset_timeout": "cooldown=",
    }
)
class CircuitBreaker:
    """Stops requests to a provider after `failures` of them have failed within `window` seconds.

    For `cooldown` seconds the circuit is open: requests fail at once with `CircuitOpenError`, and a
    `FallbackModel` moves on to its next candidate. Then it is half-open: up to `probes` requests at a time
    may try. The first successful one closes the circuit, and a failed one opens it again.

    Failed connections, timeouts, a status of 408, and statuses of 500 and more are failures. A 429 is not:
    the provider works, and asks you to wait. Share one object between agents and `ProviderLimit`s; it has a
    circuit of its own for each provider. With a `store`, the failures of all processes with that store and
    `key` count together, and a circuit is open for all of them.

        breaker = CircuitBreaker(failures=5, window=60.0, cooldown=30.0, probes=1)
        agent = FastroAgent("openai:gpt-5-mini", circuit_breaker=breaker)
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        window: Duration = 60.0,
        cooldown: Duration = 30.0,
        probes: int = 1,
        store: StoreLike | None = None,
        key: str = DEFAULT_KEY,
        on_unavailable: OnUncertain = "refuse",
    ) -> None:
        """Open a circuit after `failures` failures within `window` seconds, for `cooldown` seconds.

        Args:
            failures: The failures that open a circuit.
            window: Seconds within which they happen.
            cooldown: Seconds for which a circuit is open.
            probes: The most requests that may try at one time when the cooldown is over.
            store: The store by which processes share the circuits: a `RunStore`, or the path or URL of one.
                By default, each process has circuits of its own.
            key: The name of the breaker in the store. Breakers with the same store and key are one.
            on_unavailable: While the store cannot be reached, `refuse` requests, or `allow` them by the
                failures of this process alone.

        Raises:
            ConfigurationError: an invalid value.
            MissingExtraError: the client of the database at a URL is not installed.
        """
        check_count("failures", failures, least=1, required=True)
        check_count("probes", probes, least=1, required=True)
        self.failures, self.probes = failures, probes
        self.window = seconds_above_zero("window", window)
        self.cooldown = seconds_above_zero("cooldown", cooldown)
        self.sharing = sharing_by(store, key, on_unavailable, DEFAULT_LEASE)
        """How other processes share the circuits; `None` if they do not."""
        self._start()
        in_forked_process(self._start)  # probes of the parent process never end in a forked one

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._circuits: dict[str, ProviderCircuit] = {}

    def __repr__(self) -> str:
        return (
            f"CircuitBreaker(failures={self.failures}, window={self.window:g}, "
            f"cooldown={self.cooldown:g}, probes={self.probes})"
        )

    @property
    def state(self) -> CircuitState:
        """`closed`, `half-open` or `open`: the worst state among the circuits of all providers.

        It is `closed` before the first request. With a store, it is the state that this process saw last.
        """
        with self._lock:
            states: list[CircuitState] = [circuit.state for circuit in self._circuits.values()]
        return max(states, key=SEVERITY.index) if states else "closed"

    def state_of(self, provider: str) -> CircuitState:
        """Return the state of the circuit of one provider: `closed`, `half-open` or `open`.

        `provider` is PydanticAI's name of the provider, such as `openai`. The state is `closed` for a
        provider that has had no request. With a store, it is the state that this process saw last.
        """
        return self.circuit_of(provider).state

    def circuit_of(self, provider: str) -> ProviderCircuit:
        """Return the circuit of one provider, by PydanticAI's name. It is made if there is none yet."""
        with self._lock:
            circuit = self._circuits.get(provider)
            if circuit is None:
                if self.sharing is None:
                    circuit = ProviderCircuit(self)
                else:
                    circuit = SharedCircuit(self, provider, self.sharing)
                self._circuits[provider] = circuit
            return circuit

    def share(self, sharing: Sharing) -> None:
        """Share the circuits with other processes in the store of the `ProviderLimit` that has this breaker.

        The limit calls this. The circuits begin closed then. A breaker with a store of its own, or of an
        earlier limit, keeps that.
        """
        if self.sharing is None:
            self.sharing = sharing
            self._start()


def check_circuit_breaker(breaker: CircuitBreaker | None) -> None:
    """Check that a value is a `CircuitBreaker` or `None`.

    Raises:
        ConfigurationError: it is another value.
    """
    given: object = breaker
    if given is not None and not isinstance(given, CircuitBreaker):
        raise ConfigurationError("circuit_breaker", given, "a CircuitBreaker")


class ProviderCircuit:
    """The circuit of one provider, for requests of any thread and event loop."""

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._lock = threading.Lock()
        self.options = CircuitOptions(breaker.failures, breaker.window, breaker.cooldown, breaker.probes)
        self._circuit = Circuit(self.options)
        self._watchers: set[Callable[[], None]] = set()

    @property
    def state(self) -> CircuitState:
        """The present state of the circuit."""
        with self._lock:
            return self._circuit.state(monotonic())

    @property
    def last_failure(self) -> str:
        """The message of the last failure."""
        return self._circuit.memory.last_failure

    def refuses_for(self) -> float | None:
        """Return the seconds until a request may try; 0 while probes are in flight; `None` if one may now."""
        with self._lock:
            return self._circuit.refuses_for(monotonic())

    async def enter(self) -> Pass | float:
        """Let a request through, and return its pass, else the seconds until one may try: see `refuses_for`.

        Raises:
            StoreUnavailable: the circuit is shared, and its store cannot be reached.
        """
        return self._enter_here()

    def succeed(self, taken: Pass, note: Callable[[], None]) -> None:
        """Note that the provider answered. Calls `note` if that closes the circuit."""
        with self._lock:
            closed = self._circuit.succeed(taken)
        if closed:
            note()

    def fail(self, taken: Pass, failure: str, note: Callable[[], None]) -> None:
        """Note that the provider failed. Calls `note` if that opens the circuit, and wakes its watchers."""
        with self._lock:
            opened = self._circuit.fail(taken, monotonic(), failure)
        if opened:
            self._wake_watchers()
            note()

    def give_back(self, taken: Pass) -> None:
        """End a pass whose request says nothing about the health of the provider."""
        with self._lock:
            self._circuit.give_back(taken)

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Have `wake()` called if the circuit opens inside the `with` block."""
        with self._lock:
            self._watchers.add(wake)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.discard(wake)

    def _enter_here(self) -> Pass | float:
        with self._lock:
            now = monotonic()
            taken = self._circuit.enter(now)
            return taken or self._circuit.refuses_for(now) or 0.0

    def _wake_watchers(self) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for wake in watchers:
            wake()


class SharedCircuit(ProviderCircuit):
    """The circuit of one provider, which other processes share.

    Before each request the store is asked. What was last seen there is at hand in `_circuit`, with times of
    the clock of this process.
    """

    def __init__(self, breaker: CircuitBreaker, provider: str, sharing: Sharing) -> None:
        super().__init__(breaker)
        self._sharing, self._provider, self._name = sharing, provider, f"{sharing.key}:{provider}"
        self._is_watching = False

    def refuses_for(self) -> float | None:
        """Return the seconds for which the circuit is open; later, the store says whether one may try."""
        return super().refuses_for() or None

    async def enter(self) -> Pass | float:
        """See `ProviderCircuit`."""
        request = uuid.uuid4().hex
        try:
            seen = await self._ask(lambda circuit: circuit.enter(self.options, request))
        except StoreUnavailable as error:
            self._sharing.allow(error, f"the circuit breaker of {self._provider}")
            return self._enter_here()
        except asyncio.CancelledError:
            self._end_soon(Pass(0, is_probe=True, request=request), "unknown")
            raise
        if seen.taken is None:
            return super().refuses_for() or 0.0
        seen.taken.request = request
        return seen.taken

    def succeed(self, taken: Pass, note: Callable[[], None]) -> None:
        """See `ProviderCircuit`."""
        if not taken.request:
            super().succeed(taken, note)
        elif taken.is_probe:
            taken.is_probe = False  # it is told once
            self._end_soon(taken, "well", note=note)

    def fail(self, taken: Pass, failure: str, note: Callable[[], None]) -> None:
        """See `ProviderCircuit`."""
        if taken.request:
            self._end_soon(taken, "ill", failure, note)
        else:
            super().fail(taken, failure, note)

    def give_back(self, taken: Pass) -> None:
        """See `ProviderCircuit`."""
        if not taken.request:
            super().give_back(taken)
        elif taken.is_probe:
            self._end_soon(taken, "unknown")

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """See `ProviderCircuit`. While anybody watches, changes by other processes are looked for."""
        with super().watched(wake):
            with self._lock:
                begins, self._is_watching = not self._is_watching, True
            if begins:
                self._sharing.store.in_background(self._watch())
            yield

    async def _watch(self) -> None:
        while True:
            with self._lock:
                if not self._watchers:
                    self._is_watching = False
                    return
            try:
                await self._ask(lambda circuit: circuit.look())
                await asyncio.sleep(_BETWEEN)
                await self._sharing.store.circuits.changed(self._name, _UNHINTED)
            except Exception as error:  # requests ask again before they are sent, and then it matters
                logger.debug("the circuit of %s cannot be watched: %s", self._provider, error)
                await asyncio.sleep(_UNHINTED)

    def _end_soon(
        self, taken: Pass, health: Health, failure: str = "", note: Callable[[], None] = lambda: None
    ) -> None:
        """Have the store told what became of a request, on the background loop."""
        self._sharing.store.in_background(self._end(taken, health, failure, note), finishes=True)

    async def _end(self, taken: Pass, health: Health, failure: str, note: Callable[[], None]) -> None:
        try:
            seen = await self._ask(
                lambda circuit: circuit.end(self.options, taken.request, taken.period, health, failure)
            )
        except Exception as error:  # a store can be the user's, and raise anything
            logger.warning("the circuit of %s cannot be told of a request: %s", self._provider, error)
            return
        if not seen.has_turned:
            return
        if seen.taken is not None:
            taken.period, taken.is_probe = seen.taken.period, seen.taken.is_probe
        note()

    async def _ask(self, act: Callable[[OpenCircuit], SeenCircuit]) -> SeenCircuit:
        """Ask the store, and take over what is seen there."""
        began = monotonic()
        seen = await self._sharing.store.circuits.ask(self._name, act)
        with self._lock:
            was_open = self._circuit.refuses_for(monotonic()) is not None
            seen.memory.move(began - seen.now)
            self._circuit = Circuit(self.options, seen.memory)
            is_open = self._circuit.refuses_for(monotonic()) is not None
        if is_open and not was_open:
            self._wake_watchers()
        return seen


def health_of(error: BaseException, model: str, *, attempt_ran_out: bool) -> Health:
    """Return the health of the provider of `model`, judged by the failure of a request.

    A request that was cancelled because the time of its attempt ran out was too slow: `ill`. An error of
    another model, raised by code that reads a stream of this one, says nothing: `unknown`.
    """
    from pydantic_ai.exceptions import (
        ModelAPIError,
        ModelConnectionError,
        ModelHTTPError,
        ModelQuotaExceededError,
        ModelRateLimitError,
        ModelRequestTimeout,
        ModelServerError,
        ModelUnavailableError,
    )

    if isinstance(error, asyncio.CancelledError):
        return "ill" if attempt_ran_out else "unknown"
    if not isinstance(error, ModelAPIError) or isinstance(error, FastroAIError) or error.model_name != model:
        return "unknown"
    if isinstance(error, ModelRateLimitError | ModelQuotaExceededError):
        return "unknown"
    if isinstance(error, ModelHTTPError):
        if error.status_code == 429:
            return "unknown"
        return "ill" if error.status_code >= 500 or error.status_code == 408 else "well"
    ill = ModelConnectionError | ModelServerError | ModelUnavailableError | ModelRequestTimeout
    return "ill" if isinstance(error, ill) else "unknown"

"""`CircuitBreaker`: no requests to a provider that fails and fails, until it has had time to recover."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Literal

from fastroai.errors import ConfigurationError, FastroAIError
from fastroai.forks import in_forked_process
from fastroai.runtime.circuit import SEVERITY, Circuit, CircuitState, Pass
from fastroai.runtime.options import check_count, check_seconds

Health = Literal["well", "ill", "unknown"]


class CircuitBreaker:
    """Lets no requests go to a provider after `failures` of them have failed within `window` seconds.

    For `cooldown` seconds the circuit is open: requests fail at once with `CircuitOpenError`, and a
    `FallbackModel` goes on to its next candidate. Then it is half-open: `probes` requests may try; the first
    that is answered closes it, and one that fails opens it again.

    Connections that fail, timeouts, and statuses of 500 and more are failures. A 429 is not: the provider is
    well, and asks to wait. Share one object between agents and `ProviderLimit`s; it has a circuit of its own
    for each provider.

        breaker = CircuitBreaker(failures=5, window=60.0, cooldown=30.0, probes=1)
        agent = FastroAgent("openai:gpt-5-mini", circuit_breaker=breaker)
    """

    def __init__(
        self, *, failures: int = 5, window: float = 60.0, cooldown: float = 30.0, probes: int = 1
    ) -> None:
        """Open after so many failures within `window` seconds, for `cooldown` seconds.

        Raises:
            ConfigurationError: an invalid value.
        """
        check_count("failures", failures, least=1, required=True)
        check_count("probes", probes, least=1, required=True)
        for option, value in (("window", window), ("cooldown", cooldown)):
            check_seconds(option, value, zero=True)  # None is none
            check_seconds(option, value)
        self.failures, self.window, self.cooldown, self.probes = failures, window, cooldown, probes
        self._start()
        in_forked_process(self._start)  # probes of the parent do not come back there

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
        """`closed`, `half-open` or `open`: the worst of its circuits."""
        with self._lock:
            states: list[CircuitState] = [circuit.state for circuit in self._circuits.values()]
        return max(states, key=SEVERITY.index) if states else "closed"

    def state_of(self, provider: str) -> CircuitState:
        """The state of the circuit of one provider, by PydanticAI's name of it."""
        return self.circuit_of(provider).state

    def circuit_of(self, provider: str) -> ProviderCircuit:
        """The circuit of one provider."""
        with self._lock:
            circuit = self._circuits.get(provider)
            if circuit is None:
                circuit = self._circuits[provider] = ProviderCircuit(self)
            return circuit


def check_circuit_breaker(breaker: CircuitBreaker | None) -> None:
    """Refuse what is not one.

    Raises:
        ConfigurationError: it is not.
    """
    given: object = breaker
    if given is not None and not isinstance(given, CircuitBreaker):
        raise ConfigurationError("circuit_breaker", given, "a CircuitBreaker")


class ProviderCircuit:
    """The circuit of one provider, for requests of any thread and event loop."""

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._lock = threading.Lock()
        self._circuit = Circuit(breaker.failures, breaker.window, breaker.cooldown, breaker.probes)
        self._watchers: set[Callable[[], None]] = set()
        self.cooldown = breaker.cooldown

    @property
    def state(self) -> CircuitState:
        """Which it is in now."""
        with self._lock:
            return self._circuit.state(monotonic())

    @property
    def last_failure(self) -> str:
        """What the last failure said."""
        return self._circuit.last_failure

    def refuses_for(self) -> float | None:
        """Seconds until a request may try; 0 while probes are out; `None` if one may now."""
        with self._lock:
            return self._circuit.refuses_for(monotonic())

    def enter(self) -> Pass | None:
        """Let a request through, if one may pass."""
        with self._lock:
            return self._circuit.enter(monotonic())

    def succeed(self, taken: Pass) -> bool:
        """The provider answered. True if that closes the circuit."""
        with self._lock:
            return self._circuit.succeed(taken)

    def fail(self, taken: Pass, failure: str) -> bool:
        """The provider failed. True if that opens the circuit; those who wait are woken, to give up."""
        with self._lock:
            opened = self._circuit.fail(taken, monotonic(), failure)
            watchers = list(self._watchers) if opened else []
        for wake in watchers:
            wake()
        return opened

    def give_back(self, taken: Pass) -> None:
        """What became of the request says nothing of the provider."""
        with self._lock:
            self._circuit.give_back(taken)

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Have `wake()` called when it opens."""
        with self._lock:
            self._watchers.add(wake)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.discard(wake)


def health_of(error: BaseException, model: str, *, attempt_ran_out: bool) -> Health:
    """What the failure of a request to `model` says of its provider.

    A request that is cancelled because the time of its attempt ran out was too slow. Errors of other models,
    met by whoever reads a stream of this one, say nothing.
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

"""`CircuitBreaker`: no requests to a provider that keeps failing, until it has had time to recover."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Literal

from fastroai.errors import ConfigurationError, FastroAIError
from fastroai.forks import in_forked_process
from fastroai.other_names import other_names
from fastroai.records import Duration, in_seconds
from fastroai.runtime.options import check_count, check_seconds
from fastroai.runtime.providers.circuit import SEVERITY, Circuit, CircuitState, Pass

Health = Literal["well", "ill", "unknown"]


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
    `FallbackModel` goes on to its next candidate. Then it is half-open: `probes` requests may try; the first
    that is answered closes it, and one that fails opens it again.

    Failed connections, timeouts, and statuses of 500 and more are failures. A 429 is not: the provider works,
    and asks to wait. Share one object between agents and `ProviderLimit`s; it has a circuit of its own for
    each provider.

        breaker = CircuitBreaker(failures=5, window=60.0, cooldown=30.0, probes=1)
        agent = FastroAgent("openai:gpt-5-mini", circuit_breaker=breaker)
    """

    def __init__(
        self, *, failures: int = 5, window: Duration = 60.0, cooldown: Duration = 30.0, probes: int = 1
    ) -> None:
        """Open a circuit after `failures` failures within `window` seconds, for `cooldown` seconds.

        Raises:
            ConfigurationError: an invalid value.
        """
        check_count("failures", failures, least=1, required=True)
        check_count("probes", probes, least=1, required=True)
        for option, value in (("window", window), ("cooldown", cooldown)):
            check_seconds(option, value, zero=True)  # refuses None
            check_seconds(option, value)
        self.failures, self.probes = failures, probes
        self.window, self.cooldown = in_seconds(window), in_seconds(cooldown)
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
        """`closed`, `half-open` or `open`: the state of the worst circuit."""
        with self._lock:
            states: list[CircuitState] = [circuit.state for circuit in self._circuits.values()]
        return max(states, key=SEVERITY.index) if states else "closed"

    def state_of(self, provider: str) -> CircuitState:
        """Return the state of the circuit of one provider, by PydanticAI's name of the provider."""
        return self.circuit_of(provider).state

    def circuit_of(self, provider: str) -> ProviderCircuit:
        """Return the circuit of one provider."""
        with self._lock:
            circuit = self._circuits.get(provider)
            if circuit is None:
                circuit = self._circuits[provider] = ProviderCircuit(self)
            return circuit


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
        self._circuit = Circuit(breaker.failures, breaker.window, breaker.cooldown, breaker.probes)
        self._watchers: set[Callable[[], None]] = set()
        self.cooldown = breaker.cooldown

    @property
    def state(self) -> CircuitState:
        """The present state of the circuit."""
        with self._lock:
            return self._circuit.state(monotonic())

    @property
    def last_failure(self) -> str:
        """The message of the last failure."""
        return self._circuit.last_failure

    def refuses_for(self) -> float | None:
        """Return the seconds until a request may try; 0 while probes are in flight; `None` if one may now."""
        with self._lock:
            return self._circuit.refuses_for(monotonic())

    def enter(self) -> Pass | None:
        """Let a request through and return its pass; `None` if no request may pass now."""
        with self._lock:
            return self._circuit.enter(monotonic())

    def succeed(self, taken: Pass) -> bool:
        """Note that the provider answered. Returns True if that closes the circuit."""
        with self._lock:
            return self._circuit.succeed(taken)

    def fail(self, taken: Pass, failure: str) -> bool:
        """Note that the provider failed. Returns True if that opens the circuit, and wakes its watchers."""
        with self._lock:
            opened = self._circuit.fail(taken, monotonic(), failure)
            watchers = list(self._watchers) if opened else []
        for wake in watchers:
            wake()
        return opened

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

"""Permits, which requests need besides money before they are sent: slots, and closed circuits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

from fastroai.errors import CircuitOpenError
from fastroai.runtime.budgets.admission import shares_slot, waiting_inside
from fastroai.runtime.budgets.in_line import TOLD_AFTER
from fastroai.runtime.budgets.stops import tell_waited
from fastroai.runtime.events import (
    CircuitClosed,
    CircuitOpened,
)
from fastroai.runtime.providers.circuit import Health, Pass
from fastroai.runtime.providers.circuit_breaker import CircuitBreaker, ProviderCircuit
from fastroai.runtime.providers.provider_limits import ProviderLimit
from fastroai.runtime.providers.provider_line import Ticket
from fastroai.runtime.providers.provider_queue import Queue, Waiting
from fastroai.runtime.scope import Scope
from fastroai.runtime.time_limits import all_of

TokensExpected: TypeAlias = Callable[[int | None], int]
"""Function that estimates the input and output tokens of a request. It takes the usual number of tokens in
recent answers of the model, if that is known."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A circuit that a request must pass, and the agent that has the breaker, if one has."""

    circuit: ProviderCircuit
    provider: str
    agent: str | None

    def refuse(self) -> None:
        """Raise `CircuitOpenError` if the circuit lets no request through now."""
        left = self.circuit.refuses_for()
        if left is not None:
            raise CircuitOpenError(self.provider, left, self.circuit.last_failure, self.agent)

    async def enter(self) -> Pass:
        """Take a pass. Raises `CircuitOpenError` if the circuit lets no request through now."""
        taken = await self.circuit.enter()
        if isinstance(taken, Pass):
            return taken
        raise CircuitOpenError(self.provider, taken, self.circuit.last_failure, self.agent)


class Permit:
    """The slots and passes of one request. Each permit is ended once, by `end` or `give_back`."""

    __slots__ = ("_model", "_passes", "_provider", "_scope", "_slots")

    def __init__(self, scope: Scope, provider: str, model: str) -> None:
        self._scope, self._provider, self._model = scope, provider, model
        self._slots: list[tuple[Queue, Ticket]] = []
        self._passes: list[tuple[Guard, Pass]] = []

    async def take(
        self, limits: Sequence[ProviderLimit], guards: Sequence[Guard], tokens: TokensExpected
    ) -> None:
        """Wait for a slot under each limit, and pass each circuit. After an error, nothing is held.

        Raises:
            CircuitOpenError: a circuit lets no request through, or opened while the request waited.
            StoreUnavailable: a limit or circuit is shared, and its store cannot be reached.
        """
        _refuse(guards)
        inside = bool(limits) and shares_slot(self._scope)
        try:
            for limit in limits:
                queue = limit.queue(self._provider)
                expected = tokens(queue.usual_output(self._model)) if queue.counts_tokens else 0
                ticket = Ticket(expected, inside=inside)
                waiting = Waiting(
                    give_up=functools.partial(_refuse, guards),
                    watched=functools.partial(_watched, guards),
                    in_line=functools.partial(_in_line, self._scope, self._provider),
                )
                granted_by = await queue.wait_turn(ticket, waiting)
                self._slots.append((granted_by, ticket))
            for guard in guards:
                self._passes.append((guard, await guard.enter()))
        except BaseException:
            self.give_back()
            raise

    def send(self) -> bool:
        """Note that the request goes out now. Returns False if its turn is over: then take another permit."""
        return all(queue.send(ticket) for queue, ticket in self._slots)

    def answered(self) -> None:
        """Note that the provider answers: the circuits close, even if the stream fails later."""
        for guard, taken in self._passes:
            guard.circuit.succeed(taken, functools.partial(self._note_closed, guard))

    def end(self, health: Health, tokens: int | None, output_tokens: int | None, failure: str = "") -> None:
        """End the permit of a request that used `tokens`; with `None`, the expected number counts."""
        for queue, ticket in self._slots:
            if output_tokens is not None and queue.counts_tokens:
                queue.learn(self._model, output_tokens)
            queue.end(ticket, tokens)
        self._slots = []
        if health == "well":
            self.answered()
        for guard, taken in self._passes:
            if health == "ill":
                guard.circuit.fail(taken, failure, functools.partial(self._note_opened, guard, failure))
            else:
                guard.circuit.give_back(taken)
        self._passes = []

    def _note_closed(self, guard: Guard) -> None:
        self._scope.note(CircuitClosed(part=self._scope.part, provider=guard.provider, agent=guard.agent))

    def _note_opened(self, guard: Guard, failure: str) -> None:
        self._scope.note(
            CircuitOpened(
                part=self._scope.part,
                provider=guard.provider,
                agent=guard.agent,
                last_failure=failure,
                cooldown=guard.circuit.options.cooldown,
            )
        )

    def give_back_slots(self) -> None:
        """Give the slots back, because the request never reached the provider."""
        for queue, ticket in self._slots:
            queue.give_back(ticket)
        self._slots = []

    def give_back(self) -> None:
        """Give the slots and passes back, because the request was not sent."""
        self.give_back_slots()
        for guard, taken in self._passes:
            guard.circuit.give_back(taken)
        self._passes = []

    def hold_back(self, seconds: float) -> None:
        """Send no request to the provider for `seconds`, because the provider asked for that."""
        for queue, _ in self._slots:
            queue.hold_back(seconds)


def guards_of(
    provider: str, limits: Sequence[ProviderLimit], breaker: CircuitBreaker | None, agent: str
) -> list[Guard]:
    """Return the circuits that a request must pass: that of its agent and those of its limits, each once."""
    guards = [] if breaker is None else [Guard(breaker.circuit_of(provider), provider, agent)]
    for limit in limits:
        if limit.circuit_breaker is not None:
            circuit = limit.circuit_breaker.circuit_of(provider)
            if all(guard.circuit is not circuit for guard in guards):
                guards.append(Guard(circuit, provider, None))
    return guards


def _refuse(guards: Sequence[Guard]) -> None:
    for guard in guards:
        guard.refuse()


def _watched(guards: Sequence[Guard], wake: Callable[[], None]) -> AbstractContextManager[None]:
    return all_of(guard.circuit.watched(wake) for guard in guards)


@contextmanager
def _in_line(scope: Scope, provider: str) -> Iterator[None]:
    began = monotonic()
    try:
        with scope.time.in_line(), waiting_inside(scope):
            yield
    finally:
        if monotonic() - began >= TOLD_AFTER:
            tell_waited(scope, f"its turn under the provider limit of {provider}", began)

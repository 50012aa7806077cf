"""Provider limits and circuit breakers for requests of agents: expected tokens, and refusals."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai.exceptions import ModelConnectionError, ModelUnavailableError
from pydantic_ai.messages import ModelResponse

from fastroai.agent.quotes.input_tokens import input_tokens
from fastroai.agent.requests.request_terms import Terms
from fastroai.errors import CircuitOpenError
from fastroai.runtime import Scope, billing_of, is_transport_failure
from fastroai.runtime.providers.circuit import Health
from fastroai.runtime.providers.circuit_breaker import health_of
from fastroai.runtime.providers.permits import Permit, guards_of
from fastroai.runtime.providers.provider_limits import limits_for
from fastroai.runtime.retrying.http_signals import retry_after
from fastroai.tracing import attributes

if TYPE_CHECKING:
    from fastroai.runtime import CircuitBreaker

USUAL_OUTPUT: Final = 500
"""Tokens assumed for a first answer without `max_tokens`."""


class ModelCircuitOpenError(CircuitOpenError, ModelUnavailableError):
    """`CircuitOpenError` in the form on which PydanticAI's `FallbackModel` falls back."""

    def __init__(
        self,
        model_name: str,
        provider: str,
        opens_in: float,
        last_failure: str = "",
        agent: str | None = None,
    ) -> None:
        ModelUnavailableError.__init__(self, model_name, "")
        CircuitOpenError.__init__(self, provider, opens_in, last_failure, agent)
        self.message = str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model_name, *self.args)


class RequestPermit(Permit):
    """The permit of one attempt at a request to a model."""

    def __init__(self, scope: Scope, breaker: CircuitBreaker | None, terms: Terms) -> None:
        """Make the permit for a request in `scope`, of an agent with `breaker`."""
        super().__init__(scope, terms.provider, terms.model)
        self._terms = terms
        self._limits = limits_for(terms.provider, scope.bounds.provider_limits)
        self._guards = guards_of(terms.provider, self._limits, breaker, scope.name)

    async def wait(self) -> None:
        """Wait until the request may go to its provider.

        Raises:
            CircuitOpenError: a circuit breaker lets no request through.
        """
        if any(limit.tokens_per_minute is not None for limit in self._limits):
            await self._terms.prepare_bound()
        expected = functools.partial(_expected_tokens, self._terms)
        try:
            await self.take(self._limits, self._guards, expected)
        except CircuitOpenError as error:
            raise ModelCircuitOpenError(self._model, *error.args) from None

    def end_with(self, response: ModelResponse | None, error: BaseException | None) -> None:
        """End the permit: with a response if its usage is known, else without."""
        health: Health = "well"
        failure, tokens = "", None
        if error is not None:
            health = health_of(error, self._model, attempt_ran_out=self._scope.time.attempt_ran_out)
            failure = attributes.error_summary(error)
            tokens = self._heed(error)
        if response is not None:
            tokens = response.usage.input_tokens + response.usage.output_tokens
        output_tokens = None if response is None else response.usage.output_tokens
        self.end(health, tokens, output_tokens, failure)

    def _heed(self, error: BaseException) -> int | None:
        """Hold requests back as the provider asked. Return 0 if it surely counted no tokens, else `None`."""
        wait = retry_after(error) if is_transport_failure(error) else None
        if wait is not None:
            self.hold_back(wait)
        if isinstance(error, ModelConnectionError) and billing_of(error) == "released":
            self.give_back_slots()
        return 0 if billing_of(error) == "released" else None


def _expected_tokens(terms: Terms, usual_output: int | None) -> int:
    """Return the likely tokens of the input, and of an answer like the last ones or as long as is allowed."""
    model = terms.wrapped
    limit = (terms.settings or {}).get("max_tokens") or (model.settings or {}).get("max_tokens")
    output = (limit or USUAL_OUTPUT) if usual_output is None else min(usual_output, limit or usual_output)
    host = terms.meter.calculator.host(model)
    return input_tokens(host, terms.messages, terms.parameters).likely + output

"""The settings of an agent as a value that several agents can share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fastroai.errors import ConfigurationError
from fastroai.other_names import by_name, other_names
from fastroai.records import Duration
from fastroai.runtime.options import check_count, check_timeout
from fastroai.runtime.providers.circuit_breaker import check_circuit_breaker
from fastroai.runtime.providers.provider_limits import check_provider_limits
from fastroai.usage.limits import limits_of

if TYPE_CHECKING:
    from pydantic_ai import ModelSettings
    from pydantic_ai.models import Model

    from fastroai.agent.hooks import AfterDispatch, BeforeDispatch
    from fastroai.runtime import CircuitBreaker, ProviderLimits
    from fastroai.usage import BudgetLike, CostCalculator

DEFAULT_REQUEST_RETRIES: Final = 2
REQUEST_RETRY_DELAY: Final = 0.5
"""Base of the backoff between attempts at a request, in seconds, as in the providers' own SDKs."""


@by_name("model")
@other_names(arguments={"timeout_seconds": "timeout=", "max_retries": "FastroAgent(retries=…)"})
@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Settings for `FastroAgent(config=...)`. An option of the constructor replaces the same setting here.

    There are two exceptions: budgets of both places apply, and `model_settings` of both are merged.

    A setting that is `None` is not sent: there is no default temperature, prompt, token limit or timeout.
    Only `request_retries` has a default: the `max_retries` of the model settings or of the client of the
    model; otherwise 2. `timeout` is in seconds, or a `timedelta`. `cost_budget` is in microcents
    ($1 = 1,000,000), and short for `budget`.

    Raises:
        ConfigurationError: a setting is invalid, or both `budget` and `cost_budget` are given.
    """

    model: Model | str | None = None
    name: str | None = None
    instructions: str | Sequence[str] | None = None
    """The instructions, sent with every run."""
    system_prompt: str | Sequence[str] | None = None
    """The system prompt, sent at the start of a conversation, and kept in its history."""
    temperature: float | None = None
    max_tokens: int | None = None
    """The most tokens of one answer. They also bound the cost of a request."""
    model_settings: ModelSettings | None = None
    timeout: Duration | None = None
    """Seconds for one attempt at a call."""
    request_retries: int | None = None
    """Extra attempts at a request after a transport failure (429, 5xx, connection). By default the
    `max_retries` of the model settings or of the client of the model; otherwise 2."""
    cost_budget: int | None = None
    """The budget of each call, in microcents ($1 = 1,000,000)."""
    budget: BudgetLike | None = None
    """The limit as a `Budget`, which has more options; give one of the two."""
    cost_calculator: CostCalculator | None = None
    provider_limits: ProviderLimits | None = None
    """Limits on requests to a provider at once and in a minute: `{"openai": ProviderLimit(...)}`."""
    circuit_breaker: CircuitBreaker | None = None
    """Stops requests of this agent to a provider that keeps failing."""
    on_before_dispatch: BeforeDispatch | None = None
    on_after_dispatch: AfterDispatch | None = None

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, str) and not hasattr(self.model, "request"):
            expected = (
                "'provider:model', or a PydanticAI Model; settings go into config=, an agent into agent="
            )
            raise ConfigurationError("model", self.model, expected)
        check_count("max_tokens", self.max_tokens, least=1)
        check_timeout("timeout", self.timeout)
        check_count("request_retries", self.request_retries)
        limits_of(self.budget, self.cost_budget)
        check_provider_limits(self.provider_limits)
        check_circuit_breaker(self.circuit_breaker)

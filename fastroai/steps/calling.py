"""The settings of one agent call: those given with the call, and otherwise those of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from fastroai.calls.call import AgentCall
from fastroai.records import Duration, NotGiven, in_seconds
from fastroai.runtime import Classifier, RetryPolicies, RetryRules
from fastroai.runtime.options import check_count, check_seconds, check_timeout
from fastroai.steps.config import ResolvedConfig, RetryLike, policies_of, rules_for

if TYPE_CHECKING:
    from pydantic_ai import AgentModelSettings, UsageLimits
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

    from fastroai.usage import BudgetLike


class CallOptions(TypedDict, total=False):
    """The options of a call of an agent by a step, which `StepContext.run` explains."""

    deps: object
    message_history: Sequence[ModelMessage] | None
    model: Model | str | None
    model_settings: AgentModelSettings[Any] | None
    usage_limits: UsageLimits | None
    timeout: Duration | None
    retries: int
    retry_delay: Duration
    retry: RetryLike
    cost_budget: int | None
    budget: BudgetLike | None


class CallSettings(TypedDict):
    """The fields of an `AgentCall` that a `CallConfig` sets."""

    timeout: float | None
    default_timeout: float | None
    request_retries: int | None
    request_retry_delay: float | None
    retry: RetryPolicies | None
    classifiers: tuple[Classifier, ...]


@dataclass(slots=True)
class CallConfig:
    """Time limit and retries of one call, which win over those of the step.

    Nobody changes it; making a frozen one takes longer.
    """

    timeout: Duration | NotGiven | None
    """Seconds for each attempt; `None` for no limit."""
    retries: int | NotGiven
    retry_delay: Duration | NotGiven
    """Seconds; the base of the backoff."""
    retry: RetryLike | NotGiven

    def __post_init__(self) -> None:
        if not isinstance(self.timeout, NotGiven):
            check_timeout("timeout", self.timeout)
        if not isinstance(self.retries, NotGiven):
            check_count("retries", self.retries, required=True)
        if not isinstance(self.retry_delay, NotGiven):
            check_seconds("retry_delay", self.retry_delay, zero=True)

    def options(self, step: ResolvedConfig) -> CallSettings:
        """Return the settings of a call: these and, where they are not given, those of the step.

        Raises:
            ConfigurationError: `retries` or `retry_delay` is given beside `retry`.
        """
        delay = (
            step.request_retry_delay
            if isinstance(self.retry_delay, NotGiven)
            else in_seconds(self.retry_delay)
        )
        policies = step.retry if isinstance(self.retries, NotGiven) else None
        if policies is not None and not isinstance(self.retry_delay, NotGiven):
            policies = policies.with_backoff(self.retry_delay)
        extra = step.request_retries if isinstance(self.retries, NotGiven) else self.retries
        if not isinstance(self.retry, NotGiven):
            own = policies_of(self.retry, self.retries, self.retry_delay)
            policies = own if step.retry is None else own.over(step.retry)
            extra = policies.max_retries
        return {
            "timeout": None if isinstance(self.timeout, NotGiven) else in_seconds(self.timeout),
            "default_timeout": step.timeout if isinstance(self.timeout, NotGiven) else None,
            "request_retries": extra,
            "request_retry_delay": delay,
            "retry": policies,
            "classifiers": step.classifiers,
        }

    def rules(self, call: AgentCall, step: ResolvedConfig) -> RetryRules | None:
        """Return the rules by which a call with these settings is retried."""
        delay = step.retry_delay if isinstance(self.retry_delay, NotGiven) else in_seconds(self.retry_delay)
        return rules_for(call.retry, call.request_retries, delay, call.classifiers)

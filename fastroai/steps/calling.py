"""The settings of one agent call: those given with the call, and otherwise those of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from fastroai.records import NOT_GIVEN, Duration, NotGiven, in_seconds
from fastroai.runtime import Classifier, RetryPolicies
from fastroai.runtime.options import check_count, check_seconds, check_timeout
from fastroai.steps.config import ResolvedConfig, RetryLike, policies_of

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
    """The fields of an `AgentCall` that `call_settings` sets."""

    timeout: float | None
    default_timeout: float | None
    request_retries: int | None
    request_retry_delay: float | None
    retry: RetryPolicies | None
    classifiers: tuple[Classifier, ...]


def call_settings(options: CallOptions, step: ResolvedConfig) -> CallSettings:
    """Return the settings of a call: those among its options, and otherwise those of the step.

    Raises:
        ConfigurationError: an option is invalid; or `retries` or `retry_delay` is given beside `retry`.
    """
    timeout, retry = options.get("timeout", NOT_GIVEN), options.get("retry", NOT_GIVEN)
    retries, retry_delay = options.get("retries", NOT_GIVEN), options.get("retry_delay", NOT_GIVEN)
    policies, extra, delay = step.retry, step.request_retries, step.request_retry_delay
    if not isinstance(timeout, NotGiven):
        check_timeout("timeout", timeout)
    if not isinstance(retries, NotGiven):
        check_count("retries", retries, required=True)
        policies, extra = None, retries
    if not isinstance(retry_delay, NotGiven):
        check_seconds("retry_delay", retry_delay, zero=True)
        delay = in_seconds(retry_delay)
        policies = None if policies is None else policies.with_backoff(retry_delay)
    if not isinstance(retry, NotGiven):
        own = policies_of(retry, retries, retry_delay)
        policies = own if step.retry is None else own.over(step.retry)
        extra = policies.max_retries
    return {
        "timeout": None if isinstance(timeout, NotGiven) else in_seconds(timeout),
        "default_timeout": step.timeout if isinstance(timeout, NotGiven) else None,
        "request_retries": extra,
        "request_retry_delay": delay,
        "retry": policies,
        "classifiers": step.classifiers,
    }

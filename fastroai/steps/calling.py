"""An agent call of a step, with the options of the call, and otherwise the settings of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from fastroai.calls.call import AgentCall, Prompt
from fastroai.records import NOT_GIVEN, Duration, NotGiven, in_seconds
from fastroai.runtime.options import check_count, check_seconds, check_timeout
from fastroai.steps.config import ResolvedConfig, RetryLike, policies_of
from fastroai.usage.limits import limits_of

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


def agent_call(
    message: Prompt, options: CallOptions, step: ResolvedConfig, *, deps: object, call: str
) -> AgentCall:
    """Return a call of an agent with these options and, where they are not given, the settings of the step.

    `deps` are those of the step, and `call` is the name or number of the call.

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
    own_deps = options.get("deps", NOT_GIVEN)
    return AgentCall(
        prompt=message,
        deps=deps if own_deps is NOT_GIVEN else own_deps,
        message_history=options.get("message_history"),
        options={
            "model": options.get("model"),
            "model_settings": options.get("model_settings"),
            "usage_limits": options.get("usage_limits"),
        },
        timeout=None if isinstance(timeout, NotGiven) else in_seconds(timeout),
        default_timeout=step.timeout if isinstance(timeout, NotGiven) else None,
        request_retries=extra,
        request_retry_delay=delay,
        retry=policies,
        classifiers=step.classifiers,
        limits=limits_of(options.get("budget"), options.get("cost_budget")),
        call=call,
    )

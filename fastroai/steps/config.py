"""What can be set on pipelines and steps, and how the settings flow down.

Most specific first: the call (`ctx.run(..., timeout=)`), `step_configs[step_id]`, the step's own config
(`@step(...)`, the class attribute, `as_step(config=)`), the `PipelineConfig`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from fastroai.errors import ConfigurationError
from fastroai.human.sinks import Sink, checked_sinks
from fastroai.records import NOT_GIVEN, NotGiven, first_given
from fastroai.runtime import (
    Classifier,
    FailureClass,
    ProviderLimits,
    RetryPolicies,
    RetryPolicy,
    RetryRules,
    check_provider_limits,
)
from fastroai.runtime.options import check_count, check_seconds, check_timeout
from fastroai.steps.hooks import Hooks, OnRetry, OnStepFailure, OnStepStart, OnStepSuccess, check_hooks
from fastroai.store.adapter import adapt_run_store
from fastroai.store.journal import Durability
from fastroai.store.lease import DEFAULT_TERMS, LeaseTerms
from fastroai.store.payloads import PayloadCodec, check_codec
from fastroai.usage import BudgetLike
from fastroai.usage.limits import Limits, limits_of

OnError = Literal["fail", "continue"]

RetryLike: TypeAlias = RetryPolicy | Mapping[FailureClass, RetryPolicy]
"""Policies by failure class, or one for recoverable and for ambiguous failures."""

DEFAULT_RETRY_DELAY: Final = 1.0
"""Seconds; the base of the exponential backoff."""


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """What steps and pipelines share. What is not given is inherited."""

    timeout: float | NotGiven | None = NOT_GIVEN
    """Seconds for one attempt of a unit: an agent call, or a step's own code (whose clock pauses while a
    `ctx.run` or a nested pipeline, router or graph is in progress). On a pipeline, the default for its
    steps."""
    total_timeout: float | NotGiven | None = NOT_GIVEN
    """Seconds for the whole step or pipeline, retries included. Not inherited."""
    retries: int | NotGiven = NOT_GIVEN
    """Extra attempts after a failure; 0 unless given."""
    retry_delay: float | NotGiven = NOT_GIVEN
    """Seconds before the first retry at most; doubles each time, with full jitter. 1.0 unless given. It goes
    with `retries`."""
    retry: RetryLike | NotGiven = NOT_GIVEN
    """Instead of `retries`: a `RetryPolicy` by `FailureClass`, such as `DEFAULT_RETRY`, or one for
    recoverable and for ambiguous failures. Of `retries` and `retry`, what is said more specifically holds;
    a class that a step's `retry` does not name has the policy of its pipeline."""
    classifiers: Sequence[Classifier] = field(default=(), hash=False)
    """Functions that say the class of a failure, or `None`; a step's are asked before the pipeline's."""
    cost_budget: int | NotGiven | None = NOT_GIVEN
    """Microcents ($1 = 1,000,000) for the whole step or pipeline. Not inherited: siblings share the
    pipeline's."""
    budget: BudgetLike | NotGiven | None = NOT_GIVEN
    """The same as a `Budget`, which can say more, or a `SpendLimit`, or several; give one of the two. Not
    inherited."""
    trace: bool | NotGiven = NOT_GIVEN
    """Whether spans are opened here and below; true unless given. Where a pipeline says `True` and nobody
    gives a tracer, a `SimpleTracer` writes them to the standard log."""
    on_error: OnError | NotGiven = NOT_GIVEN
    """`"fail"` cancels what runs and raises; `"continue"` finishes what does not need the failed step."""
    on_step_start: OnStepStart | None = field(default=None, hash=False)
    """Told when a step starts; on a step, of that step. Hooks of a step and of its pipeline are all told. One
    that raises is logged, and changes nothing."""
    on_step_success: OnStepSuccess | None = field(default=None, hash=False)
    """Told when a step has finished for good."""
    on_step_failure: OnStepFailure | None = field(default=None, hash=False)
    """Told when a step has failed, after its retries."""
    on_retry: OnRetry | None = field(default=None, hash=False)
    """Told before the wait for the next attempt at a step, or at an agent call in it."""

    def __post_init__(self) -> None:
        check_timeout("timeout", first_given(self.timeout, default=None))
        check_seconds("total_timeout", first_given(self.total_timeout, default=None))
        check_count("retries", first_given(self.retries, default=0), required=True)
        check_seconds("retry_delay", first_given(self.retry_delay, default=0.0), zero=True)
        if not isinstance(self.retry, NotGiven):
            policies = policies_of(self.retry, self.retries, self.retry_delay)
            object.__setattr__(self, "retry", policies)
        object.__setattr__(self, "classifiers", _checked(self.classifiers))
        check_hooks(self)
        limits_in(self)
        if isinstance(self.budget, list):
            object.__setattr__(self, "budget", tuple(self.budget))  # a config is a value, which has a hash
        trace = first_given(self.trace, default=True)
        if not isinstance(trace, bool):
            raise ConfigurationError("trace", trace, "True or False")
        check_on_error(first_given(self.on_error, default="fail"))


@dataclass(frozen=True, kw_only=True)
class StepConfig(ExecutionConfig):
    """Settings of one step."""


@dataclass(frozen=True, kw_only=True)
class PipelineConfig(ExecutionConfig):
    """Settings of a pipeline, and defaults for its steps."""

    max_concurrency: int | None = None
    """How many steps may run at once; `None` for as many as the dependencies allow."""
    store: object = None
    """Where runs are put on record, so that they can be resumed: a `RunStore`, or one of your own with its
    five operations, sync or async. Nested pipelines use that of the run around them."""
    durability: Durability = "sync"
    """`"sync"` goes on when what has happened is stored; `"async"` at once, at most 1,000 entries ahead."""
    lease: float = DEFAULT_TERMS.seconds
    """Seconds after which a process that has a run counts as dead if it has not renewed its lease. A thread
    of the process renews it three times in this time."""
    max_stall: float = DEFAULT_TERMS.max_stall
    """Seconds for which the thread goes on renewing while a step blocks the event loop with code that does
    not await."""
    codec: PayloadCodec | None = None
    """What inputs, outputs, responses and tool results go through on their way to the store."""
    sinks: Sequence[Sink] = field(default=(), hash=False)
    """Functions that tell people what a run asks, when it waits: `fastroai.human.to_console`, or your own."""
    provider_limits: ProviderLimits | None = field(default=None, hash=False)
    """What is sent to providers at once and in a minute, by every request inside, whichever agent makes it:
    `{"openai": ProviderLimit(...)}`, `"*"` for all others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_concurrency", self.max_concurrency, least=1)
        if self.store is not None:
            adapt_run_store(self.store)
        if self.durability not in ("sync", "async"):
            raise ConfigurationError("durability", self.durability, "'sync' or 'async'")
        self.lease_terms  # noqa: B018  # checks them
        check_codec(self.codec)
        object.__setattr__(self, "sinks", checked_sinks(self.sinks))
        check_provider_limits(self.provider_limits)

    @property
    def lease_terms(self) -> LeaseTerms:
        """The lease and the `max_stall` of these settings."""
        return LeaseTerms(seconds=self.lease, max_stall=self.max_stall)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """What holds for one step, after inheritance: nothing is open any more."""

    timeout: float | None = None
    total_timeout: float | None = None
    retries: int = 0
    request_retries: int | None = None
    """`retries` where it was given, which then holds for requests too; otherwise the agent's own does. Under
    `retry`, both are the extra attempts of all classes together."""
    retry_delay: float = DEFAULT_RETRY_DELAY
    request_retry_delay: float | None = None
    """`retry_delay` where it was given, which then holds for requests too; otherwise their own does."""
    retry: RetryPolicies | None = None
    """The policies, where they hold and not `retries`."""
    classifiers: tuple[Classifier, ...] = field(default=(), hash=False)
    """All of the step, then those of the pipeline."""
    hooks: Hooks = field(default=Hooks(), hash=False)
    """The step's own."""
    limits: Limits | None = None
    trace: bool = True
    on_error: OnError = "fail"
    retry_rules: RetryRules | None = field(init=False, repr=False, compare=False)
    """What is tried again; `None` where nobody said."""
    is_plain: bool = field(init=False, repr=False, compare=False)
    """Whether nothing bounds or repeats the step."""

    def __post_init__(self) -> None:
        rules = rules_for(self.retry, self.request_retries, self.retry_delay, self.classifiers)
        object.__setattr__(self, "retry_rules", rules)
        is_plain = self.timeout is None and self.total_timeout is None and self.request_retries is None
        object.__setattr__(self, "is_plain", is_plain)

    def as_defaults(self) -> ExecutionConfig:
        """What a step inside this one inherits."""
        counted = self.retry is None
        return ExecutionConfig(
            timeout=self.timeout,
            retries=self.request_retries if counted and self.request_retries is not None else NOT_GIVEN,
            retry_delay=(
                self.request_retry_delay if counted and self.request_retry_delay is not None else NOT_GIVEN
            ),
            retry=NOT_GIVEN if self.retry is None else self.retry,
            classifiers=self.classifiers,
            trace=self.trace,
        )


def check_on_error(on_error: OnError) -> None:
    """Refuse other words. Raises `ConfigurationError`."""
    if on_error not in get_args(OnError):
        raise ConfigurationError("on_error", on_error, "'fail' or 'continue'")


def policies_of(retry: RetryLike, retries: int | NotGiven, retry_delay: float | NotGiven) -> RetryPolicies:
    """The policies that `retry` says. Raises `ConfigurationError`, also for what is said beside it."""
    policies = RetryPolicies.of(retry)
    for option, value in (("retries", retries), ("retry_delay", retry_delay)):
        if not isinstance(value, NotGiven):
            raise ConfigurationError(
                option, value, f"nothing beside retry={policies!r}, which says it by class"
            )
    return policies


def rules_for(
    policies: RetryPolicies | None, retries: int | None, delay: float, classifiers: tuple[Classifier, ...]
) -> RetryRules | None:
    """What is tried again: by `policies`, else `retries` times; `None` where nobody said."""
    if policies is not None:
        return RetryRules(policies, classifiers)
    return None if retries is None else RetryRules.counted(retries, delay, classifiers)


def _checked(classifiers: Sequence[Classifier]) -> tuple[Classifier, ...]:
    expected = "functions (error, context) -> FailureClass | None, not async, in a list"
    given: object = classifiers
    if not isinstance(given, list | tuple):
        raise ConfigurationError("classifiers", classifiers, expected)
    for classifier in classifiers:
        if not callable(classifier) or inspect.iscoroutinefunction(classifier):
            raise ConfigurationError("classifiers", classifiers, expected)
    return tuple(classifiers)


def limits_in(config: ExecutionConfig) -> Limits | None:
    """The limits that a config sets; nothing below this line sees the short form."""
    return limits_of(first_given(config.budget, default=None), first_given(config.cost_budget, default=None))


def _says_a_budget(config: ExecutionConfig) -> bool:
    return not (isinstance(config.budget, NotGiven) and isinstance(config.cost_budget, NotGiven))


def _most_specific_limits(own: Sequence[StepConfig]) -> Limits | None:
    """The limits of a step: a budget goes before less specific ones, `None` lifts them all."""
    limits: Limits | None = None
    for config in own:
        if not _says_a_budget(config):
            continue
        said = limits_in(config)
        if said is None:
            return limits
        limits = said if limits is None else limits.over(said)
    return limits


def _most_specific_policies(chain: Sequence[ExecutionConfig]) -> RetryPolicies | None:
    """Policies, unless plain `retries` are said more specifically; for each class, the most specific one.

    A `retry_delay` that is said more specifically is their backoff.
    """
    found: RetryPolicies | None = None
    delay: float | NotGiven = NOT_GIVEN
    for config in chain:
        if isinstance(config.retry, RetryPolicies):
            said = config.retry if isinstance(delay, NotGiven) else config.retry.with_backoff(delay)
            found = said if found is None else found.over(said)
        if isinstance(delay, NotGiven):
            delay = config.retry_delay
        if not isinstance(config.retries, NotGiven):
            break
    return found


def resolve(*own: StepConfig, pipeline: ExecutionConfig) -> ResolvedConfig:
    """The settings of a step: its own configs, most specific first, then what it inherits."""
    chain = (*own, pipeline)
    delay: float | None = first_given(*(config.retry_delay for config in chain), default=None)
    retry = _most_specific_policies(chain)
    retries: int | None = (
        first_given(*(config.retries for config in chain), default=None)
        if retry is None
        else retry.max_retries
    )
    return ResolvedConfig(
        timeout=first_given(*(config.timeout for config in chain), default=None),
        total_timeout=first_given(*(config.total_timeout for config in own), default=None),
        retries=retries or 0,
        request_retries=retries,
        retry_delay=DEFAULT_RETRY_DELAY if delay is None else delay,
        request_retry_delay=delay,
        retry=retry,
        classifiers=tuple(classifier for config in chain for classifier in config.classifiers),
        hooks=Hooks.of(*own),
        limits=_most_specific_limits(own),
        trace=first_given(*(config.trace for config in chain), default=True),
        on_error=first_given(*(config.on_error for config in chain), default="fail"),  # pyright: ignore[reportArgumentType]  # pyright: ignore[reportArgumentType]
    )


def resolve_all(
    own: Mapping[str, StepConfig], named: Mapping[str, StepConfig], *, pipeline: ExecutionConfig
) -> dict[str, ResolvedConfig]:
    """The settings of every step, by step id: what is said of it (`named`), then its own.

    Steps with the same settings share one.
    """
    known: dict[tuple[StepConfig | None, StepConfig], ResolvedConfig] = {}
    resolved: dict[str, ResolvedConfig] = {}
    for step_id, config in own.items():
        key = (named.get(step_id), config)
        if key not in known:
            known[key] = resolve(*(one for one in key if one is not None), pipeline=pipeline)
        resolved[step_id] = known[key]
    return resolved

"""Settings of pipelines and steps, and how they are inherited.

The most specific setting holds: that of the call (`ctx.run(..., timeout=)`), then that of
`step_configs[step_id]`, then that of the step's own config (`@step(...)`, the class attribute,
`as_step(config=)`), then that of the `PipelineConfig`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from fastroai.errors import ConfigurationError
from fastroai.human.sinks import Sink, checked_sinks
from fastroai.other_names import by_name, other_names
from fastroai.records import NOT_GIVEN, Duration, NotGiven, first_given, in_seconds
from fastroai.runtime import Classifier, FailureClass, ProviderLimits, RetryPolicies, RetryPolicy, RetryRules
from fastroai.runtime.options import check_count, check_seconds, check_timeout
from fastroai.runtime.providers.provider_limits import check_provider_limits
from fastroai.steps.hooks import Hooks, OnRetry, OnStepFailure, OnStepStart, OnStepSuccess, check_hooks
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.lease import DEFAULT_TERMS, LeaseTerms
from fastroai.store.record.declarations import OnChanged, check_on_changed
from fastroai.store.record.journal import Durability
from fastroai.store.record.payloads import PayloadCodec, check_codec
from fastroai.store.run_store import RunStoreLike
from fastroai.usage import BudgetLike
from fastroai.usage.limits import NO_LIMITS, Limits, limits_of, together

OnError = Literal["fail", "continue"]

RetryLike: TypeAlias = RetryPolicy | Mapping[FailureClass, RetryPolicy]
"""Policies by failure class, or one policy for recoverable and ambiguous failures."""

DEFAULT_RETRY_DELAY: Final = 1.0
"""Seconds; the base of the exponential backoff."""


_MEANT: Final = ("timeout", "retries", "retry_delay", "cost_budget")
"""The settings that positional values are meant as."""


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """Settings that steps and pipelines share: the base class of `StepConfig` and `PipelineConfig`.

    A step inherits what it is not given from its pipeline, except `total_timeout`, `cost_budget` and
    `budget`. A setting that is not given reads as `NOT_GIVEN`, not as its default: otherwise a default of 0
    retries would override the pipeline's. In a step, `ctx.config` has the values that apply.

    Without any setting, there are no time limits, no retries and no budget, and `on_error` is `"fail"`. Times
    are in seconds, or `timedelta`s. `cost_budget` is in microcents ($1 = 1,000,000).

    Raises:
        ConfigurationError: an invalid value; `retry` together with `retries` or `retry_delay`; or `budget`
            together with `cost_budget`.
    """

    timeout: Duration | NotGiven | None = NOT_GIVEN
    """Seconds, or a `timedelta`, for one attempt at an agent call, or at a step's own code. The clock of that
    code pauses while a `ctx.run` or a nested pipeline, router or graph is in progress, so a step that only
    runs one of these cannot set it: use `total_timeout`. On a pipeline, the default for its steps."""
    total_timeout: Duration | NotGiven | None = NOT_GIVEN
    """Seconds for the whole step or pipeline, retries included. Not inherited."""
    retries: int | NotGiven = NOT_GIVEN
    """Extra attempts after a failure; 0 unless given."""
    retry_delay: Duration | NotGiven = NOT_GIVEN
    """Most seconds before the first retry; doubles each time, with full jitter. 1.0 unless given. Give it
    with `retries`, not with `retry`."""
    retry: RetryLike | NotGiven = NOT_GIVEN
    """Instead of `retries`: a `RetryPolicy` by `FailureClass`, such as `DEFAULT_RETRY`, or one policy for
    recoverable and ambiguous failures. If one level sets `retries` and another one `retry`, the more specific
    level holds. A class that a step's `retry` does not name has the policy of its pipeline."""
    classifiers: Sequence[Classifier] = field(default=(), hash=False)
    """Functions that return the class of a failure, or `None`; a step's are asked before the pipeline's."""
    cost_budget: int | NotGiven | None = NOT_GIVEN
    """Most microcents ($1 = 1,000,000) that the whole step or pipeline may spend. Not inherited: siblings
    share the budget of the pipeline."""
    budget: BudgetLike | NotGiven | None = NOT_GIVEN
    """The same limit as a `Budget`, which has more options, or as a `SpendLimit`, or as several of them. Give
    `budget` or `cost_budget`, not both. Not inherited."""
    trace: bool | NotGiven = NOT_GIVEN
    """Whether spans are opened here and below; true unless given. If a pipeline sets `True` and nobody gives
    a tracer, a `SimpleTracer` writes spans to the standard log."""
    on_error: OnError | NotGiven = NOT_GIVEN
    """`"fail"` cancels running steps and raises; `"continue"` finishes all that need no failed step."""
    on_step_start: OnStepStart | None = field(default=None, hash=False)
    """Hook that is called when a step starts; on a step, only for that step. Hooks of a step and of its
    pipeline are all called. If one raises, the exception is logged and changes nothing."""
    on_step_success: OnStepSuccess | None = field(default=None, hash=False)
    """Hook that is called when a step has finished for good."""
    on_step_failure: OnStepFailure | None = field(default=None, hash=False)
    """Hook that is called when a step has failed, after its retries."""
    on_retry: OnRetry | None = field(default=None, hash=False)
    """Hook that is called before the wait for the next attempt at a step, or at an agent call in it."""

    def __post_init__(self) -> None:
        check_timeout("timeout", first_given(self.timeout, default=None))
        check_seconds("total_timeout", first_given(self.total_timeout, default=None))
        check_count("retries", first_given(self.retries, default=0), required=True)
        if not isinstance(self.retry_delay, NotGiven):
            check_seconds("retry_delay", self.retry_delay, zero=True)
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


_OTHER_NAMES: Final = {
    "max_retries": "retries=",
    "timeout_seconds": "timeout=",
    "timeout_ms": "timeout=, in seconds",
    "on_node_start": "on_step_start=",
    "on_node_success": "on_step_success=",
    "on_node_failure": "on_step_failure=",
}


@by_name(*_MEANT)
@other_names(arguments=_OTHER_NAMES)
@dataclass(frozen=True, kw_only=True)
class StepConfig(ExecutionConfig):
    """Settings of one step, for `@step`, `BaseStep.config`, `as_step` or `Pipeline(step_configs=...)`.

    A setting in `step_configs` wins over that of the step itself, and both win over that of the pipeline.
    Budgets in both hold together; `budget=None` in `step_configs` lifts that of the step. Settings that are
    not given are inherited from the pipeline, except `total_timeout`, `cost_budget` and `budget`.

    Raises:
        ConfigurationError: an invalid value; `retry` together with `retries` or `retry_delay`; or `budget`
            together with `cost_budget`.
    """


@by_name(*_MEANT)
@other_names(
    arguments={
        **_OTHER_NAMES,
        "policy_map": "retry=",
        "node_policies": "Pipeline(step_configs={step_id: StepConfig(retry=…)})",
        "node_timeouts": "Pipeline(step_configs={step_id: StepConfig(timeout=…)}), in seconds",
        "checkpointer": "store=",
        "recursion_limit": "Graph(max_steps=…)",
        "context": "run(context={…})",
        "run_id": "run(run_id=…)",
        "resume_from": "resume(run_id, store=…)",
    }
)
@dataclass(frozen=True, kw_only=True)
class PipelineConfig(ExecutionConfig):
    """Settings of a pipeline, graph, router or flow, and defaults for its steps.

    `total_timeout`, `cost_budget` and `budget` hold for the whole run, and are no defaults for steps. Hooks
    and classifiers hold for all steps, beside their own. The other settings that it shares with `StepConfig`
    hold for steps that do not set them. Times are in seconds, or `timedelta`s; `cost_budget` is in microcents
    ($1 = 1,000,000). Without a `store`, runs are not kept, and cannot be resumed.

    Raises:
        ConfigurationError: an invalid value; `retry` together with `retries` or `retry_delay`; or `budget`
            together with `cost_budget`.
    """

    max_concurrency: int | None = None
    """Most steps that may run at once; `None` for as many as the dependencies allow. For a flow, most calls
    that its body makes at once. Not for routers: set it on their pipelines."""
    store: RunStoreLike | None = None
    """Store that keeps runs on record, so that they can be resumed: a `RunStore`, or the path or URL of one,
    such as `"runs.db"`. Nested pipelines use the store of the run around them, with its
    codec, and not their own."""
    durability: Durability = "sync"
    """`"sync"`: the run goes on when a fact is stored. `"async"`: at once, at most 1,000 facts ahead."""
    on_changed: OnChanged = "ask"
    """What a resumed run does when its code makes a call that is on record, and the intent, context,
    instructions, model, output type or settings that are declared for it have changed since then. `"ask"`:
    it asks the model again. `"keep"`: it uses the answer on record. `"fail"`: the step or flow fails with
    `CallChangedError`, before anything is sent. A run inside of another one does what that one does."""
    lease: Duration = DEFAULT_TERMS.seconds
    """Seconds after which a process that has a run counts as dead if it has not renewed its lease. A thread
    of the process renews it three times in this time."""
    max_stall: Duration = DEFAULT_TERMS.max_stall
    """Seconds for which that thread goes on renewing while code of a step blocks the event loop."""
    codec: PayloadCodec | None = None
    """Codec through which inputs, outputs, responses and tool results go on their way to the store."""
    record_messages: bool = True
    """Whether a run has on record which messages each request adds to its conversation, for
    `RunTrace.conversations`. Going on needs none of them. It holds for nested runs, too."""
    sinks: Sequence[Sink] = field(default=(), hash=False)
    """Functions that tell people the questions of a waiting run: `fastroai.human.to_console`, or your own.
    Those of a nested run are called, too, for the questions that are asked in it."""
    provider_limits: ProviderLimits | None = field(default=None, hash=False)
    """Limits on requests at once and in a minute, by provider, for every request inside, whichever agent
    makes it: `{"openai": ProviderLimit(...)}`, `"*"` for all other providers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_concurrency", self.max_concurrency, least=1)
        if self.store is not None:
            object.__setattr__(self, "store", adapt_run_store(self.store))
        if self.durability not in ("sync", "async"):
            raise ConfigurationError("durability", self.durability, "'sync' or 'async'")
        check_on_changed(self.on_changed)
        self.lease_terms  # noqa: B018  # checks them
        check_codec(self.codec)
        object.__setattr__(self, "sinks", checked_sinks(self.sinks))
        check_provider_limits(self.provider_limits)

    @property
    def lease_terms(self) -> LeaseTerms:
        """The settings `lease` and `max_stall` as one value, both in seconds."""
        return LeaseTerms(seconds=in_seconds(self.lease), max_stall=in_seconds(self.max_stall))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """The settings of one step after inheritance."""

    timeout: float | None = None
    total_timeout: float | None = None
    retries: int = 0
    request_retries: int | None = None
    """`retries`, if that was given: then it holds for requests, too. Otherwise, the agent's own setting does.
    Under `retry`, this and `retries` are the extra attempts of all classes together."""
    retry_delay: float = DEFAULT_RETRY_DELAY
    request_retry_delay: float | None = None
    """`retry_delay`, if that was given: it holds for requests, too. Otherwise, their own setting does."""
    retry: RetryPolicies | None = None
    """The policies, if they hold instead of `retries`."""
    classifiers: tuple[Classifier, ...] = field(default=(), hash=False)
    """Classifiers of the step, then those of the pipeline."""
    hooks: Hooks = field(default=Hooks(), hash=False)
    """Hooks of the step itself."""
    limits: Limits | None = None
    trace: bool = True
    on_error: OnError = "fail"
    retry_rules: RetryRules | None = field(init=False, repr=False, compare=False)
    """Rules by which failures are retried; `None` if no level sets any."""
    is_plain: bool = field(init=False, repr=False, compare=False)
    """Whether the step has neither time limits nor settings for retries."""

    def __post_init__(self) -> None:
        rules = rules_for(self.retry, self.request_retries, self.retry_delay, self.classifiers)
        object.__setattr__(self, "retry_rules", rules)
        is_plain = self.timeout is None and self.total_timeout is None and self.request_retries is None
        object.__setattr__(self, "is_plain", is_plain)

    def as_defaults(self) -> ExecutionConfig:
        """Return the settings that a step inside this one inherits."""
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
    """Refuse an invalid `on_error`. Raises `ConfigurationError`."""
    if on_error not in get_args(OnError):
        raise ConfigurationError("on_error", on_error, "'fail' or 'continue'")


def own_settings(run: ExecutionConfig, own: StepConfig) -> StepConfig:
    """Return the settings of a step that is a whole run: its own, else those of the run's config.

    The budget of the run is not among them, because it holds inside of the step.
    """
    inherited: dict[str, Any] = {name: getattr(run, name) for name in settings_of_steps(run)}
    if not (isinstance(own.retries, NotGiven) and isinstance(own.retry, NotGiven)):
        inherited = {name: value for name, value in inherited.items() if not name.startswith("retr")}
    for name in settings_of_steps(own):
        inherited.pop(name, None)
    return replace(own, **inherited)


def settings_of_steps(config: ExecutionConfig) -> list[str]:
    """Return the names of the settings that a config sets, but its budget."""
    unset = ExecutionConfig()
    names = [one.name for one in fields(ExecutionConfig) if one.name not in ("cost_budget", "budget")]
    return [name for name in names if getattr(config, name) != getattr(unset, name)]


def refuse_on_error(config: ExecutionConfig, of: str, why: str) -> None:
    """Refuse the setting `on_error` of a kind of run that has no use for it. Raises `ConfigurationError`."""
    if not isinstance(config.on_error, NotGiven):
        raise ConfigurationError("on_error", config.on_error, f"no such setting in the config of {of}: {why}")


def policies_of(retry: RetryLike, retries: int | NotGiven, retry_delay: Duration | NotGiven) -> RetryPolicies:
    """Return the policies of a `retry` setting.

    Raises `ConfigurationError`, also if `retries` or `retry_delay` is given beside it.
    """
    policies = RetryPolicies.of(retry)
    for option, value in (("retries", retries), ("retry_delay", retry_delay)):
        if not isinstance(value, NotGiven):
            raise ConfigurationError(
                option, value, f"no value with retry={policies!r}, which sets it for each failure class"
            )
    return policies


def with_budget(config: PipelineConfig, budget: BudgetLike) -> PipelineConfig:
    """Return a config with a budget beside its own ones."""
    limits = together(limits_of(budget), limits_in(config)) or NO_LIMITS
    return replace(config, budget=(*limits.budgets, *limits.spend_limits), cost_budget=NOT_GIVEN)


def rules_for(
    policies: RetryPolicies | None,
    retries: int | None,
    delay: float | None,
    classifiers: tuple[Classifier, ...],
) -> RetryRules | None:
    """Return the rules of retries: by `policies`, else `retries` times; `None` without either."""
    if policies is not None:
        return RetryRules(policies, classifiers)
    backoff = DEFAULT_RETRY_DELAY if delay is None else delay
    return None if retries is None else RetryRules.counted(retries, backoff, classifiers)


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
    """Return the limits that a config sets, also by the short form `cost_budget`."""
    return limits_of(first_given(config.budget, default=None), first_given(config.cost_budget, default=None))


def _says_a_budget(config: ExecutionConfig) -> bool:
    return not (isinstance(config.budget, NotGiven) and isinstance(config.cost_budget, NotGiven))


def _limits_of_step(own: Sequence[StepConfig]) -> Limits | None:
    """Return the limits of a step: those of all its configs. `None` lifts those of less specific configs."""
    limits: Limits | None = None
    for config in filter(_says_a_budget, own):
        if (said := limits_in(config)) is None:
            break
        limits = together(limits, said)
    return limits


def _most_specific_policies(chain: Sequence[ExecutionConfig]) -> RetryPolicies | None:
    """Return the most specific policy for each class; none, if plain `retries` are set more specifically.

    A `retry_delay` that is set more specifically is the backoff of the policies.
    """
    found: RetryPolicies | None = None
    delay: Duration | NotGiven = NOT_GIVEN
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
    """Return the settings of a step: those of its own configs, most specific first, then inherited ones."""
    chain = (*own, pipeline)
    delay = in_seconds(first_given(*(config.retry_delay for config in chain), default=None))
    retry = _most_specific_policies(chain)
    retries: int | None = (
        first_given(*(config.retries for config in chain), default=None)
        if retry is None
        else retry.max_retries
    )
    return ResolvedConfig(
        timeout=in_seconds(first_given(*(config.timeout for config in chain), default=None)),
        total_timeout=in_seconds(first_given(*(config.total_timeout for config in own), default=None)),
        retries=retries or 0,
        request_retries=retries,
        retry_delay=DEFAULT_RETRY_DELAY if delay is None else delay,
        request_retry_delay=delay,
        retry=retry,
        classifiers=tuple(classifier for config in chain for classifier in config.classifiers),
        hooks=Hooks.of(*own),
        limits=_limits_of_step(own),
        trace=first_given(*(config.trace for config in chain), default=True),
        on_error=first_given(*(config.on_error for config in chain), default="fail"),  # pyright: ignore[reportArgumentType]
    )


def resolve_all(
    own: Mapping[str, StepConfig], named: Mapping[str, StepConfig], *, pipeline: ExecutionConfig
) -> dict[str, ResolvedConfig]:
    """Return the settings of every step, by step id. Those in `named` go before the step's own config.

    Steps with the same settings share one object.
    """
    known: dict[tuple[StepConfig | None, StepConfig], ResolvedConfig] = {}
    same: dict[tuple[int, int], ResolvedConfig] = {}  # by identity, as a config takes long to hash
    resolved: dict[str, ResolvedConfig] = {}
    for step_id, config in own.items():
        key = (named.get(step_id), config)
        identity = (id(key[0]), id(config))
        if identity not in same:
            if key not in known:
                known[key] = resolve(*(one for one in key if one is not None), pipeline=pipeline)
            same[identity] = known[key]
        resolved[step_id] = same[identity]
    return resolved

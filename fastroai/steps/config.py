"""What can be set on pipelines and steps, and how the settings flow down.

Most specific first: the call (`ctx.run(..., timeout=)`), `step_configs[step_id]`, the step's own config
(`@step(...)`, the class attribute, `as_step(config=)`), the `PipelineConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fastroai.errors import ConfigurationError
from fastroai.records import NOT_GIVEN, NotGiven, first_given
from fastroai.runtime.options import check_count, check_seconds
from fastroai.usage import BudgetLike
from fastroai.usage.limits import Limits, limits_of

OnError = Literal["fail", "continue"]

DEFAULT_RETRY_DELAY: Final = 1.0
"""Seconds; the base of the exponential backoff."""


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """What steps and pipelines share. What is not given is inherited."""

    timeout: float | NotGiven | None = NOT_GIVEN
    """Seconds for one attempt of a unit: an agent call, or a step's own code (whose clock pauses while a
    `ctx.run` is in progress). On a pipeline, the default for its steps."""
    total_timeout: float | NotGiven | None = NOT_GIVEN
    """Seconds for the whole step or pipeline, retries included. Not inherited."""
    retries: int | NotGiven = NOT_GIVEN
    """Extra attempts after a failure; 0 unless given."""
    retry_delay: float | NotGiven = NOT_GIVEN
    """Seconds before the first retry at most; doubles each time, with full jitter. 1.0 unless given."""
    cost_budget: int | NotGiven | None = NOT_GIVEN
    """Microcents ($1 = 1,000,000) for the whole step or pipeline. Not inherited: siblings share the
    pipeline's."""
    budget: BudgetLike | NotGiven | None = NOT_GIVEN
    """The same as a `Budget`, which can say more, or a `SpendLimit`, or several; give one of the two. Not
    inherited."""
    trace: bool | NotGiven = NOT_GIVEN
    """Whether spans are opened here and below; true unless given."""
    on_error: OnError | NotGiven = NOT_GIVEN
    """`"fail"` cancels what runs and raises; `"continue"` finishes what does not need the failed step."""

    def __post_init__(self) -> None:
        check_seconds("timeout", first_given(self.timeout, default=None))
        check_seconds("total_timeout", first_given(self.total_timeout, default=None))
        check_count("retries", first_given(self.retries, default=0), required=True)
        check_seconds("retry_delay", first_given(self.retry_delay, default=0.0), zero=True)
        limits_in(self)
        if isinstance(self.budget, list):
            object.__setattr__(self, "budget", tuple(self.budget))  # a config is a value, which has a hash
        trace = first_given(self.trace, default=True)
        if not isinstance(trace, bool):
            raise ConfigurationError("trace", trace, "True or False")
        on_error = first_given(self.on_error, default="fail")
        if on_error not in ("fail", "continue"):
            raise ConfigurationError("on_error", on_error, "'fail' or 'continue'")


@dataclass(frozen=True, kw_only=True)
class StepConfig(ExecutionConfig):
    """Settings of one step."""


@dataclass(frozen=True, kw_only=True)
class PipelineConfig(ExecutionConfig):
    """Settings of a pipeline, and defaults for its steps."""

    max_concurrency: int | None = None
    """How many steps may run at once; `None` for as many as the dependencies allow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_concurrency", self.max_concurrency, least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """What holds for one step, after inheritance: nothing is open any more."""

    timeout: float | None = None
    total_timeout: float | None = None
    retries: int = 0
    request_retries: int | None = None
    """`retries` where it was given, which then holds for requests too; otherwise the agent's own does."""
    retry_delay: float = DEFAULT_RETRY_DELAY
    limits: Limits | None = None
    trace: bool = True
    on_error: OnError = "fail"

    @property
    def is_plain(self) -> bool:
        """Whether nothing bounds or repeats the step."""
        return self.timeout is None and self.total_timeout is None and self.request_retries is None

    def as_defaults(self) -> ExecutionConfig:
        """What a step inside this one inherits."""
        return ExecutionConfig(
            timeout=self.timeout,
            retries=NOT_GIVEN if self.request_retries is None else self.request_retries,
            retry_delay=self.retry_delay,
            trace=self.trace,
        )


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


def resolve(*own: StepConfig, pipeline: ExecutionConfig) -> ResolvedConfig:
    """The settings of a step: its own configs, most specific first, then what it inherits."""
    chain = (*own, pipeline)
    retries: int | None = first_given(*(config.retries for config in chain), default=None)
    return ResolvedConfig(
        timeout=first_given(*(config.timeout for config in chain), default=None),
        total_timeout=first_given(*(config.total_timeout for config in own), default=None),
        retries=retries or 0,
        request_retries=retries,
        retry_delay=first_given(*(config.retry_delay for config in chain), default=DEFAULT_RETRY_DELAY),
        limits=_most_specific_limits(own),
        trace=first_given(*(config.trace for config in chain), default=True),
        on_error=first_given(*(config.on_error for config in chain), default="fail"),
    )

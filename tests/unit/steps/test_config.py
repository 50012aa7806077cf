import math
from typing import Any

import pytest

from fastroai.errors import ConfigurationError
from fastroai.records import NOT_GIVEN
from fastroai.runtime import DEFAULT_RETRY, FailureClass, RetryPolicies, RetryPolicy, RetryRules
from fastroai.steps import ExecutionConfig, PipelineConfig, ResolvedConfig, StepConfig
from fastroai.steps.config import limits_in, resolve
from fastroai.usage import Budget
from fastroai.usage.limits import Limits


def test_what_nobody_gives_has_a_default() -> None:
    assert resolve(StepConfig(), pipeline=PipelineConfig()) == ResolvedConfig(
        timeout=None,
        total_timeout=None,
        retries=0,
        request_retries=None,
        retry_delay=1.0,
        limits=None,
        trace=True,
        on_error="fail",
    )


INHERITED: list[tuple[str, Any, Any]] = [
    ("timeout", 5.0, 50.0),
    ("retries", 1, 4),
    ("retry_delay", 0.5, 8.0),
    ("trace", True, False),
    ("on_error", "fail", "continue"),
]


@pytest.mark.parametrize(("option", "mine", "pipelines"), INHERITED)
def test_the_most_specific_setting_holds(option: str, mine: Any, pipelines: Any) -> None:
    one, other, around = (
        StepConfig(**{option: mine}),
        StepConfig(**{option: pipelines}),
        PipelineConfig(**{option: pipelines}),
    )
    assert getattr(resolve(StepConfig(), pipeline=around), option) == pipelines
    assert getattr(resolve(one, pipeline=around), option) == mine
    assert getattr(resolve(one, other, pipeline=PipelineConfig()), option) == mine


def test_each_option_is_found_by_itself() -> None:
    resolved = resolve(
        StepConfig(retries=1),
        StepConfig(timeout=2, retries=9),
        pipeline=PipelineConfig(trace=False, timeout=9, retries=9),
    )
    assert (resolved.retries, resolved.timeout, resolved.trace) == (1, 2, False)


def test_zero_retries_over_an_inherited_three_means_zero() -> None:
    resolved = resolve(StepConfig(retries=0), pipeline=PipelineConfig(retries=3))
    assert (resolved.retries, resolved.request_retries) == (0, 0)


def test_no_timeout_over_an_inherited_ten_means_none() -> None:
    assert resolve(StepConfig(timeout=None), pipeline=PipelineConfig(timeout=10)).timeout is None


@pytest.mark.parametrize("option", ["total_timeout", "cost_budget"])
def test_what_is_for_the_pipeline_as_a_whole_is_not_inherited(option: str) -> None:
    resolved = resolve(StepConfig(), pipeline=PipelineConfig(**{option: 7}))  # type: ignore[arg-type]
    assert (resolved.total_timeout, resolved.limits) == (None, None)


def test_a_steps_own_limits_are_its_own() -> None:
    resolved = resolve(StepConfig(total_timeout=3), StepConfig(cost_budget=7), pipeline=PipelineConfig())
    assert resolved.total_timeout == 3
    assert resolved.limits == Limits((Budget(microcents=7),))


def test_a_budget_in_short_form_is_microcents() -> None:
    limits = limits_in(StepConfig(cost_budget=500_000))
    assert limits is not None
    assert limits.budgets == (Budget(usd="0.5"),)
    assert limits_in(StepConfig(cost_budget=None)) is None
    assert limits_in(StepConfig()) is None


def test_a_budget_may_be_given_as_one_and_then_says_more() -> None:
    budget = Budget(usd="0.25", on_unpriced="allow")
    assert limits_in(StepConfig(budget=budget)) == Limits((budget,))
    assert resolve(StepConfig(budget=budget), pipeline=PipelineConfig()).limits == Limits((budget,))
    assert resolve(StepConfig(), pipeline=PipelineConfig(budget=budget)).limits is None


@pytest.mark.parametrize("none", [{"budget": None}, {"cost_budget": None}])
def test_either_form_of_no_budget_lifts_either_form_of_one(none: dict[str, None]) -> None:
    for own in (StepConfig(budget=Budget(usd=1)), StepConfig(cost_budget=7)):
        assert resolve(StepConfig(**none), own, pipeline=PipelineConfig()).limits is None  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [500_000, "0.5", {"usd": 1}])
def test_a_budget_is_a_budget(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^budget=.*a Budget, a SpendLimit, .*takes microcents"):
        StepConfig(budget=wrong)


def test_only_a_step_that_nothing_bounds_or_repeats_is_plain() -> None:
    assert resolve(StepConfig(trace=False, on_error="continue"), pipeline=PipelineConfig()).is_plain
    for option in ({"timeout": 1}, {"total_timeout": 1}, {"retries": 0}):
        assert not resolve(StepConfig(**option), pipeline=PipelineConfig()).is_plain  # type: ignore[arg-type]


def test_a_step_inside_a_step_inherits_what_holds_for_that_one() -> None:
    outer = resolve(
        StepConfig(timeout=2, retries=3, retry_delay=4, trace=False, total_timeout=9, cost_budget=9),
        pipeline=PipelineConfig(),
    )
    assert outer.as_defaults() == ExecutionConfig(timeout=2, retries=3, retry_delay=4, trace=False)
    assert resolve(StepConfig(), pipeline=PipelineConfig()).as_defaults().retries is NOT_GIVEN


# --- retries by failure class ---


def test_one_policy_holds_for_recoverable_and_ambiguous_failures() -> None:
    policy = RetryPolicy(2)
    assert StepConfig(retry=policy).retry == {
        FailureClass.RECOVERABLE: policy,
        FailureClass.AMBIGUOUS: policy,
    }


def test_a_config_with_policies_classifiers_and_hooks_is_a_value() -> None:
    def final(error: BaseException, context: object) -> FailureClass:
        return FailureClass.TERMINAL

    def config() -> StepConfig:
        policies = {FailureClass.RECOVERABLE: RetryPolicy(2)}
        return StepConfig(retry=policies, classifiers=[final], on_retry=print)

    assert config() == config()
    assert hash(config()) == hash(config())
    assert config().classifiers == (final,)


@pytest.mark.parametrize("config", [StepConfig, PipelineConfig])
@pytest.mark.parametrize("beside", [{"retries": 0}, {"retry_delay": 1}])
def test_what_the_policies_say_is_not_said_beside_them(
    config: type[ExecutionConfig], beside: dict[str, Any]
) -> None:
    [option] = beside
    with pytest.raises(ConfigurationError, match=rf"^{option}=.*no value with retry="):
        config(retry=DEFAULT_RETRY, **beside)


def test_of_retries_and_policies_the_more_specific_one_holds_whole() -> None:
    policies = RetryPolicies.of(RetryPolicy(2, backoff=9))
    by_class = resolve(StepConfig(retry=policies), pipeline=PipelineConfig(retries=7, retry_delay=3))
    assert (by_class.retry, by_class.retries, by_class.request_retries) == (policies, 4, 4)
    assert by_class.retry_rules == RetryRules(policies)
    counted = resolve(StepConfig(retries=0), StepConfig(retry=policies), pipeline=PipelineConfig())
    assert (counted.retry, counted.retries, counted.request_retries) == (None, 0, 0)
    assert counted.retry_rules == RetryRules.counted(0, 1.0)
    inherited = resolve(StepConfig(timeout=1), pipeline=PipelineConfig(retry=DEFAULT_RETRY))
    assert (inherited.retry, inherited.retries) == (DEFAULT_RETRY, 4)
    assert resolve(StepConfig(), pipeline=PipelineConfig()).retry_rules is None


def test_the_classifiers_of_a_step_are_asked_before_those_of_the_pipeline() -> None:
    def one(error: BaseException, context: object) -> None: ...
    def two(error: BaseException, context: object) -> None: ...
    def three(error: BaseException, context: object) -> None: ...

    resolved = resolve(
        StepConfig(classifiers=[one]),
        StepConfig(classifiers=(two,)),
        pipeline=PipelineConfig(classifiers=[three]),
    )
    assert resolved.classifiers == (one, two, three)
    assert resolved.is_plain, "they only matter where something is tried again"


def test_a_step_inside_a_step_inherits_its_policies_and_classifiers() -> None:
    def final(error: BaseException, context: object) -> None: ...

    outer = resolve(StepConfig(retry=DEFAULT_RETRY, classifiers=[final]), pipeline=PipelineConfig())
    inner = resolve(StepConfig(), pipeline=outer.as_defaults())
    assert (inner.retry, inner.classifiers) == (DEFAULT_RETRY, (final,))


async def says_later(error: BaseException, context: object) -> None: ...


BAD: list[tuple[str, Any]] = [
    *[
        (option, value)
        for option in ("timeout", "total_timeout")
        for value in (0, -1, math.nan, math.inf, "1")
    ],
    *[("retries", value) for value in (-1, 1.5, math.nan, True, None)],
    *[("retry_delay", value) for value in (-1, math.nan, math.inf, None)],
    *[("cost_budget", value) for value in (0, -5, 0.5, math.nan, "1")],
    *[("trace", value) for value in ("yes", 1, None)],
    *[("retry", value) for value in (3, None, {"recoverable": 3}, {FailureClass.TERMINAL: RetryPolicy(1)})],
    *[("classifiers", value) for value in (print, None, [3], [says_later])],
    *[("on_error", value) for value in ("ignore", True, None)],
]


@pytest.mark.parametrize("config", [StepConfig, PipelineConfig])
@pytest.mark.parametrize(("option", "value"), BAD)
def test_what_cannot_be_meant_is_refused_by_name(
    config: type[ExecutionConfig], option: str, value: Any
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{option}=") as caught:
        config(**{option: value})
    assert caught.value.option == option


@pytest.mark.parametrize("value", [0, -1, 2.5, True, math.nan])
def test_a_pipeline_runs_at_least_one_step_at_a_time(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^max_concurrency="):
        PipelineConfig(max_concurrency=value)
    assert PipelineConfig(max_concurrency=1).max_concurrency == 1

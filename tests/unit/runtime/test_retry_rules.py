"""The one decision of every level that retries."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.exceptions import ModelHTTPError, UserError
from support.virtual_time import in_virtual_time

from fastroai.errors import StepExecutionError
from fastroai.runtime import (
    Clock,
    FailureClass,
    FailureContext,
    RetriesUsed,
    RetryPolicies,
    RetryPolicy,
    RetryRules,
    Scope,
)
from fastroai.runtime.retrying.failures import is_exhausted, mark_exhausted

RECOVERABLE, TERMINAL, AMBIGUOUS = FailureClass.RECOVERABLE, FailureClass.TERMINAL, FailureClass.AMBIGUOUS

NONE_YET = RetriesUsed()


def failure_of(failure: FailureClass) -> Exception:
    errors: dict[FailureClass, Exception] = {
        RECOVERABLE: ConnectionRefusedError(),
        AMBIGUOUS: ValueError(),
        TERMINAL: UserError("no"),
    }
    return errors[failure]


def busy(**headers: str) -> ModelHTTPError:
    return ModelHTTPError(
        429, "m", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def step_scope() -> Scope:
    return Scope("step", "x", parent=None, run_id="r")


def rules(recoverable: int, ambiguous: int, **options: Any) -> RetryRules:
    policies = {RECOVERABLE: RetryPolicy(recoverable, 0), AMBIGUOUS: RetryPolicy(ambiguous, 0)}
    return RetryRules(RetryPolicies.of(policies), **options)


@given(
    failures=st.lists(st.sampled_from([RECOVERABLE, AMBIGUOUS, AMBIGUOUS, TERMINAL]), max_size=12),
    recoverable=st.integers(0, 4),
    ambiguous=st.integers(0, 4),
)
def test_each_class_has_the_retries_that_its_policy_says_and_no_more(
    failures: list[FailureClass], recoverable: int, ambiguous: int
) -> None:
    said = {RECOVERABLE: recoverable, AMBIGUOUS: ambiguous, TERMINAL: 0}
    used = NONE_YET
    for number, failure in enumerate(failures):
        retry = rules(recoverable, ambiguous).next(failure_of(failure), used, step_scope())
        assert (retry is not None) == (failures[: number + 1].count(failure) <= said[failure])
        if retry is None:
            break
        assert retry.failure_class is failure
        assert retry.failed_attempt == number + 1
        used = retry.used


@given(st.lists(st.sampled_from([RECOVERABLE, AMBIGUOUS]), min_size=6, max_size=6), st.integers(0, 5))
def test_plain_retries_are_one_count_for_both_classes(failures: list[FailureClass], retries: int) -> None:
    used, done = NONE_YET, 0
    plain = RetryRules.counted(retries, 0.0)
    while (retry := plain.next(failure_of(failures[done]), used, step_scope())) is not None:
        used, done = retry.used, done + 1
    assert done == retries


def test_a_resumed_run_has_only_the_retries_that_are_left() -> None:
    used = RetriesUsed.from_json({"attempt": 5, "recoverable": 2, "ambiguous": 0})
    assert rules(2, 1).next(failure_of(RECOVERABLE), used, step_scope()) is None
    retry = rules(3, 1).next(failure_of(RECOVERABLE), used, step_scope())
    assert retry is not None
    assert retry.used == RetriesUsed(attempt=6, recoverable=3)


def test_what_is_used_up_is_marked_for_outer_levels_and_what_is_terminal_is_not() -> None:
    used_up, terminal = failure_of(RECOVERABLE), failure_of(TERMINAL)
    assert rules(0, 5).next(used_up, NONE_YET, step_scope()) is None
    assert rules(5, 5).next(terminal, NONE_YET, step_scope()) is None
    assert (is_exhausted(used_up), is_exhausted(terminal)) == (True, False)


def test_a_class_without_a_policy_is_not_tried_again() -> None:
    only = RetryRules(RetryPolicies.of({RECOVERABLE: RetryPolicy(5)}))
    assert only.next(failure_of(AMBIGUOUS), NONE_YET, step_scope()) is None


def test_what_an_inner_level_has_given_up_on_stays_given_up() -> None:
    inner = failure_of(RECOVERABLE)
    mark_exhausted(inner)
    outer = StepExecutionError("s", inner)
    outer.__cause__ = inner
    assert rules(5, 5).next(outer, NONE_YET, step_scope()) is None


def test_classifiers_have_their_say_and_know_where() -> None:
    asked: list[FailureContext] = []

    def final(error: BaseException, context: FailureContext) -> FailureClass:
        asked.append(context)
        return TERMINAL

    error = failure_of(RECOVERABLE)
    used = RetriesUsed(attempt=3, recoverable=2)
    assert rules(5, 5, classifiers=(final,)).next(error, used, step_scope()) is None
    assert asked == [FailureContext(step_id="x", attempt=3, run_id="r", chain=(error,))]


def test_a_providers_wish_is_a_floor_even_above_the_longest_backoff() -> None:
    short = RetryRules(RetryPolicies.of(RetryPolicy(1, backoff=1, max_backoff=2)))
    retry = short.next(busy(retry_after="90"), NONE_YET, step_scope())
    assert retry is not None
    assert retry.delay == 90
    long = RetryRules(RetryPolicies.of(RetryPolicy(1, backoff=100, max_backoff=100, jitter="none")))
    retry = long.next(busy(retry_after="90"), NONE_YET, step_scope())
    assert retry is not None
    assert retry.delay == 100


@pytest.mark.parametrize(
    ("error", "backoff", "note"),
    [
        (
            busy(retry_after="30"),
            1,
            "not retried: the provider asked to wait 30 s, and step 'x' has 4.2 s left",
        ),
        (
            ConnectionRefusedError(),
            8,
            "not retried: the next attempt would wait 8 s, and step 'x' has 4.2 s left",
        ),
    ],
)
def test_a_wait_past_the_deadline_is_not_begun_and_the_failure_says_so(
    error: Exception, backoff: float, note: str
) -> None:
    @in_virtual_time
    async def story() -> None:
        scope = step_scope()
        patient = RetryRules(RetryPolicies.of(RetryPolicy(5, backoff, jitter="none")))
        async with (
            scope.time.bounded(Clock(100, "something longer")),
            scope.time.bounded(Clock(4.2, "step 'x'")),
        ):
            assert patient.next(error, NONE_YET, scope) is None
        assert error.__notes__ == [note]
        assert is_exhausted(error)

    story()

import copy
import math
import pickle
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastroai.errors import ConfigurationError
from fastroai.runtime import (
    DEFAULT_RETRY,
    FailureClass,
    RetriesUsed,
    RetryPolicies,
    RetryPolicy,
    backoff_delay,
)

RECOVERABLE, TERMINAL, AMBIGUOUS = FailureClass.RECOVERABLE, FailureClass.TERMINAL, FailureClass.AMBIGUOUS


# --- one policy ---


def test_the_delay_is_anything_up_to_a_ceiling_that_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return high

    monkeypatch.setattr(random, "uniform", uniform)
    policy = RetryPolicy(4, backoff=0.5)
    assert [policy.delay(number) for number in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert [low for low, _ in ranges] == [0.0] * 4


def test_without_jitter_the_delay_is_the_ceiling() -> None:
    policy = RetryPolicy(9, backoff=1.5, max_backoff=10, jitter="none")
    assert [policy.delay(number) for number in (1, 2, 3, 4, 5)] == [1.5, 3, 6, 10, 10]


def test_jitter_spreads_the_attempts() -> None:
    assert len({RetryPolicy(5).delay(5) for _ in range(20)}) > 10


@given(
    backoff=st.floats(0, 1e6),
    max_backoff=st.floats(0, 1e6),
    number=st.integers(1, 100_000),
    jitter=st.sampled_from(["full", "none"]),
)
def test_no_delay_is_longer_than_it_may_be(
    backoff: float, max_backoff: float, number: int, jitter: Any
) -> None:
    delay = RetryPolicy(1, backoff, max_backoff, jitter).delay(number)
    assert 0 <= delay <= max_backoff
    assert delay <= backoff * 2.0 ** min(number, 1000)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        *[("max_retries", value) for value in (-1, 1.5, True, None)],
        *[("backoff", value) for value in (-1, math.nan, math.inf, None)],
        *[("max_backoff", value) for value in (-1, math.inf, "1")],
        *[("jitter", value) for value in ("some", None, True)],
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(option: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{option}="):
        RetryPolicy(**{"max_retries": 1, option: wrong})


def test_where_there_is_no_policy_the_backoff_is_the_same() -> None:
    assert backoff_delay(5, 0.0) == 0.0
    assert all(0 <= backoff_delay(3, 0.1) <= 0.4 for _ in range(50))


# --- policies by class ---


def test_the_ready_made_policies_are_the_documented_ones() -> None:
    assert {failure: policy.max_retries for failure, policy in DEFAULT_RETRY.items()} == {
        RECOVERABLE: 3,
        AMBIGUOUS: 1,
        TERMINAL: 0,
    }
    assert {policy.jitter for policy in DEFAULT_RETRY.values()} == {"full"}


def test_one_policy_is_for_recoverable_and_for_ambiguous_failures() -> None:
    policy = RetryPolicy(2)
    assert RetryPolicies.of(policy) == {RECOVERABLE: policy, AMBIGUOUS: policy}


def test_policies_are_a_value_with_a_hash() -> None:
    given = {RECOVERABLE: RetryPolicy(2)}
    policies = RetryPolicies.of(given)
    given[AMBIGUOUS] = RetryPolicy(9)
    assert dict(policies) == {RECOVERABLE: RetryPolicy(2)}
    assert len(policies) == 1
    same = RetryPolicies.of({RECOVERABLE: RetryPolicy(2)})
    assert policies == same
    assert hash(policies) == hash(same)
    assert pickle.loads(pickle.dumps(policies)) == copy.deepcopy(policies) == policies
    assert RetryPolicies.of(policies) is policies
    assert "RECOVERABLE: RetryPolicy(max_retries=2" in repr(policies)


@pytest.mark.parametrize(
    "wrong", [3, "often", {"recoverable?": RetryPolicy(1)}, {RECOVERABLE: 3}, [RetryPolicy(1)], None]
)
def test_what_is_not_policies_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^retry=.*a RetryPolicy, or a mapping"):
        RetryPolicies.of(wrong)


def test_terminal_failures_are_not_retried_whatever_one_says() -> None:
    with pytest.raises(ConfigurationError, match="no policy for TERMINAL failures"):
        RetryPolicies.of({TERMINAL: RetryPolicy(1)})


# --- what is used ---


@given(st.lists(st.sampled_from([RECOVERABLE, AMBIGUOUS])))
def test_retries_are_counted_by_class_and_as_attempts(failures: list[FailureClass]) -> None:
    used = RetriesUsed()
    for failure in failures:
        used = used.after(failure)
    assert used.attempt == len(failures) + 1
    assert (used.of(RECOVERABLE), used.of(AMBIGUOUS)) == (
        failures.count(RECOVERABLE),
        failures.count(AMBIGUOUS),
    )
    assert used.of(TERMINAL) == 0
    assert RetriesUsed.from_json(used.to_json()) == used


@pytest.mark.parametrize("wrong", [{"attempt": 0}, {"recoverable": -1}, {"ambiguous": "1"}])
def test_what_cannot_have_been_used_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RetriesUsed.from_json(wrong)

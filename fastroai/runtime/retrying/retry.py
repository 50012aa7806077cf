"""Retry policies: how often to retry failures of each class, and how long to wait before each retry."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, TypeAlias, get_args

from fastroai.errors import ConfigurationError
from fastroai.other_names import other_names
from fastroai.records import Duration, in_seconds
from fastroai.runtime.options import check_count, check_seconds
from fastroai.runtime.retrying.classification import FailureClass

Jitter: TypeAlias = Literal["full", "none"]

MAX_BACKOFF_SECONDS: Final = 60.0


@other_names(
    arguments={
        "backoff_seconds": "backoff=",
        "max_attempts": "max_retries=, the extra attempts: one less",
        "maximum_attempts": "max_retries=, the extra attempts: one less",
        "initial_interval": "backoff=",
        "max_interval": "max_backoff=",
        "maximum_interval": "max_backoff=",
        "backoff_factor": "left out: each wait is twice the one before",
        "backoff_coefficient": "left out: each wait is twice the one before",
        "retry_on": "retry={FailureClass.RECOVERABLE: RetryPolicy(…)}, and classifiers=",
        "non_retryable_error_types": "classifiers=, functions that return FailureClass.TERMINAL",
    }
)
@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A rule for one class of failures: how often to retry, and how long to wait before each retry.

        RetryPolicy(max_retries=5, backoff=0.5)

    Give it as `retry=`: alone, for recoverable and ambiguous failures; or in a mapping by `FailureClass`.
    Terminal failures are never retried. `max_retries` counts the attempts after the first one. The wait
    doubles with each retry, from at most `backoff` to at most `max_backoff` seconds; by default, it is a
    random time between zero and that.

    Raises:
        ConfigurationError: an invalid value.
    """

    max_retries: int
    """Extra attempts."""
    backoff: Duration = 1.0
    """Longest wait before the first retry, in seconds or as a `timedelta`; it doubles with each retry."""
    max_backoff: Duration = MAX_BACKOFF_SECONDS
    """Longest wait before any retry, in seconds; a provider's `Retry-After` may be longer."""
    jitter: Jitter = "full"
    """`"full"`: a random time between zero and the backoff, so that many clients do not come back at once
    ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015). `"none"`: the backoff itself."""

    def __post_init__(self) -> None:
        check_count("max_retries", self.max_retries, required=True)
        check_seconds("backoff", self.backoff, zero=True)
        check_seconds("max_backoff", self.max_backoff, zero=True)
        if self.jitter not in get_args(Jitter):
            raise ConfigurationError("jitter", self.jitter, "'full' or 'none'")

    def delay(self, number: int) -> float:
        """Return the seconds to wait before retry `number`, which begins at 1.

        The longest wait is `backoff` before the first retry. It doubles each time, up to `max_backoff`. With
        the jitter `"full"`, the default, the result is a random time between zero and the longest wait.
        """
        first, most = in_seconds(self.backoff), in_seconds(self.max_backoff)
        longest = min(most, first * 2.0 ** min(number - 1, 32))
        return random.uniform(0.0, longest) if self.jitter == "full" else longest


def backoff_delay(attempt: int, base: float) -> float:
    """Return the seconds to wait after failed attempt number `attempt`, from 1, if there is no policy."""
    return RetryPolicy(attempt, base).delay(attempt)


class RetryPolicies(Mapping[FailureClass, RetryPolicy]):
    """The policies of one configuration, by class of failure: an immutable mapping with a hash."""

    __slots__ = ("_policies",)

    def __init__(self, policies: Mapping[FailureClass, RetryPolicy]) -> None:
        """Check and keep the policies. Failures of a class without a policy are not retried.

        Raises:
            ConfigurationError: a wrong type of key or value, or a policy that retries terminal failures.
        """
        expected = "a RetryPolicy, or a mapping of FailureClass to RetryPolicy"
        kept: dict[FailureClass, RetryPolicy] = {}
        for failure, policy in policies.items():
            if not isinstance(failure, FailureClass) or not isinstance(policy, RetryPolicy):
                raise ConfigurationError("retry", policies, expected)
            if failure is FailureClass.TERMINAL and policy.max_retries:
                raise ConfigurationError(
                    "retry",
                    policies,
                    "no policy for TERMINAL failures, which are never retried; let a classifier return "
                    "another class",
                )
            kept[failure] = policy
        self._policies = kept

    @classmethod
    def of(cls, retry: RetryPolicy | Mapping[FailureClass, RetryPolicy]) -> RetryPolicies:
        """Return policies by class. A single policy applies to recoverable and to ambiguous failures."""
        if isinstance(retry, cls):
            return retry
        if isinstance(retry, RetryPolicy):
            return cls({FailureClass.RECOVERABLE: retry, FailureClass.AMBIGUOUS: retry})
        given: object = retry
        if not isinstance(given, Mapping):
            raise ConfigurationError(
                "retry", retry, "a RetryPolicy, or a mapping of FailureClass to RetryPolicy"
            )
        return cls(retry)

    def __getitem__(self, failure: FailureClass) -> RetryPolicy:
        return self._policies[failure]

    def __iter__(self) -> Iterator[FailureClass]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def __hash__(self) -> int:
        return hash(frozenset(self._policies.items()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{failure.name}: {policy!r}" for failure, policy in self._policies.items())
        return f"{{{inside}}}"

    def over(self, others: RetryPolicies) -> RetryPolicies:
        """Return these policies, with those of `others` for the classes that have none here."""
        return RetryPolicies({**others, **self})

    def with_backoff(self, backoff: Duration) -> RetryPolicies:
        """Return these policies with another wait before the first retry of each class."""
        return RetryPolicies(
            {failure: replace(policy, backoff=backoff) for failure, policy in self._policies.items()}
        )

    @property
    def max_retries(self) -> int:
        """Largest number of extra attempts, of all classes together."""
        return sum(policy.max_retries for policy in self._policies.values())


DEFAULT_RETRY: Final[Mapping[FailureClass, RetryPolicy]] = RetryPolicies(
    {
        FailureClass.RECOVERABLE: RetryPolicy(3),
        FailureClass.AMBIGUOUS: RetryPolicy(1),
        FailureClass.TERMINAL: RetryPolicy(0),
    }
)
"""A ready-made `retry=`: three retries of work that cost nothing, one of work that may have been billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriesUsed:
    """Numbers of the attempts and retries so far of one piece of work: a step, or an agent call in it.

    A resumed run continues from these numbers.

    Raises:
        ConfigurationError: a number is negative or not whole, or `attempt` is 0.
    """

    attempt: int = 1
    """Number of the present attempt, from 1."""
    recoverable: int = 0
    """Retries after recoverable failures."""
    ambiguous: int = 0
    """Retries after ambiguous failures."""

    def __post_init__(self) -> None:
        check_count("attempt", self.attempt, least=1, required=True)
        check_count("recoverable", self.recoverable, required=True)
        check_count("ambiguous", self.ambiguous, required=True)

    def of(self, failure: FailureClass) -> int:
        """Return the number of retries so far after failures of this class; 0 for terminal failures."""
        return {FailureClass.RECOVERABLE: self.recoverable, FailureClass.AMBIGUOUS: self.ambiguous}.get(
            failure, 0
        )

    def after(self, failure: FailureClass) -> RetriesUsed:
        """Return new numbers, with the next attempt and one more retry after a failure of this class.

        A failure that is not recoverable counts as ambiguous.
        """
        if failure is FailureClass.RECOVERABLE:
            return replace(self, attempt=self.attempt + 1, recoverable=self.recoverable + 1)
        return replace(self, attempt=self.attempt + 1, ambiguous=self.ambiguous + 1)

    def to_json(self) -> dict[str, int]:
        """Return the numbers as a dict for JSON, with the keys `attempt`, `recoverable` and `ambiguous`."""
        return {"attempt": self.attempt, "recoverable": self.recoverable, "ambiguous": self.ambiguous}

    @classmethod
    def from_json(cls, data: Mapping[str, int]) -> Self:
        """Return the numbers from a dict that `to_json` has made. A missing key has its default.

        Raises:
            TypeError: there is a key of another name.
            ConfigurationError: a number is invalid.
        """
        return cls(**data)


NO_RETRIES_USED: Final = RetriesUsed()
"""The numbers of a first attempt."""

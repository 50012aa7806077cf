"""The results of evaluations: of one case, and of all cases of a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any

from fastroai.evaluation.cases import Scalar
from fastroai.evaluation.intervals import Interval, mean, proportion
from fastroai.records import Usage, ratio


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """A value that an evaluator has given to an output, with its reason if the evaluator gave one."""

    value: Scalar
    reason: str | None = None
    source: str
    """The evaluator that gave it."""


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """What came of one case with one variant."""

    name: str
    inputs: Any
    metadata: Any = None
    expected_output: Any = None
    output: Any
    failure: str | None = None
    """Why the task has failed on this case, if it has."""
    usage: Usage
    """All that the task has spent, without its evaluators."""
    attempts: int = 1
    duration_ms: float
    evaluators: Sequence[str] = ()
    """Names of the evaluators of the case."""
    evaluations: Mapping[str, EvaluationResult] = field(default_factory=dict[str, EvaluationResult])
    evaluator_failures: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why evaluators have failed on this case, by their names."""

    @property
    def assertions(self) -> dict[str, bool]:
        """The values that are true or false, by name."""
        return {name: one.value for name, one in self.evaluations.items() if isinstance(one.value, bool)}

    @property
    def scores(self) -> dict[str, float]:
        """The values that are numbers, by name."""
        return {
            name: one.value
            for name, one in self.evaluations.items()
            if isinstance(one.value, int | float) and not isinstance(one.value, bool)
        }

    @property
    def labels(self) -> dict[str, str]:
        """The values that are texts, by name."""
        return {name: one.value for name, one in self.evaluations.items() if isinstance(one.value, str)}

    @property
    def metrics(self) -> dict[str, float]:
        """The spending of the task, and the attempts at it, by the names that they have here."""
        return metrics_of(self.usage, self.attempts)


def metrics_of(usage: Usage, attempts: int) -> dict[str, float]:
    """Return spending and attempts as metrics."""
    return {
        "cost_usd": usage.cost_dollars,
        "total_tokens": usage.total_tokens,
        "request_count": usage.request_count,
        "attempts": attempts,
    }


@dataclass(frozen=True, kw_only=True)
class VariantResult:
    """What came of all cases with one variant."""

    name: str
    cases: Mapping[str, CaseResult]
    """The cases that were asked, by name."""
    missing: Sequence[str] = ()
    """Names of the cases that were not asked, or were cut off. Cases that have failed are in `cases`."""
    reason: str = ""
    """Why cases are missing."""
    evaluation_usage: Usage = field(default_factory=Usage)
    """All that the evaluators have spent."""

    @property
    def usage(self) -> Usage:
        """All that the task has spent."""
        return sum((one.usage for one in self.cases.values()), Usage())

    @property
    def cost_usd_per_case(self) -> Decimal | None:
        """Known cost of a case, in US dollars, on average; `None` without cases."""
        return ratio(self.usage.cost_usd, len(self.cases)) if self.cases else None

    @property
    def duration_ms(self) -> float | None:
        """The median of the times that a case took, in milliseconds; `None` without cases."""
        return median(one.duration_ms for one in self.cases.values()) if self.cases else None

    @property
    def failures(self) -> Mapping[str, str]:
        """Why the task has failed, by the names of the cases on which it did."""
        return {name: one.failure for name, one in self.cases.items() if one.failure is not None}

    def values(self, evaluation: str) -> Mapping[str, float]:
        """Return the assertions or scores of one name, by case. An assertion is 1 or 0."""
        found = {name: one.evaluations.get(evaluation) for name, one in self.cases.items()}
        return {
            name: float(one.value)
            for name, one in found.items()
            if one is not None and not isinstance(one.value, str)
        }

    def quality(self, evaluation: str) -> Interval | None:
        """Return the share of the cases that passed, or the mean score, with its confidence interval.

        Returns:
            A Wilson interval for assertions, a t interval for scores; `None` if no case has a value.
        """
        values = [*self.values(evaluation).values()]
        if not values:
            return None
        if self.is_assertion(evaluation):
            return proportion(round(sum(values)), len(values))
        return mean(values)

    def is_assertion(self, evaluation: str) -> bool:
        """Return whether all values of this name are true or false."""
        found = (one.evaluations.get(evaluation) for one in self.cases.values())
        return all(isinstance(one.value, bool) for one in found if one is not None)

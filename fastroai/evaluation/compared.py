"""The numbers of a comparison: quality, differences, and the cases that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.evaluation.intervals import (
    Interval,
    independent_means,
    independent_proportions,
    paired_means,
    paired_proportions,
)
from fastroai.evaluation.results import CaseResult, EvaluationResult, VariantResult
from fastroai.records import Usage


class Compared:
    """The results of variants on the cases of a dataset.

    A case on which the task failed has not passed any assertion. It has no scores.
    """

    def __init__(self, run_id: str, variants: Sequence[VariantResult]) -> None:
        """Take the results of each variant."""
        self.run_id = run_id
        """The id with which the same call goes on."""
        sources = {
            name: one.source
            for variant in variants
            for case in variant.cases.values()
            for name, one in case.evaluations.items()
            if isinstance(one.value, bool)
        }
        self.variants: Mapping[str, VariantResult] = {
            one.name: replace(one, cases={name: _failed(case, sources) for name, case in one.cases.items()})
            for one in variants
        }

    # --- sums ---

    @property
    def usage(self) -> Usage:
        """All that tasks and evaluators have spent."""
        spent = [(one.usage, one.evaluation_usage) for one in self.variants.values()]
        return sum((usage for pair in spent for usage in pair), Usage())

    @property
    def cost_usd(self) -> Decimal:
        """Exact known cost of the comparison, in US dollars."""
        return self.usage.cost_usd

    @cached_property
    def evaluations(self) -> Sequence[str]:
        """The names of all assertions and scores."""
        cases = [case for one in self.variants.values() for case in one.cases.values()]
        return [*dict.fromkeys(name for case in cases for name in (*case.assertions, *case.scores))]

    # --- quality ---

    def quality(self, evaluation: str | None = None) -> Mapping[str, Interval | None]:
        """Return the quality of each variant, with its 95 % interval: see `VariantResult.quality`.

        Args:
            evaluation: The name of an assertion or score; by default the first.

        Raises:
            ConfigurationError: there is no such assertion or score.
        """
        name = self.named(evaluation)
        return {variant: one.quality(name) for variant, one in self.variants.items()}

    def difference(self, evaluation: str | None, variant: str, to: str | None = None) -> Interval | None:
        """Return by how much a variant is better than another, with the 95 % interval.

        If both have the same cases, the differences of these are compared: for assertions by Agresti and
        Min, for scores by a paired t interval. Otherwise they are independent samples: Newcombe, Welch's t.

        Args:
            evaluation: As in `quality`.
            variant: The name of the variant.
            to: The name of the other one; by default the first.

        Returns:
            The difference; `None` if one of the two has no values.
        """
        name = self.named(evaluation)
        one, other = self._variant(variant), self._variant(to or next(iter(self.variants)))
        values, others = one.values(name), other.values(name)
        is_assertion = one.is_assertion(name) and other.is_assertion(name)
        if not values or not others:
            return None
        if shared := [case for case in others if case in values]:
            pairs = [(others[case], values[case]) for case in shared]
            if is_assertion:
                return paired_proportions([(bool(first), bool(second)) for first, second in pairs])
            return paired_means(pairs)
        if is_assertion and (first := other.quality(name)) and (second := one.quality(name)):
            return independent_proportions(first, second)
        return independent_means([*others.values()], [*values.values()])

    @cached_property
    def differing(self) -> Sequence[str]:
        """Names of the cases on which variants differ in an assertion, score or label, or in failing.

        Those that differ most come first.
        """
        found: dict[str, float] = {}
        for name in dict.fromkeys(name for one in self.variants.values() for name in one.cases):
            results = [one.cases[name] for one in self.variants.values() if name in one.cases]
            if len({_told(one) for one in results}) > 1:
                found[name] = max(map(_sum, results)) - min(map(_sum, results))
        return sorted(found, key=lambda name: -found[name])

    @cached_property
    def problems(self) -> Sequence[str]:
        """What is missing or has failed, a sentence each, with the case."""
        told: list[str] = []
        for variant in self.variants.values():
            if variant.missing:
                told.append(
                    f"{variant.name}: {len(variant.missing)} cases were not asked, the first is "
                    f"{variant.missing[0]!r}: {variant.reason}"
                )
            told += [f"{variant.name}, case {case!r}: {why}" for case, why in variant.failures.items()]
            for case in variant.cases.values():
                told += [
                    f"{variant.name}, case {case.name!r}, evaluator {evaluator!r}: {why}"
                    for evaluator, why in case.evaluator_failures.items()
                ]
        return told

    # --- parts ---

    def named(self, evaluation: str | None) -> str:
        """Return the name of an assertion or score; by default the first. Raises `ConfigurationError`."""
        known = self.evaluations
        if evaluation is None and known:
            return known[0]
        if evaluation in known:
            return str(evaluation)
        hint = "" if evaluation is None else nearest_hint(evaluation, known)
        listed = ", ".join(map(repr, known)) or "nothing: no case has an assertion or a score"
        raise ConfigurationError("evaluation", evaluation, f"one of {listed}.{hint}")

    def _variant(self, name: str) -> VariantResult:
        if name in self.variants:
            return self.variants[name]
        listed = ", ".join(map(repr, self.variants))
        raise ConfigurationError("variant", name, f"one of {listed}.{nearest_hint(name, self.variants)}")


def _failed(case: CaseResult, sources: Mapping[str, str]) -> CaseResult:
    """Return a case whose task has failed with all of its assertions as not passed."""
    if case.failure is None:
        return case
    not_passed = {
        name: EvaluationResult(value=False, reason="the task failed", source=source)
        for name, source in sources.items()
        if source in case.evaluators
    }
    return replace(case, evaluations=not_passed)


def _told(case: CaseResult) -> tuple[object, ...]:
    values = sorted((name, repr(one.value)) for name, one in case.evaluations.items())
    return case.failure is None, *values


def _sum(case: CaseResult) -> float:
    return sum(case.scores.values()) + sum(case.assertions.values())

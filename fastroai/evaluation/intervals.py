"""Confidence intervals of proportions, means and their differences, in the standard library's arithmetic.

Sources:
    Wilson: E. B. Wilson (1927), Probable inference, the law of succession, and statistical inference.
    Agresti-Min: A. Agresti, Y. Min (2005), Simple improved confidence intervals for comparing matched
        proportions; the interval with half a pair added to each of the four cells.
    Newcombe: R. G. Newcombe (1998), Interval estimation for the difference between independent proportions,
        method 10.
    t: Student's; Welch (1947) for independent means. Quantiles by Abramowitz and Stegun, 26.7.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, fsum, pi, sqrt, tan
from statistics import NormalDist, fmean, variance
from typing import Final

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float | None
    """The lower end; `None` if there is no interval: of fewer than two scores, or of equal ones."""
    high: float | None
    count: int
    """Cases that it was computed from."""
    method: str

    @property
    def is_positive(self) -> bool:
        """Whether the whole interval is above zero, so that a difference is unlikely to be by chance."""
        return self.low is not None and self.low > 0

    @property
    def is_negative(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.high is not None and self.high < 0


def proportion(passed: int, count: int) -> Interval:
    """Return the Wilson score interval of a proportion."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = passed / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    # At the ends of the scale, the exact result is 0 or 1; the arithmetic of floats misses it by a little.
    low, high = (0.0 if not passed else middle - half), (1.0 if passed == count else middle + half)
    return Interval(share, low, high, count, "Wilson")


def mean(values: Sequence[float]) -> Interval:
    """Return the t interval of a mean."""
    count, value = len(values), fmean(values)
    if count < 2 or not (spread := variance(values)):
        return Interval(value, None, None, count, "t")
    half = t_quantile((1 + CONFIDENCE) / 2, count - 1) * sqrt(spread / count)
    return Interval(value, value - half, value + half, count, "t")


def paired_proportions(pairs: Sequence[tuple[bool, bool]]) -> Interval:
    """Return the difference of two proportions of the same cases, the second minus the first."""
    count, z = len(pairs), NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    gained = sum(not first and second for first, second in pairs)
    lost = sum(first and not second for first, second in pairs)
    shifted = (gained - lost) / (count + 2)
    half = z * sqrt((gained + lost + 1) - (gained - lost) ** 2 / (count + 2)) / (count + 2)
    low, high = max(-1.0, shifted - half), min(1.0, shifted + half)
    return Interval((gained - lost) / count, low, high, count, "Agresti-Min")


def paired_means(pairs: Sequence[tuple[float, float]]) -> Interval:
    """Return the mean difference of scores of the same cases, the second minus the first."""
    found = mean([second - first for first, second in pairs])
    return Interval(found.value, found.low, found.high, found.count, "paired t")


def independent_proportions(first: Interval, second: Interval) -> Interval:
    """Return the difference of the proportions of different cases, the second minus the first."""
    difference = second.value - first.value
    assert None not in (first.low, first.high, second.low, second.high)
    low = difference - sqrt((second.value - second.low) ** 2 + (first.high - first.value) ** 2)  # type: ignore[operator]
    high = difference + sqrt((second.high - second.value) ** 2 + (first.value - first.low) ** 2)  # type: ignore[operator]
    return Interval(difference, low, high, first.count + second.count, "Newcombe")


def independent_means(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the difference of mean scores of different cases, the second minus the first."""
    count, difference = len(first) + len(second), fmean(second) - fmean(first)
    if min(len(first), len(second)) < 2:
        return Interval(difference, None, None, count, "Welch t")
    parts = [variance(values) / len(values) for values in (first, second)]
    if not sum(parts):
        return Interval(difference, None, None, count, "Welch t")
    weights = [part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)]
    # Rounded down, which makes the interval a little wider.
    freedom = max(1, floor(sum(parts) ** 2 / sum(weights)))
    half = t_quantile((1 + CONFIDENCE) / 2, freedom) * sqrt(sum(parts))
    return Interval(difference, difference - half, difference + half, count, "Welch t")


def t_quantile(p: float, freedom: int) -> float:
    """Return the quantile of Student's t: exact for one and two degrees of freedom, else to 0.2 %."""
    if freedom == 1:
        return tan(pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) * sqrt(1 / (2 * p * (1 - p)))
    z = NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + fsum(term / float(freedom) ** power for power, term in enumerate(terms, 1))

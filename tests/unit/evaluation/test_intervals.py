"""Intervals, compared with published ones and with those of scipy 1.17, and how often they hold."""

from __future__ import annotations

import random
from math import sqrt

import pytest

from fastroai.evaluation.intervals import (
    Interval,
    independent_means,
    independent_proportions,
    mean,
    paired_means,
    paired_proportions,
    proportion,
    t_quantile,
)

FIRST = [0.2, 0.5, 0.9, 1.0, 0.4]
SECOND = [0.6, 0.5, 1.0, 0.8, 0.9]


def ends(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


@pytest.mark.parametrize(
    ("passed", "count", "low", "high"),
    [
        # Newcombe (1998), Two-sided confidence intervals for the single proportion, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),  # of scipy
    ],
)
def test_a_proportion_has_the_published_wilson_interval(
    passed: int, count: int, low: float, high: float
) -> None:
    assert ends(proportion(passed, count)) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("passed", "low", "high"),
    # Newcombe (1998), table II, method 10: 56/70 - 48/80, and 9/10 - 3/10.
    [((48, 80, 56, 70), 0.0524, 0.3339), ((3, 10, 9, 10), 0.1705, 0.8090)],
)
def test_proportions_of_different_cases_have_the_published_difference(
    passed: tuple[int, int, int, int], low: float, high: float
) -> None:
    first, second = proportion(*passed[:2]), proportion(*passed[2:])
    assert ends(independent_proportions(first, second)) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (10, 2.2281), (30, 2.0423)],
)
def test_quantiles_of_t_are_those_of_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, rel=0.0015)


def test_means_and_their_differences_are_those_of_scipy() -> None:
    assert ends(mean(FIRST)) == pytest.approx((0.178931, 1.021069), abs=2e-4)
    pairs = list(zip(FIRST, SECOND, strict=True))
    assert ends(paired_means(pairs)) == pytest.approx((-0.197720, 0.517720), abs=2e-4)
    other = independent_means(FIRST, [*SECOND, 0.7, 0.9, 0.3])
    # scipy has 6.44 degrees of freedom here, which are rounded down to 6.
    assert other.value == pytest.approx(0.1125)
    assert ends(other) == pytest.approx((-0.3042, 0.5292), abs=0.01)


def test_equal_scores_and_single_ones_have_no_interval() -> None:
    for found in (mean([1.0, 1.0, 1.0]), mean([0.5]), paired_means([(0.2, 0.3)])):
        assert (found.low, found.high) == (None, None)
        assert not found.is_positive
        assert not found.is_negative
    assert independent_means([1.0], [0.0, 1.0]).low is None
    assert independent_means([1.0, 1.0], [0.0, 0.0]).low is None


def test_paired_proportions_are_walds_on_a_table_with_half_a_pair_more_in_each_cell() -> None:
    pairs = [(True, True)] * 12 + [(False, True)] * 5 + [(True, False)] + [(False, False)] * 2
    cells = {pair: pairs.count(pair) + 0.5 for pair in [(a, b) for a in (True, False) for b in (True, False)]}
    total = sum(cells.values())
    gained, lost = cells[False, True] / total, cells[True, False] / total
    half = 1.959964 * sqrt((gained + lost - (gained - lost) ** 2) / total)
    found = paired_proportions(pairs)
    assert found.value == pytest.approx(4 / 20)
    assert ends(found) == pytest.approx((gained - lost - half, gained - lost + half), abs=1e-6)


@pytest.mark.parametrize("count", [15, 40])
def test_nineteen_of_twenty_intervals_hold_the_true_value(count: int) -> None:
    chance, times = random.Random(7), 2000
    held = {"Wilson": 0, "Agresti-Min": 0, "t": 0}
    for _ in range(times):
        hard = [chance.random() for _ in range(count)]  # how hard each case is, for both variants
        first, second = ([one < share for one in hard] for share in (0.6, 0.6))
        second = [one if chance.random() < 0.7 else chance.random() < 0.6 for one in second]
        scores = [chance.gauss(0.5, 0.2) for _ in hard]
        for found, true in (
            (proportion(sum(first), count), 0.6),
            (paired_proportions(list(zip(first, second, strict=True))), 0.0),
            (mean(scores), 0.5),
        ):
            low, high = ends(found)
            held[found.method] += low <= true <= high
    assert {name: round(one / times, 2) for name, one in held.items()} == {
        name: pytest.approx(0.96, abs=0.03) for name in held
    }

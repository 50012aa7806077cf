"""Places from left to right."""

import pytest

from fastroai.drawing.positions import nearest, positions


def test_places_that_are_far_enough_apart_are_kept() -> None:
    assert nearest([(0, 1), (50, 1)], [0, 10]) == [0, 50]


def test_places_that_are_too_near_give_way_by_their_weights() -> None:
    assert nearest([(0, 1), (0, 1)], [0, 10]) == [-5, 5]
    assert nearest([(0, 9), (0, 1)], [0, 10]) == pytest.approx([-1, 9])
    assert nearest([(20, 1), (0, 1), (0, 1)], [0, 10, 10]) == pytest.approx([-10 / 3, 20 / 3, 50 / 3])


def test_a_node_stands_in_the_middle_of_what_it_leads_to() -> None:
    above: list[list[int]] = [[], [0], [0]]
    below: list[list[int]] = [[1, 2], [], []]
    at = positions([[0], [1, 2]], above, below, lambda one, other: 100, lambda one, other: 1)
    assert at[2] - at[1] == pytest.approx(100)
    assert at[0] == pytest.approx((at[1] + at[2]) / 2)


def test_what_pulls_more_is_more_in_line() -> None:
    above: list[list[int]] = [[], [0], [0]]
    below: list[list[int]] = [[1, 2], [], []]
    at = positions(
        [[0], [1, 2]], above, below, lambda one, other: 100, lambda one, other: 9 if 1 in (one, other) else 1
    )
    assert at[0] - at[1] == pytest.approx(10, abs=1)

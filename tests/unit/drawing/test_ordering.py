"""Fewer crossings."""

from fastroai.drawing.ordering import crossings, ordered


def neighbours(count: int, lines: list[tuple[int, int]]) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for upper, lower in lines:
        below[upper].append(lower)
        above[lower].append(upper)
    return above, below


def test_crossings_are_pairs_of_lines() -> None:
    _, below = neighbours(4, [(0, 3), (1, 2)])
    assert crossings([[0, 1], [2, 3]], below) == 1
    assert crossings([[0, 1], [3, 2]], below) == 0
    _, below = neighbours(6, [(upper, lower) for upper in (0, 1, 2) for lower in (3, 4, 5)])
    assert crossings([[0, 1, 2], [3, 4, 5]], below) == 9


def test_lines_that_begin_or_end_together_do_not_cross() -> None:
    _, below = neighbours(4, [(0, 2), (0, 3), (1, 3)])
    assert crossings([[0, 1], [2, 3]], below) == 0


def test_what_can_be_drawn_without_crossings_is() -> None:
    above, below = neighbours(9, [(0, 5), (1, 4), (2, 3), (5, 6), (4, 7), (3, 8)])
    found = ordered([[0, 1, 2], [3, 4, 5], [6, 7, 8]], above, below)
    assert crossings(found, below) == 0


def test_it_never_gets_worse() -> None:
    above, below = neighbours(6, [(upper, lower) for upper in (0, 1, 2) for lower in (3, 4, 5)])
    assert crossings(ordered([[0, 1, 2], [3, 4, 5]], above, below), below) == 9


def test_what_has_no_neighbours_keeps_its_place() -> None:
    above, below = neighbours(6, [(0, 5), (2, 3)])
    assert ordered([[0, 1, 2], [3, 4, 5]], above, below)[1] == [5, 4, 3]

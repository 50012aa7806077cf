"""Long lines between their neighbours."""

from fastroai.drawing.straightening import straighten


def straight(
    at: list[float], chains: list[list[int]], ends: list[tuple[float, float]], rows: list[list[int]]
) -> list[float]:
    straighten(chains, ends, rows, at, lambda one, other: 10)
    return at


def test_a_line_with_room_on_both_sides_comes_straight_from_above() -> None:
    assert straight([3, 4, 5], [[0, 1, 2]], [(1, 7)], [[0], [1], [2]]) == [1, 1, 1]


def test_it_stays_clear_of_what_stands_beside_it() -> None:
    at = straight([20, 20, 0, 40], [[0, 1]], [(0, 100)], [[0], [2, 1, 3]])
    assert at == [20, 20, 0, 40]  # neither end can be had; the mean can


def test_it_goes_straight_to_its_end_where_it_cannot_come_so() -> None:
    assert straight([20, 20, 15], [[0, 1]], [(0, 30)], [[2, 0], [1]])[:2] == [30, 30]


def test_it_bends_once_where_it_must() -> None:
    at = straight([0, 0, 50, 50, 40, 10], [[0, 1, 2, 3]], [(0, 60)], [[0], [1, 5], [4, 2], [3]])
    assert at[:4] == [0, 0, 60, 60]


def test_a_chain_without_points_is_straight_as_it_is() -> None:
    assert straight([5], [[]], [(0, 0)], [[0]]) == [5]

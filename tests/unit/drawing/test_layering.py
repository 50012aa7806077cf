"""Layers of graphs, with cycles too."""

from fastroai.drawing.layering import layers_of


def test_a_node_is_below_its_longest_way() -> None:
    assert layers_of([(0, 1), (1, 2), (0, 2), (2, 3)], range(4)) == [0, 1, 2, 3]


def test_the_edge_back_to_where_the_walk_came_from_leads_up() -> None:
    assert layers_of([(0, 1), (1, 2), (2, 0)], range(3)) == [0, 1, 2]
    assert layers_of([(0, 1), (1, 2), (2, 0)], [2, 0, 1]) == [1, 2, 0]


def test_two_cycles_through_one_node() -> None:
    assert layers_of([(0, 1), (1, 0), (1, 2), (2, 1)], range(3)) == [0, 1, 2]


def test_what_nothing_leads_to_stands_just_above_what_it_leads_to() -> None:
    assert layers_of([(0, 1), (1, 2), (3, 2)], [0, 3, 1, 2]) == [0, 1, 2, 1]


def test_what_touches_nothing_is_at_the_top() -> None:
    assert layers_of([(0, 1)], range(3)) == [0, 1, 0]
    assert layers_of([], []) == []


def test_a_long_chain_is_no_recursion() -> None:
    chain = [(index, index + 1) for index in range(4_999)]
    assert layers_of(chain, range(5_000)) == list(range(5_000))

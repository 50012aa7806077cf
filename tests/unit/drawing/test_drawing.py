"""What a drawing may say."""

import pytest

from fastroai.drawing import Drawing, DrawnEdge, DrawnNode
from fastroai.errors import ConfigurationError


def test_a_node_is_called_by_its_id_unless_it_has_a_label() -> None:
    assert DrawnNode("a").text == "a"
    assert DrawnNode("a", "Ask").text == "Ask"
    assert DrawnNode("a", "").text == ""


@pytest.mark.parametrize(
    ("edge", "text"),
    [
        (DrawnEdge("a", "b"), ""),
        (DrawnEdge("a", "b", "yes"), "yes"),
        (DrawnEdge("a", "b", "yes", taken=1), "yes"),
        (DrawnEdge("a", "b", "yes", taken=3), "3× yes"),
        (DrawnEdge("a", "b", taken=2), "2×"),
    ],
)
def test_an_edge_says_how_often_it_was_taken_if_more_than_once(edge: DrawnEdge, text: str) -> None:
    assert edge.text == text


def test_two_nodes_with_one_id_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Drawing.nodes=\['a'\]: expected a different id for each"):
        Drawing([DrawnNode("a"), DrawnNode("b"), DrawnNode("a", "again")])


def test_what_names_no_node_is_refused_with_all_such_names() -> None:
    nodes = [DrawnNode("a"), DrawnNode("b")]
    with pytest.raises(
        ConfigurationError, match=r"edges=\['c', 'd'\]: expected ids of its nodes, \['a', 'b'\]"
    ):
        Drawing(nodes, [DrawnEdge("a", "c"), DrawnEdge("d", "b"), DrawnEdge("c", "d")])
    with pytest.raises(ConfigurationError, match=r"Drawing.starts=\['x'\]"):
        Drawing(nodes, starts=["a", "x"])
    with pytest.raises(ConfigurationError, match=r"Drawing.ends=\['x'\]"):
        Drawing(nodes, ends=["x"])

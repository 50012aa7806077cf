"""Drawings of any graph: nothing is lost, cut off, or drawn over something else."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.drawings import read
from support.examples import examples

from fastroai.drawing import Drawing, DrawnEdge, DrawnNode, mermaid, svg

ROUNDED = 0.11
"""Coordinates have one digit after the point."""
TEXTS = st.none() | st.text(max_size=60) | st.sampled_from(["on failure", "confidence >= 0.8 or tries > 3"])
NODE_IDS = st.text(st.characters(exclude_characters="\r"), max_size=12)


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    """Any directed graph: cycles, edges from a node to itself, edges alike, parts that do not touch."""
    ids = draw(st.lists(NODE_IDS.filter(_fit_for_xml), unique=True, min_size=1, max_size=9))
    some = st.sampled_from(ids)
    node = st.builds(
        DrawnNode,
        st.just(""),
        TEXTS,
        TEXTS,
        st.sampled_from(["plain", "succeeded", "failed", "skipped", "cancelled", "running", "waiting"]),
        st.sampled_from(["step", "pause", "graph"]),
    )
    nodes = [draw(node) for _ in ids]
    edge = st.builds(DrawnEdge, some, some, TEXTS, st.sampled_from(["solid", "dashed"]), st.integers(0, 3))
    return Drawing(
        [
            DrawnNode(node_id, node.label, node.note, node.state, node.kind)
            for node_id, node in zip(ids, nodes, strict=True)
        ],
        draw(st.lists(edge, max_size=16)),
        draw(st.lists(some, unique=True, max_size=2)),
        draw(st.lists(some, unique=True, max_size=2)),
    )


def _fit_for_xml(text: str) -> bool:
    """What reads back as it was written: the ids of this test's graphs are told apart by that."""
    return all(
        char >= " " and char not in "\ufffe\uffff" and not "\ud800" <= char <= "\udfff" for char in text
    )


@settings(deadline=None)
@given(drawings())
def test_every_node_and_every_edge_is_drawn_once_and_where_it_belongs(drawing: Drawing) -> None:
    picture = read(svg(drawing))
    assert picture.boxes.keys() == {node.id for node in drawing.nodes}
    assert Counter((edge.source, edge.target) for edge in picture.edges) == Counter(
        (edge.source, edge.target) for edge in drawing.edges
    )
    for edge in picture.edges:
        for (x, y), node_id in ((edge.line[0], edge.source), (edge.head[0], edge.target)):
            box = picture.boxes[node_id]
            from_sides, from_ends = abs(x - box.right), min(abs(y - box.top), abs(y - box.bottom))
            assert box.left < x < box.right + ROUNDED
            assert box.top - ROUNDED < y < box.bottom + ROUNDED
            assert (from_sides if edge.source == edge.target else from_ends) < ROUNDED


@settings(deadline=None)
@given(drawings())
def test_nothing_is_cut_off_or_covered(drawing: Drawing) -> None:
    picture = read(svg(drawing))
    for area in picture.everything():
        assert 0 <= area.left <= area.right <= picture.width
        assert 0 <= area.top <= area.bottom <= picture.height
    labels = [edge.label for edge in picture.edges if edge.label]
    for one, other in combinations([*picture.boxes.values(), *labels], 2):
        assert not one.touches(other)
    for edge in picture.edges:
        in_the_way = [*picture.boxes.values(), *(label for label in labels if label is not edge.label)]
        assert not any(area.has(point) for area in in_the_way for point in edge.line)


@settings(max_examples=examples(15))
@given(drawings())
def test_the_same_graph_is_always_drawn_alike(drawing: Drawing) -> None:
    again = Drawing(list(drawing.nodes), list(drawing.edges), list(drawing.starts), list(drawing.ends))
    assert svg(drawing) == svg(again)
    assert mermaid(drawing) == mermaid(again)

"""Sizes of boxes and labels."""

from fastroai.drawing import DrawnEdge, DrawnNode
from fastroai.drawing.boxes import LOOP_HEIGHT, label_of, size_of


def test_a_box_has_room_for_its_lines() -> None:
    small, large = (
        size_of(DrawnNode("a"), []),
        size_of(DrawnNode("a", "a label that has quite a few words"), []),
    )
    assert large.width > small.width
    assert len(large.lines) == 2
    assert large.height > small.height
    noted = size_of(DrawnNode("a", note="3 visits · $0.012"), [])
    assert noted.height > small.height
    assert noted.width > small.width


def test_a_box_without_text_is_a_box() -> None:
    assert size_of(DrawnNode("a", ""), []) == size_of(DrawnNode("b", "  "), [])
    assert size_of(DrawnNode(""), []).height == size_of(DrawnNode("a"), []).height


def test_loops_have_room_beside_the_box() -> None:
    loops = [label_of(DrawnEdge("a", "a")), label_of(DrawnEdge("a", "a", "again and again"))]
    size = size_of(DrawnNode("a"), loops)
    assert size.beside > loops[1].width
    assert size.height > 2 * LOOP_HEIGHT
    assert size_of(DrawnNode("a"), []).beside == 0


def test_an_edge_without_text_has_a_label_without_room() -> None:
    label = label_of(DrawnEdge("a", "b"))
    assert (label.lines, label.width, label.height) == ((), 0, 0)

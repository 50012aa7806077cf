"""Sizes of nodes and labels, in pixels."""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.drawing.drawing import DrawnEdge, DrawnNode
from fastroai.drawing.text import lines_of, width_of

FONT, SMALL_FONT = 13.0, 11.0
LINE, SMALL_LINE = 17.0, 14.0
LOOP, LOOP_HEIGHT = 28.0, 2 * SMALL_LINE + 6
"""Room for an edge from a node to itself, in pixels: its width to the right of the box, and its height."""


@dataclass(frozen=True)
class Text:
    """Lines of text and the room that they take."""

    lines: tuple[str, ...]
    width: float
    height: float


@dataclass(frozen=True)
class Size:
    """The room for a node: its box, and `beside`, the width of its loops on the right side."""

    lines: tuple[str, ...]
    note: str
    width: float
    height: float
    beside: float
    heading: float
    """Height of the label and the note together; below is the room for what is inside of the node."""


def label_of(edge: DrawnEdge) -> Text:
    """Return the label of an edge, in at most two lines."""
    lines = tuple(lines_of(edge.text, 26, 2))
    width = max((width_of(line, SMALL_FONT) for line in lines), default=-8)
    return Text(lines, width + 8, SMALL_LINE * len(lines) + 2 * bool(lines))


def size_of(node: DrawnNode, loops: list[Text], inside: tuple[float, float] = (0, 0)) -> Size:
    """Return the size of a node with its label and note; `loops` are the labels of its edges to itself.

    `inside` is the width and the height of the drawing in its box.
    """
    lines = tuple(lines_of(node.text, 28, 3)) or ("",)
    note = "".join(lines_of(node.note or "", 40, 1))
    width = max(*(width_of(line, FONT) for line in lines), width_of(note, SMALL_FONT), 36) + 28
    heading = LINE * len(lines) + SMALL_LINE * bool(note)
    height = heading + 18 + inside[1]
    beside = LOOP + max(label.width for label in loops) if loops else 0
    return Size(
        lines, note, max(width, inside[0]), max(height, LOOP_HEIGHT * len(loops) + 6), beside, heading
    )

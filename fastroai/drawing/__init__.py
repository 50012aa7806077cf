"""Directed graphs as SVG images and as Mermaid text, with cycles and with the way that a run took."""

from fastroai.drawing.drawing import Drawing, DrawnEdge, DrawnNode, EdgeStyle, NodeKind, NodeState
from fastroai.drawing.mermaid import mermaid
from fastroai.drawing.svg import svg

__all__ = ["DrawnEdge", "DrawnNode", "Drawing", "EdgeStyle", "NodeKind", "NodeState", "mermaid", "svg"]

"""Directed graphs as SVG images and as Mermaid text, with cycles and with the way that a run took."""

from fastroai.drawing.drawing import Drawing
from fastroai.drawing.drawing import DrawnEdge as DrawnEdge
from fastroai.drawing.drawing import DrawnNode as DrawnNode
from fastroai.drawing.drawing import EdgeStyle as EdgeStyle
from fastroai.drawing.drawing import NodeKind as NodeKind
from fastroai.drawing.drawing import NodeState as NodeState
from fastroai.drawing.mermaid import mermaid
from fastroai.drawing.svg import svg

__all__ = ["Drawing", "mermaid", "svg"]

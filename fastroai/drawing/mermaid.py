"""Drawings as Mermaid text, for READMEs, issues and notebooks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fastroai.drawing.drawing import Drawing, DrawnEdge
from fastroai.plain_text import BIDIRECTIONAL

_CONTROL = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff{BIDIRECTIONAL}]")
_SYNTAX = re.compile(
    r'["#;:\n\r\\<>&%{}`*~@|]'
    r"|(?<![^\W_])_|_(?![^\W_])"  # emphasis, except within words such as `give_up`
    r"|(?<=\$)\$|\$(?=\$)"  # formulas; a single $ is money
)
_SHAPES = {"step": ('["', '"]'), "pause": ('(["', '"])'), "graph": ('[["', '"]]')}
_CLASSES = {
    "succeeded": "fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
    "failed": "fill:#ffebe9,stroke:#cf222e,color:#1f2328,stroke-width:3px",
    "skipped": "fill:#f6f8fa,stroke:#818b98,color:#59636e,stroke-dasharray:5 4",
    "cancelled": "fill:#f6f8fa,stroke:#818b98,color:#59636e,stroke-dasharray:2 3",
    "running": "fill:#ddf4ff,stroke:#0969da,color:#1f2328,stroke-width:3px",
    "waiting": "fill:#fff8c5,stroke:#9a6700,color:#1f2328",
}


def mermaid(drawing: Drawing) -> str:
    """Return the drawing as Mermaid text, in which no id or label can become syntax.

    The text is a state diagram, in the dialect of pydantic-graph. It is a flowchart if the drawing has notes,
    states, kinds, or dashed or taken edges, as state diagrams cannot style edges.
    """
    number = {node.id: f"s{index}" for index, node in enumerate(drawing.nodes)}
    plain_nodes = all((node.state, node.kind, node.note) == ("plain", "step", None) for node in drawing.nodes)
    if plain_nodes and all((edge.style, edge.taken) == ("solid", 0) for edge in drawing.edges):
        lines = _state_diagram(drawing, number)
    else:
        lines = _flowchart(drawing, number)
    return "\n".join(lines) + "\n"


def _state_diagram(drawing: Drawing, number: dict[str, str]) -> Iterator[str]:
    yield "stateDiagram-v2"
    for node in drawing.nodes:
        yield f'    state "{_escape(node.text)}" as {number[node.id]}'
    into: dict[str, list[str]] = {node.id: [] for node in drawing.nodes}
    for start in drawing.starts:
        into[start].append(f"    [*] --> {number[start]}")
    for edge in drawing.edges:
        label = f" : {_escape(edge.text)}" if edge.text else ""
        into[edge.target].append(f"    {number[edge.source]} --> {number[edge.target]}{label}")
    for lines in into.values():
        yield from lines
    for end in drawing.ends:
        yield f"    {number[end]} --> [*]"


def _flowchart(drawing: Drawing, number: dict[str, str]) -> Iterator[str]:
    yield "flowchart TD"
    for node in drawing.nodes:
        before, after = _SHAPES[node.kind]
        state = "" if node.state == "plain" else f":::{node.state}"
        note = f"<br/>{_escape(node.note)}" if node.note else ""
        yield f"    {number[node.id]}{before}{_escape(node.text)}{note}{after}{state}"
    if drawing.starts:
        yield '    start((" "))'
    for start in drawing.starts:
        yield f"    start --> {number[start]}"
    for edge in drawing.edges:
        yield f"    {number[edge.source]} {_arrow(edge)} {number[edge.target]}"
    if drawing.ends:
        yield '    stop(((" ")))'
    for end in drawing.ends:
        yield f"    {number[end]} --> stop"
    for state in sorted({node.state for node in drawing.nodes} - {"plain"}):
        yield f"    classDef {state} {_CLASSES[state]}"
    taken = [str(len(drawing.starts) + index) for index, edge in enumerate(drawing.edges) if edge.taken]
    if taken:
        yield f"    linkStyle {','.join(taken)} stroke:#0969da,stroke-width:3px"


def _arrow(edge: DrawnEdge) -> str:
    arrow = "-.->" if edge.style == "dashed" else "-->"
    return f'{arrow}|"{_escape(edge.text)}"|' if edge.text else arrow


def _escape(text: str) -> str:
    """Replace characters with a meaning inside of quotes (Markdown, formulas, icons) by entity codes."""
    printable = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text) or "\N{NO-BREAK SPACE}"
    return _SYNTAX.sub(lambda found: f"#{ord(found[0])};", printable)

"""The style sheet of SVG drawings, in a light and a dark theme."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from fastroai.drawing.drawing import NodeState

MARKS: Final[Mapping[NodeState, str]] = {
    "succeeded": "M-3.5 0l2.5 2.8l4.5 -5.4",
    "failed": "M-2.8 -2.8l5.6 5.6M2.8 -2.8l-5.6 5.6",
    "running": "M-1.8 -3.2v6.4l4.8 -3.2z",
    "waiting": "M-1.8 -2.8v5.6M1.8 -2.8v5.6",
    "skipped": "M-3.4 -2.6l2.6 2.6l-2.6 2.6M0.6 -2.6l2.6 2.6l-2.6 2.6",
    "cancelled": "M-3.4 0h6.8",
}
"""The mark of each state, as lines around the origin: tick, cross, triangle, two bars, arrows, dash."""

LIGHT: Final[Mapping[str, str]] = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "faint": "#59636e",
    "line": "#818b98",
    "taken": "#0969da",
    "plain": "#f6f8fa",
    "succeeded": "#dafbe1 #1a7f37",
    "failed": "#ffebe9 #cf222e",
    "running": "#ddf4ff #0969da",
    "waiting": "#fff8c5 #9a6700",
}
DARK: Final[Mapping[str, str]] = {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "faint": "#9198a1",
    "line": "#7d8590",
    "taken": "#58a6ff",
    "plain": "#161b22",
    "succeeded": "#12261e #3fb950",
    "failed": "#25171c #f85149",
    "running": "#121d2f #58a6ff",
    "waiting": "#272115 #d29922",
}


def rules_of(theme: Mapping[str, str]) -> str:
    """Return one rule for each colour. Some programs that convert SVG do not support variables."""
    rules = {
        ".background, {} .back": f"fill: {theme['paper']}",
        "text": f"fill: {theme['ink']}",
        ".note": f"fill: {theme['faint']}",
        ".start, {} .head": f"fill: {theme['line']}",
        ".line": f"stroke: {theme['line']}",
        ".box": f"fill: {theme['plain']}; stroke: {theme['line']}",
        ".inner, {} .badge": f"stroke: {theme['line']}",
        ".badge": f"fill: {theme['paper']}",
        ".node.open > .box": f"fill: {theme['paper']}",
        ".taken .line": f"stroke: {theme['taken']}",
        ".taken .head, {} .taken text": f"fill: {theme['taken']}",
    }
    for state in ("succeeded", "failed", "running", "waiting"):
        fill, stroke = theme[state].split()
        rules[f".{state} > .box"] = f"fill: {fill}; stroke: {stroke}"
        rules[f".{state} > .inner, {{}} .{state} > .badge"] = f"stroke: {stroke}"
    root = ".fastroai-drawing"
    return "\n".join(f"{root} {name.replace('{}', root)} {{ {rule} }}" for name, rule in rules.items())


SHAPES: Final = (files("fastroai.drawing") / "shapes.css").read_text(encoding="utf-8")
"""The rules that have no colour."""

STYLE = f"{SHAPES}{rules_of(LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{rules_of(DARK)}\n}}\n"

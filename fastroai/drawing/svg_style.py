"""The style sheet of SVG drawings, in a light and a dark theme."""

from __future__ import annotations

from collections.abc import Mapping

_LIGHT = {
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
_DARK = {
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


def _colours(theme: Mapping[str, str]) -> str:
    """Return one rule for each colour. Some programs that convert SVG do not support variables."""
    rules = {
        ".background, {} .back": f"fill: {theme['paper']}",
        "text": f"fill: {theme['ink']}",
        ".note": f"fill: {theme['faint']}",
        ".start, {} .head": f"fill: {theme['line']}",
        ".line": f"stroke: {theme['line']}",
        ".box": f"fill: {theme['plain']}; stroke: {theme['line']}",
        ".inner": f"stroke: {theme['line']}",
        ".taken .line": f"stroke: {theme['taken']}",
        ".taken .head, {} .taken text": f"fill: {theme['taken']}",
    }
    for state in ("succeeded", "failed", "running", "waiting"):
        fill, stroke = theme[state].split()
        rules[f".{state} .box"] = f"fill: {fill}; stroke: {stroke}"
        rules[f".{state} .inner"] = f"stroke: {stroke}"
    root = ".fastroai-drawing"
    return "\n".join(f"{root} {name.replace('{}', root)} {{ {rule} }}" for name, rule in rules.items())


_SHAPES = """
.fastroai-drawing text { font: 13px system-ui, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif; \
text-anchor: middle }
.fastroai-drawing .note, .fastroai-drawing .edge text { font-size: 11px }
.fastroai-drawing .line, .fastroai-drawing .inner { fill: none }
.fastroai-drawing .line, .fastroai-drawing .box { stroke-width: 1.5 }
.fastroai-drawing .dashed .line { stroke-dasharray: 5 4 }
.fastroai-drawing .taken .line { stroke-width: 3 }
.fastroai-drawing .failed .box, .fastroai-drawing .running .box { stroke-width: 2.5 }
.fastroai-drawing .skipped .box { stroke-dasharray: 5 4 }
.fastroai-drawing .cancelled .box { stroke-dasharray: 1.5 3 }
.fastroai-drawing .skipped text, .fastroai-drawing .cancelled text { opacity: 0.65 }
"""

STYLE = f"{_SHAPES}{_colours(_LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{_colours(_DARK)}\n}}\n"

"""The style sheet of HTML in notebooks, in a light and a dark theme."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from fastroai.drawing.svg_style import DARK, LIGHT, SHAPES, rules_of

_DARK_PAGES: Final = (
    '[data-jp-theme-light="false"], .vscode-dark, .vscode-high-contrast, html[theme="dark"], '
    '[data-md-color-scheme="slate"], [data-theme="dark"]'
)
"""Pages that are dark whatever the system says: JupyterLab, VS Code, Colab, Material for MkDocs, Sphinx."""
_LIGHT_PAGES: Final = (
    '[data-jp-theme-light="true"], .vscode-light, html[theme="light"], '
    '[data-md-color-scheme="default"], [data-theme="light"]'
)


def _variables(theme: Mapping[str, str]) -> str:
    named: dict[str, str] = {}
    for name, colour in theme.items():
        fill, *line = colour.split()
        named[name] = fill
        if line:
            named[f"{name}-line"] = line[0]
    return " ".join(f"--fai-{name}: {colour};" for name, colour in named.items())


_NAMED: Final = {
    name: " ".join(f"var(--fai-{name}{end})" for end in ("", "-line")[: len(colour.split())])
    for name, colour in LIGHT.items()
}

_THEMES: Final = f"""
.fastroai-page {{ {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ .fastroai-page {{ {_variables(DARK)} }} }}
:is({_LIGHT_PAGES}) .fastroai-page {{ {_variables(LIGHT)} }}
:is({_DARK_PAGES}) .fastroai-page {{ {_variables(DARK)} }}
"""

_RULES: Final = (files("fastroai.drawing") / "page.css").read_text(encoding="utf-8")


def _states() -> str:
    """Return the colours of what has succeeded, failed, runs or waits, as text and in timelines."""
    states = {
        "succeeded": ".succeeded, .finished, .complete, .reused",
        "failed": ".failed, .retry",
        "running": ".running, .limit",
        "waiting": ".paused, .incomplete, .cancelled, .interrupted, .retried, .people, .wait",
    }
    colours = {state: f"var(--fai-{state}-line)" for state in states}
    return "\n".join(
        f".fastroai-page :is({kinds}) .state {{ color: {colours[state]} }}\n"
        f".fastroai-page rect:is({kinds}) {{ fill: {colours[state]} }}"
        for state, kinds in states.items()
    )


STYLE: Final = f"{_THEMES}{_RULES}{_states()}\n{SHAPES}{rules_of(_NAMED)}"
"""The style sheet; all its rules are for elements in `.fastroai-page`, or in `.fastroai-drawing`."""

"""The style sheet of HTML in notebooks, in a light and a dark theme."""

from __future__ import annotations

from collections.abc import Mapping
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

_BOXES: Final = """
.fastroai-page { color: var(--fai-ink); background: var(--fai-paper); font: 13px/1.5 system-ui, sans-serif;
  padding: 10px 12px; border: 1px solid var(--fai-plain); border-radius: 6px; overflow-x: auto }
.fastroai-page h4 { color: inherit; font: bold 14px/1.5 system-ui, sans-serif; margin: 0 0 6px }
.fastroai-page p { color: inherit; margin: 4px 0 }
.fastroai-page :is(.faint, small) { color: var(--fai-faint); font-size: 12px }
.fastroai-page pre { color: inherit; background: var(--fai-plain); margin: 4px 0; padding: 6px 8px;
  max-height: 20em; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px }
.fastroai-page details { color: inherit; background: none; font-size: inherit; margin: 0; padding: 0;
  border: 0; box-shadow: none; overflow: visible }
.fastroai-page summary { cursor: pointer; background: none; font-weight: normal; list-style: none; margin: 0;
  padding: 0 !important; border: 0 }
.fastroai-page summary::before { display: none }
.fastroai-page summary::after { display: none }
.fastroai-page summary::-webkit-details-marker { display: none }
.fastroai-page summary > :first-child::before { content: "▸ "; color: var(--fai-faint) }
.fastroai-page [open] > summary > :first-child::before { content: "▾ " }
.fastroai-page .picture { max-height: 30em; overflow: auto }
.fastroai-page svg { max-width: 100%; height: auto }
.fastroai-page table { border-collapse: collapse; border: 0; margin: 4px 0; font-size: 13px; color: inherit;
  background: none; display: table; table-layout: auto; width: auto }
.fastroai-page table :is(thead, tr, th, td) { color: inherit; background: none; border: 0 }
.fastroai-page table :is(th, td) { padding: 2px 14px 2px 0; text-align: left; vertical-align: middle;
  min-width: 0; white-space: nowrap }
.fastroai-page tbody th { font-weight: bold }
.fastroai-page .number { text-align: right !important; font-variant-numeric: tabular-nums }
.fastroai-page thead th { color: var(--fai-faint) !important; font-weight: normal }
"""

_TIMELINE: Final = """
.fastroai-page .timeline summary { display: grid; align-items: center; gap: 0 12px;
  grid-template-columns: minmax(110px, 2fr) 4fr 90px 76px 90px; border-top: 1px solid var(--fai-plain) }
.fastroai-page .timeline summary > span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.fastroai-page .timeline summary > svg { width: 100%; height: 20px }
.fastroai-page .timeline details > :not(summary) { margin-left: 28px }
"""


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


STYLE: Final = f"{_THEMES}{_BOXES}{_TIMELINE}{_states()}{SHAPES}{rules_of(_NAMED)}"
"""The style sheet; all its rules are for elements in `.fastroai-page`, or in `.fastroai-drawing`."""

"""Values as HTML for notebooks: escaped, bounded in size, and in the light or dark theme of the page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fastroai.drawing.drawing import Drawing
from fastroai.drawing.svg import svg
from fastroai.drawing.svg_style import DARK, LIGHT, SHAPES, rules_of
from fastroai.plain_text import BIDIRECTIONAL, plain

MOST_TEXT: Final = 2_000
"""Most characters of one text."""
MOST_ROWS: Final = 200
"""Most rows of one table."""
_MOST_NODES: Final = 250
"""Most nodes of one drawing."""
_MOST_PLAIN: Final = 20_000
"""Most characters of the plain text that programs without HTML show."""

_HIDDEN: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDIRECTIONAL}\ud800-\udfff]")

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

_STYLE: Final = f"""<style>
.fastroai-page {{ {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ .fastroai-page {{ {_variables(DARK)} }} }}
:is({_LIGHT_PAGES}) .fastroai-page {{ {_variables(LIGHT)} }}
:is({_DARK_PAGES}) .fastroai-page {{ {_variables(DARK)} }}
.fastroai-page {{ color: var(--fai-ink); background: var(--fai-paper); font: 13px/1.5 system-ui, sans-serif; \
padding: 10px 12px; border: 1px solid var(--fai-plain); border-radius: 6px; overflow-x: auto }}
.fastroai-page h4 {{ color: inherit; font: bold 14px/1.5 system-ui, sans-serif; margin: 0 0 6px }}
.fastroai-page p {{ color: inherit; margin: 4px 0 }}
.fastroai-page .faint, .fastroai-page small {{ color: var(--fai-faint); font-size: 12px }}
.fastroai-page table {{ border-collapse: collapse; border: 0; margin: 4px 0; font-size: 13px; \
color: inherit; background: none; display: table; table-layout: auto; width: auto }}
.fastroai-page table :is(thead, tr, th, td) {{ color: inherit; background: none; border: 0 }}
.fastroai-page table :is(th, td) {{ padding: 2px 14px 2px 0; text-align: left; vertical-align: middle; \
min-width: 0 }}
.fastroai-page table :is(th, td).number {{ text-align: right; font-variant-numeric: tabular-nums; \
white-space: nowrap }}
.fastroai-page thead th {{ color: var(--fai-faint); font-weight: normal }}
.fastroai-page pre {{ color: inherit; background: var(--fai-plain); margin: 4px 0; padding: 6px 8px; \
max-height: 20em; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px }}
.fastroai-page summary {{ cursor: pointer }}
.fastroai-page svg {{ max-width: 100%; height: auto }}
.fastroai-page :is(.succeeded, .finished, .reused) > .state {{ color: var(--fai-succeeded-line) }}
.fastroai-page :is(.failed) > .state {{ color: var(--fai-failed-line) }}
.fastroai-page :is(.running) > .state {{ color: var(--fai-running-line) }}
.fastroai-page :is(.paused, .incomplete, .cancelled, .interrupted, .retried) > .state \
{{ color: var(--fai-waiting-line) }}
{SHAPES}{rules_of(_NAMED)}
</style>"""


def escaped(text: str, most: int = MOST_TEXT) -> str:
    """Return text for HTML, at most `most` characters of it. Hidden characters are replaced."""
    shown = text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"
    return html.escape(_HIDDEN.sub("\N{REPLACEMENT CHARACTER}", shown))


def picture(drawing: Drawing) -> str:
    """Return a drawing as HTML for a `page`; a sentence if it has too many nodes for one picture."""
    if len(drawing.nodes) > _MOST_NODES:
        return f'<p class="faint">{len(drawing.nodes):,} nodes are more than one picture shows well.</p>'
    return svg(drawing, style="")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """Return a table as HTML. Cells are HTML; the first `texts` columns are text, the others numbers."""
    kinds = [' class="number"' if column >= texts else "" for column in range(len(header))]
    head = "".join(f"<th{kind}>{escaped(cell)}</th>" for kind, cell in zip(kinds, header, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def page(body: str, text: str) -> dict[str, str]:
    """Return HTML, and text for programs without it, as a notebook displays them (`_repr_mimebundle_`)."""
    most = text if len(text) <= _MOST_PLAIN else f"{text[:_MOST_PLAIN]}…"
    return {
        "text/html": f'<div class="fastroai-page">{_STYLE}{body}</div>',
        "text/plain": plain(most),
    }

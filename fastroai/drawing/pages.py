"""Values as HTML for notebooks: escaped, bounded in size, and in the light or dark theme of the page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Final

from fastroai.drawing.drawing import Drawing
from fastroai.drawing.page_style import STYLE
from fastroai.drawing.svg import svg
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

_DOLLARS: Final = re.compile(r"<svg.*?</svg>|<[^>]*>|\$", re.DOTALL)
"""What has no dollar sign that a notebook could read, or is one."""


def escaped(text: str, most: int = MOST_TEXT) -> str:
    """Return text for HTML, at most `most` characters of it. Hidden characters are replaced."""
    shown = text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"
    return html.escape(_HIDDEN.sub("\N{REPLACEMENT CHARACTER}", shown))


def picture(drawing: Drawing) -> str:
    """Return a drawing as HTML for a `page`; a sentence if it has too many nodes for one picture."""
    if len(drawing.nodes) > _MOST_NODES:
        return f'<p class="faint">{len(drawing.nodes):,} nodes are more than one picture shows well.</p>'
    return f'<div class="picture">{svg(drawing, style="")}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """Return a table as HTML. Cells are HTML; the first `texts` columns are text, the others numbers."""
    kinds = [' class="number"' if column >= texts else "" for column in range(len(header))]
    head = "".join(f"<th{kind}>{escaped(cell)}</th>" for kind, cell in zip(kinds, header, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return f'<table class="values"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def page(body: str, text: str) -> dict[str, str]:
    """Return HTML, and text for programs without it, as a notebook displays them (`_repr_mimebundle_`).

    Each dollar sign is an element of its own: notebooks take a text between two of them for a formula.
    """
    most = text if len(text) <= _MOST_PLAIN else f"{text[:_MOST_PLAIN]}…"
    apart = _DOLLARS.sub(lambda found: "<span>$</span>" if found[0] == "$" else found[0], body)
    return {
        "text/html": f'<div class="fastroai-page"><style>{STYLE}</style>{apart}</div>',
        "text/plain": plain(most),
    }

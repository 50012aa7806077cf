"""What the theme leaves out for screen readers: names of parts, and cells of tables that are no headings."""

from __future__ import annotations

import re
from typing import Final

_EMPTY_HEADING: Final = re.compile(r"<th([^>]*)>\s*</th>")
_SEARCH: Final = 'data-md-component="search" role="dialog"'


def on_page_content(html: str, **_: object) -> str:
    """Make a heading of a table without text a cell, and let keys scroll the outputs of notebooks.

    mkdocs calls this with the content of each page.
    """
    html = html.replace('class="fastroai-page"', 'class="fastroai-page" tabindex="0"')
    return _EMPTY_HEADING.sub(r"<td\1></td>", html)


def on_post_page(output: str, **_: object) -> str:
    """Name the dialog of the search. mkdocs calls this with each page."""
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')

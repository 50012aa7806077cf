"""The search of the site: guides come before the reference, and the build fails if it misses common words."""

import json
from pathlib import Path
from typing import Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

FINDS: Final = {
    "pandas": "guides/rows/",
    "progress": "guides/progress-and-notebooks/",
    "evaluate": "guides/evaluate-and-compare/",
    "rate limit": "guides/provider-limits/",
}
"""What users search for, and a page that has to be found."""


def on_page_markdown(markdown: str, page: Page, **_: object) -> None:
    """Put the reference below the guides. MkDocs calls this with the text of each page."""
    if page.file.src_uri.startswith("reference/") and page.file.src_uri != "reference/glossary.md":
        page.meta["search"] = {"boost": 0.5}


def on_post_build(config: dict[str, object], **_: object) -> None:
    """Compare the index of the search with what users search for. MkDocs calls this at the end."""
    index = json.loads(
        Path(str(config["site_dir"]), "search", "search_index.json").read_text(encoding="utf-8")
    )
    for words, page in FINDS.items():
        texts = [f"{one['title']} {one['text']}" for one in index["docs"] if one["location"].startswith(page)]
        if not any(all(word in text.lower() for word in words.split()) for text in texts):
            raise PluginError(f"a search for {words!r} does not find {page}")

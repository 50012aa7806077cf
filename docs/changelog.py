"""The changelog as a page: `CHANGELOG.md`, whose links start at the top of the repository."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page. mkdocs calls this with the files of the site."""
    text = CHANGELOG.read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=text))
    return files

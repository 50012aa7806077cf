"""Writes what the workflow server tells agents about the format of specs: parts of the page about them.

Run it after each change of the page: `python docs/spec_format.py`. A test compares.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "guides" / "workflow-specs.md"
FORMAT: Final = ROOT / "fastroai" / "workflows" / "server" / "spec_format.md"

_LEFT_OUT: Final = ("Problems", "Specs from other sources", "Drawing", "Specs of Stratum")
"""Sections about Python and the command line."""


def spec_format(page: str) -> str:
    """Return the format of specs in the words of the page: an example, and every key. It has no links."""
    _, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    example = page.partition('TEXT = """\n')[2].partition('"""')[0]
    parts = ["# The format of workflow specs\n", f"```yaml\n{example}```\n"]
    parts += [f"## {one.strip()}\n" for one in sections if one.partition("\n")[0] not in _LEFT_OUT]
    return re.sub(r"\[([^]\n]+)\]\([^)\n]+\)", r"\1", "\n".join(parts))


if __name__ == "__main__":
    FORMAT.write_text(spec_format(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""Writes what the workflow server tells agents about the format of specs: an example, and the reference.

Run it after each change of these pages: `python docs/spec_format.py`. A test compares.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
GUIDE: Final = ROOT / "docs" / "guides" / "workflow-specs.md"
REFERENCE: Final = ROOT / "docs" / "reference" / "workflow-spec-format.md"
FORMAT: Final = ROOT / "fastroai" / "workflows" / "server" / "spec_format.md"


def spec_format() -> str:
    """Return the format of specs in the words of the docs: an example, and every key. It has no links."""
    _, *sections = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    example = GUIDE.read_text(encoding="utf-8").partition('TEXT = """\n')[2].partition('"""')[0]
    parts = ["# The format of workflow specs\n", f"```yaml\n{example}```\n"]
    parts += [f"## {one.strip()}\n" for one in sections]
    return re.sub(r"\[([^]\n]+)\]\([^)\n]+\)", r"\1", "\n".join(parts))


if __name__ == "__main__":
    FORMAT.write_text(spec_format(), encoding="utf-8")

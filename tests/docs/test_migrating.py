"""Each row of the tables of the page on migrating is tried.

For a section `## Stroma` there is a module `migrating_rows/stroma.py`, named in lower case, with `_` for what
is neither letter nor digit. Its `TRIED` has a function for each left cell of the section's tables. The
function tries what that cell says, and asserts that it works as the right cell says, or that the error names
the new spelling. Where the left cell is code of a library that is not installed, it tries the right cell.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import re
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from support.migrating import Try

from fastroai.testing import ModelServer

PAGE: Final = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
MODULES: Final = Path(__file__).parent / "migrating_rows"


@dataclass(frozen=True)
class Row:
    section: str
    left: str

    def __str__(self) -> str:
        return f"{self.section}: {self.left}"


def rows_of(page: str) -> Iterator[Row]:
    """The rows of all tables of a page, without their headings."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL)
    for section in re.split(r"^## ", prose, flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("\n")
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            _, _, *lines = table.splitlines()
            for line in lines:
                yield Row(name, re.split(r"(?<!\\)\|", line)[1].strip())


def module_of(section: str) -> Path:
    return MODULES / f"{re.sub(r'[^a-z0-9]+', '_', section.lower()).strip('_')}.py"


@cache
def tried_in(section: str) -> Mapping[str, Try]:
    """The functions for the rows of a section, by left cell."""
    path = module_of(section)
    if not path.exists():
        return {}
    spec = importlib.util.spec_from_file_location(f"migrating_rows_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tried: Mapping[str, Try] = module.TRIED
    return tried


ROWS: Final = tuple(rows_of(PAGE))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_a_row_says_of_the_other_system_is_tried(row: Row, server: ModelServer) -> None:
    tries = tried_in(row.section)
    assert row.left in tries, f"write a function for this row in {module_of(row.section)}"
    tried = tries[row.left]()
    if inspect.isawaitable(tried):
        asyncio.run(_finished(tried))


async def _finished(tried: Awaitable[None]) -> None:
    await tried


def test_each_function_is_that_of_one_row() -> None:
    lefts: dict[Path, list[str]] = {path: [] for path in MODULES.glob("*.py")}
    for row in ROWS:
        lefts.setdefault(module_of(row.section), []).append(row.left)
    for path, of_section in lefts.items():
        sections = [row.section for row in ROWS if module_of(row.section) == path]
        assert sections, f"{path.name} is of no section with a table"
        assert sorted(of_section) == sorted(tried_in(sections[0])), path.name


def test_the_page_is_read_as_it_is_written() -> None:
    page = "## One\n\n| a | b |\n| --- | --- |\n| `x \\| y` | z |\n\n```text\n| no | row |\n```\n## Two\n"
    assert list(rows_of(page)) == [Row("One", r"`x \| y`")]
    assert module_of("Stratum: the language").name == "stratum_the_language.py"

"""Each row of the tables of the pages on migrating is tried.

For a page `stroma.md` there is a module `migrating_rows/stroma.py`, with `_` for `-`. Its `TRIED` has a
function for each left cell of the page's tables. The function tries what that cell says, and asserts that it
works as the right cell says, or that the error names the new spelling. If the left cell is code of a library
that is not installed, it tries the right cell.
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

PAGES: Final = Path(__file__).parents[2] / "docs" / "migrating"
MODULES: Final = Path(__file__).parent / "migrating_rows"


@dataclass(frozen=True)
class Row:
    page: str
    left: str

    def __str__(self) -> str:
        return f"{self.page}: {self.left}"


def lefts_of(page: str) -> Iterator[str]:
    """The left cells of all tables of a page, without their headings."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", prose, re.MULTILINE):
        _, _, *lines = table.splitlines()
        for line in lines:
            yield re.split(r"(?<!\\)\|", line)[1].strip()


@cache
def tried_on(page: str) -> Mapping[str, Try]:
    """The functions for the rows of a page, by left cell."""
    path = MODULES / f"{page}.py"
    if not path.exists():
        return {}
    spec = importlib.util.spec_from_file_location(f"migrating_rows_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tried: Mapping[str, Try] = module.TRIED
    return tried


ROWS: Final = tuple(
    Row(path.stem.replace("-", "_"), left)
    for path in sorted(PAGES.glob("*.md"))
    if path.stem != "index"
    for left in lefts_of(path.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_a_row_says_of_the_other_system_is_tried(row: Row, server: ModelServer) -> None:
    tries = tried_on(row.page)
    assert row.left in tries, f"write a function for this row in migrating_rows/{row.page}.py"
    tried = tries[row.left]()
    if inspect.isawaitable(tried):
        asyncio.run(_finished(tried))


async def _finished(tried: Awaitable[None]) -> None:
    await tried


def test_each_function_is_that_of_one_row() -> None:
    lefts: dict[str, list[str]] = {path.stem: [] for path in MODULES.glob("*.py")}
    for row in ROWS:
        lefts[row.page].append(row.left)
    for page, of_page in lefts.items():
        assert of_page, f"{page}.py is of no page with a table"
        assert sorted(of_page) == sorted(tried_on(page)), page


def test_every_page_is_in_the_index() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    assert all(f"]({path.name})" in index for path in PAGES.glob("*.md") if path.stem != "index")


def test_a_page_is_read_as_it_is_written() -> None:
    page = "# One\n\n| a | b |\n| --- | --- |\n| `x \\| y` | z |\n\n```text\n| no | row |\n```\n"
    assert list(lefts_of(page)) == [r"`x \| y`"]

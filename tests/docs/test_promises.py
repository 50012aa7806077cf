"""Each guarantee of the page of promises has a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "reference" / "promises.md").read_text(encoding="utf-8")
GUARANTEES: Final = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("| ---", "| guarantee |"))
]


@cache
def functions_of(path: str) -> frozenset[str]:
    """The functions that pytest collects, or the methods of a suite that users subclass."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    of_classes = [one for found in tree.body if isinstance(found, ast.ClassDef) for one in found.body]
    return frozenset(one.name for one in [*tree.body, *of_classes] if isinstance(one, functions))


def test_a_guarantee_names_tests_that_exist() -> None:
    for guarantee, tests in GUARANTEES:
        named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", tests)
        assert len(named) == tests.count("::") > 0, f"{guarantee}: each test is written as `file::name`"
        for path, test in named:
            assert test in functions_of(path), f"{guarantee}: {path}::{test}"


def test_the_page_has_guarantees_on_all_that_is_promised() -> None:
    headings = re.findall(r"^## (.+)", PAGE, flags=re.MULTILINE)
    assert len(GUARANTEES) > 60
    assert headings[-1] == "What is not promised"

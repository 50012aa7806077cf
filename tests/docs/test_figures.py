"""The comparison with other libraries has the figures on record, and commands that repeat them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
GUIDES: Final = ROOT / "docs" / "guides"


def rows_of(page: str) -> list[list[str]]:
    """The rows of the tables of figures: what, FastroAI, compared with, command."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    tables = re.findall(
        r"^\| what \| FastroAI \| compared with \| command \|\n\|.+\n((?:\|.+\n)+)", text, re.MULTILINE
    )
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for table in tables for line in table.splitlines()
    ]


@cache
def benchmarks() -> set[str]:
    files = (ROOT / "benchmarks").glob("*.py")
    trees = {file.stem: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    return {
        f"{name}.{one.name}"
        for name, tree in trees.items()
        for one in tree.body
        if isinstance(one, ast.AsyncFunctionDef)
    }


RECORDED: Final = rows_of("speed.md")
COMPARED: Final = rows_of("comparison.md")


@pytest.mark.parametrize("row", [*RECORDED, *COMPARED], ids=lambda row: row[0])
def test_the_command_of_a_figure_names_a_benchmark(row: list[str]) -> None:
    name = row[3].strip("`").removeprefix("python -m benchmarks ")
    assert any(name in benchmark for benchmark in benchmarks())


@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row[0])
def test_a_figure_of_the_comparison_is_on_record(row: list[str]) -> None:
    command = row[3].removeprefix("`python -m benchmarks ")
    recorded = [" ".join(one) for one in RECORDED if one[3].strip("`") == command.strip("`")]
    figures = re.findall(r"[\d.,]*\d (?:µs|ms|s|kB)\b|\d,\d{3}", f"{row[1]} {row[2]}")
    assert figures
    for figure in figures:
        bare = re.escape(figure.replace(" µs", "").replace(" ms", ""))
        assert any(re.search(rf"(?<![\d.,]){bare}(?![\d.,]*\d)", one) for one in recorded), figure

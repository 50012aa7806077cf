"""Where functions stand in their files."""

from __future__ import annotations

import ast
import asyncio
import functools
import linecache
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastroai.functions.declaring.sources import source_of


def text_of(function: Callable[..., object]) -> str | None:
    source = source_of(function)
    return None if source is None else ast.unparse(source)


def keep(*functions: Callable[..., object]) -> Callable[[Callable[..., Any]], tuple[Any, ...]]:
    return lambda decorated: (*functions, decorated)


def test_lambdas_of_one_line_are_told_apart() -> None:
    first, second, third = (lambda r: r.a > 1), (lambda r: r.a > 1 and r.b), (lambda r: r.b)
    assert text_of(first) == "lambda r: r.a > 1"
    assert text_of(second) == "lambda r: r.a > 1 and r.b"
    assert text_of(third) == "lambda r: r.b"


def test_equal_lambdas_of_one_line_have_their_own_places() -> None:
    first, second = (lambda r: r.a), (lambda r: r.a)
    one, other = source_of(first), source_of(second)
    assert one is not None
    assert other is not None
    assert one.col_offset < other.col_offset


def test_a_lambda_in_a_lambda_is_not_the_one_around_it() -> None:
    outer: Any = lambda limit: lambda r: r.a > limit  # noqa: E731
    assert text_of(outer) == "lambda limit: lambda r: r.a > limit"
    assert text_of(outer(3)) == "lambda r: r.a > limit"


def test_a_lambda_in_a_default_is_not_the_one_that_has_it() -> None:
    outer = lambda r, key=lambda x: x.a: key(r)  # noqa: E731
    assert text_of(outer) == "lambda r, key=lambda x: x.a: key(r)"


@keep(
    lambda r: r.first,
    (
        lambda r: (
            r.second  # a comment, with lambda r: r.third
            > 2
        )
    ),
)
def decorated(
    value: int = 3,
) -> int:
    """Return it."""
    return value


def test_lambdas_of_a_decorator_over_many_lines_are_found_and_so_is_what_it_decorates() -> None:
    first, second, function = decorated
    assert text_of(first) == "lambda r: r.first"
    assert text_of(second) == "lambda r: r.second > 2"
    source = source_of(function)
    assert source is not None
    assert isinstance(source, ast.FunctionDef)
    assert source.name == "decorated"


def test_executed_text_and_functions_of_c_have_no_source() -> None:
    names: dict[str, Any] = {}
    exec("condition = lambda r: r.a", names)
    assert source_of(names["condition"]) is None
    assert source_of(len) is None
    assert source_of(functools.partial(len)) is None


def test_text_that_linecache_knows_has_a_source_as_cells_of_notebooks_do() -> None:
    text = "condition = lambda r: r.a > 3\n"
    linecache.cache["<cell 1>"] = (len(text), None, [text], "<cell 1>")
    names: dict[str, Any] = {}
    exec(compile(text, "<cell 1>", "exec"), names)
    assert text_of(names["condition"]) == "lambda r: r.a > 3"


def test_a_cell_of_a_notebook_may_await_and_import_the_future() -> None:
    text = (
        "from __future__ import annotations\n"
        "import asyncio\n"
        "await asyncio.sleep(0)\n"
        "condition = lambda r: r.a is 3\n"
    )
    linecache.cache["<cell 2>"] = (len(text), None, text.splitlines(keepends=True), "<cell 2>")
    names: dict[str, Any] = {}
    with pytest.warns(SyntaxWarning):
        whole = compile(text, "<cell 2>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    asyncio.run(eval(whole, names))
    assert text_of(names["condition"]) == "lambda r: r.a is 3"


@pytest.mark.parametrize(
    "later",
    [
        "condition = lambda r: r.b > 3\n",
        "condition = lambda r: r.a > 4\n",
        "condition = lambda r: r.a > 3.0\n",
        "condition = lambda r: r.a > True\n",
        "condition = lambda r: r.a >= 3\n",
        "condition = (lambda r: r.a > \n",
        "",
    ],
)
def test_a_file_that_changed_since_it_was_compiled_is_no_source(tmp_path: Path, later: str) -> None:
    file = tmp_path / "changed.py"
    file.write_text("condition = lambda r: r.a > 3\n")
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    assert text_of(names["condition"]) == "lambda r: r.a > 3"
    file.write_text(later)
    os.utime(file, (1, 1))
    assert source_of(names["condition"]) is None


def test_calls_of_imported_modules_are_found() -> None:
    condition = lambda r: os.path.join(r.a, Path.cwd())  # noqa: E731
    assert text_of(condition) == "lambda r: os.path.join(r.a, Path.cwd())"


def test_a_constant_set_is_the_same_in_any_order() -> None:
    condition = lambda r: r.label in {"a", "b", "c", "d", "e"}  # noqa: E731
    assert text_of(condition) == "lambda r: r.label in {'a', 'b', 'c', 'd', 'e'}"


def test_without_columns_there_is_no_source(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from fastroai.functions.declaring.sources import source_of\n"
        "print(source_of(lambda r: r.a) is None, source_of(lambda r: r.b) is None)\n"
    )
    for option, printed in [("no_debug_ranges", "True True"), ("utf8", "False False")]:
        done = subprocess.run(
            [sys.executable, "-X", option, str(program)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == printed

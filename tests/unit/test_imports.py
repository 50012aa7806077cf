"""How the files of the package import each other; `lint-imports` holds the layers, and this the rest."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import grimp
import pytest

import fastroai

PACKAGE: Final = Path(fastroai.__file__).parent


def test_no_circle_of_files_is_closed_not_even_by_types() -> None:
    graph = grimp.build_graph("fastroai", cache_dir=None)  # imports in functions and for type checkers too
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


def test_nothing_is_unpickled_and_nothing_that_is_stored_is_run() -> None:
    """No module of the package reads a format that runs code; one runs text: a signature."""
    unsafe = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}
    run = list[tuple[str, str]]()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [one.name for one in node.names]
                of = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                assert not {name.partition(".")[0] for name in [*names, of]} & unsafe, path
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if called in ("eval", "exec", "__import__"):
                run.append((path.relative_to(PACKAGE).as_posix(), called))
    assert run == [("functions/declaring/signature.py", "exec")]

"""The server is the ground truth of accounting tests, so it must not share the code that they test."""

import ast
from pathlib import Path

import pytest

import fastroai.testing

NOT_OF_THE_SERVER = (
    *("pytest_plugin", "recordings", "replacing", "run_assertions", "run_store_suite", "step_contexts"),
)
MODULES = sorted(
    module
    for module in Path(fastroai.testing.__file__).parent.rglob("*.py")
    if module.stem not in NOT_OF_THE_SERVER
)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_module_imports_the_rest_of_the_library(module: Path) -> None:
    imported = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.append(node.module or "")

    ours = [name for name in imported if name.partition(".")[0] == "fastroai"]
    allowed = {"fastroai.lazy"} if module.stem == "__init__" else set[str]()  # it counts nothing
    assert {name for name in ours if not name.startswith("fastroai.testing")} <= allowed

"""How the files of the package import each other; `lint-imports` holds the layers, and this the rest."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_circle_of_files_is_closed_not_even_by_types() -> None:
    graph = grimp.build_graph("fastroai", cache_dir=None)  # imports in functions and for type checkers too
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")

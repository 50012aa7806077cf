"""Comparisons of our tables with the PydanticAI and the SDKs that are installed.

A later version of these adds models, settings and methods, so only `make test-versions` asks for these tests.
Each failure says which line to add, and to which file.
"""

import importlib.util
import os

_PYDANTIC_AI = os.environ.get("FASTROAI_VERSIONS")
collect_ignore_glob = {None: ["test_*.py"], "newest": []}.get(_PYDANTIC_AI, ["test_extras.py"])
if (
    importlib.util.find_spec("pydantic_evals") is None
):  # `make test-versions` has it with the oldest PydanticAI
    collect_ignore_glob = [*collect_ignore_glob, "test_pydantic_evals.py"]

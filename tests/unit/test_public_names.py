"""The names that users rely on. A change here is a change of the promise: say it in the changelog."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastroai
from fastroai.renamed import RENAMED

SAVED = Path(__file__).with_name("public_names.txt")
PACKAGES = (
    "fastroai",
    "fastroai.agent",
    "fastroai.contracts",
    "fastroai.drawing",
    "fastroai.errors",
    "fastroai.expressions",
    "fastroai.functions",
    "fastroai.graphs",
    "fastroai.human",
    "fastroai.pipelines",
    "fastroai.steps",
    "fastroai.store",
    "fastroai.testing",
    "fastroai.tools",
    "fastroai.tracing",
    "fastroai.usage",
    "fastroai.workflows",
)


def current() -> str:
    lines = []
    for package in PACKAGES:
        lines += [f"{package}.{name}" for name in sorted(importlib.import_module(package).__all__)]
    return "\n".join(lines) + "\n"


def test_the_public_names_are_the_saved_ones() -> None:
    assert current() == SAVED.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_a_name_that_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match="no attribute 'FastroAgnt'"):
        fastroai.FastroAgnt  # type: ignore[attr-defined]  # noqa: B018


def test_the_names_are_listed() -> None:
    assert set(fastroai.__all__) <= set(dir(fastroai))


def test_importing_the_package_imports_no_agent() -> None:
    code = "import sys, fastroai; print('pydantic_ai' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


WITHOUT_AGENTS = """
import asyncio, sys
from fastroai import Budget, Pipeline, PipelineConfig, StepContext, step

@step
async def one(ctx: StepContext) -> int:
    return 1

async def run() -> None:
    config = PipelineConfig(store=sys.argv[1], budget=Budget(usd=1))
    print((await Pipeline("p", {"one": one}, config=config).execute(run_id="r")).output)

asyncio.run(run())
heavy = {"pydantic_ai", "genai_prices", "opentelemetry", "httpx", "logfire"}
print(sorted(heavy.intersection(sys.modules)))
"""


def test_a_pipeline_without_agents_loads_neither_pydantic_ai_nor_prices(tmp_path: Path) -> None:
    no_plugins = {**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"}  # those of others load what they like
    command = [sys.executable, "-c", WITHOUT_AGENTS, str(tmp_path / "runs.db")]
    done = subprocess.run(command, env=no_plugins, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1", "[]"]


@pytest.mark.parametrize(("name", "here"), RENAMED.items())
def test_what_to_use_in_place_of_a_name_of_another_library_exists(name: str, here: str) -> None:
    assert name not in fastroai.__all__
    path, *_ = re.findall(r"[\w.]+", here)
    value: object = fastroai
    for part in path.removeprefix("fastroai.").split("."):
        if value is fastroai and (
            part == "pydantic_ai" or part in {"errors", "functions", "human", "runtime"}
        ):
            value = importlib.import_module(part if part == "pydantic_ai" else f"fastroai.{part}")
        else:
            value = getattr(value, part)

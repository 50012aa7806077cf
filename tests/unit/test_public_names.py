"""The names that users rely on. A change here is a change of the promise: say it in the changelog."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fastroai
from fastroai.lazy import PUBLIC
from fastroai.renamed import RENAMED

SAVED = Path(__file__).with_name("public_names.txt")
MOST_AT_THE_TOP, MOST = 60, 429


def current() -> str:
    lines = []
    for package in PUBLIC:
        lines += [f"{package}.{name}" for name in sorted(importlib.import_module(package).__all__)]
    return "\n".join(lines) + "\n"


def test_the_public_names_are_the_saved_ones() -> None:
    assert current() == SAVED.read_text(encoding="utf-8")


def test_there_are_not_more_public_names_than_people_can_know() -> None:
    assert len(fastroai.__all__) <= MOST_AT_THE_TOP
    assert len(current().splitlines()) <= MOST


def test_a_public_name_is_in_one_package_and_perhaps_at_the_top() -> None:
    homes = [(name, package) for package in PUBLIC[1:] for name in importlib.import_module(package).__all__]
    assert len({name for name, _ in homes}) == len(homes)
    assert set(fastroai.__all__) - {name for name, _ in homes} == {"__version__", "spend"}


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_no_module_takes_the_place_of_a_public_name_when_it_is_loaded() -> None:
    for module in pkgutil.walk_packages(fastroai.__path__, "fastroai."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    homes = (line.rpartition(".") for line in current().splitlines())
    values = {(package, name): getattr(importlib.import_module(package), name) for package, _, name in homes}
    assert [name for name, value in values.items() if isinstance(value, ModuleType)] == []


def test_a_name_that_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match="no attribute 'FastroAgnt'"):
        fastroai.FastroAgnt  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("package", "name", "home"),
    [
        ("fastroai", "CircuitBreaker", "fastroai.runtime"),
        ("fastroai", "classify", "fastroai.runtime"),
        ("fastroai", "StepFinished", "fastroai.pipelines"),
        ("fastroai.graphs", "RunStarted", "fastroai.pipelines"),
        ("fastroai.pipelines", "EdgesResolved", "fastroai.graphs"),
        ("fastroai.functions", "StepExecutionError", "fastroai"),
        ("fastroai.workflows", "Budget", "fastroai"),
    ],
)
def test_the_error_for_a_name_of_another_package_says_where_it_is(package: str, name: str, home: str) -> None:
    with pytest.raises(ImportError, match=f"^{package} has no {name}; use {home}.{name}$"):
        exec(f"from {package} import {name}", {})
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"^{package} has no {name}; use {home}.{name}$"):
        getattr(module, name)
    assert not hasattr(module, name)
    exec(f"from {home} import {name}", {})


@pytest.mark.parametrize("name", ["ParseFailure", "GraphValidationError", "ResultRejected"])
def test_an_exception_that_has_moved_is_still_where_it_was(name: str) -> None:
    exec(f"from fastroai.errors import {name}", {})
    assert name not in fastroai.errors.__all__


def test_the_error_for_a_name_of_another_library_says_what_to_write() -> None:
    with pytest.raises(ImportError, match=r"^fastroai has no Agent; use FastroAgent\(model\)"):
        exec("from fastroai import Agent", {})
    with pytest.raises(AttributeError, match=r"^fastroai has no Agent; use FastroAgent\(model\)"):
        fastroai.Agent  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(fastroai, "Agent")
    assert getattr(fastroai, "StateGraph", None) is None


def test_names_that_tools_look_for_load_no_package() -> None:
    code = "import sys, fastroai; print(hasattr(fastroai, '__wrapped__'), 'fastroai.usage' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("name", ["ConversationState", "NoOpTracer", "SafeToolset", "StepUsage"])
def test_what_programs_for_fastroai_0_6_import_is_there_but_not_listed(name: str) -> None:
    exec(f"from fastroai import {name}", {})
    assert name not in fastroai.__all__


def test_the_names_are_listed() -> None:
    assert set(fastroai.__all__) <= set(dir(fastroai))


def test_importing_the_package_imports_no_agent() -> None:
    code = "import sys, fastroai; print('pydantic_ai' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


WITHOUT_AGENTS = """
import asyncio, sys
from fastroai import Budget, Graph, Pipeline, PipelineConfig, StepContext, step

@step
async def one(ctx: StepContext) -> int:
    return 1

async def run() -> None:
    config = PipelineConfig(store=sys.argv[1], budget=Budget(usd=1))
    print((await Pipeline("p", {"one": one}, config=config).execute(run_id="r")).output)
    print((await Graph("g", nodes={"one": one}, config=config).execute(run_id="g")).output)

asyncio.run(run())
heavy = {"pydantic_ai", "genai_prices", "opentelemetry", "httpx", "logfire"}
print(sorted(heavy.intersection(sys.modules)))
"""


def test_pipelines_and_graphs_without_agents_load_neither_pydantic_ai_nor_prices(tmp_path: Path) -> None:
    no_plugins = {**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"}  # those of others load what they like
    command = [sys.executable, "-c", WITHOUT_AGENTS, str(tmp_path / "runs.db")]
    done = subprocess.run(command, env=no_plugins, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1", "1", "[]"]


FIRST_ANSWER = """
import asyncio, sys
from fastroai import FastroAgent
from pydantic_ai.models.test import TestModel

asyncio.run(FastroAgent(TestModel()).run("hi"))
rare = ("drawing", "runs", "pipelines", "agent.quotes.estimate", "agent.step")
rare += ("store.record.log", "human.asking", "runtime.facts", "steps", "rows.run", "contracts.contract")
rare += ("store.backends", "store.reading", "usage.bounding.bounds", "usage.facts.provider", "usage.reports")
from fastroai.usage.facts.documented import all_facts
print([name for name in rare if f"fastroai.{name}" in sys.modules], all_facts.cache_info().currsize)
"""


def test_a_first_answer_loads_no_module_that_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_ANSWER], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "0"]


PLAIN_TYPES = """
import asyncio, sys
from fastroai import Edge, Graph, Pipeline, StepContext, step

@step
async def one(ctx: StepContext) -> int:
    return 1

@step
async def text(ctx: StepContext) -> str:
    return "a"

pipeline = Pipeline("p", {"one": one, "text": text}, dependencies={"text": ["one"]})
graph = Graph("g", nodes={"one": one, "text": text}, edges=[Edge("one", "text")])
print(asyncio.run(pipeline.execute()).output, asyncio.run(graph.execute()).output)
print("pydantic.plugin._loader" in sys.modules)
"""


def test_without_a_store_plain_types_build_no_schemas_which_would_load_the_plugins_of_pydantic() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN_TYPES], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["a a", "False"]


@pytest.mark.parametrize(("name", "here"), RENAMED.items())
def test_what_to_use_in_place_of_a_name_of_another_library_exists(name: str, here: str) -> None:
    assert name not in fastroai.__all__
    path, *_ = re.findall(r"[\w.]+", here)
    first, *parts = path.removeprefix("fastroai.").split(".")
    value: object
    if first == "pydantic_ai" or f"fastroai.{first}" in PUBLIC:
        value = importlib.import_module(first if first == "pydantic_ai" else f"fastroai.{first}")
    else:
        value = getattr(fastroai, first)
    for part in parts:
        value = getattr(value, part)

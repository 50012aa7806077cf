"""The notebook in the docs runs and shows what its page shows; cells that define something can run again."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    """`docs/notebook.py`, which MkDocs loads as a hook."""
    spec = importlib.util.spec_from_file_location("docs_notebook", ROOT / "docs" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYDANTIC_AI_NO_BANNER", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error::UserWarning")


def test_the_notebook_shows_what_it_showed_when_it_was_written(docs: ModuleType) -> None:
    written: Any = nbformat.read(docs.NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    before, now = docs.outputs(written), docs.outputs(docs.executed())
    for one, other in zip(before, now, strict=True):
        assert one.replace("<", "\n<") == other.replace("<", "\n<"), "run `python docs/notebook.py`"


def test_the_page_has_every_cell_and_one_style_sheet(docs: ModuleType) -> None:
    page = docs.on_page_markdown("before\n\n<!-- the notebook -->\n")
    written: Any = nbformat.read(docs.NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert page.startswith("before\n\n")
    assert page.count("<style>") == 1
    for cell in written.cells[1:]:
        assert cell.source in page
    assert docs.on_page_markdown("another page") == "another page"


DEFINED = """
import warnings
warnings.simplefilter("error", UserWarning)
from fastroai import BaseStep, Edge, Graph, Pipeline, StepContext, compute, flow, infer, step

@infer(intent="Say {word}", model="openai:gpt-5-mini", cache="global")
async def say(text: str) -> str: ...

@compute
def shout(text: str) -> str:
    return text.upper() + "{word}"

@flow
async def letter(text: str) -> str:
    return await shout(await say(text))

@step
async def first(ctx: StepContext) -> str:
    return "{word}"

class Second(BaseStep):
    async def execute(self, ctx: StepContext) -> str:
        return ctx.get_dependency("first", str) + "{word}"

both = Pipeline("both", {{"first": first, "second": Second()}}, {{"second": ["first"]}})
loop = Graph("loop", nodes={{"first": first, "end": first}}, edges=[Edge("first", "end")])
"""
SERVER = """
import os
from fastroai.testing import ModelServer, Reply
server = ModelServer().start()
server.rule(lambda request: "Say one" in str(request.messages), Reply("one"))
server.rule(lambda request: "Say two" in str(request.messages), Reply("two"))
os.environ.update(server.environment())
from fastroai import configure
configure(store="runs.db")
"""
ASKED = """
print(await letter("x"), (await both.run()).output, (await loop.run()).output)
print(len(letter.records), len(say.records), len(server.ledger.entries))
"""


def test_cells_that_run_again_warn_of_nothing_and_mix_no_answers(tmp_path: Path) -> None:
    defined = {word: DEFINED.format(word=word) for word in ("one", "two")}
    cells = [SERVER]
    for word in ("one", "one", "two", "one"):
        cells += [defined[word], ASKED]
    notebook: Any = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[nbformat.v4.new_code_cell(source) for source in cells]  # type: ignore[no-untyped-call]
    )
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    asyncio.run(client.async_execute())
    shown = ["".join(output.text for output in cell.outputs) for cell in notebook.cells]
    one, two = "ONEone oneone one\n2 1 ", "TWOtwo twotwo two\n2 1 "
    assert shown == ["", "", f"{one}1\n", "", f"{one}1\n", "", f"{two}2\n", "", f"{one}2\n"]


def test_values_show_themselves_in_a_terminal_with_ipython(capsys: pytest.CaptureFixture[str]) -> None:
    from IPython.core.formatters import DisplayFormatter

    from fastroai.pipelines import Pipeline, StepContext, step

    @step
    async def think(ctx: StepContext) -> str:
        return "thought"

    formatter = DisplayFormatter()  # type: ignore[no-untyped-call]
    formatter.active_types = ["text/plain"]
    shown, _ = formatter.format(Pipeline("desk", {"think": think}))  # type: ignore[no-untyped-call]
    assert shown["text/plain"] == "Pipeline('desk', 1 steps)"
    assert "IPython" in sys.modules

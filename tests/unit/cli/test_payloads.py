"""`FASTROAI_PAYLOADS`: runs whose large values are elsewhere, from a shell."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.workflow_specs import ARTICLE
from typer.testing import CliRunner, Result

from fastroai import Pipeline, StepContext, step
from fastroai.cli.app import app
from fastroai.store import FilePayloadStore, OffloadingRunStore, SQLiteRunStore
from fastroai.workflows.driven_flows import WorkflowRuns

LARGE = "Elderberry " * 50_000


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTROAI_STORE", "runs.db")
    monkeypatch.setenv("COLUMNS", "200")

    @step
    async def grows(ctx: StepContext) -> str:
        return LARGE

    async def run() -> None:
        store = OffloadingRunStore(SQLiteRunStore("runs.db"), FilePayloadStore("payloads"))
        await Pipeline("p", {"grows": grows}).execute(run_id="r", store=store)
        await store.aclose()

    asyncio.run(run())


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["runs", *arguments])


def test_a_run_is_read_with_its_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("payloads", f"file://{Path('payloads').absolute()}"):
        monkeypatch.setenv("FASTROAI_PAYLOADS", place)
        assert LARGE in called("trace", "r", "--json").stdout
    assert called("purge", "--older-than", "0s", "--yes").exit_code == 0
    assert not list(Path("payloads").iterdir())


def test_without_their_place_the_error_says_what_is_missing() -> None:
    assert "finished" in called("list").stdout
    result = called("trace", "r")
    assert result.exit_code != 0
    assert "it is in a payload store: give the OffloadingRunStore" in " ".join(result.output.split())


def test_a_flow_is_read_and_continued_with_its_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def begin() -> str:
        store = OffloadingRunStore(SQLiteRunStore("runs.db"), FilePayloadStore("payloads"))
        begun = await WorkflowRuns(store).plan(ARTICLE, inputs={"topic": LARGE})
        await store.aclose()
        assert begun.status == "execute_step"
        return begun.flow_id

    flow = asyncio.run(begin())
    monkeypatch.setenv("FASTROAI_PAYLOADS", "payloads")
    for command in ("show", "resume", "audit"):
        shown = CliRunner().invoke(app, ["flow", command, flow, "--json"])
        assert shown.exit_code == 0, shown.output
    assert LARGE in CliRunner().invoke(app, ["flow", "resume", flow, "--json"]).stdout

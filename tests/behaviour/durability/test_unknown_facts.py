"""A log can hold facts of a kind that no imported module declares."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.faulty_store import everything_in
from support.stored_runs import header_of
from typer.testing import CliRunner

from fastroai import MemoryRunStore, Pipeline, RunHistory, SQLiteRunStore, StepContext, step
from fastroai.cli.app import app
from fastroai.errors import UnknownFactKind
from fastroai.pipelines import UnknownFact
from fastroai.store import RunTrace
from fastroai.store.record.checksums import with_checksum
from fastroai.store.record.headers import log_key
from fastroai.tracing import set_redaction

AWAITED = {"kind": "file_awaited", "part": "", "timestamp": 1_700_000_000.5, "path": "mia@example.com.csv"}


async def on_record(store: Any) -> Pipeline[Any, Any]:
    """A run that failed, with a fact of another package in its log."""

    @step
    async def fails(ctx: StepContext) -> str:
        raise ValueError("not today")

    pipeline = Pipeline("p", {"fails": fails})
    with pytest.raises(Exception, match="not today"):
        await pipeline.execute({}, run_id="r", store=store)
    key = log_key(await header_of(store, "r"))
    log = await store.read(key)
    await store.append(key, [with_checksum(json.dumps(AWAITED).encode())], revision=log.revision)
    return pipeline


async def test_a_trace_shows_it_as_it_is() -> None:
    store = MemoryRunStore()
    pipeline = await on_record(store)
    trace = await RunHistory(store).trace("r")
    unknown = trace.entries[-1]
    assert isinstance(unknown, UnknownFact)
    assert (unknown.kind, unknown.run_id, unknown.timestamp) == ("file_awaited", "r", 1_700_000_000.5)
    assert "file_awaited, a kind of fact that no imported module declares: {" in trace.explain()
    assert json.loads(trace.to_json())["entries"][-1] == AWAITED
    assert RunTrace.from_json(trace.to_json()) == trace
    assert trace.replay(pipeline) is None
    assert trace.attempts[0].status == "failed"
    assert (await RunHistory(store).state("r")).status == "failed"


async def test_what_it_holds_is_redacted() -> None:
    store = MemoryRunStore()
    await on_record(store)
    trace = await RunHistory(store).trace("r")
    set_redaction(["[^ @]+@[^ @]+"])
    try:
        assert "mia@example.com" not in trace.explain() + trace.to_json()
    finally:
        set_redaction(None)


async def test_the_command_line_shows_it(tmp_path: Path) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db")
    await on_record(store)
    await store.aclose()
    command = ["runs", "trace", "r", "--store", str(tmp_path / "runs.db")]
    shown = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert "file_awaited" in shown.stdout
    assert shown.exit_code == 0


async def test_no_run_goes_on_from_it() -> None:
    store = MemoryRunStore()
    pipeline = await on_record(store)
    before = await everything_in(store)
    with pytest.raises(UnknownFactKind, match=r"entry 5 of its log is a 'file_awaited'.*Import the module"):
        await pipeline.resume("r", store=store)
    with pytest.raises(UnknownFactKind):
        await pipeline.fork("r", at="fails", store=store)
    assert await everything_in(store) == before

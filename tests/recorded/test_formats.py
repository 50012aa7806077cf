"""Runs on record in each format can be listed, read, resumed and forked, in every store."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from recorded import doors, record
from recorded.doors import CODEC, World
from support.declared_facts import FACTS
from support.faulty_store import everything_in
from support.run_stores import KINDS, run_stores
from support.stored_runs import change_header, header_of
from typer.testing import CliRunner

from fastroai import Inbox, RunHistory, SQLiteRunStore, send_message
from fastroai.cli.app import app
from fastroai.errors import FlowStopped, RunFromNewerVersion
from fastroai.runtime.facts import FORMAT
from fastroai.store import RunStore, RunTrace
from fastroai.store.record.checksums import with_checksum, without_checksum
from fastroai.store.record.headers import log_key
from fastroai.workflows import WorkflowRuns

FORMATS: Final = (2, FORMAT)
"""The formats that are read; the last one is that in which runs are written."""


SINCE: Final = {
    2: frozenset(
        {"agent_call_ended", "budget_refused", "budget_waiting", "call_changed", "call_left_over"}
        | {"request_waited", "request_in_batch", "row_started", "row_ended"}
    ),
    3: frozenset({"request_in_batch", "row_started", "row_ended"}),
}
"""The kinds of facts that came after the runs of a format were recorded."""


@dataclass(frozen=True)
class Records:
    """The runs that were recorded in a format."""

    format: int
    runs: Mapping[str, Any]
    keys: Mapping[str, list[str]]
    traces: Mapping[str, Any]

    @property
    def database(self) -> Path:
        return FOLDER / f"format_{self.format}" / "runs.db"


FOLDER: Final = Path(record.__file__).parent
RECORDS: Final = {
    number: Records(
        number,
        *(
            json.loads((FOLDER / f"format_{number}" / name).read_text(encoding="utf-8"))
            for name in ("runs.json", "keys.json", "traces.json")
        ),
    )
    for number in FORMATS
}
DOORS: Final[Mapping[str, Callable[[World], Any]]] = {
    "invoice": doors.pipeline,
    "two": doors.two_at_once,
    "changing": doors.changing,
    "crowded": doors.crowded,
    "scarce": doors.scarce,
    "payment": doors.waiting,
    "sealed payment": lambda world: doors.waiting(world, CODEC),
    "book": doors.graph,
    "timed": doors.timed_graph,
    "choice": doors.router,
    "triage": doors.typed_flow,
    "pages": doors.workflow,
}
"""What the runs are of, by name."""


@pytest.fixture(params=FORMATS, ids="format {}".format)
def records(request: pytest.FixtureRequest) -> Records:
    return RECORDS[request.param]


def door_of(records: Records, run_id: str) -> Any:
    return DOORS[records.runs[run_id]["pipeline"]](World())


def history_of(store: RunStore, run_id: str) -> RunHistory:
    return RunHistory(store, codec=CODEC if run_id == "pipeline-sealed" else None)


@pytest.fixture(params=KINDS)
async def store(records: Records, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A store with all recorded runs: a copy of the file, or each key written to a store of another kind."""
    if request.param == "sqlite":
        shutil.copy(records.database, tmp_path / "runs.db")
        opened: Any = SQLiteRunStore(tmp_path / "runs.db")
        yield opened
        await opened.aclose()
        return
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        for key, values in records.keys.items():
            await opened.append(key, [value.encode() for value in values], revision=0)
        yield opened
        if request.param != "memory":
            await opened.aclose()


def test_every_kind_of_fact_is_on_record(records: Records) -> None:
    recorded = {kind for run in records.runs.values() for kind in run["facts"]}
    known = {fact.kind for fact in FACTS}
    assert recorded == known - SINCE.get(records.format, frozenset()), "make record"


async def test_the_runs_are_listed_and_found(records: Records, store: Any) -> None:
    history = RunHistory(store)
    runs = {run.run_id: run for run in await history.list()}
    listed = {
        name: {
            "status": run.status,
            "pipeline": run.pipeline,
            "tags": [*run.tags],
            "tenant": run.tenant,
            "forked_from": run.forked_from,
            "requests": run.requests,
        }
        for name, run in runs.items()
    }
    assert listed == {name: {one: run[one] for one in listed[name]} for name, run in records.runs.items()}
    for status in ("running", "paused", "finished", "failed", "cancelled", "interrupted"):
        found = {run.run_id for run in await history.list(status=status)}
        assert found == {name for name, run in records.runs.items() if run["status"] == status}
        assert found
    tagged = {run.run_id for run in await history.list(tag="kept")}
    assert (
        tagged == {name for name, run in records.runs.items() if "kept" in run["tags"]} >= {"graph-finished"}
    )
    of_acme = {run.run_id for run in await history.list(tenant="acme")}
    assert of_acme == {name for name, run in records.runs.items() if run["tenant"]} >= {"pipeline-finished"}
    of_router = {run.run_id for run in await history.list(pipeline="choice")}
    assert of_router == {"router-finished", "router-interrupted"}
    asked = {question.run_id: question for question in await Inbox(store).list()}
    waiting = {"pipeline-waiting", "pipeline-sealed", "graph-waiting", "flow-waiting", "workflow-waiting"}
    assert {*asked} == waiting
    assert asked["pipeline-waiting"].question == "pay it?"
    assert asked["pipeline-waiting"].options == ("yes", "no")
    assert [run.run_id for run in await history.due("payment")] == ["pipeline-waiting"]
    rows = await history.spending(by=("pipeline",))
    spent: dict[str, Decimal] = {}
    for run in records.runs.values():
        spent[run["pipeline"]] = spent.get(run["pipeline"], Decimal(0)) + Decimal(run["cost_usd"])
    assert {row.pipeline: row.usage.cost_usd for row in rows} == {
        name: cost for name, cost in spent.items() if cost
    } | {row.pipeline: Decimal(0) for row in rows if not row.usage.cost_usd}


async def test_the_traces_are_read_and_replayed(records: Records, store: Any) -> None:
    for name, run in records.runs.items():
        trace = await history_of(store, name).trace(name)
        assert [fact.kind for fact in trace.entries] == run["facts"], name
        assert trace.outputs == run["outputs"], name
        assert trace.usage.cost_usd == Decimal(run["cost_usd"]), name
        assert trace.explain(), name
        assert trace.replay(door_of(records, name)) is None, name
        state = await history_of(store, name).state(name)
        assert state.status == run["status"], name


@pytest.mark.parametrize(("number", "name"), [(one, name) for one in FORMATS for name in RECORDS[one].traces])
def test_a_trace_in_a_file_is_read_and_replayed(number: int, name: str) -> None:
    records = RECORDS[number]
    known = records.traces[name]
    trace = RunTrace.from_json(json.dumps(known))
    known["entries"][0]["format"] = FORMAT
    assert json.loads(trace.to_json()) == {"format": FORMAT, "entries": known["entries"]}
    assert trace.outputs == records.runs[name]["outputs"]
    assert trace.replay(door_of(records, name)) is None


async def test_interrupted_runs_go_on_and_pay_for_nothing_twice(store: Any) -> None:
    world = World()
    result = await doors.pipeline(world).resume("pipeline-interrupted", store=store)
    assert result.output == "booked 42 of 12.50: checker answers 2"
    assert world.happened == ["check", "checker 2", "book"], "no request, tool or step that is on record"
    assert result.usage.cost_usd == Decimal("0.005"), "three requests, and the scanner"

    world = World()
    paused = await doors.graph(world).resume("graph-interrupted", store=store)
    assert paused.status == "paused"
    assert {*world.happened} <= {"work a", "work b", "ask"}
    assert paused.usage.cost_usd == Decimal("0.003")

    world = World()
    routed = await doors.router(world).resume("router-interrupted", store=store)
    assert (routed.output, world.happened) == ("careful", ["careful"])

    world = World()
    flow = doors.typed_flow(world)
    with pytest.raises(FlowStopped) as stopped:
        await flow.resume("flow-interrupted", store=store)
    assert world.happened == ["computed"]
    (asked,) = await Inbox(store).list(run_id="flow-interrupted")
    assert list(stopped.value.questions) == [asked]
    await Inbox(store).answer(asked.id, "no")
    assert await flow.resume("flow-interrupted", store=store) == "CALM: no"


async def test_a_changed_function_is_asked_anew_except_in_runs_of_format_2(
    records: Records, store: Any
) -> None:
    world = World(intent="Name the mood of the text.")
    with pytest.raises(FlowStopped):
        await doors.typed_flow(world).resume("flow-interrupted", store=store)
    assert world.happened == (["computed"] if records.format == 2 else ["inferred", "computed"])


async def test_a_run_that_waits_for_money_goes_on(records: Records, store: Any) -> None:
    if "pipeline-scarce" not in records.runs:
        assert records.format == 2, "later formats have such waits"
        return
    world = World()
    (wait,) = (await RunHistory(store).state("pipeline-scarce")).waits
    assert (wait.what, wait.name, wait.began is None) == ("spend_limit", "default", False)
    assert wait.why == "$0.001 is needed, and $0.001 of $0.0015 is spent"
    result = await doors.scarce(world).resume("pipeline-scarce", store=store)
    assert (result.output, world.happened) == (["clerk answers 1", "clerk answers 1"], ["clerk 1"])


@pytest.mark.parametrize("name", ["pipeline-waiting", "pipeline-sealed"])
async def test_waiting_pipelines_go_on(records: Records, store: Any, name: str) -> None:
    codec = CODEC if name == "pipeline-sealed" else None
    inbox, door = Inbox(store, codec=codec), door_of(records, name)
    (asked,) = await inbox.list(run_id=name)
    await inbox.answer(asked.id, "yes", reviewer="Mia")
    await send_message(name, "paid", record.PAID, store=store, codec=codec)
    woken = await door.wake(store=store)
    assert woken[name].output == "yes, pay it; 12.50 on 2027-01-31; slept"
    assert (await inbox.get(asked.id)).answer.reviewer == "Mia"  # type: ignore[union-attr]


async def test_waiting_graphs_and_flows_go_on(store: Any) -> None:
    world = World()
    result = await doors.graph(world).resume("graph-waiting", input="in blue", store=store)
    assert result.output == "published ['page a', 'page b'], in blue"
    assert world.happened == ["publish"]

    world = World()
    (asked,) = await Inbox(store).list(run_id="flow-waiting")
    await Inbox(store).answer(asked.id, "yes")
    assert await doors.typed_flow(world).resume("flow-waiting", store=store) == "CALM: yes"
    assert world.happened == ["decided"]


async def test_failed_cancelled_and_paused_runs_go_on(store: Any) -> None:
    world = World()
    result = await doors.pipeline(world).resume("pipeline-failed", store=store)
    assert result.output == "booked 42 of 12.50: checker answers 2"
    assert "book" in world.happened
    assert not {"read", "check", "draft"} & {*world.happened}

    for name, again in (("pipeline-cancelled", {"waits"}), ("pipeline-paused", set())):
        world = World()
        resumed = await doors.two_at_once(world).resume(name, store=store)
        assert resumed.output == ["waited", "worked"], name
        assert {*world.happened} == again, name

    world = World()
    published = await doors.graph(world).resume("graph-failed", store=store)
    assert published.output == "published ['page a', 'page b'], in red"
    assert world.happened == ["publish"]
    cancelled = await doors.graph(World()).resume("graph-cancelled", store=store)
    assert cancelled.status == "paused"


async def test_a_run_that_was_driven_from_outside_goes_on(records: Records, store: Any) -> None:
    if records.format > 3:
        pytest.skip("only workflows are driven since")
    world = World()
    resumed = await doors.two_at_once(world).resume("pipeline-driven", store=store)
    assert resumed.output == ["waited", "worked"]
    assert world.happened == ["works"]


async def test_runs_are_forked_deleted_and_purged(records: Records, store: Any) -> None:
    world = World()
    forked = await doors.pipeline(world).fork("pipeline-finished", at="book", store=store)
    assert forked.output == records.runs["pipeline-finished"]["outputs"]["book"]
    assert world.happened == ["book"]
    world = World()
    published = await doors.graph(world).fork("graph-finished", at="publish", store=store)
    assert published.output == records.runs["graph-finished"]["outputs"]["publish"]
    history = RunHistory(store)
    await history.delete("router-finished")
    purged = await history.purge(timedelta(0), status=("finished", "failed"))
    assert len(purged) > 5
    assert {run.status for run in await history.list()} <= {"running", "paused", "cancelled", "interrupted"}


async def test_a_finished_run_is_followed_to_its_end(records: Records, store: Any) -> None:
    followed = [fact.kind async for _, fact in RunHistory(store).follow("graph-finished")]
    assert followed == records.runs["graph-finished"]["facts"]


def test_the_command_line_reads_the_file(records: Records, tmp_path: Path) -> None:
    path = shutil.copy(records.database, tmp_path / "runs.db")
    listed = CliRunner().invoke(app, ["runs", "list", "--store", str(path), "--json"])
    assert {run["run_id"] for run in json.loads(listed.stdout)} == {*records.runs}
    shown = CliRunner().invoke(app, ["runs", "trace", "graph-finished", "--store", str(path)])
    assert "the run finished" in shown.stdout


async def test_a_run_of_a_later_format_is_refused_and_left_as_it_is(records: Records, store: Any) -> None:
    header = await change_header(store, "graph-waiting", format=FORMAT + 1)
    key = log_key(await header_of(store, "pipeline-waiting"))
    log = await store.read(key)
    later = without_checksum(log.values[0]).replace(
        b'"format":%d' % records.format, b'"format":%d' % (FORMAT + 1)
    )
    await store.delete(key)
    await store.append(key, [with_checksum(later), *log.values[1:]], revision=0)
    before = await everything_in(store)
    history = RunHistory(store)
    assert [run.run_id for run in await history.list(status="unreadable")] == [header.run_id]
    for name in ("graph-waiting", "pipeline-waiting"):
        with pytest.raises(RunFromNewerVersion, match=f"format {FORMAT + 1}.*pip install -U fastroai-runs"):
            await history.trace(name)
        with pytest.raises(RunFromNewerVersion):
            await door_of(records, name).resume(name, store=store)
    assert await everything_in(store) == before


async def test_workflows_go_on(records: Records, store: Any) -> None:
    world = World()
    door = doors.workflow(world)
    interrupted = await door.resume("workflow-interrupted", store=store)
    found = {"pages": ["ships"], "accumulated": ["ships"], "accumulated_count": 1}
    assert (interrupted.status, interrupted.outputs["search"]) == ("paused", found)
    assert "notify" not in world.happened, "no step that is on record"

    (asked,) = await Inbox(store).list(run_id="workflow-waiting")
    await Inbox(store).answer(asked.id, "approve", reviewer="mia")
    finished = await doors.workflow(World()).resume("workflow-waiting", store=store)
    output = records.runs["workflow-waiting"]["outputs"]["search"]
    assert (finished.status, finished.output) == ("complete", output)
    assert output["pages"] == ["ships"]


async def test_a_workflow_that_is_driven_from_outside_goes_on(store: Any) -> None:
    runs = WorkflowRuns(store)
    answer = await runs.resume("workflow-driven")
    assert (answer.status, answer.step_id) == ("execute_step", "search")
    assert answer.retries_remaining == 1
    await runs.iteration_start("workflow-driven", "search")
    await runs.iteration_report("workflow-driven", "search", {"pages": ["three"]})
    await runs.iteration_abort("workflow-driven", "search", "one is enough")
    gate = await runs.step_done("workflow-driven", "search", {"pages": ["three"]})
    assert (gate.status, gate.step_id) == ("await_gate", "publish")
    done = await runs.gate_resolve("workflow-driven", "publish", "approve")
    assert done.status == "complete"
    assert isinstance(done.output, dict)
    assert done.output["pages"] == ["three"]


@pytest.mark.parametrize("run_id", [*doors.of_rows(World())])
async def test_rows_go_on_and_ask_nothing_again(run_id: str, tmp_path: Path) -> None:
    store = SQLiteRunStore(shutil.copy(FOLDER / "format_3" / "rows.db", tmp_path / "rows.db"))
    rows: Any = [*record.ROWS] if run_id == "rows-agent" else [{"text": row} for row in record.ROWS]
    are_runs = run_id in ("rows-pipeline", "rows-graph", "rows-flow")

    world = World()
    table = await doors.of_rows(world)[run_id].map(rows, store=store, run_id=run_id)
    assert {*world.happened} == ({"close fails", "close waits"} if are_runs else set())
    assert [row.ok for row in table] == [True] * (2 if are_runs else 3)
    assert table.resumed is not None
    assert (table.resumed.finished, table.resumed.changed) == (1 if are_runs else 3, {})

    for asked in await Inbox(store).list():
        if asked.run_id.startswith(f"{run_id}-row-"):
            await Inbox(store).answer(asked.id, "yes")
    table = await doors.of_rows(world)[run_id].map(rows, store=store, run_id=run_id)
    assert table.status == "finished"
    assert not {"clerk 1", "inferred"} & {*world.happened}
    await store.aclose()

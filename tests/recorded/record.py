"""Records runs in the current format anew: `make record`. After the release of that format, nothing does.

It writes `runs.db`, a store of runs as SQLite has it; `keys.json`, what every store has of it, key by key;
`traces.json`, the runs as `RunTrace.to_json` writes them; and `runs.json`, what each run came to.
`record.py rows` writes `rows.db`, a store of runs of rows, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from recorded.doors import (  # noqa: E402
    CODEC,
    LEASE,
    SPEC,
    World,
    changing,
    crowded,
    graph,
    of_rows,
    pipeline,
    router,
    scarce,
    timed_graph,
    two_at_once,
    typed_flow,
    waiting,
    workflow,
)

from fastroai import FastroAIError, Inbox, RunHistory, SQLiteRunStore, send_message  # noqa: E402
from fastroai.errors import FlowStopped  # noqa: E402
from fastroai.pipelines import PauseRequested, StepFinished  # noqa: E402
from fastroai.runtime import owner  # noqa: E402
from fastroai.runtime.budgets import in_line  # noqa: E402
from fastroai.runtime.fact_base import Fact  # noqa: E402
from fastroai.runtime.facts import FORMAT  # noqa: E402
from fastroai.steps import durability  # noqa: E402
from fastroai.workflows import WorkflowRuns  # noqa: E402

PAID: Final = {"number": 42, "due": "2027-01-31", "total": "12.50"}
INPUTS: Final = {"number": 42}


async def die() -> None:
    """As a process does that the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)


def dies_at(place: str) -> World:
    return World({place: die})


async def finished_pipeline(store: SQLiteRunStore) -> None:
    await pipeline(World()).execute(
        INPUTS, run_id="pipeline-finished", store=store, tags=["kept", "invoices"], tenant="acme"
    )


async def failed_pipeline(store: SQLiteRunStore) -> None:
    with suppress(FastroAIError):
        await pipeline(World(broken=True)).execute(INPUTS, run_id="pipeline-failed", store=store)


async def interrupted_pipeline(store: SQLiteRunStore) -> None:
    await pipeline(dies_at("checker 2")).execute(INPUTS, run_id="pipeline-interrupted", store=store)


async def before_diverging(store: SQLiteRunStore) -> None:
    await pipeline(dies_at("checker 2")).execute(INPUTS, run_id="pipeline-diverged", store=store)


async def forked_pipeline(store: SQLiteRunStore) -> None:
    await pipeline(World()).fork(
        "pipeline-finished", at="check", new_run_id="pipeline-forked", inputs={"number": 43}, store=store
    )


async def cancelled_pipeline(store: SQLiteRunStore) -> None:
    world = World()
    door = two_at_once(world)

    async def cancel() -> None:
        await _followed_to(door, "pipeline-cancelled", StepFinished, store)
        await door.cancel("pipeline-cancelled", store=store)
        await asyncio.Event().wait()

    world.at["waits"] = cancel
    with suppress(FastroAIError):
        await door.execute({}, run_id="pipeline-cancelled", store=store)


async def paused_pipeline(store: SQLiteRunStore) -> None:
    world = World()
    door = two_at_once(world)

    async def pause() -> None:
        await door.pause("pipeline-paused", store=store)
        await _followed_to(door, "pipeline-paused", PauseRequested, store)

    world.at["waits"] = pause
    await door.execute({}, run_id="pipeline-paused", store=store)


async def _followed_to(door: Any, run_id: str, kind: type[Fact], store: SQLiteRunStore) -> None:
    """Wait until a fact of this kind is on record."""
    async for _, fact in door.follow(run_id, store=store):
        if isinstance(fact, kind):
            return


async def waiting_pipeline(store: SQLiteRunStore) -> None:
    await waiting(World()).execute({"sleeps": True}, run_id="pipeline-waiting", store=store)


async def sealed_pipeline(store: SQLiteRunStore) -> None:
    await waiting(World(), CODEC).execute({"sleeps": True}, run_id="pipeline-sealed", store=store)


async def answered_pipeline(store: SQLiteRunStore) -> None:
    door = waiting(World())
    await door.execute({}, run_id="pipeline-answered", store=store)
    (asked,) = await Inbox(store).list(run_id="pipeline-answered")
    await Inbox(store).answer(asked.id, "yes", reviewer="Mia", rationale="it is right")
    await send_message("pipeline-answered", "paid", PAID, store=store)
    await door.resume("pipeline-answered", store=store)


async def crowded_pipeline(store: SQLiteRunStore) -> None:
    world, is_asked = World(), asyncio.Event()

    async def think() -> None:
        await is_asked.wait()
        await asyncio.sleep(0.05)

    async def note() -> None:
        is_asked.set()

    world.at |= {"clerk 1": think, "ask other": note}
    in_line.TOLD_AFTER = 0.0  # type: ignore[misc]
    await crowded(world).execute({}, run_id="pipeline-crowded", store=store)


async def scarce_pipeline(store: SQLiteRunStore) -> None:
    await scarce(World()).execute({}, run_id="pipeline-scarce", store=store)


async def waiting_graph(store: SQLiteRunStore) -> None:
    await graph(World()).run({"of": "ships"}, run_id="graph-waiting", store=store)


async def finished_graph(store: SQLiteRunStore) -> None:
    door = graph(World())
    await door.run({"of": "ships"}, run_id="graph-finished", store=store, tags=["kept"])
    await door.resume("graph-finished", input="in red", store=store)


async def failed_graph(store: SQLiteRunStore) -> None:
    door = graph(World(broken=True))
    await door.run({"of": "ships"}, run_id="graph-failed", store=store)
    await door.resume("graph-failed", input="in red", store=store)


async def interrupted_graph(store: SQLiteRunStore) -> None:
    await graph(dies_at("work b")).run({"of": "ships"}, run_id="graph-interrupted", store=store)


async def cancelled_graph(store: SQLiteRunStore) -> None:
    world = World()
    door = graph(world)

    async def cancel() -> None:
        await door.cancel("graph-cancelled", store=store)
        await asyncio.Event().wait()

    world.at["work a"] = cancel
    await door.run({"of": "ships"}, run_id="graph-cancelled", store=store)


async def forked_graph(store: SQLiteRunStore) -> None:
    await graph(World()).fork("graph-finished", at="publish", new_run_id="graph-forked", store=store)


async def timed(store: SQLiteRunStore) -> None:
    world = World()
    world.at["slow"] = asyncio.Event().wait  # type: ignore[assignment]
    await timed_graph(world).run({}, run_id="graph-timed", store=store)


async def finished_router(store: SQLiteRunStore) -> None:
    await router(World(broken=True)).execute({}, run_id="router-finished", store=store)


async def interrupted_router(store: SQLiteRunStore) -> None:
    world = dies_at("careful")
    world.broken = True
    await router(world).execute({}, run_id="router-interrupted", store=store)


async def waiting_flow(store: SQLiteRunStore) -> None:
    with suppress(FlowStopped):
        await typed_flow(World()).run("Hello", run_id="flow-waiting", store=store)


async def finished_flow(store: SQLiteRunStore) -> None:
    door = typed_flow(World())
    with suppress(FlowStopped):
        await door.run("Hello", run_id="flow-finished", store=store)
    (asked,) = await Inbox(store).list(run_id="flow-finished")
    await Inbox(store).answer(asked.id, "yes")
    await door.resume("flow-finished", store=store)


async def interrupted_flow(store: SQLiteRunStore) -> None:
    await typed_flow(dies_at("computed")).run("Hello", run_id="flow-interrupted", store=store)


async def before_changing(store: SQLiteRunStore) -> None:
    await changing(dies_at("booked")).execute({}, run_id="pipeline-changed", store=store)


async def changed_pipeline(store: SQLiteRunStore) -> None:
    await changing(World(intent="Decide otherwise.")).resume("pipeline-changed", store=store)


async def diverged_pipeline(store: SQLiteRunStore) -> None:
    await pipeline(World(prompt="check it again")).resume("pipeline-diverged", store=store)


TRACES: Final = (
    "pipeline-finished",
    "pipeline-answered",
    "graph-finished",
    "router-finished",
    "flow-finished",
)
"""The runs that are kept as traces too."""
Recording = Callable[[SQLiteRunStore], Coroutine[Any, Any, None]]


async def waiting_workflow(store: SQLiteRunStore) -> None:
    await workflow(World(broken=True)).run({"topic": "ships"}, run_id="workflow-waiting", store=store)


async def revised_workflow(store: SQLiteRunStore) -> None:
    door = workflow(World())
    await door.run({"topic": "ships"}, run_id="workflow-finished", store=store)
    for decision in ("revise", "approve"):
        (asked,) = await Inbox(store).list(run_id="workflow-finished")
        await Inbox(store).answer(asked.id, decision, reviewer="ada", rationale="read it")
        await door.resume("workflow-finished", store=store)


async def interrupted_workflow(store: SQLiteRunStore) -> None:
    await workflow(dies_at("search ships")).run(
        {"topic": "ships"}, run_id="workflow-interrupted", store=store
    )


async def driven_workflow(store: SQLiteRunStore) -> None:
    runs, run_id = WorkflowRuns(store), "workflow-driven"
    await runs.plan(SPEC, inputs={"topic": "ships"}, run_id=run_id)
    await runs.skip_step(run_id, "notify", "nobody is there")
    await runs.commit(run_id, "notified")
    await runs.iteration_start(run_id, "search")
    await runs.iteration_report(run_id, "search", {"pages": ["one", "two"]})
    await runs.iteration_abort(run_id, "search", "two are enough")
    await runs.step_done(run_id, "search", {"pages": []}, {"model": "gpt-5-mini", "input_tokens": 100})
    await runs.revert(run_id, "notified")
    await runs.iteration_start(run_id, "search")
    await runs.iteration_report(run_id, "search", {"pages": []})
    await runs.step_done(run_id, "search", {"pages": []})


RECORDINGS: Final[tuple[Recording, ...]] = (
    *(waiting_pipeline, sealed_pipeline),  # first, so that their sleep is over when all is recorded
    *(finished_pipeline, failed_pipeline, interrupted_pipeline, before_diverging, diverged_pipeline),
    *(before_changing, changed_pipeline),
    *(forked_pipeline, cancelled_pipeline, paused_pipeline, answered_pipeline),
    *(crowded_pipeline, scarce_pipeline),
    *(waiting_graph, finished_graph, failed_graph, interrupted_graph, cancelled_graph, forked_graph, timed),
    *(finished_router, interrupted_router, waiting_flow, finished_flow, interrupted_flow),
    *(waiting_workflow, revised_workflow, interrupted_workflow, driven_workflow),
)
"""In this order, each in a process of its own, because some of them die."""


ROWS: Final = ("ends", "fails", "waits")
"""The rows of each run of rows. One fails while something is broken, and one waits for a person."""


async def mapped(store: SQLiteRunStore) -> None:
    for run_id, door in of_rows(World(broken=True)).items():
        rows = [*ROWS] if run_id == "rows-agent" else [{"text": row} for row in ROWS]
        await door.map(rows, store=store, run_id=run_id)


def record_rows(folder: Path) -> None:
    """Write `rows.db` to a folder."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "rows.db"
        _begin(mapped, path)
        _close(path)
        (folder / "rows.db").write_bytes(path.read_bytes())


def record(folder: Path) -> None:
    """Write the four other files to a folder."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "runs.db"
        for recording in RECORDINGS:
            _begin(recording, path)
        found = asyncio.run(_read(path))
        _close(path)
        texts = {name: json.dumps(content, indent=1, ensure_ascii=False) for name, content in found.items()}
        assert not any(f"{socket.gethostname()} pid" in text for text in texts.values())
        (folder / "runs.db").write_bytes(path.read_bytes())
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


async def _read(path: Path) -> dict[str, Any]:
    store = SQLiteRunStore(path)
    keys, traces, runs = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for found in await store.list("", limit=10_000):
        held = await store.read(found.key)
        keys[found.key] = [value.decode() for value in held.values]
    for run in await RunHistory(store).list():
        codec = CODEC if "sealed" in run.run_id else None
        trace = await RunHistory(store, codec=codec).trace(run.run_id)
        if run.run_id in TRACES:
            traces[run.run_id] = json.loads(trace.to_json())
        runs[run.run_id] = {
            "status": run.status,
            "pipeline": run.pipeline,
            "tags": [*run.tags],
            "tenant": run.tenant,
            "forked_from": run.forked_from,
            "requests": run.requests,
            "cost_usd": str(trace.usage.cost_usd),
            "facts": [fact.kind for fact in trace.entries],
            "outputs": trace.outputs,
        }
    await store.aclose()
    return {
        "keys.json": keys,
        "traces.json": dict(sorted(traces.items())),
        "runs.json": dict(sorted(runs.items())),
    }


def _begin(recording: Recording, path: Path) -> None:
    """Record in a process of its own, and wait until it has ended, and its lease."""
    process = multiprocessing.get_context("fork").Process(target=_perform, args=(recording, path))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"{recording.__name__} has failed"
    if process.exitcode:
        time.sleep(LEASE)


def _close(path: Path) -> None:
    """Put all of a store in its one file."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("VACUUM")
    connection.close()


def _perform(recording: Recording, path: Path) -> None:
    owner._name_of = lambda pid: f"recorder pid {pid} (recorder 0)"  # of no machine that there is
    told, own = durability._traceback, f"{HERE.parents[1]}/"
    durability._traceback = lambda error: told(error).replace(own, "")  # with files as in a checkout
    store = SQLiteRunStore(path)
    asyncio.run(recording(store))
    asyncio.run(store.aclose())


if __name__ == "__main__":
    (record_rows if sys.argv[1:] == ["rows"] else record)(HERE / f"format_{FORMAT}")

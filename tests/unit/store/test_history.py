from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.run_logs import START, Log, definition, failure, support_desk
from support.run_stores import PlainStore
from support.stored_runs import log_key_of

from fastroai.errors import (
    ConfigurationError,
    RevisionConflict,
    RunCorrupt,
    RunFromNewerVersion,
    RunInProgress,
    RunNotFound,
    RunStoreUnavailable,
)
from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.runtime.owner import new_owner, release_owner
from fastroai.store import MemoryRunStore, RunHistory, SQLiteRunStore, adapt_run_store
from fastroai.store.record.headers import encode_header, header_key, replace_header
from fastroai.store.record.payloads import seal
from fastroai.workflows import WorkflowRuns

NOW = START + timedelta(days=10)
SHAPE = definition({"a": []})


@pytest.fixture
def store() -> MemoryRunStore:
    return MemoryRunStore(clock=lambda: NOW)


def at(days: float, run_id: str, **options: Any) -> Log:
    """A run of so many days ago."""
    return Log(SHAPE, run_id=run_id, start=NOW - timedelta(days=days), **options)


async def write_running(
    store: MemoryRunStore, run_id: str, *, until: datetime = NOW + timedelta(seconds=9)
) -> str:
    owner = new_owner()
    await at(5, run_id).start("a").write(store, owner=owner, lease_until=until)
    return owner


async def ids(history: RunHistory, **filters: Any) -> list[str]:
    return [run.run_id for run in await history.list(**filters)]


@step
async def idle(ctx: StepContext) -> None:
    pass


# --- reading ---


async def test_runs_are_listed_by_status_and_pipeline(store: MemoryRunStore) -> None:
    await at(1, "one").end().write(store)
    await at(2, "two").end("failed", failure()).write(store)
    await at(3, "three", pipeline="other").end().write(store)
    history = RunHistory(store)
    assert await ids(history, status="finished") == ["one", "three"]
    assert await ids(history, pipeline="other") == ["three"]
    assert await ids(history, status="failed", pipeline="other") == []
    (failed,) = await history.list(status="failed")
    assert failed.error == "ConnectionError: no connection"


async def test_a_run_whose_lease_has_ended_is_interrupted(store: MemoryRunStore) -> None:
    owners = [await write_running(store, "alive"), await write_running(store, "dead", until=NOW)]
    history = RunHistory(store)
    assert {run.run_id: run.status for run in await history.list()} == {
        "alive": "running",
        "dead": "interrupted",
    }
    assert await ids(history, status="interrupted") == ["dead"]
    for owner in owners:
        release_owner(owner)


async def test_a_run_whose_owner_is_known_to_be_dead_is_interrupted_before_its_lease_ends(
    store: MemoryRunStore,
) -> None:
    release_owner(await write_running(store, "r1"))
    assert (await RunHistory(store).summary("r1")).status == "interrupted"


async def test_a_run_that_goes_on_or_has_died_can_have_cost_more_than_its_header_says(
    store: MemoryRunStore,
) -> None:
    lives, began = {"owner": new_owner(), "lease_until": NOW + timedelta(seconds=9)}, NOW - timedelta(days=1)
    nothing = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": Decimal(0)}
    await at(1, "alive").start("a").request("a").write(store, **lives)
    await at(1, "at once").start("a").request("a").write(store, **nothing, updated_at=began)
    await at(1, "later").start("a").request("a").write(store, updated_at=began + timedelta(seconds=10))
    await at(1, "over").start("a").request("a").end().write(store)
    await at(1, "paused").start("a").request("a").end("paused").write(store)
    await store.compare_and_set(header_key("bad"), b"{", revision=0)
    known = {
        run.run_id: (run.status, run.cost_complete, run.counts_complete, run.duration)
        for run in await RunHistory(store).list()
    }
    assert known == {
        "alive": ("running", False, False, timedelta(days=1)),
        "at once": ("interrupted", False, False, None),
        "later": ("interrupted", False, False, timedelta(seconds=10)),
        "over": ("finished", True, True, timedelta(seconds=1.5)),
        "paused": ("paused", True, True, timedelta(seconds=1.5)),
        "bad": ("unreadable", False, False, None),
    }
    release_owner(lives["owner"])


async def test_a_workflow_that_another_program_drives_has_its_reported_cost_in_its_summary(
    store: MemoryRunStore,
) -> None:
    runs = WorkflowRuns(store)
    await runs.plan(
        '{version: "0.2", flows: {main: {input: {}, steps: [{id: a, intent: Look}]}}}', run_id="driven"
    )
    assert (await RunHistory(store).summary("driven")).cost_complete is False
    await runs.step_done("driven", "a", {}, {"model": "openai:gpt-4o", "input_tokens": 1000})
    run = await RunHistory(store).summary("driven")
    assert (run.status, run.requests, run.cost_usd, run.cost_complete) == (
        "finished",
        1,
        Decimal("0.0025"),
        True,
    )


async def test_more_runs_than_a_store_lists_at_once(
    store: MemoryRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastroai.store.record.headers._PAGE", 3)
    for number in range(7):
        await at(number, f"r{number}").end().write(store)
    assert await ids(RunHistory(store)) == [f"r{number}" for number in range(7)]


async def test_a_run_that_cannot_be_read_does_not_hide_the_others(store: MemoryRunStore) -> None:
    header = await at(1, "good").end().write(store)
    await store.compare_and_set(header_key("bad"), b"{", revision=0)
    newer = encode_header(replace(header, format=99))
    await store.compare_and_set(header_key("newer"), newer, revision=0)
    history = RunHistory(store)
    runs = await history.list()
    assert [(run.run_id, run.status) for run in runs] == [
        ("good", "finished"),
        ("bad", "unreadable"),
        ("newer", "unreadable"),
    ]
    assert "damaged" in (runs[1].error or "")
    assert "format 99" in (runs[2].error or "")
    with pytest.raises(RunCorrupt):
        await history.header("bad")
    with pytest.raises(RunFromNewerVersion):
        await history.trace("newer")


async def test_what_a_run_is_listed_with_is_what_its_header_says(store: MemoryRunStore) -> None:
    log = support_desk()
    await log.write(store)
    summary, header = await RunHistory(store).summary("r1"), await RunHistory(store).header("r1")
    assert (
        (summary.requests, summary.failed_requests, summary.cost_usd)
        == (header.requests, header.failed_requests, header.cost_usd)
        == (2, log.trace.usage.failed_requests, log.trace.usage.cost_usd)
    )
    assert (summary.pipeline, summary.started_at, summary.updated_at) == ("desk", START, log.at)


async def test_a_trace_is_read_from_the_store(store: MemoryRunStore) -> None:
    log = support_desk()
    await log.write(store)
    assert await RunHistory(store).trace("r1") == await store.trace("r1") == log.trace


async def test_a_trace_is_decoded_with_the_codec_of_its_runs(store: MemoryRunStore) -> None:
    class Reversed:
        def encode(self, payload: bytes) -> bytes:
            return payload[::-1]

        def decode(self, payload: bytes) -> bytes:
            return payload[::-1]

    codec = Reversed()
    log = Log(SHAPE, inputs={"text": seal("secret", codec)}).resume(more=seal(1, codec)).start("a")
    await log.request("a@1").output("a", seal({"x": "secret"}, codec)).end().write(store)
    plain = await RunHistory(store, codec=codec).trace("r1")
    assert (plain.output, plain.inputs) == ({"x": "secret"}, {"text": "secret", "more": 1})
    sealed = await store.trace("r1")
    assert "$sealed" in sealed.to_json()
    assert "secret" not in sealed.to_json()


async def test_runs_that_are_not_there(store: MemoryRunStore) -> None:
    history = RunHistory(store)
    for ask in (history.header, history.summary, history.trace, history.delete):
        with pytest.raises(RunNotFound, match="'nope'"):
            await ask("nope")
    assert await history.list() == ()


async def test_a_log_that_does_not_begin_as_one_is_corrupt(store: MemoryRunStore) -> None:
    await support_desk().write(store)
    key = await log_key_of(store, "r1")
    _, *others = (await store.read(key)).values
    await store.delete(key)
    with pytest.raises(RunCorrupt, match="its log is gone from the store"):
        await store.trace("r1")
    await store.append(key, others, revision=0)
    with pytest.raises(RunCorrupt, match="begins with run_started"):
        await store.trace("r1")


@pytest.mark.parametrize(
    ("method", "option", "wrong", "told"),
    [
        ("list", "status", ("done",), "one of running"),
        ("list", "limit", (0, "10", 1.5, True), "a whole number, 1 or more"),
        ("list", "pipeline", (Pipeline("desk", {"a": idle}), 7), "the name of a pipeline, as text"),
        ("list", "tag", (7, ["desk"]), "the name of a tag, as text"),
        ("list", "tenant", (7, ["desk"]), "the name of a tenant, as text"),
        ("purge", "older_than", (timedelta(-1), 30, "30d", None), r"0 or more: timedelta\(days=30\)"),
        ("purge", "status", (7, [[]], [None, 3], ["finished", "done"]), "one of running"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    store: MemoryRunStore, method: str, option: str, wrong: Sequence[Any], told: str
) -> None:
    given: dict[str, Any] = {"older_than": timedelta(1)} if method == "purge" else {}
    for value in wrong:
        with pytest.raises(ConfigurationError, match=f"{option}=.*{told}"):
            await getattr(RunHistory(store), method)(**{**given, option: value})


async def test_no_run_is_older_than_the_greatest_age(store: MemoryRunStore) -> None:
    assert await RunHistory(store).purge(timedelta.max) == ()


@pytest.mark.parametrize("run_id", [7, None, "", " r1"])
async def test_what_cannot_be_the_id_of_a_run(store: MemoryRunStore, run_id: Any) -> None:
    history = RunHistory(store)
    for ask in (history.header, history.summary, history.trace, history.delete, store.trace):
        with pytest.raises(ConfigurationError, match="run_id=.*expected text of 1 to 200 characters"):
            await ask(run_id)
    with pytest.raises(ConfigurationError, match="run_id=.*expected text of 1 to 200 characters"):
        history.follow(run_id)


def test_a_history_is_of_a_store_and_a_codec() -> None:
    store: Any = "ftp://host/a.db"
    with pytest.raises(ConfigurationError, match="expected a path, or sqlite:///path, redis://"):
        RunHistory(store)
    codec: Any = "x"
    with pytest.raises(ConfigurationError, match=r"codec='x': expected an object with encode\(bytes\)"):
        RunHistory(MemoryRunStore(), codec=codec)


async def test_a_history_may_be_of_a_store_with_plain_methods(tmp_path: Path) -> None:
    await at(1, "r1").end().write(adapt_run_store(PlainStore(tmp_path / "runs.db")))
    plain: Any = PlainStore(tmp_path / "runs.db")
    assert await ids(RunHistory(plain)) == ["r1"]


def test_a_history_says_of_which_store_it_is() -> None:
    assert repr(RunHistory(SQLiteRunStore("/x/runs.db"))) == "RunHistory(SQLiteRunStore('/x/runs.db'))"


# --- deleting ---


async def keys(store: MemoryRunStore) -> list[str]:
    return [found.key for found in await store.list("")]


async def test_a_run_that_a_process_has_is_deleted_by_force_alone(store: MemoryRunStore) -> None:
    owner = await write_running(store, "r1")
    with pytest.raises(RunInProgress):
        await RunHistory(store).delete("r1")
    assert (await RunHistory(store).header("r1")).owner == owner
    await RunHistory(store).delete("r1", force=True)
    assert await keys(store) == []
    release_owner(owner)


async def test_a_run_that_cannot_be_read_is_deleted_by_force_alone(store: MemoryRunStore) -> None:
    await store.compare_and_set(header_key("bad"), b"{", revision=0)
    with pytest.raises(RunCorrupt):
        await RunHistory(store).delete("bad")
    await RunHistory(store).delete("bad", force=True)
    assert await keys(store) == []


class Rivalled(MemoryRunStore):
    """Somebody writes the header between every read and write of it, so many times."""

    rivals = 1

    async def read(self, key: str, *, after: int = 0) -> Any:
        found = await super().read(key, after=after)
        if found.values and key.startswith("run:") and self.rivals:
            self.rivals -= 1
            await super().compare_and_set(key, found.values[-1], revision=found.revision)
        return found


async def test_a_deletion_looks_again_when_somebody_else_has_written() -> None:
    store = Rivalled(clock=lambda: NOW)
    await support_desk().write(store)
    await RunHistory(store).delete("r1")
    assert await keys(store) == []
    assert store.rivals == 0


async def test_a_deletion_that_never_gets_in_between_gives_up() -> None:
    store = Rivalled(clock=lambda: NOW)
    store.rivals = 1000
    await support_desk().write(store)
    with pytest.raises(RunStoreUnavailable, match="header"):
        await RunHistory(store).delete("r1")


async def test_whoever_read_the_header_before_a_deletion_cannot_take_the_run_up() -> None:
    """The header is written anew before it is deleted, so a compare-and-set of an older reader is refused."""
    revisions: list[Sequence[int]] = []

    class Watched(MemoryRunStore):
        async def delete(self, key: str) -> None:
            revisions.append([found.revision for found in await self.list(key) if key.startswith("run:")])
            await super().delete(key)

    store = Watched(clock=lambda: NOW)
    await support_desk().write(store)
    before = (await store.read(header_key("r1"))).revision
    await RunHistory(store).delete("r1")
    assert revisions[0] == [before + 1]


class Interrupted(MemoryRunStore):
    """Something happens between what a process has read and the next write of a header, or its deletion."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: NOW)
        self.before_write: Callable[[], Awaitable[object]] | None = None
        self.before_delete: Callable[[], Awaitable[object]] | None = None

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        if key.startswith("run:") and (happens := self.before_write):
            self.before_write = None
            await happens()
        await super().compare_and_set(key, value, revision=revision)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        if key.startswith("run:") and (happens := self.before_delete):
            self.before_delete = None
            await happens()
        await super().delete(key, revision=revision)


async def header_as_often_written(store: MemoryRunStore, run_id: str, revision: int) -> None:
    """Have the header of a run written again until it would have this revision, if it had begun at 1."""
    found = await store.read(header_key(run_id))
    for times in range(revision - 1):
        await store.compare_and_set(header_key(run_id), found.values[-1], revision=found.revision + times)


@pytest.mark.parametrize("read_before", ["write", "delete"])
async def test_neither_a_deletion_nor_a_write_of_before_touches_a_later_run_with_the_same_id(
    read_before: str,
) -> None:
    store = Interrupted()
    first = await support_desk().write(store)
    revision = (await store.read(header_key("r1"))).revision + (read_before == "delete")

    async def another_run() -> None:
        await RunHistory(store).delete("r1", force=True)
        await support_desk().write(store)
        await header_as_often_written(store, "r1", revision)

    if read_before == "delete":
        store.before_delete = another_run
        await RunHistory(store).delete("r1")
    else:
        store.before_write = another_run
        found = await store.read(header_key("r1"))
        with pytest.raises(RevisionConflict):
            await replace_header(store, first, found.revision)
    now = await RunHistory(store).header("r1")
    assert now.epoch != first.epoch
    assert (await RunHistory(store).trace("r1")).status == "finished"


async def test_a_deletion_whose_answer_was_lost_is_a_deletion() -> None:
    class Lossy(MemoryRunStore):
        async def delete(self, key: str, *, revision: int | None = None) -> None:
            await super().delete(key, revision=revision)
            if key.startswith("run:"):
                await super().delete(key, revision=revision)  # as a client repeats it

    store = Lossy(clock=lambda: NOW)
    await support_desk().write(store)
    await RunHistory(store).delete("r1")
    assert await keys(store) == []


# --- purging ---


async def test_a_purge_deletes_what_is_old_and_does_not_run(store: MemoryRunStore) -> None:
    for days in (1, 3, 30):
        await at(days, f"r{days}").end().write(store)
    await at(40, "interrupted").start("a").write(store)
    owner = await write_running(store, "running")
    await store.compare_and_set(header_key("bad"), b"{", revision=0)
    history = RunHistory(store)
    assert set(await history.purge(timedelta(days=2), dry_run=True)) == {"r3", "r30", "interrupted"}
    assert len(await history.list()) == 6
    assert set(await history.purge(timedelta(days=2))) == {"r3", "r30", "interrupted"}
    assert {run.run_id for run in await history.list()} == {"r1", "running", "bad"}
    release_owner(owner)


async def test_a_purge_can_be_of_some_statuses(store: MemoryRunStore) -> None:
    await at(3, "finished").end().write(store)
    await at(3, "failed").end("failed", failure()).write(store)
    await at(3, "paused").end("waiting").write(store)
    history = RunHistory(store)
    assert await history.purge(timedelta(1), status="failed") == ("failed",)
    assert await history.purge(timedelta(1), status={"finished", "failed"}) == ("finished",)
    assert await ids(history) == ["paused"]


async def test_a_purge_deletes_runs_that_wait_and_those_that_are_driven_when_they_are_old() -> None:
    store = MemoryRunStore()
    await WorkflowRuns(store).plan(
        '{version: "0.2", flows: {main: {input: {}, steps: [{id: a, intent: Look}]}}}', run_id="driven"
    )
    history = RunHistory(store)
    assert await history.purge(timedelta(hours=1)) == ()
    assert await history.purge(timedelta(0), status=("finished", "failed")) == ()
    assert await history.purge(timedelta(0)) == ("driven",)


async def test_a_purge_passes_over_a_run_that_is_taken_up_or_gone_meanwhile(
    store: MemoryRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at(3, "gone").end().write(store)
    await at(3, "taken").end().write(store)
    write = store.compare_and_set

    async def beaten(key: str, value: bytes, *, revision: int) -> None:
        if key == header_key("gone"):
            await store.delete(key)
        else:
            await write(key, value, revision=revision)
        await write(key, value, revision=revision)

    monkeypatch.setattr(store, "compare_and_set", beaten)
    assert await RunHistory(store).purge(timedelta(1)) == ()
    assert [run.run_id for run in await RunHistory(store).list()] == ["taken"]


async def test_a_purge_leaves_the_log_of_a_run_that_begins_meanwhile(store: MemoryRunStore) -> None:
    """Its header is written after its log."""
    await at(1, "begun").end().write(store)
    await at(0, "beginning").start("a").write(store)
    await store.delete(header_key("beginning"))
    kept = await keys(store)
    await at(1, "left").start("a").write(store)
    await store.delete(header_key("left"))
    assert await RunHistory(store).purge(timedelta(0), status="failed") == ()
    assert await keys(store) == kept

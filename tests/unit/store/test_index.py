"""Runs are found by their indexes, in every store, whatever was cut off while these were written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.counting_store import Counting
from support.faulty_store import FaultyStore, Write, everything_in, gone
from support.run_logs import START, Log, definition, failure
from support.run_stores import KINDS, run_stores
from support.stored_runs import begin, header_of, take_up
from support.virtual_time import in_virtual_time

from fastroai.errors import RunStoreUnavailable
from fastroai.records import Usage
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import RunFinished, RunResumed
from fastroai.runtime.labels import Labels
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.store.reading.index import add_to_index, index_keys, run_in_index
from fastroai.store.record.entries import (
    RunHeader,
)
from fastroai.store.record.headers import header_key

SHAPE = definition({"a": []})


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        yield opened
        if request.param != "memory":
            asyncio.run(opened.aclose())


async def ids(store: Any, **filters: Any) -> list[str]:
    return [run.run_id for run in await RunHistory(store).list(**filters)]


FAILED = RunFinished(
    status="failed",
    failure=FailureFacts(error_type="OSError", message="down", failure_class="terminal"),
)


async def test_runs_are_found_by_what_they_are_while_they_go_on_and_after(store: Any) -> None:
    one = await begin(store, "a:1", labels=Labels(("eu", "vip"), "acme"))
    two = await begin(store, "b", labels=Labels(("eu",)))
    assert await ids(store, status="running", limit=9) == ["b", "a:1"]
    await one.end(FAILED, Usage())
    assert await ids(store, status="running") == ["b"]
    assert await ids(store, status="failed") == ["a:1"]
    assert await ids(store, tag="eu") == ["b", "a:1"]
    assert await ids(store, tag="vip") == await ids(store, tenant="acme") == ["a:1"]
    assert await ids(store, tag="eu", tenant="acme", status="failed", pipeline="p") == ["a:1"]
    assert await ids(store, tag="eu", status="finished") == await ids(store, pipeline="other") == []
    again = await take_up(store, run_id="a:1")
    assert await ids(store, status="failed") == []
    assert await ids(store, status="running") == ["b", "a:1"]
    for run in (again, two):
        await run.end(RunFinished(status="finished"), Usage())
    assert await ids(store, status="running") == []
    assert await ids(store, status="finished", limit=1) == ["b"]
    (acme,) = await RunHistory(store).list(tenant="acme")
    assert (acme.tags, acme.tenant) == (("eu", "vip"), "acme")
    for run_id in ("a:1", "b"):
        await RunHistory(store).delete(run_id)
    assert await everything_in(store) == {}


async def test_a_list_with_a_limit_reads_no_more_runs_than_it_gives() -> None:
    store = Counting()
    for number in range(1000):
        log = Log(SHAPE, run_id=f"r{number:03}", start=START + timedelta(minutes=number))
        await (log.end("failed", failure()) if number % 100 == 0 else log.end()).write(store)
    store.reads.clear()
    assert await ids(store, limit=5) == ["r999", "r998", "r997", "r996", "r995"]
    assert store.reads == {"list index": 1, "run": 5}
    store.reads.clear()
    assert await ids(store, status="failed", pipeline="desk", limit=2) == ["r900", "r800"]
    assert store.reads["run"] == 2


async def test_a_purge_reads_only_the_runs_that_began_before_its_time() -> None:
    store = Counting()
    for days in range(100):
        await Log(SHAPE, run_id=f"r{days}", start=datetime.now(UTC) - timedelta(days=days)).end().write(store)
    store.reads.clear()
    assert await RunHistory(store).purge(timedelta(days=97, hours=1), dry_run=True) == ("r98", "r99")
    assert store.reads["run"] <= 4


@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize("after", [False, True])
@in_virtual_time
async def test_a_process_that_dies_at_any_write_leaves_a_run_that_is_found_as_what_it_is(
    number: int, after: bool
) -> None:
    inner = MemoryRunStore()
    dying = FaultyStore(inner)

    def gone_from(write: Write) -> None:
        if write.number >= number:
            raise gone()

    dying.before, dying.after = (None, gone_from) if after else (gone_from, None)
    try:
        run = await begin(dying)
        await run.end(FAILED, Usage())
        dying.before = dying.after = None
        await (await take_up(dying)).release()
    except RunStoreUnavailable:
        pass
    found = [(run.run_id, run.status) for run in await RunHistory(inner).list()]
    for status in ("interrupted", "failed", "finished"):
        assert [(one, status) for one in await ids(inner, status=status)] == [
            one for one in found if one[1] == status
        ]
    assert await ids(inner, limit=9) == [run_id for run_id, _ in found]


async def test_an_entry_of_a_run_that_never_began_is_passed_over_and_purged(store: Any) -> None:
    kept = await Log(SHAPE, run_id="kept", start=datetime.now(UTC)).end().write(store)
    before = await everything_in(store)
    await Log(SHAPE, run_id="gone").start("a").write(store)
    await store.delete(header_key("gone"))
    assert await ids(store, limit=9) == await ids(store, pipeline="desk") == ["kept"]
    assert await ids(store, status="interrupted") == []
    await RunHistory(store).purge(timedelta(days=1))
    assert await everything_in(store) == before
    assert await header_of(store, "kept") == kept


@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize("after", [False, True])
async def test_a_deletion_that_is_cut_off_leaves_only_remains_that_are_found_again(
    number: int, after: bool
) -> None:
    inner = MemoryRunStore()
    log = Log(SHAPE, run_id="r").start("a").add(RunResumed(), 86_400).add(RunResumed(), 86_400).end("paused")
    await log.write(inner, tags=("eu",), tenant="acme", questions=(2,))
    before = await everything_in(inner)
    dying = FaultyStore(inner)

    def gone_from(write: Write) -> None:
        if write.number >= number:
            raise gone()

    dying.before, dying.after = (None, gone_from) if after else (gone_from, None)
    with pytest.raises(RunStoreUnavailable):
        await RunHistory(dying).delete("r")
    is_there = bool(await RunHistory(inner).list())
    if not is_there:
        purged = MemoryRunStore()
        for key, (values, _) in (await everything_in(inner)).items():
            await purged.append(key, values, revision=0)
        await RunHistory(purged).purge(timedelta(days=1))
        left = [key for key in await everything_in(purged) if not key.startswith("index:day")]
        assert left == []
    await RunHistory(inner).rebuild_indexes()
    assert (await everything_in(inner)).keys() == (before.keys() if is_there else set())


async def test_indexes_are_rebuilt_from_the_runs() -> None:
    store = MemoryRunStore()
    headers = [
        await Log(SHAPE, run_id=f"r{number}", start=START + timedelta(days=number)).end("failed").write(store)
        for number in range(3)
    ]
    before = await everything_in(store)
    for header in headers[:2]:
        for key in index_keys(header):
            await store.delete(key)
    await Log(SHAPE, run_id="gone").write(store)
    await store.delete(header_key("gone"))
    await add_to_index(store, await _as_cancelled(store, "r2"))
    assert await ids(store, limit=9) == ["r2"]
    await RunHistory(store).rebuild_indexes()
    assert {key: values for key, (values, _) in (await everything_in(store)).items()} == {
        key: values for key, (values, _) in before.items()
    }
    assert await ids(store, status="failed", limit=9) == ["r2", "r1", "r0"]


async def _as_cancelled(store: Any, run_id: str) -> RunHeader:
    return replace(await header_of(store, run_id), status="cancelled")


@given(
    st.lists(
        st.tuples(st.text("a:~\x01é", min_size=1, max_size=4), st.integers(-(10**9), 10**10)),
        unique_by=lambda one: one[0],
        max_size=8,
    ),
)
def test_entries_are_in_the_order_of_time_and_name_their_runs(runs: list[tuple[str, int]]) -> None:
    headers = [
        RunHeader(
            run_id=run_id,
            epoch="0" * 32,
            pipeline="p",
            status="running",
            started_at=START + timedelta(seconds=seconds),
            updated_at=START,
        )
        for run_id, seconds in runs
    ]
    started = sorted(index_keys(header)[0] for header in headers)
    found = [run_in_index(key) for key in started]
    assert [one.started_at for one in found] == sorted((h.started_at for h in headers), reverse=True)
    assert {(one.run_id, one.started_at) for one in found} == {(h.run_id, h.started_at) for h in headers}

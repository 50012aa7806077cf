"""Runs are found, counted, summed and deleted by the index of a store, whoever has written their headers."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counting_store import Counting
from support.faulty_store import everything_in
from support.run_logs import START, Log, definition, failure, record
from support.run_stores import run_stores
from support.stored_runs import header_of

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.graphs import Edge, Graph, Node
from fastroai.human import Inbox
from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.runtime.facts import SpendingRecorded
from fastroai.store import (
    FilePayloadStore,
    MemoryRunStore,
    OffloadingRunStore,
    PostgresRunStore,
    RunHistory,
    SQLiteRunStore,
)
from fastroai.store.reading.run_index import indexes_runs
from fastroai.store.reading.run_queries import RunOrder, RunQuery
from fastroai.store.reading.run_spending import MOST_PARTS, SpendingOnRecord
from fastroai.store.record.headers import encode_header, header_key, keys_of, read_header, read_log

SHAPE = definition({"a": []})
HOUR = timedelta(hours=1)


@pytest.fixture(params=("sqlite", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        yield opened
        asyncio.run(opened.aclose())


async def ids(store: Any, **query: Any) -> list[str]:
    return [run.run_id for run in (await RunHistory(store).page(RunQuery(**query))).items]


def log(run_id: str, hours: float = 0) -> Log:
    return Log(SHAPE, run_id=run_id, start=START + hours * HOUR).start("a").request("a@1", "0.5")


@step
async def propose(ctx: StepContext[Any]) -> str:
    return "pay 12.34"


@step
async def ask(ctx: StepContext[Any]) -> str:
    return "is that right?"


def asking_twice() -> Graph[Any, Any]:
    nodes: dict[str, Any] = {
        "propose": propose,
        "first": Node(ask, answer_type=bool),
        "second": Node(ask, answer_type=bool),
    }
    edges = [Edge("propose", "first"), Edge("propose", "second")]
    return Graph("desk", nodes=nodes, edges=edges, pause_nodes=["first", "second"])


# --- stores of earlier versions ---


def _sql(store: SQLiteRunStore | PostgresRunStore, script: str) -> None:
    """Run statements behind the back of a store."""
    if isinstance(store, SQLiteRunStore):
        with closing(sqlite3.connect(store._driver.path)) as connection:
            connection.executescript(script)
    else:
        with psycopg.connect(store._driver._dsn, autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{store.schema}"'.encode())
            connection.execute(script.encode())


WITHOUT_INDEX = {
    SQLiteRunStore: "DROP TRIGGER run_header_changed; DROP TRIGGER run_header_new; "
    "DROP TRIGGER run_header_gone; DROP TABLE run_header; DROP TABLE run_spent;",
    PostgresRunStore: "DROP FUNCTION run_index_anew_v1(); DROP TABLE run_header; DROP TABLE run_spent;",
}


async def test_runs_of_an_earlier_version_are_found(store: Any) -> None:
    for number in range(3):
        await log(f"r{number}", number).end("failed" if number else "finished").write(store)
    await store.compare_and_set(header_key("bad"), b"{", revision=0)
    before = await everything_in(store)
    await store.aclose()
    _sql(store, WITHOUT_INDEX[type(store)])
    assert await ids(store) == ["r2", "r1", "r0", "bad"]
    assert await ids(store, status="failed") == ["r2", "r1"]
    assert await ids(store, status="unreadable") == ["bad"]
    await RunHistory(store).rebuild_indexes()
    assert await everything_in(store) == before
    assert await ids(store) == ["r2", "r1", "r0", "bad"]
    with pytest.raises(RunCorrupt):
        await RunHistory(store).spending()
    await RunHistory(store).delete("bad", force=True)
    (row,) = await RunHistory(store).spending(by=())
    assert row.usage.cost_usd == Decimal("1.5")


async def test_a_header_that_an_earlier_version_writes_meanwhile_is_found_as_it_is_now(store: Any) -> None:
    header = await log("r").end().write(store)
    assert await ids(store, status="finished") == ["r"]
    value, new_value = (
        encode_header(replace(header, run_id=run_id, status="failed")).hex() for run_id in ("r", "new")
    )
    name = header_key("r").encode().hex()
    new, bad = header_key("new").encode().hex(), header_key("bad").encode().hex()
    if isinstance(store, SQLiteRunStore):
        at = f"(SELECT id FROM run_key WHERE key = X'{name}') << 32"
        _sql(
            store,
            f"DELETE FROM run_value WHERE place = ({at}) + 1; "
            f"INSERT INTO run_value VALUES (({at}) + 2, X'{value}'); "
            f"INSERT INTO run_key (key) VALUES (X'{new}'), (X'{bad}'); "
            f"INSERT INTO run_value SELECT (id << 32) + 1, X'{new_value}' FROM run_key WHERE key = X'{new}'; "
            f"INSERT INTO run_value SELECT (id << 32) + 1, X'00' FROM run_key WHERE key = X'{bad}'; ",
        )
    else:
        _sql(
            store,
            rf"SELECT run_replace_v1('\x{name}', 1, '\x{value}'), "
            rf"run_replace_v1('\x{new}', 0, '\x{new_value}'), run_replace_v1('\x{bad}', 0, '\x00')",
        )
    assert await ids(store, status="finished") == []
    assert set(await ids(store, status="failed")) == {"r", "new"}
    assert await ids(store, status="unreadable") == ["bad"]
    await store.delete(header_key("new"))
    assert await ids(store, status="failed") == ["r"]


async def test_a_header_that_became_unreadable_stays_where_it_was(store: Any) -> None:
    await log("r").end("paused").write(store, due_at=START + HOUR)
    damaged = b"0 " + encode_header(await header_of(store, "r"))
    await store.compare_and_set(header_key("r"), damaged, revision=1)
    assert await ids(store, pipeline="desk") == await ids(store, status="unreadable") == ["r"]
    assert [run.status for run in await RunHistory(store).due("desk")] == ["unreadable"]


# --- the same runs, whatever the store ---


@pytest.fixture(scope="module")
def two_stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A store that finds runs by itself, and one that does not."""
    return SQLiteRunStore(tmp_path_factory.mktemp("runs") / "runs.db"), MemoryRunStore()


TEXTS = st.text("aB\n\\\"'%_ßİ", max_size=3)
RUNS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    hours=st.integers(0, 3),
    status=st.sampled_from(["finished", "failed", "paused", "cancelled"]),
    cost_usd=st.sampled_from([Decimal(0), Decimal("0.1"), Decimal("1E-12"), Decimal(7)]),
    took=st.integers(0, 2),
    tags=st.lists(TEXTS.filter(bool), max_size=2).map(tuple),  # `labels_of` refuses empty tags
    tenant=st.none() | TEXTS,
    pipeline=TEXTS.map("p".__add__),
    questions=st.sampled_from([(), (2,)]),
    due_at=st.none() | st.integers(0, 3).map(lambda hours: START + hours * HOUR),
)
TIMES = st.none() | st.integers(0, 4).map(lambda hours: START + hours * HOUR)
QUERIES = st.builds(
    RunQuery,
    status=st.none() | st.sampled_from(["finished", "failed", "paused", "interrupted"]),
    pipeline=st.none() | TEXTS.map("p".__add__),
    tag=st.none() | TEXTS,
    tenant=st.none() | TEXTS,
    tenants=st.none() | st.lists(TEXTS, max_size=2),
    search=st.just("") | TEXTS,
    started_since=TIMES,
    started_until=TIMES,
    updated_since=TIMES,
    updated_until=TIMES,
    asks=st.booleans(),
    due_until=st.none() | TIMES,
    sort=st.sampled_from(get_args(RunOrder)),
    ascending=st.booleans(),
)


@given(
    runs=st.lists(RUNS, max_size=8),
    queries=st.lists(QUERIES, min_size=1, max_size=6),
    limit=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_all_stores_find_the_same_runs_page_by_page(
    two_stores: tuple[Any, Any], runs: list[dict[str, Any]], queries: list[RunQuery], limit: int
) -> None:
    async def pages(store: Any, query: RunQuery) -> list[str]:
        found, after = list[str](), None
        while True:
            page = await RunHistory(store).page(query, limit=limit, after=after)
            found += [run.run_id for run in page.items]
            assert len(page) <= limit
            if (after := page.next) is None:
                return found

    async def compare() -> None:
        headers = []
        for number, fields in enumerate(runs):
            hours, took = fields.pop("hours"), fields.pop("took")
            made = Log(
                SHAPE, run_id=f"r{number}", start=START + hours * HOUR, pipeline=fields.pop("pipeline")
            )
            made.end()
            updated = START + (hours + took) * HOUR
            for store in two_stores:
                headers.append(await made.write(store, updated_at=updated, **fields))
        try:
            for query in queries:
                one, other = [await pages(store, query) for store in two_stores]
                assert one == other
                counts = [await RunHistory(store).count(query) for store in two_stores]
                assert counts == [len(one)] * 2
        finally:
            for store in two_stores:
                for number in range(len(runs)):
                    await RunHistory(store).delete(f"r{number}", force=True)
                assert await everything_in(store) == {}

    asyncio.run(compare())


async def test_a_page_of_a_store_with_entries_reads_no_more_headers_than_it_gives() -> None:
    store = Counting()
    for number in range(300):
        await log(f"r{number:03}", number).end().write(store)
    history = RunHistory(store)
    first = await history.page(limit=5)
    store.reads.clear()
    second = await history.page(limit=5, after=first.next)
    assert [run.run_id for run in second.items] == ["r294", "r293", "r292", "r291", "r290"]
    assert store.reads["run"] == 6  # and the next one, to know that there is one


# --- pages ---


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit": 0}, "limit=0"),
        ({"limit": 1_001}, "at most 1,000"),
        ({"limit": None}, "limit=None"),
        ({"after": "started down"}, "after="),
        ({"after": 7}, "after="),
        ({"after": "cost down 1 0 r1"}, "Page.next"),
        ({"after": "started up 1 0 r1"}, "Page.next"),
        ({"after": f"started down {2**63} 0 r1"}, "Page.next"),
        ({"after": "started down 1 0 r\0"}, "Page.next"),
    ],
)
async def test_a_page_that_is_none_is_refused(store: Any, options: Any, told: str) -> None:
    for pages in (RunHistory(store), Inbox(store)):
        with pytest.raises(ConfigurationError, match=told):
            await pages.page(**options)


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "done"},
        {"pipeline": 3},
        {"tag": b"a"},
        {"tenant": ["acme"]},
        {"search": None},
        {"sort": "name"},
        {"started_since": "today"},
        {"updated_until": datetime(2026, 3, 1)},
    ],
)
def test_a_query_that_is_none_is_refused(fields: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(fields))}="):
        RunQuery(**fields)


async def test_runs_that_come_and_go_between_two_pages_change_no_other(store: Any) -> None:
    for number in range(6):
        await log(f"r{number}", number).end().write(store)
    history = RunHistory(store)
    first = await history.page(limit=2)
    await log("r9", 9).end().write(store)
    await history.delete("r4")
    await history.delete("r3")
    second = await history.page(limit=2, after=first.next)
    assert [[run.run_id for run in page.items] for page in (first, second)] == [["r5", "r4"], ["r2", "r1"]]


async def test_interrupted_runs_are_found_among_running_ones(store: Any) -> None:
    for number in range(4):
        await log(f"dead{number}", number).write(store)
    await log("ended").end().write(store)
    history = RunHistory(store)
    query = RunQuery(status="interrupted")
    page = await history.page(query, limit=3)
    assert [run.run_id for run in page.items] == ["dead3", "dead2", "dead1"]
    last = await history.page(query, limit=3, after=page.next)
    assert ([run.run_id for run in last.items], last.next) == (["dead0"], None)
    assert (await history.count(query), await history.count(RunQuery(status="running"))) == (4, 0)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_pages_of_questions_follow_each_other_even_within_a_run(store: Any, limit: int) -> None:
    for number in range(3):
        await asking_twice().run(run_id=f"r{number}", store=store)
    inbox, found, after = Inbox(store), list[tuple[str, str]](), None
    while True:
        page = await inbox.page(limit=limit, after=after)
        found += [(one.run_id, one.node) for one in page.items]
        if (after := page.next) is None:
            break
    assert found == [(f"r{number}", node) for number in (2, 1, 0) for node in ("first", "second")]


async def test_an_answer_between_two_pages_hides_no_other_question(store: Any) -> None:
    await asking_twice().run(run_id="r", store=store)
    inbox = Inbox(store)
    first = await inbox.page(limit=1)
    await inbox.answer(first.items[0].id, True)
    second = await inbox.page(limit=1, after=first.next)
    assert ([one.node for one in second.items], second.next) == (["second"], None)


# --- spending ---


async def test_a_run_that_ended_says_in_its_header_what_it_spent_and_one_that_goes_on_does_not(
    store: Any,
) -> None:
    @step
    async def pay(ctx: StepContext) -> bool:
        async with ctx.spend(Decimal("0.25"), model="search"):
            pass
        seen.append((await read_header(store, "r")).header.spent)
        return True

    seen: list[Any] = []
    await Pipeline("p", {"pay": pay}).run(run_id="r", store=store, tags=("eu",), tenant="acme")
    header = await header_of(store, "r")
    assert seen == [None]
    assert header.spent is not None
    assert header.spent == SpendingOnRecord(await read_log(store, header)).spent(tenant="acme", tags=("eu",))
    (part,) = header.spent.parts
    assert (part.step, part.tenant, part.tags, part.usage.committed_usd) == (
        "pay",
        "acme",
        ("eu",),
        Decimal("0.25"),
    )
    for key in keys_of(header):
        await store.delete(key)
    (row,) = await RunHistory(store).spending(by=("step", "tag"))
    assert (row.step, row.tag, row.usage.committed_usd) == ("pay", "eu", Decimal("0.25"))


async def test_a_run_of_many_steps_says_what_it_spent_without_them(store: Any) -> None:
    made = Log(SHAPE, run_id="r")
    for number in range(MOST_PARTS + 1):
        spent = replace(record("0.1", "search"), step_id=f"s{number}")
        made.start(f"s{number}").add(SpendingRecorded(place=f"s{number}@1", record=spent))
    made.end()
    summed = SpendingOnRecord(made.entries).spent(tenant=None, tags=())
    assert summed is not None
    assert (summed.has_steps, len(summed.parts)) == (False, 1)
    await made.write(store, spent=summed)
    history = RunHistory(store)
    (row,) = await history.spending(by=())
    assert row.usage.cost_usd == Decimal("5.1")
    by_step = await history.spending(by=("step",))
    assert {one.step: str(one.usage.cost_usd) for one in by_step} == {
        f"s{number}": "0.1" for number in range(MOST_PARTS + 1)
    }


async def test_a_period_that_cuts_a_run_in_two_is_read_from_its_log(store: Any) -> None:
    for number in range(3):
        made = log(f"r{number}", number).request("a@1", "0.25").end()
        await made.write(store, spent=SpendingOnRecord(made.entries).spent(tenant=None, tags=()))
    whole = await read_header(store, "r1")
    assert whole.header.spent is not None
    cut = whole.header.spent.until
    history = RunHistory(store)
    (before,) = await history.spending(until=cut, by=())
    (after,) = await history.spending(since=cut, by=())
    assert (before.usage.cost_usd, after.usage.cost_usd) == (Decimal("1.25"), Decimal("1.00"))


# --- deleting ---


async def test_a_purge_deletes_many_runs_at_once_and_none_that_was_written_meanwhile(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await log(f"r{number}", number).end().write(store)
    deletes = type(store).delete_runs

    async def beaten(self: Any, doomed: Any) -> Any:
        found = await read_header(store, "r3")
        await store.compare_and_set(header_key("r3"), encode_header(found.header), revision=found.revision)
        return await deletes(self, doomed)

    monkeypatch.setattr(type(store), "delete_runs", beaten)
    assert set(await RunHistory(store).purge(timedelta(0))) == {"r0", "r1", "r2", "r4"}
    assert await ids(store) == ["r3"]
    assert {key.split(":")[1] for key in await everything_in(store)} == {"r3"}


async def test_payloads_are_deleted_with_the_runs_of_a_store_within_another(
    store: Any, tmp_path: Path
) -> None:
    (tmp_path / "payloads").mkdir()
    outer = OffloadingRunStore(store, FilePayloadStore(tmp_path / "payloads"), above=10)
    assert indexes_runs(outer) is outer
    await log("r").end("failed", failure()).write(outer)
    assert await ids(outer, status="failed") == await ids(store, status="failed") == ["r"]
    assert await RunHistory(outer).purge(timedelta(0)) == ("r",)
    assert await everything_in(store) == {}
    assert [*(tmp_path / "payloads").rglob("*.*")] == []
    assert indexes_runs(OffloadingRunStore(MemoryRunStore(), FilePayloadStore(tmp_path / "payloads"))) is None

"""Stores of runs when something breaks: they say what to do, and write nothing by halves."""

import asyncio
import os
import sqlite3
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from psycopg.conninfo import make_conninfo
from support.patience import PATIENCE
from support.proxy import Proxy
from support.served_stores import served

from fastroai.errors import RevisionConflict, RunStoreUnavailable
from fastroai.store import PostgresRunStore, RedisRunStore, RunStore, SQLiteRunStore

KEY = "run/1"
LARGE = bytes(1_000_000)
NOBODY = 65_534


async def refused(store: RunStore, match: str) -> RunStoreUnavailable:
    """The error of each operation that writes."""
    with pytest.raises(RunStoreUnavailable):
        await store.append(KEY, [b"2", LARGE], revision=1)
    with pytest.raises(RunStoreUnavailable):
        await store.delete(KEY)
    with pytest.raises(RunStoreUnavailable, match=match) as caught:
        await store.compare_and_set(KEY, LARGE, revision=1)
    return caught.value


async def works_again(store: RunStore) -> None:
    stored = await store.read(KEY)
    assert (stored.values, stored.revision) == ((b"1",), 1)
    await store.append(KEY, [b"2", LARGE], revision=1)
    assert (await store.list(KEY))[0].value == LARGE
    await store.aclose()  # type: ignore[attr-defined]


# --- a file ---


@pytest.fixture
async def in_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SQLiteRunStore:
    """It gives up soon on a file that another holds, but not on a machine that is slow."""
    monkeypatch.setattr("fastroai.store.backends.connections._PATIENCE", 10 * PATIENCE)
    store = SQLiteRunStore(tmp_path / "runs.db", timeout=0.1)
    await store.append(KEY, [b"1"], revision=0)
    return store


async def test_a_full_disk_is_an_unavailable_store(in_file: SQLiteRunStore) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count = 8")

    await in_file.connections.run(fill)
    with pytest.raises(RunStoreUnavailable, match="disk is full; make room on its disk") as caught:
        await in_file.append(KEY, [b"2", LARGE], revision=1)
    assert caught.value.store.startswith("SQLite /")
    assert (await in_file.read(KEY)).values == (b"1",)
    await in_file.connections.run(fill)
    with pytest.raises(RunStoreUnavailable, match="resume the run"):
        await in_file.compare_and_set(KEY, LARGE, revision=1)
    await works_again(in_file)


async def test_a_file_that_another_process_holds_is_an_unavailable_store(in_file: SQLiteRunStore) -> None:
    other = sqlite3.connect(in_file._driver.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    error = await refused(in_file, "database is locked")
    assert (await in_file.read(KEY)).values == (b"1",)
    other.close()
    assert "see which other process" in error.advice
    await works_again(in_file)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of somebody who is not root, as we are while we have it: root may write anywhere."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        if is_root:
            os.chown(name, NOBODY, -1)
            os.seteuid(NOBODY)
        yield Path(name)
        Path(name).chmod(0o755)
        if is_root:
            os.seteuid(0)


def allow(path: Path, mode: int) -> None:
    for each in (path, *path.parent.glob(f"{path.name}-*")):
        each.chmod(mode)


async def test_a_file_that_may_not_be_written_is_an_unavailable_store(folder: Path) -> None:
    path = folder / "runs.db"
    store = SQLiteRunStore(path)
    await store.append(KEY, [b"1"], revision=0)
    await store.aclose()
    allow(path, 0o444)
    error = await refused(store, "attempt to write a readonly database")
    assert error.advice == "let this user write to the file, those beside it (-wal, -shm) and the folder"
    assert (await store.read(KEY)).values == (b"1",)
    await store.aclose()
    allow(path, 0o644)
    await works_again(store)


async def test_a_folder_that_may_not_be_written_is_an_unavailable_store(folder: Path) -> None:
    allow(folder, 0o555)
    store = SQLiteRunStore(folder / "runs.db")
    error = await refused(store, "unable to open database file")
    assert error.advice == "make its folder, and let this user write there"
    allow(folder, 0o755)
    await store.append(KEY, [b"1"], revision=0)
    await works_again(store)


async def test_a_file_that_is_no_database_is_an_unavailable_store_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"these are my notes" * 100)
    store = SQLiteRunStore(path)
    error = await refused(store, "file is not a database; give the path of another file")
    assert isinstance(error.__cause__, sqlite3.DatabaseError)
    assert path.read_bytes() == b"these are my notes" * 100


async def refuses_all(store: SQLiteRunStore, match: str) -> None:
    error = await refused(store, match)
    assert error.store == f"SQLite {store._driver.path}"
    assert error.advice.startswith("put back the one that was there, or close the store")
    with pytest.raises(RunStoreUnavailable, match=match):
        await store.read(KEY)
    with pytest.raises(RunStoreUnavailable, match=match):
        await store.list(KEY)


async def test_a_file_that_is_gone_while_it_is_open_is_an_unavailable_store(in_file: SQLiteRunStore) -> None:
    path = Path(in_file._driver.path)
    away = path.with_name("away.db")
    os.rename(path, away)
    await refuses_all(in_file, "its file was removed after it was opened")
    assert path.name not in os.listdir(path.parent), "no other is made in its place"
    os.rename(away, path)
    await works_again(in_file)


@pytest.mark.parametrize(
    ("replaced", "says"), [(False, r"\(-wal\) was removed after"), (True, "another write-ahead log")]
)
async def test_a_log_that_is_deleted_while_it_is_open_is_told_once_and_then_nothing_is_lost(
    in_file: SQLiteRunStore, replaced: bool, says: str
) -> None:
    os.remove(log := f"{in_file._driver.path}-wal")
    if replaced:
        open(log, "x").close()  # noqa: ASYNC230  # nothing else runs
    with pytest.raises(RunStoreUnavailable, match=says):
        await in_file.append(KEY, [b"2"], revision=1)
    await works_again(in_file)


async def test_a_value_that_somebody_has_made_a_number_is_a_damaged_one(in_file: SQLiteRunStore) -> None:
    with sqlite3.connect(in_file._driver.path) as other:
        other.execute("UPDATE run_value SET value = 5")
    other.close()
    assert (await in_file.read(KEY)).values == (b"5",)
    assert [found.value for found in await in_file.list(KEY)] == [b"5"]


async def test_a_file_that_is_replaced_while_it_is_open_is_an_unavailable_store(
    in_file: SQLiteRunStore,
) -> None:
    path = Path(in_file._driver.path)
    for each in path.parent.glob("runs.db*"):
        each.unlink()
    other = SQLiteRunStore(path)
    await other.append(KEY, [b"other"], revision=0)
    await refuses_all(in_file, "another file has replaced its file")
    assert (await other.read(KEY)).values == (b"other",)
    await in_file.aclose()
    assert (await in_file.read(KEY)).values == (b"other",), "once it was closed, it opens what is there"
    await in_file.aclose()
    await other.aclose()


async def test_what_is_read_while_another_process_writes_is_from_one_moment(tmp_path: Path) -> None:
    store, other = (SQLiteRunStore(tmp_path / "runs.db") for _ in range(2))
    await store.append(KEY, [b"1"], revision=0)

    def overtaken(statement: str) -> None:
        if statement.startswith("SELECT CAST(value"):
            connection.set_trace_callback(None)
            asyncio.run(other.append(KEY, [b"2"], revision=1))

    connection = await store.connections.run(lambda connection: connection)
    connection.set_trace_callback(overtaken)
    stored = await store.read(KEY)
    assert (stored.values, stored.revision) == ((b"1",), 1)
    assert (await store.read(KEY)).revision == 2
    for each in (store, other):
        await each.aclose()


@pytest.mark.parametrize(("fsync", "level"), [(False, 1), (True, 2)])
async def test_fsync_waits_for_the_disk_at_every_write(tmp_path: Path, fsync: bool, level: int) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db", fsync=fsync)

    def pragmas(connection: sqlite3.Connection) -> list[Any]:
        names = ("journal_mode", "synchronous", "fullfsync")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert await store.connections.run(pragmas) == ["wal", level, int(fsync)]
    await store.aclose()


# --- a server ---


@dataclass(frozen=True)
class Through:
    """A store whose connections go through a proxy."""

    store: Any
    direct: Any
    proxy: Proxy


@pytest.fixture(params=["redis", "postgres"], name="served")
async def through_a_proxy(request: pytest.FixtureRequest) -> AsyncIterator[Through]:
    with served(request.param, request) as place:
        store = place.open_store()
        yield Through(store, place.direct, place.proxy)
        await store.aclose()


async def test_a_write_that_is_cut_in_the_middle_leaves_nothing(served: Through) -> None:
    await served.direct.append(KEY, [b"1"], revision=0)
    await served.store.read(KEY)
    served.proxy.bytes_up = len(LARGE) // 2
    error = await refused(served.store, "is unavailable")
    assert error.advice == "see that the server runs and can be reached from here"
    assert (await served.direct.read(KEY)).values == (b"1",)
    served.proxy.bytes_up = None
    await works_again(served.store)


async def test_a_server_that_is_down_for_a_while_is_an_unavailable_store(served: Through) -> None:
    await served.store.append(KEY, [b"1"], revision=0)
    served.proxy.down = True
    served.proxy.cut()
    await refused(served.store, "is unavailable")
    served.proxy.down = False
    await works_again(served.store)


async def test_a_connection_that_was_lost_while_it_was_idle_is_not_noticed(served: Through) -> None:
    await served.store.append(KEY, [b"1"], revision=0)
    served.proxy.cut()
    await works_again(served.store)


async def test_a_write_whose_answer_is_lost_has_happened_once(served: Through) -> None:
    await served.direct.append(KEY, [b"1"], revision=0)
    await served.store.read(KEY)
    served.proxy.cut_answers = 2
    with pytest.raises((RevisionConflict, RunStoreUnavailable)):
        await served.store.append(KEY, [b"2"], revision=1)
    assert (await served.direct.read(KEY)).values == (b"1", b"2")

    served.proxy.cut_answers = 0
    await served.store.read(KEY)
    served.proxy.cut_answers = 1
    with pytest.raises(RevisionConflict) as caught:
        await served.store.append(KEY, [b"3"], revision=2)
    assert caught.value.actual == 3
    assert (await served.direct.read(KEY)).values == (b"1", b"2", b"3")


async def test_keys_whose_values_redis_has_lost_are_known_until_they_are_deleted(redis_url: str) -> None:
    store, prefix = RedisRunStore(redis_url, prefix=f"test-{uuid.uuid4().hex}"), "run:"
    names = [f"{prefix}{number}" for number in range(8)]
    for name in names:
        await store.append(name, [b"1"], revision=0)
    client = redis.Redis.from_url(redis_url)
    lost = names[1:5]
    client.delete(*(key for key in client.keys(f"*{store.prefix}*") if key.decode().endswith(tuple(lost))))
    client.close()
    found = await store.list(prefix)
    assert [each.key for each in found] == names
    assert [each.key for each in found if not each.value] == lost
    assert [each.key for each in await store.list(prefix, after=names[0], limit=2)] == lost[:2]
    emptied = await store.read(lost[0])
    assert (emptied.values, emptied.revision) == ((), 1)
    with pytest.raises(RevisionConflict):
        await store.append(lost[0], [b"2"], revision=0)
    await store.append(lost[0], [b"2"], revision=1)
    again = await store.read(lost[0], after=1)
    assert (again.values, again.revision) == ((b"2",), 2)
    await store.compare_and_set(lost[1], b"2", revision=1)
    assert (await store.read(lost[1])).values == (b"2",)
    await store.delete(lost[2])
    await store.append(lost[2], [b"2"], revision=0)
    assert [each.key for each in await store.list(prefix) if not each.value] == lost[3:]
    await store.aclose()


async def test_a_redis_that_has_no_memory_left_writes_nothing_and_says_so(redis_url: str) -> None:
    store = RedisRunStore(redis_url, prefix=f"test-{uuid.uuid4().hex}")
    await store.append(KEY, [b"1"], revision=0)
    client = redis.Redis.from_url(redis_url)
    before = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(
            RunStoreUnavailable, match="OutOfMemoryError: .*; the server answers, and says what it needs"
        ):
            await store.compare_and_set(KEY, b"2", revision=1)
        with pytest.raises(RunStoreUnavailable, match="OutOfMemoryError"):
            await store.append(KEY, [b"2"], revision=1)
        with pytest.raises(RunStoreUnavailable, match="OutOfMemoryError"):
            await store.append("new", [b"2"], revision=0)
    finally:
        client.config_set("maxmemory", before)
        client.close()
    assert [each.key for each in await store.list("")] == [KEY]
    await works_again(store)


async def test_a_redis_that_was_restarted_is_told_the_script_again(redis_url: str) -> None:
    store = RedisRunStore(redis_url, prefix=f"test-{uuid.uuid4().hex}")
    await store.append(KEY, [b"1"], revision=0)
    with redis.Redis.from_url(redis_url) as client:
        client.script_flush()
    await works_again(store)


async def test_the_schema_is_made_once_where_many_begin_at_once(postgres_dsn: str) -> None:
    schema = f"test_{uuid.uuid4().hex}"
    stores = [PostgresRunStore(postgres_dsn, schema=schema) for _ in range(6)]
    await asyncio.gather(*(store.append(f"{n}", [b"1"], revision=0) for n, store in enumerate(stores)))
    assert len(await stores[0].list("")) == 6
    for store in stores:
        await store.aclose()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


async def test_a_client_that_is_cut_off_while_it_makes_the_tables_does_not_keep_others_from_it(
    request: pytest.FixtureRequest,
) -> None:
    with served("postgres", request) as place:
        await place.open_store().read(KEY)
        exchanges = place.proxy.exchanges
    for number in range(1, exchanges + 1):
        with served("postgres", request, timeout=0.2) as place:
            place.proxy.breaks = "silent", range(number, number + 1)
            with pytest.raises(RunStoreUnavailable):
                await place.open_store().read(KEY)
            await works_from_the_beginning(place.direct)


async def works_from_the_beginning(store: RunStore) -> None:
    await store.append(KEY, [b"1"], revision=0)
    assert (await store.read(KEY)).values == (b"1",)


async def test_a_database_in_another_encoding_takes_every_key(postgres_dsn: str) -> None:
    name = f"latin_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0".encode())
        store = PostgresRunStore(make_conninfo(postgres_dsn, dbname=name))
        await store.append("\U0001f600", [b"1"], revision=0)
        assert (await store.list("\U0001f600"))[0].key == "\U0001f600"
        await store.aclose()
        connection.execute(f"DROP DATABASE {name}".encode())

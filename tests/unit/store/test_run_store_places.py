"""How a store of runs is named, adapted and opened; what none of them takes."""

import asyncio
import gc
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE
from support.run_stores import KINDS, AsyncStore, OpenStore, PlainStore, run_stores

from fastroai.errors import ConfigurationError, MissingExtraError
from fastroai.pipelines import PipelineConfig
from fastroai.store import (
    FsspecPayloadStore,
    MemoryRunStore,
    PostgresRunStore,
    RedisRunStore,
    RedisSpendStore,
    RunStore,
    SQLiteRunStore,
    adapt_run_store,
    open_run_store,
)

SECRET = "s3cret-word"


# --- what no store takes ---


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with run_stores(request.param, request, tmp_path) as open_store:
        yield open_store


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "1 to 512 characters"),
        ("k" * 513, "at most 512 characters, not 513"),
        ("a\0b", "text without NUL"),
        ("\ud800", "valid Unicode text"),
    ],
)
async def test_what_cannot_be_a_key_is_refused(open_store: OpenStore, key: str, why: str) -> None:
    store = open_store()
    for operation in (
        store.append(key, [b"1"], revision=0),
        store.read(key),
        store.compare_and_set(key, b"1", revision=0),
        store.delete(key),
    ):
        with pytest.raises(ConfigurationError, match=f"key=.*expected {why}"):
            await operation
    if key:
        for option in ("prefix", "after"):
            with pytest.raises(ConfigurationError, match=f"{option}=.*expected {why}"):
                await store.list(**{"prefix": "", option: key})


async def test_what_is_no_position_limit_or_value_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    last = 2**32 - 1
    for revision in (-1, last + 1, "5", None, True, 1.0):
        with pytest.raises(
            ConfigurationError, match=f"revision=.*expected a position, an int from 0 to {last}"
        ):
            await store.append("k", [], revision=revision)
        with pytest.raises(ConfigurationError, match="revision="):
            await store.compare_and_set("k", b"1", revision=revision)
        with pytest.raises(ConfigurationError, match="after="):
            await store.read("k", after=revision)
    with pytest.raises(ConfigurationError, match=f"revision={last + 2}"):
        await store.append("k", [b"1", b"2"], revision=last)
    with pytest.raises(ConfigurationError, match="limit=0: expected at least 1"):
        await store.list("", limit=0)
    for value in ("text", bytearray(b"1"), None):
        with pytest.raises(ConfigurationError, match="value=.*expected bytes"):
            await store.append("k", [b"1", value], revision=0)
        with pytest.raises(ConfigurationError, match="value=.*expected bytes"):
            await store.compare_and_set("k", value, revision=0)
    assert (await store.read("k", after=last)).revision == 0
    if not isinstance(store, MemoryRunStore):
        await store.aclose()


# --- places ---


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("sqlite:///data/runs.db", "SQLiteRunStore('/data/runs.db')"),
        ("/data/runs.db", "SQLiteRunStore('/data/runs.db')"),
        (f"redis://:{SECRET}@h:6380/2", "<RedisRunStore 'Redis h:6380/2' prefix='fastroai'>"),
        (f"rediss://u:{SECRET}@h", "<RedisRunStore 'Redis h:6379/0' prefix='fastroai'>"),
        (f"postgresql://u:{SECRET}@h:1/db", "<PostgresRunStore 'PostgreSQL h:1/db' schema='fastroai'>"),
        (f"postgres://u:{SECRET}@h/db", "<PostgresRunStore 'PostgreSQL h:5432/db' schema='fastroai'>"),
    ],
)
def test_a_place_opens_the_store_that_it_names(place: str, shown: str) -> None:
    store = open_run_store(place)
    assert repr(store) == shown
    assert isinstance(store, RunStore)
    assert store == open_run_store(place)


def test_a_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert repr(open_run_store("runs.db")) == f"SQLiteRunStore({str(tmp_path / 'runs.db')!r})"


@pytest.mark.parametrize("name", ["redis", "a:b"])
def test_a_path_may_be_a_path_object_and_look_a_little_like_a_url(tmp_path: Path, name: str) -> None:
    assert repr(open_run_store(tmp_path / name)) == f"SQLiteRunStore({str(tmp_path / name)!r})"
    assert isinstance(open_run_store(name), SQLiteRunStore)


@pytest.mark.parametrize(
    "place",
    [
        f"mysql://u:{SECRET}@h/db",
        f"jdbc:postgresql://u:{SECRET}@h/db",
        "sqlite://runs.db",
        "http://h",
        "sqlite://",
        f"rediss:/u:{SECRET}@h",
        f"redis:u:{SECRET}@h",
        f"postgres:/u:{SECRET}@h/db",
        "sqlite:/runs.db",
        None,
        3,
        b"runs.db",
    ],
)
def test_another_place_is_refused_without_telling_passwords(place: Any) -> None:
    with pytest.raises(ConfigurationError, match="store=.*expected a path, or sqlite:///path") as caught:
        open_run_store(place)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", [RedisRunStore, RedisSpendStore])
def test_an_option_that_redis_does_not_know_is_named_when_the_store_is_made(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="options that redis-py knows; .* 'nosuch'") as caught:
        kind(f"redis://u:{SECRET}@localhost/0?nosuch=1")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("place", ["", ":memory:"])
def test_what_is_no_file_is_refused(place: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"in memory, there is MemoryRunStore\(\), and MemorySpendStore\(\)"
    ):
        open_run_store(place)


@pytest.mark.parametrize(
    ("store", "client", "extra"),
    [
        (RedisRunStore, "redis", "redis"),
        (PostgresRunStore, "psycopg", "postgres"),
        (FsspecPayloadStore, "fsspec", "fsspec"),
    ],
)
def test_without_the_client_the_extra_is_named(
    store: Any, client: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, client, None)
    with pytest.raises(MissingExtraError, match=rf"{store.__name__} needs {client}: .*\[{extra}\]"):
        store("memory://x")


async def test_replies_are_bytes_whatever_the_url_says(redis_url: str) -> None:
    store = RedisRunStore(f"{redis_url}?decode_responses=true", prefix="test-decoding")
    await store.append("k", [b"\xff"], revision=0)
    assert (await store.read("k")).values == (b"\xff",)
    await store.delete("k")
    await store.aclose()


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_stores_under_different_names_know_nothing_of_each_other(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with run_stores(kind, request, tmp_path) as one, run_stores(kind, request, tmp_path) as other:
        stores = one(), other()
        await stores[0].append("k", [b"1"], revision=0)
        assert (await stores[1].read("k")).revision == 0
        assert await stores[1].list("") == []
        for store in stores:
            await store.aclose()


async def test_a_store_is_used_again_after_it_was_closed(tmp_path: Path) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db")
    await store.append("k", [b"1"], revision=0)
    await store.aclose()
    assert (await store.read("k")).revision == 1
    await store.aclose()


# --- users' stores ---


def test_a_store_with_async_methods_is_taken_as_it_is() -> None:
    store = AsyncStore({})
    assert adapt_run_store(store) is store
    memory = MemoryRunStore()
    assert adapt_run_store(memory) is memory


async def test_plain_methods_are_called_one_at_a_time_in_one_thread(tmp_path: Path) -> None:
    store = PlainStore(tmp_path / "plain.db")
    seen: list[str] = []
    read = store.read

    def noted(key: str, *, after: int = 0) -> Any:
        seen.append(threading.current_thread().name)
        return read(key, after=after)

    store.read = noted  # type: ignore[method-assign]
    adapted = adapt_run_store(store)
    await asyncio.gather(*(adapted.read("k") for _ in range(5)))
    assert seen == ["fastroai-store"] * 5
    assert repr(adapted) == repr(store)
    assert adapted == adapt_run_store(store)
    assert hash(adapted) == hash(adapt_run_store(store))
    assert adapted != adapt_run_store(PlainStore(tmp_path / "plain.db"))
    assert adapted != store


async def test_methods_may_be_of_both_kinds() -> None:
    class Mixed(AsyncStore):
        def delete(self, key: str) -> Any:  # type: ignore[override]
            return super().delete(key)

        def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Any:  # type: ignore[override]
            return [threading.current_thread() is threading.main_thread()]

    store = adapt_run_store(Mixed({}))
    await store.append("k", [b"1"], revision=0)
    await store.delete("k")
    assert (await store.read("k")).revision == 0
    assert await store.list("") == [False]


async def test_an_error_of_a_users_store_stays_what_it_is() -> None:
    class Failing(PlainStore):
        def delete(self, key: str) -> None:
            raise ZeroDivisionError(key)

    with pytest.raises(ZeroDivisionError, match="k"):
        await adapt_run_store(Failing(Path("unused"))).delete("k")


async def test_who_cancels_a_call_does_not_wait_for_it() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), []

    class Slow(PlainStore):
        def delete(self, key: str) -> None:
            begun.set()
            assert go_on.wait(PATIENCE)
            done.append(key)

    store = adapt_run_store(Slow(Path("unused")))
    task = asyncio.create_task(store.delete("first"))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await store.delete("second")
    assert done == ["first", "second"]


def test_what_is_no_store_is_refused_with_what_it_lacks() -> None:
    class Half:
        append = read = PlainStore.append
        list = "no method"

    with pytest.raises(ConfigurationError, match="lacks compare_and_set, list, delete"):
        adapt_run_store(Half())
    with pytest.raises(ConfigurationError, match="not a class"):
        adapt_run_store(PlainStore)


# --- processes ---


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres", "plain"])
def test_a_forked_process_goes_on_with_the_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "plain":
        forked(lambda: adapt_run_store(PlainStore(tmp_path / "plain.db")))
        return
    with run_stores(kind, request, tmp_path) as open_store:
        forked(open_store)


def forked(open_store: OpenStore) -> None:
    store = open_store()
    asyncio.run(store.append("k", [b"parent"], revision=0))
    child = os.fork()
    if not child:  # pragma: no cover
        try:
            asyncio.run(asyncio.wait_for(store.append("k", [b"child"], revision=1), PATIENCE))
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    asyncio.run(store.append("k", [b"parent"], revision=2))
    assert asyncio.run(store.read("k")).values == (b"parent", b"child", b"parent")
    if hasattr(store, "aclose"):
        asyncio.run(store.aclose())


async def test_all_who_name_a_place_share_a_store_until_nobody_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = PipelineConfig(store="runs.db")
    store = adapt_run_store(tmp_path / "runs.db")
    assert config.store is store is adapt_run_store(f"sqlite://{tmp_path / 'runs.db'}")
    await store.append("key", [b"one"], revision=0)
    opened = weakref.ref(store)
    del config, store
    gc.collect()
    assert opened() is None
    assert (await adapt_run_store("runs.db").read("key")).values == (b"one",)
    monkeypatch.chdir(tmp_path.parent)
    assert repr(adapt_run_store("runs.db")) == f"SQLiteRunStore({str(tmp_path.parent / 'runs.db')!r})"


@pytest.mark.parametrize("place", ["ftp://host/runs", "redis:host", "", ":memory:"])
def test_a_text_that_is_no_place_is_refused_where_the_store_is_named(place: str) -> None:
    with pytest.raises(ConfigurationError):
        PipelineConfig(store=place)

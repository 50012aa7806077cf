"""Every option of every store is refused by name if its value cannot be meant."""

from __future__ import annotations

import asyncio
import inspect
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE

from fastroai import store as stores
from fastroai.errors import ConfigurationError, RunStoreUnavailable
from fastroai.store import (
    FilePayloadStore,
    MemoryRunStore,
    OffloadingRunStore,
    PostgresRunStore,
    RedisRunStore,
    SQLiteRunStore,
)
from fastroai.store.run_store import LARGEST_VALUE, largest_value

URL = "redis://localhost"
DSN = "postgresql://user@localhost/database"
GIVEN: dict[str, tuple[Any, ...]] = {
    "MemoryRunStore": (),
    "MemorySpendStore": (),
    "SQLiteRunStore": ("runs.db",),
    "SQLiteSpendStore": ("spend.db",),
    "RedisRunStore": (URL,),
    "RedisSpendStore": (URL,),
    "PostgresRunStore": (DSN,),
    "PostgresSpendStore": (DSN,),
    "OffloadingRunStore": (MemoryRunStore(), FilePayloadStore("payloads")),
    "FilePayloadStore": ("payloads",),
    "FsspecPayloadStore": ("memory://payloads",),
    "RunHistory": (MemoryRunStore(),),
    "EncryptingCodec": ({"key": b"0" * 32},),
}
"""The positional arguments of each store, and of what is made of a store."""
WRONG: tuple[Any, ...] = (None, 5, "no", 2.5, object(), -1, True, b"no")
VALID: dict[str, tuple[type, ...]] = {
    "path": (str,),
    "folder": (str,),
    "url of FsspecPayloadStore": (str,),
    "prefix": (str,),
    "schema": (str,),
    "store": (str,),
    "fsync": (bool,),
    "timeout": (int, float),
    "above": (int,),
    "largest_value": (type(None),),
    "codec": (type(None),),
}
"""Types of those values that are valid after all, by option."""


def cases() -> list[Any]:
    return [
        pytest.param(name, one.name, id=f"{one.name} of {name}")
        for name in GIVEN
        for one in inspect.signature(getattr(stores, name)).parameters.values()
        if one.kind is not one.VAR_KEYWORD
    ]


@pytest.mark.parametrize(("name", "option"), cases())
def test_an_option_that_cannot_be_meant_is_refused_by_name(
    name: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = getattr(stores, name)
    given = inspect.signature(made).bind(*GIVEN[name]).arguments
    valid = VALID.get(f"{option} of {name}") or VALID.get(option, ())
    refused = 0
    for wrong in WRONG:
        if type(wrong) in valid and wrong != -1:
            continue
        with pytest.raises(ConfigurationError) as caught:
            made(**{**given, option: wrong})
        assert caught.value.option == option, wrong
        refused += 1
    assert refused >= 4


def test_every_store_is_in_the_table() -> None:
    protocols = {"PayloadStore", "RunStore"}
    assert {name for name in stores.__all__ if name.endswith("Store")} - protocols <= GIVEN.keys()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["SQLiteRunStore", "RedisRunStore", "PostgresRunStore"])
def test_a_timeout_is_above_zero_and_finite(name: str, timeout: float) -> None:
    with pytest.raises(ConfigurationError, match="timeout=.*seconds, above 0"):
        getattr(stores, name)(*GIVEN[name], timeout=timeout)


# --- what the options do ---


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_server_that_never_answers_is_waited_for_as_long_as_the_timeout_says(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        store: Any = RedisRunStore(f"redis://{place}", timeout=0.05)
        if kind == "postgres":
            store = PostgresRunStore(f"postgresql://{place}/db", timeout=0.05)

        async def read() -> None:
            with pytest.raises(RunStoreUnavailable):
                await store.read("key")
            await store.aclose()

        asyncio.run(asyncio.wait_for(read(), PATIENCE))


async def test_values_above_the_limit_are_moved(tmp_path: Path) -> None:
    inner = MemoryRunStore()
    store = OffloadingRunStore(inner, FilePayloadStore(tmp_path / "payloads"), above=100)
    await store.append("key", [b"x" * 100, b"x" * 101], revision=0)
    kept, moved = (await inner.read("key")).values
    assert kept == b"x" * 100
    assert len(moved) < 101
    assert (await store.read("key")).values == (b"x" * 100, b"x" * 101)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_time_of_a_store_is_that_of_its_clock(kind: str, tmp_path: Path) -> None:
    then = datetime(2020, 1, 1, tzinfo=UTC)
    store: Any = MemoryRunStore(clock=lambda: then)
    if kind == "sqlite":
        store = SQLiteRunStore(tmp_path / "runs.db", clock=lambda: then)
    assert (await store.read("key")).now == then
    await store.aclose()


@pytest.mark.parametrize("name", ["MemoryRunStore", "SQLiteRunStore", "RedisRunStore", "PostgresRunStore"])
def test_the_largest_value_of_a_store_is_the_one_that_it_is_given(name: str) -> None:
    """`test_what_is_too_large.py` shows what becomes of larger values."""
    made = getattr(stores, name)
    assert largest_value(made(*GIVEN[name])) == LARGEST_VALUE
    assert largest_value(made(*GIVEN[name], largest_value=200_000)) == 200_000
    assert largest_value(made(*GIVEN[name], largest_value=None)) is None

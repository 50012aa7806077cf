"""Every option of every store is refused by name if its value cannot be meant."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from fastroai import store as stores
from fastroai.errors import ConfigurationError
from fastroai.store import FilePayloadStore, MemoryRunStore

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

"""Addresses with passwords: no text shows a password, however the address is understood."""

import logging
import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from fastroai.errors import ConfigurationError, FastroAIError
from fastroai.store import (
    FilePayloadStore,
    FsspecPayloadStore,
    MemoryRunStore,
    OffloadingRunStore,
    PostgresRunStore,
    PostgresSpendStore,
    RedisRunStore,
    RedisSpendStore,
    SQLiteRunStore,
    open_run_store,
    open_spend_store,
)
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.backends.address import Address
from fastroai.store.opening import open_payload_store
from fastroai.usage import SpendBook, SpendLimit

SECRET = "s3cr3tCANARY"

CLEAR = {
    f"redis://:{SECRET}@h:6380/2": "redis://h:6380/2",
    f"rediss://u:{SECRET}@h": "rediss://h",
    f"redis://h/0?password={SECRET}": "redis://h/0",
    f"unix://:{SECRET}@/tmp/redis.sock?db=1": "unix:///tmp/redis.sock",
    f"postgresql://u:{SECRET}@h1:1,h2:2/db": "postgresql://h1:1,h2:2/db",
    f"postgresql://u@[::1]:1/db?sslpassword={SECRET}": "postgresql://[::1]:1/db",
    f"https://{SECRET}@h/x": "https://h/x",
    f"s3://key:{SECRET}@bucket/runs": "s3://bucket/runs",
}
AMBIGUOUS = {
    f"postgresql://me:a@{SECRET}@127.0.0.1:1/db": "postgresql://***",
    f"postgresql://me:a/{SECRET}@127.0.0.1:1/db": "postgresql://***",
    f"postgresql://me:a?{SECRET}@127.0.0.1:1/db": "postgresql://***",
    f"postgresql://me:a#{SECRET}@127.0.0.1:1/db": "postgresql://***",
    f"postgresql://me:{SECRET}@h:notaport/db": "postgresql://***",
    f"postgresql://me:{SECRET}": "postgresql://***",
    f"redis://h?password=a@{SECRET}": "redis://***",
    f"zip://x::ftp://u:{SECRET}@h/x": "zip://***",
    f"me:{SECRET}@h/db": "***",
    f"host=h password='{SECRET} host=h2": "***",
    f"host=h password={SECRET}": "***",
    SECRET: "***",
}


@pytest.mark.parametrize(("given", "shown"), [*CLEAR.items(), *AMBIGUOUS.items()])
def test_what_is_shown_of_an_address_has_no_secret_and_what_is_ambiguous_is_not_shown(
    given: str, shown: str
) -> None:
    address = Address(given)
    assert address.shown == shown
    assert SECRET not in repr(address)
    for text in (given, f"could not translate host name {SECRET!r}", f"x{SECRET}@127.0.0.1x", SECRET):
        assert SECRET not in address.hide(text)


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        ("postgresql://me:p%40ss%2Fword@h/db", "p@ss/word"),
        ("redis://h?password=p%40ss+word", "p@ss word"),
        (r"host=h password='it\'s so'", "it's so"),
        (r"host=h password=it\'s", "it's"),
        ("postgresql://me:geheim\u00e4\u202e@h/db", repr("geheim\u00e4\u202e")[1:-1]),
    ],
)
def test_a_secret_is_hidden_as_a_driver_reads_it(given: str, quoted: str) -> None:
    assert Address(given).hide(f"no user with {quoted}") == "no user with ***"


def test_only_what_may_be_secret_is_hidden_and_words_stay_whole() -> None:
    address = Address("postgresql://me:a@h:5432/db?sslmode=require&connect_timeout=5")
    text = 'connection to "h", port 5432 failed for user "me": a timeout after 5 s, a bad end'
    assert address.hide(text) == text.replace(" a ", " *** ")
    assert Address("host=h dbname=db user=me").hide("me and db on h") == "me and db on h"
    assert not Address("postgresql://h/db").is_told_by(OSError("h is away"))


def test_an_error_is_told_apart_that_quotes_a_secret_somewhere_in_its_chain() -> None:
    error = OSError("no connection")
    error.__cause__ = ValueError(f"{SECRET}@h is no host")
    assert Address(f"redis://:{SECRET}@h").is_told_by(error)
    assert not Address("redis://h").is_told_by(error)


# --- stores ---


def all_of(error: BaseException) -> str:
    """Everything that an error shows: also those before it, without the lines of the code."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    chain, link = [], error
    while link is not None:
        chain.append(f"{link} {link!r} {vars(link)}")
        link = link.__cause__ or link.__context__
    return "\n".join([*chain, *(line for line in lines if not line.startswith("    "))])


async def use(store: Any) -> None:
    if isinstance(store, RedisSpendStore | PostgresSpendStore):
        await SpendBook(store).list()
    else:
        await store.read("k")


@pytest.mark.parametrize(
    "make",
    [RedisRunStore, RedisSpendStore, PostgresRunStore, PostgresSpendStore, open_run_store, open_spend_store],
)
@pytest.mark.parametrize(
    "address",
    [
        "redis://:{}@127.0.0.1:1/0",
        "redis://127.0.0.1:1/0?password={}",
        "redis://:{}@127.0.0.1:notaport/0",
        "redis://:a/{}@127.0.0.1:1/0",
        "redis://:{}@127.0.0.1/0?nosuch=1",
        "postgresql://me:{}@127.0.0.1:1/db",
        "postgresql://me:a@{}@127.0.0.1:1/db",
        "postgresql://me:a@{}/x@127.0.0.1:1/db",
        "postgresql://me:{}%zz@127.0.0.1:1/db",
        "postgresql://me:{}@h:notaport/db",
        "host=127.0.0.1 port=1 user=x password={}",
        "host=127.0.0.1 port=1 user=x password='{}",
        "me:{}@127.0.0.1/db",
        "password={}://x",
    ],
)
async def test_no_password_is_in_what_a_store_shows_or_raises(
    make: Any, address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = address.format(SECRET)
    with caplog.at_level(logging.DEBUG), pytest.raises(FastroAIError) as info:
        store = make(given, timeout=0.2) if isinstance(make, type) else make(given)
        assert SECRET not in f"{store!r} {store}"
        await use(store)
    assert SECRET not in all_of(info.value)
    assert SECRET not in caplog.text
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "place", [f"host=h password={SECRET}", f"PASSWORD = {SECRET}", f"me:{SECRET}@h/db", f"redis:{SECRET}@h"]
)
def test_a_place_that_looks_like_an_address_is_not_made_a_file(place: str, tmp_path: Path) -> None:
    for make in (open_run_store, open_spend_store):
        with pytest.raises(
            ConfigurationError, match=r"a path, or sqlite:///path, redis://.*PostgresRunStore"
        ) as info:
            make(place)
        assert SECRET not in str(info.value)
    with pytest.raises(ConfigurationError, match="the path of a folder, or a URL that fsspec takes") as info:
        open_payload_store(place)
    assert SECRET not in str(info.value)
    assert isinstance(open_run_store(tmp_path / place.replace("/", "-")), SQLiteRunStore)
    assert isinstance(open_run_store(r"C:\Users\me@corp\runs.db"), SQLiteRunStore)


def test_a_url_in_place_of_a_store_is_not_shown() -> None:
    url = f"postgresql://me:{SECRET}@h/db"
    assert SECRET not in repr(adapt_run_store(url))
    assert SECRET not in repr(SpendLimit(usd=1, store=url))
    with pytest.raises(ConfigurationError) as info:
        SpendLimit(usd=1, store=f"mysql://me:{SECRET}@h/db")
    assert SECRET not in str(info.value)


def test_stores_whose_addresses_are_not_shown_are_told_apart() -> None:
    one, other = (PostgresRunStore(f"postgresql://me:a@{host}@h/db") for host in ("x", "y"))
    assert repr(one) == repr(other)
    assert one != other
    assert one == PostgresRunStore("postgresql://me:a@x@h/db")
    assert PostgresRunStore("postgresql://me:a@h/db") == PostgresRunStore("postgresql://me:b@h/db")
    payloads = FilePayloadStore("p")
    first, second = (OffloadingRunStore(store, payloads) for store in (one, other))
    assert first != second
    assert OffloadingRunStore(MemoryRunStore(), payloads) != OffloadingRunStore(MemoryRunStore(), payloads)


async def test_no_password_is_in_what_a_payload_store_shows_or_raises() -> None:
    for url in (
        f"http://u:{SECRET}@127.0.0.1:1/x",
        f"ftp://u:{SECRET}@127.0.0.1:1/x",
        f"nosuch://u:{SECRET}@h/x",
    ):
        with pytest.raises(FastroAIError) as info:
            store = FsspecPayloadStore(url)
            assert repr(store) == "FsspecPayloadStore('http://127.0.0.1:1/x')"
            await store.get("a", "b")
        assert SECRET not in all_of(info.value)
    with pytest.raises(ConfigurationError) as info:
        FsspecPayloadStore("ftp://127.0.0.1:1/x", username="u", password=SECRET, nosuch=SECRET)
    assert SECRET not in all_of(info.value)

"""Open a store by its path or URL, as on a command line."""

from __future__ import annotations

import os
import re
import threading
from typing import Final, Literal
from weakref import WeakValueDictionary

from fastroai.errors import ConfigurationError
from fastroai.store.backends.address import Address
from fastroai.store.backends.payload_stores import FilePayloadStore, FsspecPayloadStore, PayloadStore
from fastroai.store.run_store import RunStore

_SCHEMES: Final = ("sqlite", "redis", "rediss", "postgresql", "postgres")
_FORMS: Final = (
    "a path, or sqlite:///path, redis://, rediss://, postgresql:// or postgres://. For a connection string "
    "of libpq, there is PostgresRunStore(dsn); for a file with a name like this, give a pathlib.Path"
)
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
_OPTION: Final = re.compile(
    r"\b(?:host|hostaddr|port|dbname|user|password|passfile|service)\s*=", re.IGNORECASE
)


_lock: Final = threading.Lock()
_shared: Final[WeakValueDictionary[tuple[str, str], RunStore]] = WeakValueDictionary()
"""Stores that somebody has named by their places. They are closed when nobody uses them any more."""


def open_run_store(place: str | os.PathLike[str]) -> RunStore:
    """Make a store of runs for a path, `sqlite:///absolute/path`, or a URL of Redis or PostgreSQL.

    The result is a `SQLiteRunStore`, `RedisRunStore` or `PostgresRunStore` with the default settings, and a
    new one at each call. Nothing is opened before the store is used. URLs begin with `redis://`, `rediss://`,
    `postgresql://` or `postgres://`. Any other text, such as `runs.db`, and each `pathlib.Path` is the path
    of a SQLite file.

    Raises:
        ConfigurationError: the URL is another one, or the text looks like a connection string.
        MissingExtraError: the client of the database is not installed.
    """
    kind, where = kind_and_place(place)
    if kind == "redis":
        from fastroai.store.backends.run_redis import RedisRunStore

        return RedisRunStore(where)
    if kind == "postgres":
        from fastroai.store.backends.run_postgres import PostgresRunStore

        return PostgresRunStore(where)
    from fastroai.store.backends.run_sqlite import SQLiteRunStore

    return SQLiteRunStore(where)


def shared_run_store(place: str | os.PathLike[str]) -> RunStore:
    """Return the store at a path or URL that everyone in this process shares who names it by that place.

    Raises:
        ConfigurationError: the place is neither a path nor such a URL.
        MissingExtraError: the client of the database is not installed.
    """
    kind, where = kind_and_place(place)
    at = kind, os.path.abspath(where) if kind == "sqlite" else where
    with _lock:
        store = _shared.get(at)
        if store is None:
            store = _shared[at] = open_run_store(place)
    return store


def open_payload_store(place: str) -> PayloadStore:
    """Make the payload store in a folder, or at a URL that `fsspec` takes.

    Raises:
        ConfigurationError: it is neither, or `fsspec` does not know what the URL names.
        MissingExtraError: `fsspec` is not installed.
    """
    if "://" in place:
        return FsspecPayloadStore(place)
    if _may_be_address(place):
        expected = "the path of a folder, or a URL that fsspec takes, such as s3://bucket/runs"
        raise ConfigurationError("payloads", Address(place).shown, expected)
    return FilePayloadStore(place)


def kind_and_place(place: str | os.PathLike[str]) -> tuple[Literal["sqlite", "redis", "postgres"], str]:
    """Return the kind of store at a path or URL, and the path or URL to open it with.

    Raises:
        ConfigurationError: the place is neither a path nor such a URL.
    """
    if isinstance(place, os.PathLike):
        return "sqlite", os.fspath(place)
    if not isinstance(place, str):
        raise ConfigurationError("store", place, _FORMS)
    scheme, colon, rest = place.partition(":")
    # A URL that lacks a slash is no path: it would be a file, with a password in its name.
    if "://" not in place and not (colon and scheme in _SCHEMES) and not _may_be_address(place):
        return "sqlite", place
    match scheme:
        case "sqlite" if rest.startswith("///"):
            return "sqlite", rest.removeprefix("//")
        case "redis" | "rediss" if rest.startswith("//"):
            return "redis", place
        case "postgresql" | "postgres" if rest.startswith("//"):
            return "postgres", place
    raise ConfigurationError("store", Address(place).shown, _FORMS)


def shown_place(place: str) -> str:
    """Return the place of a store as it can be shown: a URL without user, password and options."""
    return Address(place).shown if "://" in place else place


def _may_be_address(place: str) -> bool:
    """Return whether a text without `://` looks like an address: a password would name a file."""
    rest = place[2:] if _DRIVE.match(place) else place
    _, colon, after = rest.partition(":")
    return bool(colon and "@" in after) or _OPTION.search(place) is not None

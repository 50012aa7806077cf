"""A store of runs by the text that names it, as on a command line."""

from __future__ import annotations

import os
from typing import Final

from fastroai.errors import ConfigurationError
from fastroai.store.run_sqlite import SQLiteRunStore
from fastroai.store.run_store import RunStore

_SCHEMES: Final = ("sqlite", "redis", "rediss", "postgresql", "postgres")


def open_run_store(place: str | os.PathLike[str]) -> RunStore:
    """The store at a path (`runs.db`), `sqlite:///absolute/path`, or a URL of Redis or PostgreSQL.

    Nothing is opened before the store is used.

    Raises:
        ConfigurationError: it is none of these.
        MissingExtraError: the client of the database is not installed.
    """
    expected = "a path, or sqlite:///path, redis://, rediss://, postgresql:// or postgres://"
    if isinstance(place, os.PathLike):
        return SQLiteRunStore(place)
    if not isinstance(place, str):
        raise ConfigurationError("store", place, expected)
    scheme, colon, rest = place.partition(":")
    # A URL that lacks a slash is no path: it would be a file, with a password in its name.
    if "://" not in place and not (colon and scheme in _SCHEMES):
        return SQLiteRunStore(place)
    match scheme:
        case "sqlite" if rest.startswith("///"):
            return SQLiteRunStore(rest.removeprefix("//"))
        case "redis" | "rediss" if rest.startswith("//"):
            from fastroai.store.run_redis import RedisRunStore

            return RedisRunStore(place)
        case "postgresql" | "postgres" if rest.startswith("//"):
            from fastroai.store.run_postgres import PostgresRunStore

            return PostgresRunStore(place)
    # Not told whole: a password can be in it.
    raise ConfigurationError("store", f"{scheme}:...", expected)

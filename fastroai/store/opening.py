"""A store of runs by the text that names it, as on a command line."""

from __future__ import annotations

from fastroai.errors import ConfigurationError
from fastroai.store.run_sqlite import SQLiteRunStore
from fastroai.store.run_store import RunStore


def open_run_store(place: str) -> RunStore:
    """The store at a path (`runs.db`), `sqlite:///absolute/path`, or a URL of Redis or PostgreSQL.

    Nothing is opened before the store is used.

    Raises:
        ConfigurationError: it is none of these.
        MissingExtraError: the client of the database is not installed.
    """
    scheme, is_url, rest = place.partition("://")
    match scheme:
        case _ if not is_url:
            return SQLiteRunStore(place)
        case "sqlite" if rest.startswith("/"):
            return SQLiteRunStore(rest)
        case "redis" | "rediss":
            from fastroai.store.run_redis import RedisRunStore

            return RedisRunStore(place)
        case "postgresql" | "postgres":
            from fastroai.store.run_postgres import PostgresRunStore

            return PostgresRunStore(place)
    # Not told whole: a password can be in it.
    shown = f"{scheme}://..."
    expected = "a path, or sqlite:///path, redis://, rediss://, postgresql:// or postgres://"
    raise ConfigurationError("store", shown, expected)

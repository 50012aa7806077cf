"""A PostgreSQL server, with one schema that the stores create."""

from __future__ import annotations

import socket
from contextlib import suppress
from importlib.resources import files
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from fastroai.errors import ConfigurationError, MissingExtraError, RunStoreUnavailable
from fastroai.records import Duration
from fastroai.runtime.options import seconds_above_zero
from fastroai.store.backends.address import HIDDEN, Address
from fastroai.store.backends.connections import REFUSED, UNREACHED

if TYPE_CHECKING:
    from psycopg import Connection

_SCRIPT: Final = "run_postgres.sql"
_LAST_MADE: Final = "run_index_anew_v1"
"""The function that the script makes last."""
_LONGEST_NAME: Final = 63
_CREATION: Final = 0x666173747261
"""The advisory lock under which one process creates the schema, while others wait."""
_CONNECTION_ENDED: Final = ("08", "57P")
"""Classes of SQLSTATE: connection exceptions, and the server's shutting down.
https://www.postgresql.org/docs/current/errcodes-appendix.html
"""


class PostgresServer:
    """Opens connections for `Connections`, and makes tables and functions if they do not exist."""

    def __init__(self, dsn: str, schema: str, timeout: Duration) -> None:
        """The arguments are those of `PostgresRunStore`."""
        is_text = isinstance(schema, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_text or not schema.isidentifier() or len(schema.encode()) > _LONGEST_NAME:
            expected = f"letters, digits and underscores, no digit first, at most {_LONGEST_NAME} bytes"
            raise ConfigurationError("schema", schema, expected)
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtraError("PostgresRunStore", "postgres", "psycopg") from error
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        given: dict[str, Any] | None = None
        if isinstance(dsn, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            with suppress(psycopg.Error):  # the error may quote the password
                given = conninfo_to_dict(dsn)
        if given is None:
            expected = "a connection string such as 'postgresql://user@localhost/database'"
            raise ConfigurationError("dsn", "(not shown)", expected)
        self.timeout, self.schema = seconds_above_zero("timeout", timeout), schema
        self.closes_before_fork = False
        self.errors: tuple[type[Exception], ...] = (psycopg.Error, OSError)
        defaults: dict[str, str | int | None] = {
            "connect_timeout": max(2, ceil(self.timeout)),  # the least that libpq takes
            "tcp_user_timeout": ceil(self.timeout * 1000),
            "application_name": "fastroai",
        }
        self._dsn = make_conninfo("", **defaults | given)
        self.address = Address(dsn)
        host, port = given.get("host", "localhost"), given.get("port", 5432)
        where = f"{host}:{port}/{given.get('dbname', '')}" if self.address.is_clear else HIDDEN
        self.name = f"PostgreSQL {where}"

    def connect(self) -> Connection[tuple[Any, ...]]:
        """Open a connection."""
        from psycopg import connect

        connection = connect(self._dsn, autocommit=True, prepare_threshold=None)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection[tuple[Any, ...]]) -> None:
        seconds, milliseconds = str(ceil(self.timeout)), str(ceil(self.timeout * 1000))
        connection.execute(
            "SELECT set_config('statement_timeout', %s, false), "
            # By default, a machine that is cut off keeps its connections, and the lock below, for hours.
            "set_config('idle_in_transaction_session_timeout', %s, false), "
            "set_config('tcp_keepalives_idle', %s, false), "
            "set_config('tcp_keepalives_interval', %s, false), "
            "set_config('tcp_keepalives_count', '3', false), "
            "set_config('tcp_user_timeout', %s, false), "  # keepalives rest while an answer is on its way
            "set_config('default_transaction_isolation', 'read committed', false), "
            "set_config('DateStyle', 'ISO', false)",
            [milliseconds, milliseconds, seconds, seconds, str(ceil(self.timeout * 4000))],
        )
        if self._is_made(connection):
            return
        from psycopg.sql import SQL, Identifier

        schema = Identifier(self.schema)
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATION])
            if not self._is_made(connection):
                connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
                connection.execute(SQL("SET LOCAL search_path TO {}").format(schema))
                connection.execute(files("fastroai.store.backends").joinpath(_SCRIPT).read_bytes())

    def _is_made(self, connection: Connection[tuple[Any, ...]]) -> bool:
        # Not to_regprocedure(), whose cache still says that a function does not exist after another process
        # made it.
        is_made = (
            "SELECT FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace "
            "WHERE nspname = %s AND proname = %s"
        )
        return connection.execute(is_made, [self.schema, _LAST_MADE]).fetchone() is not None

    def close(self, connection: Connection[tuple[Any, ...]]) -> None:
        """End a connection."""
        connection.close()

    def hang_up(self, connection: Connection[tuple[Any, ...]]) -> None:
        """End the wait for an answer."""
        with suppress(*self.errors), _socket_of(connection) as line:
            line.shutdown(socket.SHUT_RDWR)

    def is_lost(self, error: Exception) -> bool:
        """Return whether an error says that the connection to the server is lost."""
        state = getattr(error, "sqlstate", None)
        return state is None or state.startswith(_CONNECTION_ENDED)

    def unavailable(self, reason: str, error: Exception | None) -> RunStoreUnavailable:
        """Return the error of the store for a failure."""
        refused = error is not None and not self.is_lost(error)
        return RunStoreUnavailable(self.name, reason, REFUSED if refused else UNREACHED)


def _socket_of(connection: Connection[tuple[Any, ...]]) -> socket.socket:
    """Return a second handle of a connection's socket, which can be closed without ending the connection."""
    return socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)

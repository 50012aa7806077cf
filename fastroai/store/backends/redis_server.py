"""A Redis server, and clients that run one Lua script on it."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from fastroai.errors import ConfigurationError, MissingExtraError, RunStoreUnavailable
from fastroai.records import Duration
from fastroai.runtime.options import seconds_above_zero
from fastroai.store.backends.address import HIDDEN, Address
from fastroai.store.backends.connections import REFUSED, UNREACHED

if TYPE_CHECKING:
    from redis import ConnectionPool
    from redis.commands.core import Script

_UNKNOWN: Final = re.compile(r"unexpected keyword argument '(\w+)'")


def check_prefix(prefix: str) -> None:
    """Refuse a prefix with which the parts of a key could not be told apart.

    Raises:
        ConfigurationError: the prefix is not printable text without braces.
    """
    is_text = isinstance(prefix, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_text or not prefix or not prefix.isprintable() or "{" in prefix or "}" in prefix:
        raise ConfigurationError("prefix", prefix, "printable text without braces")


class RedisServer:
    """Makes clients for `Connections`. Each has one connection, and the script."""

    def __init__(self, url: str, timeout: Duration) -> None:
        """The arguments are those of `RedisRunStore`."""
        try:
            import redis
        except ImportError as error:
            raise MissingExtraError("RedisRunStore", "redis", "redis") from error
        self.timeout = seconds_above_zero("timeout", timeout)
        self.closes_before_fork = False
        self.errors: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        self._source = files("fastroai.store.backends").joinpath("run_redis.lua").read_text("utf-8")
        self.address = Address(url if isinstance(url, str) else "")  # pyright: ignore[reportUnnecessaryIsInstance]
        options = self._options(redis.ConnectionPool)
        place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        where = f"{place}/{options.get('db', 0)}" if self.address.is_clear else HIDDEN
        self.name = f"Redis {where}"

    def _options(self, pools: type[ConnectionPool]) -> dict[str, Any]:
        """Return what redis-py reads in the URL.

        The errors show neither the URL nor the first error, which may quote it: a password can be in there.
        """
        pool = unknown = None
        with suppress(ValueError, AttributeError, TypeError):
            pool = pools.from_url(self.address.given)
        if pool is None:
            raise ConfigurationError("url", "(not shown)", "a URL such as 'redis://localhost:6379/0'")
        try:
            pool.connection_class(**pool.connection_kwargs)  # this does not connect yet
        except TypeError as error:
            found = _UNKNOWN.search(str(error))
            unknown = "all of these" if found is None else repr(found[1])
        if unknown is not None:
            expected = f"options that redis-py knows; it does not know {unknown}"
            raise ConfigurationError("url", "(not shown)", expected)
        return pool.connection_kwargs

    def connect(self) -> Script:
        """Return a client, which connects when it is first used."""
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client = Redis.from_url(
            self.address.given,
            socket_timeout=self.timeout,
            socket_connect_timeout=self.timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        # Options of the URL win over those above, and values are bytes.
        client.connection_pool.connection_kwargs["decode_responses"] = False
        return client.register_script(self._source)

    def close(self, connection: Script) -> None:
        """End the connection of a client."""
        connection.registered_client.close()

    def hang_up(self, connection: Script) -> None:
        """Do nothing: the timeouts of the client end every wait."""

    def is_lost(self, error: Exception) -> bool:
        """Return whether an error says that the connection to the server is lost."""
        from redis import AuthenticationError, ConnectionError

        return isinstance(error, ConnectionError) and not isinstance(error, AuthenticationError)

    def unavailable(self, reason: str, error: Exception | None) -> RunStoreUnavailable:
        """Return the error of the store for a failure."""
        from redis import AuthenticationError, ResponseError

        refused = isinstance(error, ResponseError | AuthenticationError)
        return RunStoreUnavailable(self.name, reason, REFUSED if refused else UNREACHED)

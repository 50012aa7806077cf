"""A Redis server, and clients that run one Lua script on it."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from fastroai.errors import ConfigurationError, MissingExtraError, StoreUnavailable
from fastroai.store.connections import REFUSED, UNREACHED

if TYPE_CHECKING:
    from redis.commands.core import Script


_UNKNOWN: Final = re.compile(r"unexpected keyword argument '(\w+)'")


def check_prefix(prefix: str) -> None:
    """Refuse a prefix with which the parts of a key could not be told apart.

    Raises:
        ConfigurationError: the prefix is not printable text without braces.
    """
    if not prefix or not prefix.isprintable() or "{" in prefix or "}" in prefix:
        raise ConfigurationError("prefix", prefix, "printable text without braces")


class RedisServer:
    """Makes clients for `Connections`. Each has one connection, and the script."""

    def __init__(
        self, url: str, timeout: float, *, store: str, script: str, unavailable: type[StoreUnavailable]
    ) -> None:
        """`store` names the class of the store, for errors; `script` names a file of this package."""
        try:
            import redis
        except ImportError as error:
            raise MissingExtraError(store, "redis", "redis") from error
        self.timeout = timeout
        self.closes_before_fork = False
        self.errors: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        self._url, self._unavailable = url, unavailable
        self._source = files("fastroai.store").joinpath(script).read_text("utf-8")
        try:
            pool = redis.ConnectionPool.from_url(url)
            options = pool.connection_kwargs
        except (ValueError, AttributeError, TypeError):
            # The error shows neither the URL nor the first error, which may quote it: a password can be in
            # there.
            expected = "a URL such as 'redis://localhost:6379/0'"
            raise ConfigurationError("url", "(not shown)", expected) from None
        try:
            pool.connection_class(**options)  # this does not connect yet
        except TypeError as error:
            unknown = _UNKNOWN.search(str(error))
            what = "all of these" if unknown is None else repr(unknown[1])
            expected = f"options that redis-py knows; it does not know {what}"
            raise ConfigurationError("url", "(not shown)", expected) from None
        place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        self.name = f"Redis {place}/{options.get('db', 0)}"

    def connect(self) -> Script:
        """Return a client, which connects when it is first used."""
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client = Redis.from_url(
            self._url,
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

    def unavailable(self, reason: str, error: Exception | None) -> StoreUnavailable:
        """Return the error of the store for a failure."""
        from redis import AuthenticationError, ResponseError

        refused = isinstance(error, ResponseError | AuthenticationError)
        return self._unavailable(self.name, reason, REFUSED if refused else UNREACHED)

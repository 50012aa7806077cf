"""A store of runs in Redis, for the processes of many machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from fastroai.errors import RevisionConflict
from fastroai.other_names import other_names
from fastroai.records import Duration
from fastroai.store.backends.connections import Connections
from fastroai.store.backends.kept_at import KeptAt
from fastroai.store.backends.redis_server import RedisServer, check_prefix
from fastroai.store.backends.run_arguments import (
    KeyRange,
    check_largest_value,
    check_position,
    check_values,
    key_bytes,
)
from fastroai.store.clock import EPOCH
from fastroai.store.hints import Listener
from fastroai.store.reading.reads_runs import ReadsRuns
from fastroai.store.run_store import LARGEST_VALUE, StoredKey, StoredValues

if TYPE_CHECKING:
    from redis.client import PubSub

_CONNECTIONS: Final = 4

_Operation = Literal["append", "compare_and_set", "read", "list", "delete"]


@other_names(
    arguments={
        "ttl_seconds": "left out: runs are kept until RunHistory(store).purge(older_than)",
        "ttl": "left out: runs are kept until RunHistory(store).purge(older_than)",
    }
)
class RedisRunStore(ReadsRuns, KeptAt):
    """A `RunStore` in Redis or Valkey, for the processes of many machines.

    The server must never drop data: no eviction (`maxmemory-policy noeviction`), and persistence (`appendonly
    yes`; `appendfsync always` against power failures). A replica that takes over may lack the last writes. In
    a cluster, all keys under one prefix are on one node.

    It connects when it is first used. `timeout` is in seconds. Stores with different prefixes are
    independent. `largest_value` is the most bytes of a value that a run may store; `None` for the limit of
    Redis, 512 MB. A step with a larger value fails with `ValueNotStorable`.

    Raises:
        ConfigurationError: the URL cannot be read, or another argument is invalid.
        MissingExtraError: redis-py is not installed (the extra `redis`).
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "fastroai",
        timeout: Duration = 5.0,
        largest_value: int | None = LARGEST_VALUE,
    ) -> None:
        """Configure the store, which connects when it is first used.

        Args:
            url: `redis://`, `rediss://` or `unix://`, as redis-py takes it, options included.
            prefix: Start of the names of all keys. Stores with different prefixes are independent.
            timeout: Seconds to wait for a connection, and for an answer.
            largest_value: Most bytes in one value; `None` for the limit of Redis, 512 MB.

        Raises:
            ConfigurationError: the URL cannot be read, the prefix is not printable text without braces, or
                the timeout is not above 0.
            MissingExtraError: redis-py is not installed (the extra `redis`).
        """
        check_prefix(prefix)
        check_largest_value(largest_value)
        self.largest_value = largest_value
        self.prefix = prefix
        """Start of the names of all keys."""
        # Redis Cluster keeps keys together whose names have the same text in the first braces.
        parts = ("runs", "revisions", "run:", "new_after")
        self._index, self._revisions, self._held, self._new_after = (
            f"{{{prefix}}}:{part}".encode() for part in parts
        )
        self._driver = RedisServer(url, timeout)
        self._address = self._driver.address
        self.connections = Connections(self._driver, _CONNECTIONS)
        """Connections to where the store keeps its keys."""
        self._listener = Listener(self._driver.name, self._subscribed, self._driver.errors)

    def __repr__(self) -> str:
        return f"<RedisRunStore {self._driver.name!r} prefix={self.prefix!r}>"

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """Add values to a key after position `revision`, which must be its last one: all of them or none.

        A key that does not exist has revision 0. Without values, only the revision is checked.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or a value is not bytes.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        name = key_bytes(key)
        check_values(values, revision)
        self._expect(key, revision, await self._perform("append", name, name, revision, *values))

    async def read(self, key: str, *, after: int = 0, limit: int | None = None) -> StoredValues:
        """Return the values of a key at positions above `after`, in order, and the revision of the key.

        The revision is the position of its last value; 0 if the key does not exist. `limit` is the most
        values to return, from the first on; by default all. `now` of the result is the time by the clock of
        the server, in UTC.

        Raises:
            ConfigurationError: the key or `after` is invalid.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        name = key_bytes(key)
        check_position("after", after)
        last = -1 if limit is None else after + limit
        revision, seconds, microseconds, values = await self._perform("read", name, name, after, last)
        now = EPOCH + timedelta(seconds=int(seconds), microseconds=int(microseconds))
        return StoredValues(values=tuple(values), revision=revision, now=now)

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """Replace all values of a key by one, after position `revision`, which must be its last one.

        A key that does not exist has revision 0. The new value is at position `revision` + 1; of a new key,
        it can be at a later one, above each revision at which a key was deleted.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or the value is not bytes.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        name = key_bytes(key)
        check_values([value], revision)
        self._expect(key, revision, await self._perform("compare_and_set", name, name, revision, value))

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """Return the first `limit` keys that begin with `prefix` and come after the key `after`, in order.

        Each comes with its last value and its revision. The order is that of code points. For the next page,
        give the last key of this one as `after`. After the last page comes an empty one.

        Raises:
            ConfigurationError: `limit` is below 1, or `prefix` or `after` is not text that a key can have.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        keys = KeyRange.of(prefix, after, limit)
        found = await self._perform("list", b"", *keys, limit)
        return [
            StoredKey(key=name.decode(), value=value, revision=revision) for name, value, revision in found
        ]

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key with all its values; with `revision`, only if that is its last position.

        Without `revision`, nothing happens if the key does not exist. After a deletion with a revision, every
        new key of the store that `compare_and_set` makes, whatever its name, begins above that revision. So a
        late write to the old key fails.

        Raises:
            RevisionConflict: the last position of the key is not `revision`, or the key is gone.
            ConfigurationError: the key is invalid.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        name = key_bytes(key)
        if revision is None:
            await self._perform("delete", name, name)
        else:
            self._expect(key, revision, await self._perform("delete", name, name, revision))

    async def changed(self, key: str, *, revision: int, timeout: float) -> None:
        """Wait until a key has another revision than this, for at most `timeout` seconds.

        It returns at once if the key has another one already. It is only a hint: it can return although
        nothing has changed, or miss a change until the timeout. So read the key afterwards, and call again.

        Raises:
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """

        async def look() -> int:
            return (await self.read(key, after=revision)).revision

        await self._listener.changed(key_bytes(key), look, revision=revision, timeout=timeout)

    async def aclose(self) -> None:
        """Close the idle connections. The store opens new ones when it is used again."""
        await self._listener.aclose()
        await self.connections.aclose()

    def _subscribed(self) -> _Subscription:
        channel: PubSub = self._driver.connect().registered_client.pubsub()  # type: ignore[no-untyped-call]
        line = _Subscription(channel, self._held)
        line.open(self._driver.timeout)
        return line

    async def _perform(self, operation: _Operation, name: bytes, *arguments: bytes | int) -> Any:
        keys = [self._index, self._revisions, self._held + name, self._new_after]
        return await self.connections.run(lambda script: script(keys=keys, args=[operation, *arguments]))

    @staticmethod
    def _expect(key: str, revision: int, actual: int) -> None:
        if actual != revision:
            raise RevisionConflict(key, revision, actual)


class _Subscription:
    """The channel on which the script announces the keys that it changes."""

    def __init__(self, channel: PubSub, name: bytes) -> None:
        self._channel, self._name = channel, name

    def open(self, seconds: float) -> None:
        """Subscribe, and wait at most `seconds` until the server confirms it."""
        self._channel.subscribe(self._name)
        if self._channel.get_message(timeout=seconds) is None:
            raise TimeoutError(f"the server did not confirm the subscription within {seconds} seconds")

    def hear(self, seconds: float) -> Iterator[bytes]:
        """See `Line`."""
        message = self._channel.get_message(timeout=seconds)
        if message is not None and message["type"] == "message":
            yield message["data"]

    def close(self) -> None:
        """See `Line`."""
        self._channel.close()

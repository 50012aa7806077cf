"""The suite that users run against their stores, against ours and against two that users might write."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from functools import partial
from inspect import signature
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
import redis
from support.run_stores import (
    AsyncStore,
    Held,
    OpenStore,
    PlainStore,
    as_an_earlier_version_left_it,
    lose_value,
    run_stores,
)

from fastroai.errors import RevisionConflict
from fastroai.store import PostgresRunStore, RedisRunStore, RunStore, SQLiteRunStore, StoredKey, StoredValues
from fastroai.testing import RunStoreSuite

Lose = Callable[[str, int], Awaitable[None]]


class Ours(RunStoreSuite):
    kind: str

    @pytest.fixture(scope="class")
    @classmethod
    def data(
        cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[OpenStore]:
        with run_stores(cls.kind, request, tmp_path_factory.mktemp("runs")) as open_store:
            yield open_store

    @pytest.fixture
    def open_store(self, data: OpenStore) -> OpenStore:
        return data

    def test_what_is_used_after_it_was_closed_opens_again(self, open_store: OpenStore) -> None:
        store = open_store()

        async def use() -> tuple[bytes, ...]:
            if not (found := await store.read("closed")).values:
                await store.append("closed", [b"1"], revision=0)
            await store.aclose()
            return found.values

        assert [asyncio.run(use()), asyncio.run(use())] == [(), (b"1",)]


class Remembers(Ours):
    """Stores that know the last position of a key, even when its value is lost."""

    @pytest.fixture
    def age(self, store: RunStore) -> Callable[[], None]:
        return partial(as_an_earlier_version_left_it, store)

    async def test_a_lost_last_value_leaves_the_revision(
        self, store: RunStore, other: RunStore, key: str, lose: Lose
    ) -> None:
        await store.append(key, [b"1", b"2"], revision=0)
        await store.append(key, [b"3"], revision=2)
        await lose(key, 3)
        for client in (store, other):
            found = await client.read(key)
            assert (found.values, found.revision) == ((b"1", b"2"), 3)
            assert list(await client.list(key)) == [StoredKey(key=key, value=b"", revision=3)]
            found = await client.read(key, after=2)
            assert (found.values, found.revision) == ((), 3)
        with pytest.raises(RevisionConflict) as caught:
            await store.append(key, [b"x"], revision=2)
        assert caught.value.actual == 3
        await store.append(key, [b"4"], revision=3)
        found = await other.read(key)
        assert (found.values, found.revision) == ((b"1", b"2", b"4"), 4)
        await store.compare_and_set(key, b"5", revision=4)
        found = await other.read(key)
        assert (found.values, found.revision) == ((b"5",), 5)

    async def test_what_an_earlier_version_has_written_is_read_and_gone_on_with(
        self, store: RunStore, key: str, lose: Lose, age: Callable[[], None]
    ) -> None:
        await store.append(key + "log", [b"1", b"2"], revision=0)
        await store.append(key, [b"1"], revision=0)
        await store.compare_and_set(key, b"2", revision=1)
        age()
        for name, values in ((key, (b"2",)), (key + "log", (b"1", b"2"))):
            found = await store.read(name)
            assert (found.values, found.revision) == (values, 2)
        listed = {found.key: (found.value, found.revision) for found in await store.list(key)}
        assert listed == {key: (b"2", 2), key + "log": (b"2", 2)}
        await store.append(key + "log", [b"3"], revision=2)
        await store.compare_and_set(key, b"3", revision=2)
        await lose(key + "log", 3)
        found = await store.read(key + "log")
        assert (found.values, found.revision) == ((b"1", b"2"), 3)


class TestMemoryRunStore(Ours):
    kind = "memory"


class TestSQLiteRunStore(Remembers):
    kind = "sqlite"

    @pytest.fixture
    def lose(self, store: RunStore) -> Lose:
        return partial(lose_value, store)


class TestRedisRunStore(Remembers):
    kind = "redis"

    @pytest.fixture
    def age(self, store: RunStore, redis_url: str) -> Callable[[], None]:
        return partial(as_an_earlier_version_left_it, store, redis_url)

    async def test_a_name_whose_list_lost_its_beginning_is_damaged_and_the_others_are_listed(
        self, store: RedisRunStore, key: str, redis_url: str
    ) -> None:
        for name in (key, key + "2"):
            await store.append(name, [b"12 {}", b"34 {}"], revision=0)
        with redis.Redis.from_url(redis_url) as client:
            client.lpop(store._held + key.encode())
        found = await store.read(key)
        assert (found.values, found.revision) == ((), 2)
        assert [(found.key, found.value) for found in await store.list(key)] == [
            (key, b""),
            (key + "2", b"34 {}"),
        ]
        await store.compare_and_set(key, b"new", revision=2)
        found = await store.read(key)
        assert (found.values, found.revision) == ((b"new",), 3)

    async def test_what_an_earlier_version_writes_meanwhile_is_not_overwritten(
        self, store: RedisRunStore, key: str, redis_url: str
    ) -> None:
        await store.append(key, [b"1", b"2"], revision=0)
        with redis.Redis.from_url(redis_url) as client:
            client.rpush(store._held + key.encode(), b"3")
        found = await store.read(key)
        assert (found.values, found.revision) == ((b"1", b"2", b"3"), 3)
        assert list(await store.list(key)) == [StoredKey(key=key, value=b"3", revision=3)]
        with pytest.raises(RevisionConflict):
            await store.append(key, [b"x"], revision=2)
        await store.append(key, [b"4"], revision=3)
        found = await store.read(key)
        assert (found.values, found.revision) == ((b"1", b"2", b"3", b"4"), 4)

    @pytest.fixture
    def lose(self, store: RunStore, redis_url: str) -> Lose:
        return partial(lose_value, store, redis_url=redis_url)


class TestPostgresRunStore(Remembers):
    kind = "postgres"

    @pytest.fixture
    def lose(self, store: RunStore) -> Lose:
        return partial(lose_value, store)


class TestStoreWithPlainMethods(RunStoreSuite):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: PlainStore(tmp_path / "plain.db")


class TestStoreWithAsyncMethods(RunStoreSuite):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        held: Held = {}
        return lambda: AsyncStore(held)


# --- the suite finds what is wrong ---


class NeverRefuses(AsyncStore):
    def _check(self, key: str, revision: int) -> tuple[bytes, ...]:
        return self._get(key)[1]


class ChecksTooEarly(AsyncStore):
    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        self._check(key, revision)
        await asyncio.sleep(0)
        self._held[key] = (revision + len(values), (*self._get(key)[1], *values))


class AppendsOneByOne(AsyncStore):
    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        for position, value in enumerate(values, revision):
            await super().append(key, [value], revision=position)
            await asyncio.sleep(0)


class RefusesWithoutSayingWhy(AsyncStore):
    def _check(self, key: str, revision: int) -> tuple[bytes, ...]:
        if self._get(key)[0] != revision:
            raise RevisionConflict(key, revision, revision)
        return self._get(key)[1]


class CountsAnew(AsyncStore):
    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        self._check(key, revision)
        self._held[key] = (1, (value,))


class ChangesBytes(AsyncStore):
    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        await super().append(key, [value.rstrip(b"\0") for value in values], revision=revision)


class IgnoresCase(AsyncStore):
    def _get(self, key: str) -> tuple[int, tuple[bytes, ...]]:
        return super()._get(key.casefold())

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        await super().append(key.casefold(), values, revision=revision)


class ListsByPattern(AsyncStore):
    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        found = await super().list("", after=after, limit=limit)
        return [each for each in found if fnmatchcase(each.key, f"{prefix}*")]


class ListsThePageAgain(AsyncStore):
    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        return await super().list(prefix, after=after[:-1], limit=limit)


class OrdersByUTF16(AsyncStore):
    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        return sorted(await super().list(prefix), key=lambda each: each.key.encode("utf-16-be"))


class ReadsFromTheStart(AsyncStore):
    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        return await super().read(key)


class KeepsTheRevision(AsyncStore):
    async def delete(self, key: str) -> None:
        if key in self._held:
            self._held[key] = (self._held[key][0], ())


class KnowsOneLoop(AsyncStore):
    loop: asyncio.AbstractEventLoop | None = None

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        self.loop = self.loop or asyncio.get_running_loop()
        assert asyncio.get_running_loop() is self.loop
        await super().append(key, values, revision=revision)


class ServesOneLoopAtATime(AsyncStore):
    served: asyncio.AbstractEventLoop | None = None

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        self.served = self.served or asyncio.get_running_loop()
        assert asyncio.get_running_loop() is self.served
        await asyncio.sleep(0)
        self.served = None
        return await super().read(key, after=after)


class SeesOnlyItsOwn(AsyncStore):
    def __init__(self, held: Held) -> None:
        super().__init__({})


class HasLocalTime(AsyncStore):
    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        return replace(await super().read(key), now=datetime.now(timezone(timedelta(hours=2))))


class Deleting(AsyncStore):
    """Deletes at a revision, and never gives that one again."""

    new_after: ClassVar = 0

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        if revision is not None:
            self._check(key, revision)
            Deleting.new_after = max(self.new_after, revision)
        await super().delete(key)

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        self._check(key, revision)
        self._held[key] = ((revision or self.new_after) + 1, (value,))


class DeletesAnyRevision(Deleting):
    async def delete(self, key: str, *, revision: int | None = None) -> None:
        await super().delete(key)


class GivesRevisionsAgain(Deleting):
    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        await AsyncStore.compare_and_set(self, key, value, revision=revision)


FAULTY = {
    NeverRefuses: "an_append_after_another_position_than_the_last_writes_nothing",
    ChecksTooEarly: "of_appends_at_one_revision_exactly_one_wins",
    AppendsOneByOne: "nobody_sees_half_of_a_write",
    RefusesWithoutSayingWhy: "a_new_key_begins_at_revision_0",
    CountsAnew: "compare_and_set_leaves_one_value_at_the_next_position",
    ChangesBytes: "values_come_back_byte_for_byte",
    IgnoresCase: "keys_are_told_apart_and_come_back_as_they_were",
    ListsByPattern: "a_prefix_means_itself",
    ListsThePageAgain: "pages_of_keys_follow_each_other",
    OrdersByUTF16: "keys_are_listed_in_the_order_of_their_code_points",
    ReadsFromTheStart: "reading_begins_after_the_position_that_is_given",
    KeepsTheRevision: "a_deleted_key_begins_again",
    KnowsOneLoop: "a_store_serves_one_event_loop_after_the_other",
    ServesOneLoopAtATime: "a_store_serves_one_event_loop_while_another_is_blocked",
    SeesOnlyItsOwn: "clients_see_at_once_what_the_others_wrote",
    HasLocalTime: "the_clock_is_utc_and_goes_on",
    DeletesAnyRevision: "a_key_is_deleted_at_its_last_revision_only",
    GivesRevisionsAgain: "a_key_that_was_deleted_at_a_revision_never_has_it_again",
}
GIVEN = {"prefix": "p/", "key": "p/key", "revision": 1, "before": 1, "begin": "[ab]"}


@pytest.mark.parametrize("faulty", [Deleting, *FAULTY], ids=lambda store: store.__name__)
def test_the_suite_finds_what_is_wrong(faulty: type[AsyncStore]) -> None:
    tests = FAULTY.values() if faulty is Deleting else [FAULTY[faulty]]
    for name in tests:
        held: Held = {}
        test = getattr(RunStoreSuite(), f"test_{name}")
        store = faulty(held)
        given = {**GIVEN, "store": store, "other": faulty(held), "deleting": store}
        wanted = {option: given[option] for option in signature(test).parameters}
        if faulty is Deleting:
            test(**wanted)
        else:
            with pytest.raises((AssertionError, RevisionConflict, IndexError, pytest.fail.Exception)):
                test(**wanted)


async def test_a_schema_that_an_earlier_version_made_is_brought_up_to_date(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with run_stores("postgres", request, tmp_path) as open_store:
        store: PostgresRunStore = open_store()
        await store.compare_and_set("kept", b"1", revision=0)
        await store.aclose()
        with psycopg.connect(request.getfixturevalue("postgres_dsn"), autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{store.schema}"'.encode())
            connection.execute("DROP FUNCTION run_delete_v2, run_index_anew_v1; DROP TABLE run_new_after")
        now: PostgresRunStore = open_store()
        assert (await now.read("kept")).values == (b"1",)
        await now.delete("kept", revision=1)
        await now.compare_and_set("kept", b"2", revision=0)
        assert (await now.read("kept")).revision == 2
        await now.aclose()


async def test_a_key_that_is_made_while_it_is_being_deleted_does_not_have_its_revision_again(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    dsn = request.getfixturevalue("postgres_dsn")
    with run_stores("postgres", request, tmp_path) as open_store:
        store: PostgresRunStore = open_store()
        for revision in range(3):
            await store.compare_and_set("key", b"old", revision=revision)
        schema = store.schema
        with psycopg.connect(dsn) as deleting, psycopg.connect(dsn, autocommit=True) as watching:
            deleting.execute(f"SELECT \"{schema}\".run_delete_v2('key', 3)".encode())
            made = asyncio.create_task(store.compare_and_set("key", b"new", revision=0))
            waits = "SELECT 1 WHERE %s = ANY (SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity)"
            while watching.execute(waits, [deleting.info.backend_pid]).fetchone() is None:
                await asyncio.sleep(0.01)
            deleting.commit()
        await made
        assert (await store.read("key")).revision == 4
        await store.aclose()


async def test_revisions_up_to_the_last_one_are_remembered_when_their_keys_are_deleted(
    tmp_path: Path,
) -> None:
    """SQLite keeps the highest in a number with a sign."""
    store = SQLiteRunStore(tmp_path / "runs.db")
    for revision in (3, 2**31 - 1, 2**31, 2**32 - 3):
        await store.append("key", [b"1"], revision=0)
        with sqlite3.connect(tmp_path / "runs.db") as connection:
            connection.execute("UPDATE run_value SET place = place - 1 + ?", (revision,))
        connection.close()
        await store.delete("key", revision=revision)
        await store.compare_and_set("key", b"2", revision=0)
        assert (await store.read("key")).revision == revision + 1
        await store.delete("key")
    await store.aclose()

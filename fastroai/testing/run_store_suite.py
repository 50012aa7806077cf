"""Tests that every store of runs must pass, with pytest. They need no asyncio plugin."""

# ruff: noqa: D102  the name of a test is a sentence

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, ParamSpec, TypeVar, get_args

import pytest

from fastroai.errors import RevisionConflict, RunNotFound
from fastroai.records import Usage
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.paging import reads_pages
from fastroai.store.reading.history import RunHistory
from fastroai.store.reading.index import add_to_index
from fastroai.store.reading.run_index import Begun, Doomed, IndexesRuns, indexes_runs
from fastroai.store.reading.run_queries import RunOrder, RunQuery
from fastroai.store.reading.run_spending import Spent, SpentPart
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import encode_header, new_epoch, read_header
from fastroai.store.record.runs import change_header
from fastroai.store.run_store import DeletesAtRevision, RunStore, StoredKey, deletes_at_revision

P = ParamSpec("P")
SuiteT = TypeVar("SuiteT")

_PATIENCE: Final = 60.0
_RUNS_BEGAN: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
_ATTEMPTS: Final = 200
_MEGABYTES: Final = 2 * 2**20

_ODD_KEYS: Final = (
    "plain",
    "Plain",
    "PLAIN",
    "plain ",
    " plain",
    "a/b",
    "a:b",
    "a.b",
    "a\\b",
    "a%b",
    "a_b",
    "a*b",
    "a?b",
    "a[b]",
    "{a}b",
    "a'b",
    'a"b',
    "a;b",
    "a\nb",
    "a\r\n",
    "\x01\x7f",
    "caf\u00e9",
    "cafe\u0301",
    "\u00df",
    "ss",
    "\u0130i\u0131I",
    "\u202egnp",
    "\ufeff",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U0001f600",
    "\U0010ffff",
    "\U0010ffff\U0010ffff",
)


def _in_loops(suite: type[SuiteT]) -> type[SuiteT]:
    """Let each async test of a suite run in an event loop of its own."""
    for name, test in vars(suite).copy().items():
        if iscoroutinefunction(test):
            setattr(suite, name, _in_a_loop(test))
    return suite


def _in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **options), _PATIENCE))

    return run


async def _outcome(operation: Awaitable[None]) -> RevisionConflict | None:
    try:
        await operation
    except RevisionConflict as conflict:
        return conflict
    return None


async def _append_anywhere(store: RunStore, key: str, value: bytes) -> None:
    """Append after the present values, even if other clients append at the same time."""
    revision = 0
    for _ in range(_ATTEMPTS):
        conflict = await _outcome(store.append(key, [value], revision=revision))
        if conflict is None:
            return
        revision = conflict.actual
    raise AssertionError(f"{_ATTEMPTS} conflicts in a row, each at the revision that the last one told")


def _names(found: Sequence[StoredKey]) -> list[str]:
    return [each.key for each in found]


@_in_loops
class RunStoreSuite:
    """Pytest tests that your `RunStore`, sync or async, must pass. Write a subclass with one fixture:

        class TestMyStore(RunStoreSuite):
            @pytest.fixture
            def open_store(self, tmp_path):
                return lambda: MyStore(tmp_path / "runs")

    The tests need no asyncio plugin: each runs in an event loop of its own, for at most 60 seconds. They call
    the function of the fixture twice, for two clients of the same data. The clients are made where no event
    loop runs, and are closed with `aclose()` if they have it. The data may hold other keys; the tests delete
    their own. Tests of optional abilities are skipped if the store does not have them.
    """

    @pytest.fixture
    def open_store(self) -> Callable[[], object]:
        """Return a function without arguments that opens the store. Your subclass must override this fixture.

        Each call must return a new client of the same data.

        Raises:
            NotImplementedError: your subclass does not override it.
        """
        raise NotImplementedError(f"{type(self).__name__} must override the fixture open_store")

    @pytest.fixture
    def stores(self, open_store: Callable[[], object]) -> Iterator[tuple[RunStore, RunStore]]:
        """Yield two clients of the same data, which `open_store` makes, and close them after the test.

        Clients whose methods are not async are wrapped, so that tests can await all methods.
        """
        opened = [open_store(), open_store()]
        yield adapt_run_store(opened[0]), adapt_run_store(opened[1])

        for store in opened:
            if aclose := getattr(store, "aclose", None):
                asyncio.run(aclose())

    @pytest.fixture
    def prefix(self, stores: tuple[RunStore, RunStore]) -> Iterator[str]:
        """Yield a new random prefix for all keys of a test. The keys are deleted after the test."""
        prefix = f"suite-{uuid.uuid4().hex}/"
        yield prefix

        async def delete_all() -> None:
            for each in await stores[0].list(prefix, limit=1_000):
                await stores[0].delete(each.key)

        asyncio.run(delete_all())

    @pytest.fixture
    def store(self, stores: tuple[RunStore, RunStore]) -> RunStore:
        """Return the first of the two clients of `stores`."""
        return stores[0]

    @pytest.fixture
    def other(self, stores: tuple[RunStore, RunStore]) -> RunStore:
        """Return the second of the two clients of `stores`: it has the same data as `store`."""
        return stores[1]

    @pytest.fixture
    def key(self, prefix: str) -> str:
        """Return the name of a key that the store does not have yet. It is deleted after the test."""
        return prefix + "key"

    @pytest.fixture
    def lose(self) -> Callable[[str, int], Awaitable[None]]:
        """Return an async function of a key and a position that removes the value there, bypassing the store.

        Your subclass may override this fixture, to have the store tested on damaged data. By default, the
        tests that use it are skipped.
        """
        pytest.skip("the fixture lose is not overridden, so no value is lost")

    # --- reading and appending ---

    async def test_a_new_key_holds_nothing(self, store: RunStore, key: str) -> None:
        stored = await store.read(key)
        assert (stored.values, stored.revision) == ((), 0)
        assert _names(await store.list(key)) == []

    async def test_values_are_read_in_the_order_in_which_they_were_appended(
        self, store: RunStore, key: str
    ) -> None:
        await store.append(key, [b"one"], revision=0)
        await store.append(key, [b"two", b"three"], revision=1)
        await store.append(key, (b"two",), revision=3)
        stored = await store.read(key)
        assert (stored.values, stored.revision) == ((b"one", b"two", b"three", b"two"), 4)
        assert isinstance(stored.values, tuple)

    async def test_reading_begins_after_the_position_that_is_given(self, store: RunStore, key: str) -> None:
        await store.append(key, [b"1", b"2", b"3"], revision=0)
        for after in range(6):
            stored = await store.read(key, after=after)
            assert (stored.values, stored.revision) == ((b"1", b"2", b"3")[after:], 3)

    async def test_a_store_that_reads_pages_gives_no_more_values_than_were_asked_for(
        self, store: RunStore, key: str
    ) -> None:
        if not reads_pages(store):
            pytest.skip("this store gives all values after a position")
        await store.append(key, [b"1", b"2", b"3"], revision=0)
        for after in range(5):
            for limit in range(1, 5):
                stored = await store.read(key, after=after, limit=limit)
                assert (stored.values, stored.revision) == ((b"1", b"2", b"3")[after : after + limit], 3)
        await store.compare_and_set(key, b"4", revision=3)
        assert (await store.read(key, after=0, limit=9)).values == (b"4",)
        assert (await store.read("no such key", after=0, limit=1)).revision == 0

    @pytest.mark.parametrize("revision", [0, 1, 3, 1000])
    async def test_an_append_after_another_position_than_the_last_writes_nothing(
        self, store: RunStore, key: str, revision: int
    ) -> None:
        await store.append(key, [b"1", b"2"], revision=0)
        with pytest.raises(RevisionConflict) as caught:
            await store.append(key, [b"x", b"y"], revision=revision)
        assert (caught.value.key, caught.value.expected, caught.value.actual) == (key, revision, 2)
        stored = await store.read(key)
        assert (stored.values, stored.revision) == ((b"1", b"2"), 2)
        await store.append(key, [b"3"], revision=2)

    async def test_values_that_were_lost_are_missing_and_their_key_stays_known_until_it_is_deleted(
        self, store: RunStore, key: str, lose: Callable[[str, int], Awaitable[None]]
    ) -> None:
        await store.append(key, [b"1", b"2", b"3"], revision=0)
        await lose(key, 2)
        assert (await store.read(key)).values == (b"1", b"3")
        await store.compare_and_set(key, b"4", revision=(await store.read(key)).revision)
        await lose(key, (await store.read(key)).revision)
        emptied = await store.read(key)
        assert emptied.values == ()
        assert emptied.revision > 0
        listed = await store.list(key)
        assert [(each.key, each.value, each.revision) for each in listed] == [(key, b"", emptied.revision)]
        assert await _outcome(store.append(key, [b"x"], revision=0))
        await store.delete(key)
        assert (await store.read(key)).revision == 0
        assert _names(await store.list(key)) == []

    async def test_a_new_key_begins_at_revision_0(self, store: RunStore, key: str) -> None:
        with pytest.raises(RevisionConflict) as caught:
            await store.append(key, [b"x"], revision=1)
        assert caught.value.actual == 0
        with pytest.raises(RevisionConflict) as caught:
            await store.compare_and_set(key, b"x", revision=1)
        assert caught.value.actual == 0
        assert (await store.read(key)).revision == 0
        assert _names(await store.list(key)) == []

    async def test_appending_nothing_only_checks_the_revision(self, store: RunStore, key: str) -> None:
        await store.append(key, [], revision=0)
        assert _names(await store.list(key)) == []
        assert await _outcome(store.append(key, [], revision=1))
        await store.append(key, [b"1"], revision=0)
        await store.append(key, [], revision=1)
        assert await _outcome(store.append(key, [], revision=0))
        assert (await store.read(key)).revision == 1

    # --- replacing ---

    async def test_compare_and_set_leaves_one_value_at_the_next_position(
        self, store: RunStore, key: str
    ) -> None:
        await store.append(key, [b"1", b"2", b"3"], revision=0)
        await store.compare_and_set(key, b"all", revision=3)
        for after in range(4):
            stored = await store.read(key, after=after)
            assert (stored.values, stored.revision) == ((b"all",), 4)
        assert (await store.read(key, after=4)).values == ()
        await store.append(key, [b"5"], revision=4)
        assert (await store.read(key)).values == (b"all", b"5")
        assert (await store.read(key, after=4)).values == (b"5",)

    async def test_compare_and_set_makes_a_key_and_goes_on_with_it(self, store: RunStore, key: str) -> None:
        await store.compare_and_set(key, b"first", revision=0)
        first = (await store.read(key)).revision  # 1, unless keys were deleted at their revision before
        assert first >= 1
        for revision in range(first, first + 5):
            await store.compare_and_set(key, b"%d" % revision, revision=revision)
            stored = await store.read(key)
            assert (stored.values, stored.revision) == ((b"%d" % revision,), revision + 1)

    @pytest.mark.parametrize("revision", [0, 1, 3])
    async def test_compare_and_set_at_another_revision_changes_nothing(
        self, store: RunStore, key: str, revision: int
    ) -> None:
        await store.append(key, [b"1", b"2"], revision=0)
        with pytest.raises(RevisionConflict) as caught:
            await store.compare_and_set(key, b"x", revision=revision)
        assert (caught.value.expected, caught.value.actual) == (revision, 2)
        stored = await store.read(key)
        assert (stored.values, stored.revision) == ((b"1", b"2"), 2)

    # --- values and keys ---

    async def test_values_come_back_byte_for_byte(self, store: RunStore, key: str) -> None:
        values = (b"", b"\0", b"\0\0a", bytes(range(256)), b"\xff\xfe", b'{"a": 1}', b"\\x00", b"")
        await store.append(key, values, revision=0)
        found = (await store.read(key)).values
        assert found == values
        assert all(type(value) is bytes for value in found)
        await store.compare_and_set(key, bytes(range(256)), revision=len(values))
        listed = (await store.list(key))[0]
        assert (listed.value, type(listed.value)) == (bytes(range(256)), bytes)

    async def test_a_value_can_be_megabytes(self, store: RunStore, other: RunStore, key: str) -> None:
        large = bytes(range(256)) * (_MEGABYTES // 256)
        await store.append(key, [b"small", large], revision=0)
        assert (await other.read(key)).values == (b"small", large)
        await other.compare_and_set(key, large[1:], revision=2)
        assert (await store.read(key)).values == (large[1:],)

    async def test_many_values_are_appended_at_once(self, store: RunStore, key: str) -> None:
        values = tuple(b"%d" % number for number in range(10_000))
        await store.append(key, values, revision=0)
        assert (await store.read(key)).values == values
        assert (await store.read(key, after=9_998)).values == values[9_998:]

    async def test_keys_are_told_apart_and_come_back_as_they_were(self, store: RunStore, prefix: str) -> None:
        for odd in _ODD_KEYS:
            await store.append(prefix + odd, [odd.encode()], revision=0)
        for odd in _ODD_KEYS:
            assert (await store.read(prefix + odd)).values == (odd.encode(),)
        found = {each.key: each.value for each in await store.list(prefix)}
        assert found == {prefix + odd: odd.encode() for odd in _ODD_KEYS}

    async def test_a_key_can_have_512_characters(self, store: RunStore, prefix: str) -> None:
        longest = prefix + "\U0001f600" * (512 - len(prefix))
        await store.append(longest, [b"1"], revision=0)
        await store.append(longest[:-1], [b"2"], revision=0)
        assert (await store.read(longest)).values == (b"1",)
        assert _names(await store.list(longest)) == [longest]

    # --- listing ---

    async def test_keys_are_listed_in_the_order_of_their_code_points(
        self, store: RunStore, prefix: str
    ) -> None:
        for odd in _ODD_KEYS:
            await store.append(prefix + odd, [b"1"], revision=0)
        assert _names(await store.list(prefix)) == sorted(prefix + odd for odd in _ODD_KEYS)

    async def test_a_listed_key_has_its_last_value_and_revision(self, store: RunStore, prefix: str) -> None:
        await store.append(prefix + "a", [b"1", b"2"], revision=0)
        await store.append(prefix + "b", [b"1", b"2"], revision=0)
        await store.compare_and_set(prefix + "b", b"3", revision=2)
        assert list(await store.list(prefix)) == [
            StoredKey(key=prefix + "a", value=b"2", revision=2),
            StoredKey(key=prefix + "b", value=b"3", revision=3),
        ]

    @pytest.mark.parametrize(
        "begin", ["%", "_", "*", "?", "[ab]", "[", "\\", "{a}", "a%", "A", "^", ".", "\U0010ffff"]
    )
    async def test_a_prefix_means_itself(self, store: RunStore, prefix: str, begin: str) -> None:
        for name in ("a", "b", "ab", "abc", "xyz", "\ue000", begin, begin + "more"):
            await store.append(prefix + name, [b"1"], revision=0)
        found = _names(await store.list(prefix + begin))
        assert found == [prefix + begin, prefix + begin + "more"]

    async def test_pages_of_keys_follow_each_other(self, store: RunStore, prefix: str) -> None:
        keys = [f"{prefix}{number:02}" for number in range(25)]
        for key in keys:
            await store.append(key, [b"1"], revision=0)
        await store.append(prefix[:-1] + "0", [b"not below the prefix"], revision=0)
        pages = []
        after = ""
        for _ in range(4):
            pages.append(_names(await store.list(prefix, after=after, limit=10)))
            after = pages[-1][-1] if pages[-1] else after
        await store.delete(prefix[:-1] + "0")
        assert pages == [keys[:10], keys[10:20], keys[20:], []]
        assert _names(await store.list(prefix, limit=1)) == keys[:1]
        assert _names(await store.list("", after=keys[3], limit=2)) == keys[4:6]

    async def test_a_page_can_begin_after_a_key_that_is_not_there(self, store: RunStore, prefix: str) -> None:
        for name in ("a", "b", "c"):
            await store.append(prefix + name, [b"1"], revision=0)
        await store.delete(prefix + "b")
        below = [prefix + "a", prefix + "c"]
        assert _names(await store.list(prefix, after=prefix + "b")) == below[1:]
        assert _names(await store.list(prefix, after=prefix + "\U0010ffff")) == []
        assert _names(await store.list(prefix, after=prefix)) == below
        assert _names(await store.list(prefix, after="\x01")) == below
        assert _names(await store.list(prefix, after="\U0010ffff")) == []

    # --- deleting ---

    async def test_a_deleted_key_begins_again(self, store: RunStore, other: RunStore, prefix: str) -> None:
        gone, kept = prefix + "a", prefix + "ab"
        await store.append(gone, [b"1", b"2"], revision=0)
        await store.append(kept, [b"kept"], revision=0)
        await store.delete(gone)
        for client in (store, other):
            stored = await client.read(gone)
            assert (stored.values, stored.revision) == ((), 0)
            assert _names(await client.list(prefix)) == [kept]
        assert await _outcome(store.append(gone, [b"3"], revision=2))
        await store.append(gone, [b"new"], revision=0)
        assert (await other.read(gone)).values == (b"new",)
        assert (await other.read(kept)).values == (b"kept",)

    async def test_deleting_what_is_not_there_is_no_error(self, store: RunStore, key: str) -> None:
        await store.delete(key)
        await store.append(key, [b"1"], revision=0)
        await store.delete(key)
        await store.delete(key)

    @pytest.fixture
    def deleting(self, store: RunStore) -> DeletesAtRevision:
        """Return the store, if its `delete` takes a `revision`. Otherwise, the test is skipped."""
        if not deletes_at_revision(store):
            pytest.skip("its delete takes no revision")
        return store

    async def test_a_key_is_deleted_at_its_last_revision_only(
        self, store: RunStore, other: RunStore, deleting: DeletesAtRevision, key: str
    ) -> None:
        await store.append(key, [b"1", b"2", b"3"], revision=0)
        for revision in (0, 1, 2, 4, 1_000):
            conflict = await _outcome(deleting.delete(key, revision=revision))
            assert conflict is not None
            assert (conflict.key, conflict.expected, conflict.actual) == (key, revision, 3)
        assert (await other.read(key)).values == (b"1", b"2", b"3")
        await deleting.delete(key, revision=3)
        for client in (store, other):
            assert ((await client.read(key)).values, (await client.read(key)).revision) == ((), 0)
            assert _names(await client.list(key)) == []
        conflict = await _outcome(deleting.delete(key, revision=3))
        assert conflict is not None
        assert conflict.actual == 0

    async def test_a_key_that_was_deleted_at_a_revision_never_has_it_again(
        self, store: RunStore, other: RunStore, deleting: DeletesAtRevision, key: str
    ) -> None:
        await store.append(key, [b"1", b"2", b"3"], revision=0)
        await deleting.delete(key, revision=3)
        await other.compare_and_set(key, b"new", revision=0)
        begun = (await store.read(key)).revision
        assert begun > 3
        for revision in range(1, 4):
            assert await _outcome(store.compare_and_set(key, b"late", revision=revision))
            assert await _outcome(store.append(key, [b"late"], revision=revision))
            assert await _outcome(deleting.delete(key, revision=revision))
        await store.append(key, [b"more"], revision=begun)
        assert (await other.read(key)).values == (b"new", b"more")
        await deleting.delete(key)
        await store.append(key, [b"1"], revision=0)
        assert (await other.read(key)).revision == 1, "a key that is appended to begins at 1"

    async def test_of_writes_and_deletions_at_one_revision_exactly_one_happens(
        self, store: RunStore, other: RunStore, deleting: DeletesAtRevision, key: str
    ) -> None:
        for _ in range(5):
            await store.compare_and_set(key, b"1", revision=0)
            revision = (await other.read(key)).revision
            outcomes = await asyncio.gather(
                _outcome(other.compare_and_set(key, b"2", revision=revision)),
                _outcome(deleting.delete(key, revision=revision)),
                _outcome(deleting.delete(key, revision=revision)),
            )
            assert len([each for each in outcomes if each is None]) == 1
            assert (await store.read(key)).values == ((b"2",) if outcomes[0] is None else ())
            await store.delete(key)

    # --- several clients at once ---

    async def test_clients_see_at_once_what_the_others_wrote(
        self, store: RunStore, other: RunStore, key: str
    ) -> None:
        for revision in range(0, 20, 2):
            await store.append(key, [b"mine"], revision=revision)
            assert (await other.read(key)).revision == revision + 1
            assert await _outcome(other.append(key, [b"late"], revision=revision))
            await other.append(key, [b"theirs"], revision=revision + 1)
            assert (await store.list(key))[0].value == b"theirs"
        assert (await store.read(key)).values == (b"mine", b"theirs") * 10

    @pytest.mark.parametrize("before", [0, 1])
    async def test_of_appends_at_one_revision_exactly_one_wins(
        self, store: RunStore, other: RunStore, key: str, before: int
    ) -> None:
        await store.append(key, [b"before"] * before, revision=0)
        rivals = [(b"%d" % number, b"%d again" % number) for number in range(12)]
        outcomes = await asyncio.gather(
            *(
                _outcome((store, other)[number % 2].append(key, values, revision=before))
                for number, values in enumerate(rivals)
            )
        )
        winners = [values for values, conflict in zip(rivals, outcomes, strict=True) if conflict is None]
        assert [(await store.read(key, after=before)).values] == winners

    @pytest.mark.parametrize("before", [0, 2])
    async def test_of_replacements_at_one_revision_exactly_one_wins(
        self, store: RunStore, other: RunStore, key: str, before: int
    ) -> None:
        await store.append(key, [b"before"] * before, revision=0)
        outcomes = await asyncio.gather(
            *(
                _outcome((store, other)[number % 2].compare_and_set(key, b"%d" % number, revision=before))
                for number in range(12)
            )
        )
        winners = [b"%d" % number for number, conflict in enumerate(outcomes) if conflict is None]
        stored = await other.read(key)
        assert list(stored.values) == winners
        assert stored.revision == before + 1 or not before, "a new key may begin later"
        assert len(winners) == 1

    async def test_nothing_is_lost_where_many_append_to_one_key(
        self, store: RunStore, other: RunStore, key: str
    ) -> None:
        values = [b"%d" % number for number in range(24)]
        await asyncio.gather(
            *(_append_anywhere((store, other)[len(value) % 2], key, value) for value in values)
        )
        stored = await store.read(key)
        assert sorted(stored.values) == sorted(values)
        assert stored.revision == len(values)

    async def test_keys_do_not_stand_in_each_others_way(
        self, store: RunStore, other: RunStore, prefix: str
    ) -> None:
        keys = [f"{prefix}{number:02}" for number in range(20)]

        async def fill(client: RunStore, key: str) -> None:
            for revision in range(3):
                await client.append(key, [key.encode()], revision=revision)

        await asyncio.gather(*(fill((store, other)[number % 2], key) for number, key in enumerate(keys)))
        found = [(each.key, each.revision) for each in await store.list(prefix)]
        assert found == [(key, 3) for key in keys]

    async def test_nobody_sees_half_of_a_write(self, store: RunStore, other: RunStore, key: str) -> None:
        async def write() -> None:
            for revision in range(0, 60, 6):
                await store.append(key, [b"1", b"2", b"3", b"4", b"5"], revision=revision)
                await store.compare_and_set(key, b"all", revision=revision + 5)

        writing = asyncio.create_task(write())
        while not writing.done():
            await asyncio.sleep(0)  # a store in memory may never yield to other tasks
            stored = await other.read(key)
            whole: dict[int, tuple[bytes, ...]] = {
                0: (b"all",) if stored.revision else (),
                5: (*((b"all",) if stored.revision > 5 else ()), b"1", b"2", b"3", b"4", b"5"),
            }
            assert whole.get(stored.revision % 6) == stored.values
            for listed in await other.list(key):
                assert listed.value == {0: b"all", 5: b"5"}.get(listed.revision % 6)
        await writing

    async def test_an_append_and_a_deletion_at_once_leave_nothing(
        self, store: RunStore, other: RunStore, key: str
    ) -> None:
        for _ in range(5):
            await store.append(key, [b"1"], revision=0)
            await asyncio.gather(_outcome(store.append(key, [b"2", b"3"], revision=1)), other.delete(key))
            stored = await store.read(key)
            assert (stored.values, stored.revision) == ((), 0)
            assert _names(await store.list(key)) == []

    # --- event loops, cancellation, time ---

    @pytest.mark.parametrize("write", ["append", "compare_and_set"])
    async def test_a_write_that_is_cancelled_has_happened_whole_or_not_at_all(
        self, store: RunStore, other: RunStore, key: str, write: str
    ) -> None:
        large = b"x" * 100_000
        for ticks in range(8):
            before = await store.read(key)
            writing = asyncio.create_task(
                store.append(key, [large, large], revision=before.revision)
                if write == "append"
                else store.compare_and_set(key, b"%d" % ticks, revision=before.revision)
            )
            for _ in range(ticks):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait([writing])
            # This append comes after all writes on their way, or wins over them.
            await _append_anywhere(store, key, b"next")
            stored = await other.read(key)
            if write == "append":
                added = stored.values[len(before.values) :]
                assert added in ((b"next",), (large, large, b"next"))
            else:
                assert stored.values in ((*before.values, b"next"), (b"%d" % ticks, b"next"))

    def test_a_store_serves_one_event_loop_after_the_other(self, store: RunStore, key: str) -> None:
        for revision in range(3):
            asyncio.run(store.append(key, [b"1"], revision=revision))
        assert asyncio.run(store.read(key)).revision == 3

    def test_a_store_serves_several_event_loops_at_once(self, store: RunStore, key: str) -> None:
        async def fill(name: int) -> None:
            await asyncio.gather(*(_append_anywhere(store, key, b"%d %d" % (name, n)) for n in range(5)))

        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda name: asyncio.run(asyncio.wait_for(fill(name), _PATIENCE)), range(3)))
        values = asyncio.run(store.read(key)).values
        assert sorted(values) == sorted(b"%d %d" % (name, n) for name in range(3) for n in range(5))

    async def test_a_store_serves_one_event_loop_while_another_is_blocked(
        self, store: RunStore, key: str
    ) -> None:
        """Test that a store works in a second event loop while the first one, where a read began, is blocked.

        The second loop runs in a thread, and calls all five operations. The read of the first loop returns
        afterwards. A thread renews the lease of a run in this way, while a step blocks the event loop.
        """
        await store.append(key, [b"1"], revision=0)
        pending = asyncio.create_task(store.read(key))
        await asyncio.sleep(0)  # it has begun

        async def use() -> None:
            await store.append(key, [b"2"], revision=(await store.read(key)).revision)
            await store.compare_and_set(key, b"3", revision=2)
            assert _names(await store.list(key)) == [key]
            await store.append(key + "2", [b"1"], revision=0)
            await store.delete(key + "2")

        with ThreadPoolExecutor(1) as threads:
            threads.submit(lambda: asyncio.run(asyncio.wait_for(use(), _PATIENCE))).result()
        assert (await pending).values in ((b"1",), (b"1", b"2"), (b"3",))
        assert (await store.read(key)).values == (b"3",)

    async def test_the_clock_is_utc_and_goes_on(self, store: RunStore, other: RunStore, key: str) -> None:
        times = [(await client.read(key)).now for client in (store, other, store, other)]
        assert {time.utcoffset() for time in times} == {timedelta(0)}
        assert times == sorted(times)

    # --- runs, which a store can find by itself: see IndexesRuns ---

    @pytest.fixture
    def runs(self, store: RunStore) -> Iterator[_Runs]:
        """Yield a helper that writes headers of runs, all of a new tenant. It deletes them after the test."""
        runs = _Runs(store)
        yield runs
        asyncio.run(runs.delete_all())

    @pytest.mark.parametrize("sort", get_args(RunOrder))
    @pytest.mark.parametrize("ascending", [False, True])
    async def test_pages_of_runs_follow_each_other_in_every_order(
        self, runs: _Runs, sort: RunOrder, ascending: bool
    ) -> None:
        headers = [
            await runs.write(number, hours=hours, took=took, cost_usd=Decimal(cost))
            for number, (hours, took, cost) in enumerate(
                [(3, 9, "0.1"), (1, 1, "0.1"), (3, 2, "0"), (2, 5, "12.000000001"), (1, 7, "0.10000000001")]
            )
        ]
        query = RunQuery(tenant=runs.tenant, sort=sort, ascending=ascending)
        in_order = sorted(headers, key=lambda one: query.rank(query.place(one, one.run_id)))
        found, after = list[str](), None
        while True:
            page = await runs.history.page(query, limit=2, after=after)
            found += [one.run_id for one in page.items]
            if (after := page.next) is None:
                break
            assert len(page) == 2
        assert found == [one.run_id for one in in_order]

    @pytest.mark.parametrize(
        ("query", "numbers"),
        [
            ({}, {0, 1, 2, 3}),
            ({"status": "failed"}, {1}),
            ({"status": "paused"}, {2, 3}),
            ({"pipeline": "Invoices"}, {0, 1}),
            ({"tag": "a"}, {0}),
            ({"tag": "a\nb"}, {1}),
            ({"tag": "b"}, set()),
            ({"tag": "a\\nb"}, {2}),
            ({"tag": 'x"a"'}, {3}),
            ({"search": "INVO"}, {0, 1}),
            ({"search": "stra\u00dfe"}, {2}),
            ({"search": "STRASSE letters"}, {2}),
            ({"search": "invoices letters"}, set()),
            ({"asks": True}, {3}),
            ({"due_until": _RUNS_BEGAN + timedelta(hours=9)}, set()),
            ({"due_until": _RUNS_BEGAN + timedelta(hours=9, microseconds=1)}, {2}),
            ({"started_since": _RUNS_BEGAN + timedelta(hours=1)}, {1, 2, 3}),
            ({"started_until": _RUNS_BEGAN + timedelta(hours=1)}, {0}),
            ({"updated_since": _RUNS_BEGAN + timedelta(hours=3)}, {2, 3}),
            ({"updated_until": _RUNS_BEGAN + timedelta(hours=3), "status": "failed"}, {1}),
        ],
    )
    async def test_runs_are_found_and_counted_by_what_their_headers_say(
        self, runs: _Runs, query: dict[str, Any], numbers: set[int]
    ) -> None:
        due = _RUNS_BEGAN + timedelta(hours=9)
        await runs.write(0, pipeline="Invoices", tags=("a",))
        await runs.write(1, pipeline="Invoices", tags=("a\nb",), hours=1, status="failed")
        await runs.write(2, tags=("a\\nb", "Stra\u00dfe"), hours=2, status="paused", due_at=due)
        await runs.write(3, tags=('x"a"',), hours=3, status="paused", questions=(2,))
        wanted = RunQuery(tenant=runs.tenant, **query)
        found = (await runs.history.page(wanted)).items
        assert {int(one.run_id.rpartition("-")[2]) for one in found} == numbers
        assert await runs.history.count(wanted) == len(numbers)

    async def test_a_run_is_found_as_what_it_is_now(self, runs: _Runs, other: RunStore) -> None:
        failed, finished = (RunQuery(tenant=runs.tenant, status=status) for status in ("failed", "finished"))
        header = await runs.write(0, status="failed")
        assert [one.run_id for one in (await RunHistory(other).page(failed)).items] == [header.run_id]
        await runs.write_again(header, replace(header, status="finished"))
        assert (await RunHistory(other).page(failed)).items == ()
        assert [one.run_id for one in (await RunHistory(other).page(finished)).items] == [header.run_id]
        await runs.history.delete(header.run_id)
        assert (await RunHistory(other).page(finished)).items == ()

    async def test_the_spending_in_headers_is_summed_exactly(self, runs: _Runs) -> None:
        costs = ["0.000000000000000000001", "0.1", "123456.789", "0.1234567890123456789012345"]
        parts = [
            SpentPart(
                day=_RUNS_BEGAN.date(),
                step=None if number == 2 else f"step-{number}",
                model="m",
                tenant=runs.tenant,
                tags=("x", "y") if number else (),
                usage=Usage(request_count=1, input_tokens=10**9, cost_usd=Decimal(cost)),
            )
            for number, cost in enumerate(costs)
        ]
        for number, part in enumerate(parts[:3]):
            spent = Spent(parts=(part, part), since=_RUNS_BEGAN, until=_RUNS_BEGAN)
            await runs.write(number, pipeline=runs.tenant, spent=spent)
        rows = await runs.history.spending(by=("pipeline", "step"))
        ours = {one.step: one.usage for one in rows if one.pipeline == runs.tenant}
        assert {step: str(usage.cost_usd) for step, usage in ours.items()} == {
            None: "246913.578",
            "step-0": "2E-21",
            "step-1": "0.2",
        }
        assert ours["step-1"].input_tokens == 2 * 10**9
        by_tag = await runs.history.spending(by=("tag", "pipeline"))
        assert {one.tag: one.usage.request_count for one in by_tag if one.pipeline == runs.tenant} == {
            None: 2,
            "x": 4,
            "y": 4,
        }
        later = await runs.history.spending(since=_RUNS_BEGAN + timedelta(seconds=1), by=("pipeline",))
        assert [one for one in later if one.pipeline == runs.tenant] == []

    @pytest.fixture
    def indexing(self, store: RunStore) -> IndexesRuns:
        """Return the store, if it has indexes of runs (`IndexesRuns`). Otherwise, the test is skipped."""
        own = indexes_runs(store)
        if own is None:
            pytest.skip("it does not find runs by itself")
        return own

    async def test_a_run_begins_with_its_log_or_not_at_all(
        self, indexing: IndexesRuns, runs: _Runs, key: str
    ) -> None:
        header = runs.header(0)
        begun = Begun(
            key=f"run:{header.run_id}",
            value=encode_header(header),
            revision=0,
            log_key=f"{key}/1",
            entries=[b"1", b"2"],
        )
        await indexing.begin_run(begun)
        assert (await indexing.read(f"{key}/1")).values == (b"1", b"2")
        with pytest.raises(RevisionConflict):
            await indexing.begin_run(replace(begun, log_key=f"{key}/2"))
        assert (await indexing.read(f"{key}/2")).revision == 0

    async def test_runs_are_deleted_whole_and_only_at_their_revisions(
        self, indexing: IndexesRuns, runs: _Runs, key: str
    ) -> None:
        headers = [await runs.write(number) for number in range(3)]
        await runs.write_again(headers[1], replace(headers[1], status="failed"))
        logs = [f"{key}/{number}" for number in range(3)]
        for log in logs:
            await indexing.append(log, [b"1", b"2"], revision=0)
        revisions = [(await indexing.read(f"run:{one.run_id}")).revision for one in headers]
        doomed = [
            Doomed(key=f"run:{one.run_id}", revision=revision - (number == 1), others=[log, f"{log}/gone"])
            for number, (one, revision, log) in enumerate(zip(headers, revisions, logs, strict=True))
        ]
        assert list(await indexing.delete_runs(doomed)) == [True, False, True]
        assert [(await indexing.read(log)).revision for log in logs] == [0, 2, 0]
        found = (await runs.history.page(RunQuery(tenant=runs.tenant))).items
        assert [one.run_id for one in found] == [headers[1].run_id]
        await runs.write(0)
        assert (await indexing.read(doomed[0].key)).revision > doomed[0].revision


class _Runs:
    """Writes headers of runs, all of one tenant."""

    def __init__(self, store: RunStore) -> None:
        self._store, self.history = store, RunHistory(store)
        self.tenant = f"suite-{uuid.uuid4().hex}"
        self._ids: set[str] = set()

    def header(self, number: int, *, hours: int = 0, took: int = 1, **fields: Any) -> RunHeader:
        """Return the header of a run that began some hours after the first, and took some hours."""
        began = _RUNS_BEGAN + timedelta(hours=hours)
        known = {"pipeline": "letters", "status": "finished", "spent": Spent()}
        run_id = f"{self.tenant}-{number}"
        self._ids.add(run_id)
        return RunHeader(
            run_id=run_id,
            epoch=new_epoch(),
            started_at=began,
            updated_at=began + timedelta(hours=took),
            tenant=self.tenant,
            **{**known, **fields},
        )

    async def write(self, number: int, **fields: Any) -> RunHeader:
        """Write the header of a new run."""
        header = self.header(number, **fields)
        await add_to_index(self._store, header)
        await self._store.compare_and_set(f"run:{header.run_id}", encode_header(header), revision=0)
        return header

    async def write_again(self, before: RunHeader, header: RunHeader) -> None:
        """Change a header."""
        await change_header(self._store, await read_header(self._store, before.run_id), header)

    async def delete_all(self) -> None:
        """Delete all runs of the tenant."""
        for run_id in self._ids:
            with suppress(RunNotFound):
                await self.history.delete(run_id)

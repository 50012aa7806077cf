"""Runs whose store fails at one call, or from one call on: nothing is lost, and nothing is done twice unsaid.

Every fifteenth call of a store in memory here, and a few of each server; every call of every store with
`make faults`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from durability.told_runs import Told, User, World, told
from support.examples import seed_of_choices
from support.faulty_store import Mishap, MishapStore
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE
from support.proxy import Break
from support.run_stores import run_stores
from support.served_stores import served
from support.virtual_time import in_virtual_time

from fastroai.errors import RunStoreUnavailable
from fastroai.store import MemoryRunStore, SQLiteRunStore

WHOLE: Final = bool(os.environ.get("FASTROAI_FAULTS"))
"""Whether something happens to every single call; else to some of them."""
SEED: Final = seed_of_choices("FASTROAI_FAULTS_SEED", searches=WHOLE)
STRIDE: Final = 1 if WHOLE else 15
SOME: Final = 3
"""Calls of each run of a server, and of a file."""
FOR_GOOD: Final = 1_000_000
SHORT: Final = 3
"""Calls, for which no run that goes on gives up."""
DOORS: Final = ("pipeline", "graph")
LENGTHS: Final[tuple[tuple[Mishap, int], ...]] = (
    ("fails", 1),
    ("fails", SHORT),
    ("fails", FOR_GOOD),
    ("unanswered", 1),
    ("unanswered", FOR_GOOD),
    ("twice", 1),
    ("twice", FOR_GOOD),
)

pytestmark = [pytest.mark.timeout(0)] if WHOLE else []


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Stores that fail are what this is about."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class Case:
    """One run, and the store that it is on."""

    def __init__(self, door: str, store: Any) -> None:
        self.world = World()
        self.door = getattr(self.world, door)()
        self.user = User(self.world, self.door, store)
        self.mended: Callable[[], None] = lambda: None
        self.user.on_failure = self._on_failure
        self.ran_before_failures = 0

    def _on_failure(self, ran: int) -> None:
        self.ran_before_failures += ran
        self.mended()

    async def told(self, working: Any) -> Told:
        """Bring the run to its end, and say what is on record then, read over a store that works."""
        result = await self.user.bring_to_an_end()
        self.mended()
        found = await told(self.world, self.door, result, working)
        assert_no_task_is_left()
        return found

    def check(self, found: Told, calm: Told, length: int) -> None:
        """Nothing is lost, and what is done again was not on record when the run was stopped."""
        assert (found.output, found.status) == (calm.output, calm.status)
        assert (found.facts, found.listed) == (calm.facts, calm.listed)
        stops = len(self.user.failures)
        for did, once in ((found.ran, calm.ran), (found.asked, calm.asked), (found.effects, calm.effects)):
            assert did.keys() == once.keys()
            assert all(once[name] <= did[name] <= once[name] + stops for name in did), did - once
        if length <= SHORT:
            assert not self.ran_before_failures, "a store that fails for a moment has stopped a run"
            assert (found.ran, found.asked, found.effects) == (calm.ran, calm.asked, calm.effects)


def where(calls: int, key: str) -> range | list[int]:
    """The numbers of the calls to which something happens."""
    return range(1 if WHOLE else random.Random(f"{SEED} {key}").randint(1, STRIDE), calls + 1, STRIDE)


def noted(error: BaseException, what: str) -> None:
    error.add_note(f"{what}; set FASTROAI_FAULTS_SEED={SEED}")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("mishap", "length"), LENGTHS)
@in_virtual_time
async def test_whatever_happens_at_a_call_of_a_store_a_run_comes_to_its_end_and_repeats_nothing(
    mishap: Mishap, length: int, door: str
) -> None:
    store = MishapStore(MemoryRunStore())
    calm = await Case(door, store).told(store.inner)
    for number in where(len(store.calls), f"{mishap} {length} {door}"):
        broken = MishapStore(MemoryRunStore(), mishap, range(number, number + length))
        assert await strike(door, broken, calm, length)


async def strike(door: str, store: MishapStore, calm: Told, length: int) -> bool:
    """One run over a store to which something happens; whether it came to that call."""
    case, numbers = Case(door, store), store.at
    case.mended = lambda: void(setattr(store, "at", range(0) if length == FOR_GOOD else store.at))
    try:
        case.check(await case.told(store.inner), calm, length)
    except BaseException as error:
        noted(error, f"{store.mishap} at call {numbers.start}: {store.calls[numbers.start - 1 :][:1]}")
        raise
    return len(store.calls) >= numbers.start


def void(_: object) -> None: ...


@pytest.mark.parametrize("door", DOORS)
@in_virtual_time
async def test_a_run_whose_store_never_answers_ends_when_it_is_cancelled_and_goes_on_later(door: str) -> None:
    store = MishapStore(MemoryRunStore())
    calm = await Case(door, store).told(store.inner)
    for number in where(len(store.calls), f"hangs {door}"):
        silent = MishapStore(MemoryRunStore(), "hangs", range(number, FOR_GOOD))
        case = Case(door, silent)
        running = asyncio.create_task(case.user.bring_to_an_end())
        try:
            await asyncio.wait([running], timeout=3600)
            assert not running.done(), "it went on without its store"
            running.cancel()
            await asyncio.wait([running], timeout=PATIENCE)
            assert running.cancelled(), "it did not end"
            silent.at = range(0)
            case.user.failures.append(RunStoreUnavailable("it", "was silent"))
            case.check(await case.told(silent.inner), calm, FOR_GOOD)
        except BaseException as error:
            noted(error, f"silent from call {number} on: {silent.calls[number - 1 : number]}")
            raise


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are tried as often as they are, with shorter pauses."""
    monkeypatch.setattr("fastroai.store.record.journal.backoff_delay", lambda *_: 0.002)
    monkeypatch.setattr("fastroai.store.record.runs._PAUSES", (0.002, 0.002, None))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
@pytest.mark.usefixtures("quickly")
async def test_whatever_happens_at_a_call_of_a_real_store_a_run_comes_to_its_end(
    kind: str, door: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with run_stores(kind, request, tmp_path) as open_store:
        real = open_store()
        store = MishapStore(real)
        calm = await Case(door, store).told(real)
        numbers = where(len(store.calls), f"{kind} {door}")
        cases = [(number, *one) for number in numbers for one in LENGTHS]
        struck = 0
        for number, mishap, length in cases if WHOLE else random.Random(SEED).sample(cases, SOME):
            await forget_all(real)
            broken = MishapStore(real, mishap, range(number, number + length))
            struck += await strike(door, broken, calm, length)
        assert struck, "how many entries a write has depends on time, but not for all of these"
        await real.aclose()


async def forget_all(store: Any) -> None:
    while found := await store.list(""):
        for one in found:
            await store.delete(one.key)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.usefixtures("quickly")
async def test_a_file_that_another_process_holds_for_a_while_stops_a_run_which_goes_on_later(
    door: str, tmp_path: Path
) -> None:
    calls: list[str] = []
    calm: Told | None = None
    numbers: Any = [FOR_GOOD]
    while numbers:
        number, *numbers = numbers
        path = tmp_path / f"{door}-{number}.db"
        store, other = SQLiteRunStore(path), sqlite3.connect(path, isolation_level=None)
        hasty = SQLiteRunStore(path, timeout=0.05)
        held = Held(store if calm is None else hasty, other, number)
        case = Case(door, held)
        case.mended = held.let_go
        try:
            found = await case.told(store)
            if calm is None:
                calm, calls = found, held.calls
                chosen = where(len(calls), f"held {door}")
                numbers = [*chosen] if WHOLE else random.Random(SEED).sample([*chosen], SOME)
            case.check(found, calm, FOR_GOOD)
        except BaseException as error:
            noted(error, f"held from call {number} on: {calls[number - 1 : number]}")
            raise
        await store.aclose()
        await hasty.aclose()
        other.close()


class Held(MishapStore):
    """A file that another connection holds from a call on, until it lets go."""

    def __init__(self, store: SQLiteRunStore, other: sqlite3.Connection, number: int) -> None:
        super().__init__(store)
        self._other, self._number = other, number

    def let_go(self) -> None:
        if self._other.in_transaction:
            self._other.execute("ROLLBACK")

    async def _call(self, name: str, key: str, perform: Callable[[], Awaitable[Any]]) -> Any:
        if len(self.calls) == self._number - 1:
            self._other.execute("BEGIN IMMEDIATE")
        return await super()._call(name, key, perform)


# --- on the wire ---


BREAKS: Final[tuple[tuple[Break, int], ...]] = (
    ("refused", 1),
    ("refused", FOR_GOOD),
    ("unanswered", 1),
    ("unanswered", FOR_GOOD),
    ("silent", 1),
    ("silent", FOR_GOOD),
)
NO_SILENCE: Final = 30.0
"""Seconds that a server has for an answer where no answer stays away."""
SILENCE: Final = 1.0
"""... where one does, which is to stop nothing."""
LONG_SILENCE: Final = 0.1
"""... where all do, until the run has been stopped."""


def time_for_answers(kind_of_break: Break, length: int) -> float:
    if kind_of_break != "silent":
        return NO_SILENCE
    return SILENCE if length <= SHORT else LONG_SILENCE


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ["redis", "postgres"])
@pytest.mark.usefixtures("quickly")
async def test_whatever_happens_on_the_way_to_a_server_a_run_comes_to_its_end_and_repeats_nothing(
    kind: str, door: str, request: pytest.FixtureRequest
) -> None:
    with served(kind, request, timeout=NO_SILENCE) as place:
        direct, proxy, first = place.direct, place.proxy, place.open_store()
        calm = await Case(door, first).told(direct)
        await first.aclose()
        numbers = where(proxy.exchanges, f"wire {kind} {door}")
        cases = [(number, *one) for number in numbers for one in BREAKS]
        struck = 0
        for number, kind_of_break, length in cases if WHOLE else random.Random(SEED).sample(cases, SOME):
            await forget_all(direct)
            proxy.exchanges = 0
            proxy.breaks = kind_of_break, range(number, number + length)
            store = place.open_store(time_for_answers(kind_of_break, length))
            case = Case(door, store)

            def mend(length: int = length) -> None:
                if length == FOR_GOOD:
                    proxy.breaks = "refused", range(0)
                    proxy.cut()  # as a server that was restarted

            case.mended = mend
            try:
                case.check(await case.told(direct), calm, length)
            except BaseException as error:
                noted(error, f"{kind_of_break} at exchange {number}, {length} of them")
                raise
            struck += proxy.exchanges >= number
            proxy.breaks = "refused", range(0)
            await store.aclose()
        assert struck, "how many exchanges there are depends on time, but not for all of these"

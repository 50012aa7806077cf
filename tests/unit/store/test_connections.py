"""Blocking operations behind async ones: cancelled, failing, hanging, forked, and at the exit of Python."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from support.patience import PATIENCE

from fastroai.errors import SpendStoreUnavailable, StoreUnavailable
from fastroai.store.backends.connections import Connections

LONG = float(PATIENCE)


class Lost(Exception):
    pass


class Failed(Exception):
    pass


class Line:
    """A connection that waits until it is told to go on, or is hung up."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.hung_up = False
        self.closed = False

    def wait(self) -> str:
        self.begun.set()
        assert self.go_on.wait(LONG)
        if self.hung_up:
            raise Lost("hung up")
        return "done"


class FakeDriver:
    name = "fake"
    errors = (Lost, Failed)
    closes_before_fork = False
    address = None

    def __init__(self, timeout: float = LONG) -> None:
        self.timeout = timeout
        self.lines: list[Line] = []
        self.refusing = False
        self.connecting = threading.Event()
        self.may_connect = threading.Event()
        self.may_connect.set()

    def connect(self) -> Line:
        self.connecting.set()
        assert self.may_connect.wait(LONG)
        if self.refusing:
            raise Lost("nobody there")
        self.lines.append(Line())
        return self.lines[-1]

    def close(self, connection: Line) -> None:
        connection.closed = True

    def hang_up(self, connection: Line) -> None:
        connection.hung_up = True
        connection.go_on.set()

    def is_lost(self, error: Exception) -> bool:
        return isinstance(error, Lost)

    def unavailable(self, reason: str, error: Exception | None) -> StoreUnavailable:
        return SpendStoreUnavailable(self.name, reason)


def failing(error: Exception, times: int = 1) -> Callable[[Line], str]:
    left = [error] * times

    def operation(line: Line) -> str:
        if left:
            raise left.pop()
        return "done"

    return operation


async def begun(driver: FakeDriver, number: int = 0) -> Line:
    """The connection, once an operation waits on it."""
    while len(driver.lines) <= number:
        await asyncio.sleep(0)
    assert await asyncio.to_thread(driver.lines[number].begun.wait, LONG)
    return driver.lines[number]


async def test_many_operations_share_few_connections() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=2)
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Event()

    def operation(line: Line) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                both.set()
        assert both.wait(LONG)
        with lock:
            running -= 1
        return threading.current_thread().name

    names = await asyncio.gather(*(connections.run(operation) for _ in range(20)))
    assert (most, len(driver.lines), set(names)) == (2, 2, {"fastroai-store"})
    await connections.run(lambda line: None)
    assert len(driver.lines) == 2


async def test_who_cancels_an_operation_that_has_begun_waits_for_its_end() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    task = asyncio.create_task(connections.run(Line.wait))
    line = await begun(driver)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    following = asyncio.create_task(connections.run(lambda line: line.go_on.is_set()))
    await asyncio.sleep(0)
    assert not task.done()
    line.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await following
    assert (len(driver.lines), line.closed) == (1, False)


async def test_a_cancelled_scope_waits_too() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    finished = False

    def operation(line: Line) -> None:
        nonlocal finished
        line.wait()
        finished = True

    async with anyio.create_task_group() as group:
        group.start_soon(connections.run, operation)
        line = await begun(driver)
        group.cancel_scope.cancel()
        asyncio.get_running_loop().call_soon(line.go_on.set)
    assert finished


async def test_an_operation_that_is_cancelled_in_the_queue_never_begins() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    first = asyncio.create_task(connections.run(Line.wait))
    line = await begun(driver)
    done: list[str] = []
    second = asyncio.create_task(connections.run(lambda line: done.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    line.go_on.set()
    assert await first == "done"
    await connections.run(lambda line: done.append("third"))
    assert done == ["third"]


async def test_an_error_of_the_database_says_that_the_store_is_unavailable() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    with pytest.raises(SpendStoreUnavailable) as caught:
        await connections.run(failing(Failed("no such table\nHINT: secret")))
    assert (caught.value.store, caught.value.reason) == ("fake", "Failed: no such table")
    assert isinstance(caught.value.__cause__, Failed)
    with pytest.raises(SpendStoreUnavailable, match="is unavailable: Failed;"):
        await connections.run(failing(Failed()))
    assert [line.closed for line in driver.lines] == [True, True]


async def test_other_errors_stay_what_they_are_and_leave_no_broken_connection() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    with pytest.raises(ZeroDivisionError):
        await connections.run(failing(ZeroDivisionError()))
    assert driver.lines[0].closed
    assert await connections.run(failing(Failed(), times=0)) == "done"


async def test_what_fails_on_a_connection_that_was_lost_while_idle_is_repeated_on_a_fresh_one() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    await connections.run(lambda line: None)
    assert await connections.run(failing(Lost())) == "done"
    assert [line.closed for line in driver.lines] == [True, False]
    with pytest.raises(SpendStoreUnavailable):
        await connections.run(failing(Lost(), times=2))
    with pytest.raises(SpendStoreUnavailable):
        await connections.run(failing(Lost()))
    await connections.run(lambda line: None)
    with pytest.raises(SpendStoreUnavailable):
        await connections.run(failing(Failed()))
    driver.refusing = True
    with pytest.raises(SpendStoreUnavailable, match="nobody there"):
        await connections.run(lambda line: None)


async def test_who_gets_no_answer_is_told_and_the_connection_is_freed() -> None:
    driver = FakeDriver(timeout=0.01)
    connections = Connections(driver, limit=1)
    with pytest.raises(SpendStoreUnavailable, match=r"no answer within 0\.02 s"):
        await connections.run(Line.wait)
    driver.timeout = LONG
    assert await connections.run(lambda line: "next") == "next"
    assert [line for line in driver.lines if not line.closed] == driver.lines[-1:]
    assert not driver.lines[-1].hung_up


async def test_an_operation_that_hangs_on_an_idle_connection_is_not_repeated() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    await connections.run(lambda line: None)
    driver.timeout = 0.01
    begun: list[Line] = []

    def operation(line: Line) -> str:
        begun.append(line)
        return line.wait()

    with pytest.raises(SpendStoreUnavailable, match="no answer"):
        await connections.run(operation)
    driver.timeout = LONG
    await connections.run(lambda line: None)
    assert len(begun) <= 1


async def test_an_operation_that_nobody_waits_for_any_more_never_begins() -> None:
    driver = FakeDriver(timeout=0.01)
    driver.may_connect.clear()
    connections = Connections(driver, limit=1)
    done: list[str] = []
    for name in ("connecting", "in the queue"):
        with pytest.raises(SpendStoreUnavailable, match="no answer"):
            await connections.run(lambda line, name=name: done.append(name))
    driver.timeout = LONG
    driver.may_connect.set()
    await connections.run(lambda line: done.append("next"))
    assert done == ["next"]
    assert [line for line in driver.lines if not line.closed] == driver.lines[-1:]


async def test_who_cancels_does_not_wait_for_ever() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    driver.may_connect.clear()
    task = asyncio.create_task(connections.run(lambda line: None))
    assert await asyncio.to_thread(driver.connecting.wait, LONG)
    driver.timeout = 0.01
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    driver.may_connect.set()


async def test_closing_ends_the_idle_connections_and_new_ones_can_be_opened() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    await connections.run(lambda line: None)
    await connections.aclose()
    await connections.run(lambda line: None)
    assert [line.closed for line in driver.lines] == [True, False]


@pytest.mark.slow
async def test_a_store_that_nobody_has_any_more_leaves_neither_connections_nor_threads() -> None:
    driver = FakeDriver()
    connections = Connections(driver, limit=1)
    thread = await connections.run(lambda line: threading.current_thread())
    del connections
    gc.collect()
    await asyncio.to_thread(thread.join, LONG)
    assert not thread.is_alive()
    assert driver.lines[0].closed


def run_script(folder: Path, script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PREAMBLE + script, str(folder / "spend.db")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.split()


PREAMBLE = """
import asyncio, atexit, os, sys, threading, time
from decimal import Decimal
from fastroai.store import SQLiteSpendStore
from fastroai.usage import SpendAccount, SpendClaim

store = SQLiteSpendStore(sys.argv[1])
account = SpendAccount(key="a", window="total")

def claim(name):
    return SpendClaim(id=name, account=account, amount_usd=Decimal(1), limit_usd=Decimal(9), lease=30)

async def spend(name):
    assert (await store.reserve(claim(name))).granted
    return (await store.settle(claim(name), Decimal(1))).spent_usd
"""


@pytest.mark.slow
def test_a_forked_process_uses_connections_of_its_own(tmp_path: Path) -> None:
    script = """
def opened():
    while store._is_sweeping:  # a search for old accounts, which uses connections, too
        time.sleep(0.001)
    connections = store.runs.connections
    connections._workers.submit(int).result()  # a write is told before its connection is idle again
    return list(connections._idle)

print(asyncio.run(spend("parent")), flush=True)
before = opened()
assert before
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    assert not opened(), "SQLite's connections are closed before a fork"
    print(asyncio.run(spend("parent again")))
else:
    assert not opened()
    print(asyncio.run(spend("child")))
    idle = opened()
    assert idle and before[0] not in idle
"""
    assert run_script(tmp_path, script) == ["1", "2", "3"]


@pytest.mark.slow
def test_what_is_settled_while_python_exits_is_settled(tmp_path: Path) -> None:
    script = """
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
atexit.register(lambda: print(asyncio.run_coroutine_threadsafe(spend("late"), loop).result(300)))
asyncio.run(spend("early"))
"""
    assert run_script(tmp_path, script) == ["2"]

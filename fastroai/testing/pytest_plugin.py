"""The plugin for pytest: fixtures, and real model requests that are blocked once that is switched on.

It needs no asyncio plugin, and imports nothing until it is used.
"""

import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from fastroai.store import MemoryRunStore
    from fastroai.testing.clocks import ManualClock
    from fastroai.testing.server import ModelServer
    from fastroai.usage import SpendStore

pytest.register_assert_rewrite("fastroai.testing.run_store_suite")

_BLOCK: Final = "fastroai_block_model_requests"
_RECORD: Final = "--record-models"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that switches blocking on, and the one that records."""
    parser.addini(
        _BLOCK, "Block requests of models to other machines, in all tests.", type="bool", default=False
    )
    group = parser.getgroup("fastroai")
    group.addoption(
        _RECORD,
        action="store_true",
        help="let tests with the fixture `recording` ask real models, and record them",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Block real model requests in a test, its fixtures included, where that is switched on."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    is_on = item.config.getini(_BLOCK) or "block_model_requests" in fixtures
    if not is_on or {"allow_model_requests", "recording"}.intersection(fixtures):
        return (yield)
    from fastroai.testing.model_requests import model_requests_checked, refuse_other_machines

    with model_requests_checked(refuse_other_machines):
        return (yield)


@pytest.fixture
def block_model_requests() -> None:
    """Block requests of models to other machines, as `fastroai_block_model_requests` does for all tests."""


@pytest.fixture
def allow_model_requests() -> None:
    """Allow real model requests in this test, whatever the option `fastroai_block_model_requests` says."""


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Answer the models of the test from a recording; with `--record-models`, ask them, and record.

    The value is the file, in the folder `recordings` beside the test: `test_desk.test_answers.json`.
    """
    from fastroai.testing.recordings import recorded, replayed

    node: pytest.Item = request.node
    path = node.path.parent / "recordings" / f"{node.path.stem}.{_file_name(node)}.json"
    how = f"To record, run: pytest {_RECORD} '{node.nodeid}'"

    def tell(difference: str) -> None:
        node.add_report_section("call", "recording", difference)

    failed_before = request.session.testsfailed
    try:
        with recorded(path, how) if request.config.getoption(_RECORD) else replayed(path, how, tell):
            yield path
            if request.session.testsfailed > failed_before:
                raise _TestFailed
    except _TestFailed:
        pass


def _file_name(node: pytest.Item) -> str:
    """Return the name of a test, with its class and parameters, as part of the name of a file."""
    name = ".".join(node.nodeid.split("::")[1:])
    safe = re.sub(r"[^\w.\[\]-]+", "-", name)
    return safe if safe == name else f"{safe}-{zlib.crc32(name.encode()):08x}"


class _TestFailed(Exception):
    """Ends a recording without a word: the test has failed already, and says why."""


@pytest.fixture
def run_clock() -> "ManualClock":
    """A clock that stands still until the test sets it. `run_store` and `spend_store` go by it."""
    from fastroai.testing.clocks import ManualClock

    return ManualClock()


@pytest.fixture
def run_store(run_clock: "ManualClock") -> "MemoryRunStore":
    """An empty store of runs in memory, whose clock is `run_clock`."""
    from fastroai.store import MemoryRunStore

    return MemoryRunStore(clock=run_clock)


@pytest.fixture
def spend_store(run_store: "MemoryRunStore") -> "SpendStore":
    """An empty store for spend limits, `SpendLimit(usd=5, store=spend_store)`, whose clock is `run_clock`."""
    from fastroai.store import open_spend_store

    return open_spend_store(run_store)


@pytest.fixture(scope="session")
def _running_model_server() -> "Iterator[ModelServer]":
    from fastroai.testing.server import ModelServer

    with ModelServer() as server:
        yield server


@pytest.fixture
def model_server(_running_model_server: "ModelServer") -> "Iterator[ModelServer]":
    """A running `fastroai.testing.ModelServer`, with nothing scripted and an empty ledger."""
    # One server for the whole session: a test then starts in microseconds.
    _running_model_server.reset()
    yield _running_model_server
    _running_model_server.reset()


@pytest.fixture
def empty_spend_limits() -> Iterator[None]:
    """Empty the memory of the process, in which a `SpendLimit` without a store counts.

    Switch it on for all tests in `pyproject.toml`: `usefixtures = ["empty_spend_limits"]`.
    """
    _empty_spend_limits()
    yield
    _empty_spend_limits()


def _empty_spend_limits() -> None:
    if (counted := sys.modules.get("fastroai.usage.shared.memory_spend_store")) is not None:
        counted.default_spend_store().clear()

"""The suite itself: what it reports, and what its results do not depend on."""

from __future__ import annotations

import asyncio
import io
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from support.event_loops import close_event_loops
from support.examples import FUZZ
from support.failures import FailuresAtOnce
from support.fork_server import run_script


def test_an_event_loop_that_a_test_leaves_open_is_closed_and_named() -> None:
    loop = asyncio.new_event_loop()
    closed = asyncio.new_event_loop()
    closed.close()
    [place] = close_event_loops()
    assert place.startswith(f"{__file__}:")
    assert loop.is_closed()
    assert close_event_loops() == []


async def test_an_event_loop_that_runs_is_not_left_over() -> None:
    assert close_event_loops() == []
    assert not asyncio.get_running_loop().is_closed()


def test_the_event_loop_that_pydantic_ai_keeps_for_its_sync_calls_is_closed_behind_it() -> None:
    Agent("test").run_sync("hello")
    loop = asyncio.get_event_loop_policy().get_event_loop()
    assert not loop.is_closed()
    assert close_event_loops() == []
    assert loop.is_closed()


def test_a_failure_is_said_at_once(pytestconfig: pytest.Config) -> None:
    said = io.StringIO()
    plugin = FailuresAtOnce(pytest.TerminalReporter(pytestconfig, said))
    place = ("tests/test_it.py", 1, "test_it")
    options = {"nodeid": "tests/test_it.py::test_it", "location": place, "keywords": {}, "when": "call"}
    plugin.pytest_runtest_logreport(pytest.TestReport(outcome="passed", longrepr=None, **options))
    assert said.getvalue() == ""
    plugin.pytest_runtest_logreport(pytest.TestReport(outcome="failed", longrepr=None, **options))
    assert said.getvalue() == "\nFAILED tests/test_it.py::test_it (call)\n"


@pytest.mark.skipif(bool(FUZZ), reason="`make fuzz` searches at random")
def test_the_examples_of_a_property_do_not_depend_on_what_was_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[str]] = [[], []]

    def tried(seen: list[str]) -> None:
        @given(st.text())
        def note(text: str) -> None:
            seen.append(text)

        note()

    tried(drawn[0])
    home = tmp_path / "ours.py"
    home.write_text("\n".join(f"CONSTANT_{number} = 'constant {number}'" for number in range(500)))
    module = types.ModuleType("ours")
    module.__file__ = str(home)
    monkeypatch.setitem(sys.modules, "ours", module)
    tried(drawn[1])
    assert drawn[0] == drawn[1]


@pytest.fixture(scope="module")
def loop_of_many_tests() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("number", range(2))
def test_an_event_loop_of_a_fixture_of_many_tests_stays_open(
    loop_of_many_tests: asyncio.AbstractEventLoop, number: int
) -> None:
    assert not loop_of_many_tests.is_closed()


def test_what_the_fork_server_imports_is_there_in_each_fork(tmp_path: Path) -> None:
    """It says nothing of what it cannot import, and each fork would import all of it again."""
    done = run_script("import sys\nprint('support.preloaded' in sys.modules)", tmp_path)
    assert (done.code, done.out, done.err) == (0, "True\n", "")

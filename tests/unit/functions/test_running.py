"""`run` for scripts: a clear error on a running loop, and no hang on tasks that are left over."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from fastroai.errors import ConfigurationError, RunningLoopError
from fastroai.functions import running
from fastroai.functions.running import run


async def give(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_the_result_is_returned_each_time() -> None:
    assert [run(give(1)), run(give(2))] == [1, 2]


def test_what_was_not_called_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"run=<function give.*expected a call, such as run\("):
        run(give)  # type: ignore[arg-type]


def test_an_exception_is_raised() -> None:
    async def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        run(fail())


async def test_on_a_running_loop_the_error_says_what_to_write() -> None:
    with pytest.raises(RunningLoopError, match=r"use: await give\(\.\.\.\)"):
        run(give(1))


def test_tasks_that_are_left_over_are_cancelled() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def leave_one() -> int:
        asyncio.get_running_loop().left = asyncio.create_task(forever())  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        return 1

    assert run(leave_one()) == 1
    assert ended == ["cancelled"]


def test_a_task_that_ignores_its_cancellation_does_not_keep_the_program(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "LAST_WORDS", 0.01)
    goes_on, kept = threading.Event(), list[object]()

    async def stubborn() -> None:
        while not goes_on.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def leave_one() -> int:
        kept.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0)
        return 1

    with caplog.at_level(logging.WARNING, logger="fastroai.functions"):
        assert run(leave_one()) == 1
    assert "did not end within 0.01 s" in caplog.text


def test_a_thread_that_is_left_over_does_not_keep_the_program() -> None:
    release = threading.Event()

    async def leave_one() -> int:
        asyncio.get_running_loop().run_in_executor(None, release.wait)
        return 1

    assert run(leave_one()) == 1
    release.set()

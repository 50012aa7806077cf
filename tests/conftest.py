"""What holds for every test: each live run that it makes is one that its state machine can replay."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from support.servers import postgres_dsn, redis_url

from fastroai.pipelines.machine import PipelineMachine

__all__ = ["postgres_dsn", "redis_url"]
"""Fixtures for all tests."""


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> None:
    """Ctrl-C works in the tests of it, also where the suite runs in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def live_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PipelineMachine]]:
    """The state machines of a test's pipeline runs, each of which must decide the same again."""
    machines: list[PipelineMachine] = []

    class RecordedMachine(PipelineMachine):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            machines.append(self)

    monkeypatch.setattr("fastroai.pipelines.pipeline.PipelineMachine", RecordedMachine)
    yield machines
    for machine in machines:
        assert_replays(machine)


def assert_replays(machine: PipelineMachine) -> None:
    """Feed what happened to a machine that knows nothing of it, and compare what it decides."""
    fresh = PipelineMachine(machine.plan, exempt=machine.exempt, max_concurrency=machine.max_concurrency)
    for event, commands in machine.journal:
        assert fresh.handle(event) == commands, f"replaying {event} decides otherwise than the live run did"

"""What holds for every test: its runs can be replayed, and it leaves nothing behind in budgets and bounds."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.event_loops import ClosedLoops, watch_event_loops
from support.examples import load_profiles
from support.failures import FailuresAtOnce
from support.servers import postgres_dsn, redis_url

from fastroai.errors import ValueNotStorable
from fastroai.graphs.facts import ValueWritten
from fastroai.graphs.machine.replay import first_divergence as divergence_of_graph
from fastroai.graphs.machine.routing import Choice
from fastroai.graphs.run import GraphRun
from fastroai.graphs.setup import GraphSetup
from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.replay import Orchestrated, Orchestration, first_divergence
from fastroai.pipelines.run import PipelineRun
from fastroai.pipelines.setup import PipelineSetup
from fastroai.runs.execution import OpenRun
from fastroai.runs.nesting import NestedStep
from fastroai.runs.running.machine import Decision, Told
from fastroai.runtime.budgets.ledger import Account
from fastroai.runtime.fact_base import NOWHERE, Fact
from fastroai.runtime.facts import RunFinished, RunStarted, StepFinished
from fastroai.store.reading.trace import RunTrace
from fastroai.store.record.entries import entry_in_store, entry_to_store, located
from fastroai.store.record.log import Log
from fastroai.store.record.values import value_to_json
from fastroai.usage.bounding import bounds
from fastroai.usage.bounding.known_inputs import KnownInputs

__all__ = ["postgres_dsn", "redis_url"]
"""Fixtures for all tests."""

load_profiles()

# Coverage is that of the tests' own processes: the programs that they start need not be slowed down.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)

# Clients of providers trust one authority, whose key nobody has: no test needs more, and each new client,
# of which there are a thousand, would read those of the system for 20 ms.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "authority.pem")

# Programs of the tests that run pytest load no plugins that need a second and that none of them uses.
os.environ["PYTEST_ADDOPTS"] = "-p no:langsmith_plugin -p no:logfire -p no:pytest_logfire"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The garbage collector leaves alone the million objects that every test module and SDK is made of.

    While the tests run, it runs after more allocations than by default.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000)


watch_event_loops()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ClosedLoops())
    if (terminal := config.pluginmanager.get_plugin("terminalreporter")) is not None:
        config.pluginmanager.register(FailuresAtOnce(terminal))


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> None:
    """Ctrl-C works in the tests of it, also where the suite runs in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class RecordedMachine(PipelineMachine):
    """Keeps what it was told, and what it decided."""

    made: ClassVar[list[RecordedMachine]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.options = {**options, "part": NOWHERE}
        self.journal: list[tuple[Told, list[Decision]]] = []
        self.made.append(self)

    def handle(self, fact: Told) -> list[Decision]:
        decisions = super().handle(fact)
        self.journal.append((fact, [replace(one) for one in decisions]))
        return decisions


class RecordedAccount(Account):
    __slots__ = ()
    opened: ClassVar[list[Account]] = []

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.opened.append(self)


class ShadowedPipeline(PipelineRun):
    def __init__(self, setup: PipelineSetup, opened: OpenRun, request: Any) -> None:
        super().__init__(setup, opened, request)
        note_log(setup, opened)


class ShadowedGraph(GraphRun):
    def __init__(self, setup: GraphSetup, opened: OpenRun, *rest: Any, **options: Any) -> None:
        super().__init__(setup, opened, *rest, **options)
        note_log(setup, opened)


LOGS: list[tuple[PipelineSetup | GraphSetup, Log]] = []
"""Those of the runs of a test that no store keeps."""


def note_log(setup: PipelineSetup | GraphSetup, opened: OpenRun) -> None:
    if opened.kept is None and opened.log.scope is opened.scope:
        LOGS.append((setup, opened.log))


WATCHING = {
    "fastroai.pipelines.setup.PipelineMachine": RecordedMachine,
    "fastroai.pipelines.pipeline.PipelineRun": ShadowedPipeline,
    "fastroai.graphs.graph.GraphRun": ShadowedGraph,
    "fastroai.runtime.scope.Account": RecordedAccount,
}


@pytest.fixture(scope="session", autouse=True)
def watched() -> Iterator[None]:
    """The machines, budgets and logs of runs are noted: once for all tests, of which there are thousands."""
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in WATCHING.items():
            patch.setattr(name, kind)
        yield


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are as they are for users, for what their calls and bytes are counted of."""
    for name, kind in WATCHING.items():
        monkeypatch.setattr(name, kind.__base__)


@pytest.fixture(autouse=True)
def whole(watched: None) -> Iterator[None]:
    """The runs of a test can be replayed, and nothing is left of it in budgets and bounds."""
    bounds.KNOWN_INPUTS = KnownInputs()  # what its providers reported bounds no request of another test
    for noted in (RecordedMachine.made, RecordedAccount.opened, LOGS):
        noted.clear()  # and keeps no scope alive
    yield
    for account in RecordedAccount.opened:
        assert_is_idle(account)
    for setup, log in LOGS:
        assert_reads_and_replays(setup, log)
    for machine in RecordedMachine.made:
        assert_replays(machine)
    for noted in (RecordedMachine.made, RecordedAccount.opened, LOGS):
        noted.clear()


@pytest.fixture
def accounts(whole: None) -> list[Account]:
    """The budgets of a test."""
    return RecordedAccount.opened


def assert_is_idle(account: Account) -> None:
    """In the end nothing is reserved of a budget, and nobody waits for it."""
    assert account.ledger.is_idle, f"the budget of {account.path} still holds something"
    reserved = account.reserved_usd, account.reserved_tokens, account.reserved_requests
    assert not any(reserved), f"reserved of {account.path}: {reserved}"


def assert_reads_and_replays(setup: PipelineSetup | GraphSetup, log: Log) -> None:
    """A run that no store keeps has a log all the same, which reads and replays as it was."""
    facts = log.facts()
    stored = [entry_to_store(fact) for fact in facts]
    shadow = [entry_in_store(log.scope.run_id, at, one) for at, one in enumerate(stored, 1)]
    # As bytes: not every number is equal to itself.
    assert [entry_to_store(fact) for fact in located(shadow)] == stored, "the log reads otherwise"
    assert sum(isinstance(fact, RunFinished) for fact in facts) <= 1, "a run ends once"
    if isinstance(setup, PipelineSetup):
        divergence = first_divergence(_orchestration(setup), RunTrace(shadow))
    elif _could_be_stored(setup, log):
        divergence = divergence_of_graph(setup, RunTrace(shadow))
    else:
        return
    assert divergence is None, f"{divergence} in {[fact.kind for fact in facts]}"


def _could_be_stored(setup: GraphSetup, log: Log) -> bool:
    """Whether a store would take the values of a run: its conditions read them."""
    try:
        for fact in log.live.newest:
            match fact:
                case RunStarted():
                    value_to_json(dict(fact.inputs), None, "inputs")
                case StepFinished() if not isinstance(fact.output, Choice):
                    value_to_json(fact.output, setup.declared.get(fact.step_id), "an output")
                case ValueWritten():
                    value_to_json(fact.value, None, "a value")
                case _:
                    pass
    except ValueNotStorable:
        return False
    return True


def _orchestration(setup: PipelineSetup) -> Orchestration:
    nested = {
        step_id: one.inner.orchestrations()
        for step_id, one in setup.steps.items()
        if isinstance(one, NestedStep) and isinstance(one.inner, Orchestrated)
    }
    return Orchestration(setup=setup, nested=nested)


def assert_replays(machine: RecordedMachine) -> None:
    """Feed what happened to a machine that knows nothing of it, and compare what it decides."""
    fresh = PipelineMachine(machine.plan, **machine.options)
    for fact, decisions in machine.journal:
        decided = fresh.handle(fact)
        assert [_shown(one) for one in decided] == [_shown(one) for one in decisions], (
            f"replaying {fact} decides otherwise than the live run did"
        )


def _shown(decision: Decision) -> Decision:
    """Without what only the live run knows."""
    if isinstance(decision, RunFinished):
        return replace(decision, part=NOWHERE, raised=None, duration_ms=0.0, spent_in=None)
    return replace(decision, part=NOWHERE) if isinstance(decision, Fact) else decision

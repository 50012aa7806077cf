"""A graph's state machine, driven by a simulated clock through what a design says its nodes do."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import pytest

from fastroai.errors import MemoryConflict, VisitsExhausted
from fastroai.expressions import Expression
from fastroai.graphs.branches import Branch, Fork
from fastroai.graphs.edge import Edge
from fastroai.graphs.events import (
    AskDecider,
    BranchTimedOut,
    Cancelled,
    CancelVisit,
    Command,
    Decided,
    Event,
    Failed,
    Finish,
    Started,
    StartNode,
    Succeeded,
    Visit,
)
from fastroai.graphs.machine import GraphMachine
from fastroai.graphs.plan import GraphPlan
from fastroai.graphs.routing import Decision
from support.graph_reference import (
    IN_A_CIRCLE,
    TIMED_OUT,
    VIOLATION,
    Design,
    Outcome,
    Seen,
    error_text,
    writes_of,
)


def plan_of(design: Design) -> GraphPlan:
    edges = {
        node: tuple(
            Edge(way.source, way.target, way.when, way.condition, way.fallback)  # type: ignore[arg-type]
            for way in design.ways_from(node)
        )
        for node in design.nodes
    }
    return GraphPlan(
        nodes=tuple(design.nodes),
        edges=edges,
        conditions={
            edge: Expression(edge.condition)
            for outgoing in edges.values()
            for edge in outgoing
            if edge.condition is not None
        },
        entry=design.entry,
        terminals=design.terminals,
        reads={name: frozenset(part.reads) for name, part in design.nodes.items() if part.reads},
        writes={name: part.writes for name, part in design.nodes.items() if part.writes},
        max_visits={name: part.max_visits for name, part in design.nodes.items() if part.max_visits},
        max_steps=design.max_steps,
        on_branch_failure=design.on_branch_failure,
        on_conflict=design.on_conflict,
        max_concurrency=design.max_concurrency,
    )


class Simulation:
    """Performs the machine's commands in simulated time, and notes what a live run would show."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.machine = GraphMachine(plan_of(design))
        self.now = 0.0
        self.seen: list[Seen] = []
        self.finish: Finish | None = None
        self._due: list[tuple[float, int, Event]] = []
        self._number = 0
        self._running: dict[Visit, bool] = {}
        """Whether it was cancelled."""
        self._time_left: dict[Branch, float] = {}
        """Of the time that each branch may work; of those that do, at the moment when they began to."""
        self._alarms: dict[Branch, tuple[float, BranchTimedOut]] = {}
        """Of those that work: since when, and what happens if they go on."""

    def run(self) -> Outcome:
        self._take(Started(dict(self.design.inputs)))
        while self._due:
            at, _, event = heapq.heappop(self._due)
            if self._is_void(event):
                continue
            self.now = at
            self._take(event)
        assert self.finish is not None
        return self._outcome(self.finish)

    def _is_void(self, event: Event) -> bool:
        if self.finish is not None:
            return True
        if isinstance(event, BranchTimedOut):
            return all(event is not alarm for _, alarm in self._alarms.values())
        return not isinstance(event, Cancelled) and self._running.get(event.visit, True)  # type: ignore[union-attr]

    def _take(self, event: Event) -> None:
        if not isinstance(event, Started | BranchTimedOut):
            self._running.pop(event.visit)  # type: ignore[union-attr]
        cancelled: list[Visit] = []
        for command in self.machine.handle(event):
            assert self.finish is None, "nothing comes after the end"
            match command:
                case StartNode(visit, branch):
                    self._start(visit, branch)
                case AskDecider(visit):
                    self._running[visit] = False
                    self._later(self.design.seconds_to_decide(*visit), self._decision(visit))
                case CancelVisit(visit):
                    cancelled.append(visit)
                    self._running[visit] = True
                case Finish():
                    self.finish = command
        for visit in cancelled:
            if visit in self._running:
                self._take(Cancelled(visit, dict(self._kept(visit))))
        if self.design.branch_timeout is not None:
            self._set_alarms(self.design.branch_timeout)

    def _set_alarms(self, seconds: float) -> None:
        running = [self.machine.branch_of(visit) for visit in self._running]
        working = {one for branch in running if branch is not None for one in branch.lineage()}
        for branch in tuple(self._alarms):
            if branch not in working:
                since, _ = self._alarms.pop(branch)
                self._time_left[branch] -= self.now - since
        for branch in self.machine.open_branches.values():
            if branch in working and branch not in self._alarms:
                alarm = BranchTimedOut(branch.identity, TimeoutError(TIMED_OUT))
                self._alarms[branch] = self.now, alarm
                self._later(self._time_left.setdefault(branch, seconds), alarm)

    def _start(self, visit: Visit, branch: Any) -> None:
        design, part = self.design, self.design.nodes[visit.node]
        memory = {name: value for name, value in branch.memory.items() if name in (part.reads or (name,))}
        errors = {name: _said(error) for name, error in branch.errors.items()}
        self.seen.append(Seen(visit.node, visit.number, memory, dict(branch.outputs), errors))
        self._running[visit] = False
        act = part.act(visit.number)
        written = writes_of(part, visit.node, act)
        attempts = min(act.fails + 1, part.attempts)
        error = RuntimeError(VIOLATION if act.fails < part.attempts else error_text(*visit))
        fails = act.fails >= part.attempts or written is None
        event: Event = (
            Failed(visit, error, dict(act.kept)) if fails else Succeeded(visit, act.output, written or {})
        )
        seconds = design.seconds(*visit)
        at = self.now
        for _ in range(attempts):
            at += seconds
        self._at(at, event)

    def _kept(self, visit: Visit) -> Any:
        return self.design.nodes[visit.node].act(visit.number).kept

    def _decision(self, visit: Visit) -> Event:
        candidates = [way for way in self.design.ways_from(visit.node) if way.when == "llm_decide"]
        said = self.design.decisions[visit.node].target
        if any(way.target == said for way in candidates):
            assert said is not None
            return Decided(visit, Decision(said, "as the script says"))
        fallback = next(way.target for way in candidates if way.fallback)
        return Decided(visit, Decision(fallback, "", "it said nothing that could be"))

    def _later(self, seconds: float, event: Event) -> None:
        self._at(self.now + seconds, event)

    def _at(self, moment: float, event: Event) -> None:
        self._number += 1
        heapq.heappush(self._due, (moment, self._number, event))

    def _outcome(self, finish: Finish) -> Outcome:
        machine = self.machine
        outcome = Outcome(
            status=finish.status,
            path=machine.root.path,
            memory=dict(machine.root.memory),
            visits=dict(machine.visits),
            errors={name: _said(error) for name, error in machine.failures.items()},
            seen=self.seen,
            at=self.now,
        )
        if isinstance(finish.error, MemoryConflict):
            outcome.conflicts = {finish.error.args}
        outcome.reason = reason_of(finish.status, finish.cause)
        if finish.status == "completed":
            outcome.quality = "degraded" if machine.failures or machine.timed_out else "clean"
            first = next(name for name in self.design.terminals if name in machine.reached)
            outcome.output = machine.reached[first]
        else:
            outcome.quality = "failed"
        return outcome


def _said(error: object) -> str:
    return IN_A_CIRCLE if isinstance(error, VisitsExhausted) else str(error)


REASONS = {
    "max_steps": "max_steps",
    "a cycle of": "cycle",
    "no terminal": "no terminal",
    "have both written": "conflict",
    "conflict": "conflict",
}


def reason_of(status: str, text: str) -> str:
    """In the words of the reference."""
    if status == "completed":
        return ""
    return next((reason for part, reason in REASONS.items() if part in text), "node")


def described(command: Command) -> object:
    """A command as a value: branches and forks by their names, errors by their texts."""
    fields = {name: getattr(command, name) for name in type(command).__slots__}
    return type(command).__name__, {name: _named(value) for name, value in fields.items()}


def _named(value: object) -> object:
    match value:
        case Branch():
            return value.identity
        case Fork():
            return value.identity, value.join, [branch.identity for branch in value.branches]
        case BaseException():
            return repr(value)
        case _:
            return value


def assert_replays(machine: GraphMachine) -> None:
    """Feed what happened to a machine that knows nothing of it, and compare what it decides."""
    fresh = GraphMachine(machine.plan)
    for event, commands in machine.journal:
        again = [described(command) for command in fresh.handle(event)]
        assert again == [described(command) for command in commands], f"{event} is decided otherwise"


@pytest.fixture(autouse=True)
def graph_machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GraphMachine]]:
    """The state machines of a test's runs of graphs, each of which must decide the same again."""
    machines: list[GraphMachine] = []

    class RecordedMachine(GraphMachine):
        def __init__(self, plan: GraphPlan) -> None:
            super().__init__(plan)
            machines.append(self)

    monkeypatch.setattr("fastroai.graphs.replay.GraphMachine", RecordedMachine)
    yield machines
    for machine in machines:
        assert_replays(machine)

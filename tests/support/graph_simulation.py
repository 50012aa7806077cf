"""A graph's state machine, driven by a simulated clock through what a design says its nodes do."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import pytest

from fastroai.expressions import Expression
from fastroai.graphs.errors import MemoryConflict, VisitsExhausted
from fastroai.graphs.facts import BranchTimedOut
from fastroai.graphs.machine.branches import Branch, Fork, Joined
from fastroai.graphs.machine.events import Visit, decision_name
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.machine.merging import salvage
from fastroai.graphs.machine.routing import Choice
from fastroai.graphs.machine.sends import Send
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.runs.running.machine import Cancel, Decision, Told, Unit, unit_of
from fastroai.runtime.fact_base import NOWHERE, FailureFacts, Part
from fastroai.runtime.facts import (
    RunFinished,
    RunStarted,
    StepCancelled,
    StepFact,
    StepFailed,
    StepFinished,
    StepStarted,
)
from support.graph_reference import (
    IN_A_CIRCLE,
    TIMED_OUT,
    VIOLATION,
    Act,
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


def output_of(act: Act) -> Any:
    """What a node returns."""
    return act.output if act.sends is None else [Send(one.target, one.inputs) for one in act.sends]


def without_sends(output: Any) -> Any:
    """An output as the reference has it."""
    if isinstance(output, list) and all(isinstance(one, Send) for one in output):
        return [(one.target, one.inputs) for one in output]
    return output


class Simulation:
    """Performs the machine's commands in simulated time, and notes what a live run would show."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.machine = RecordedMachine(plan_of(design))
        self.now = 0.0
        self.seen: list[Seen] = []
        self.finish: RunFinished | None = None
        self._due: list[tuple[float, int, Told]] = []
        self._number = 0
        self._running: dict[tuple[str, int], bool] = {}
        """Whether it was cancelled."""
        self._time_left: dict[Branch, float] = {}
        """Of the time that each branch may work; of those that do, at the moment when they began to."""
        self._alarms: dict[Branch, tuple[float, BranchTimedOut]] = {}
        """Of those that work: since when, and what happens if they go on."""

    def run(self) -> Outcome:
        self._take(RunStarted(inputs=dict(self.design.inputs)))
        while self._due:
            at, _, event = heapq.heappop(self._due)
            if self._is_void(event):
                continue
            self.now = at
            self._take(event)
        assert self.finish is not None
        return self._outcome(self.finish)

    def _is_void(self, event: Told) -> bool:
        if self.finish is not None:
            return True
        if isinstance(event, BranchTimedOut):
            return all(event is not alarm for _, alarm in self._alarms.values())
        assert isinstance(event, StepFact)
        return not isinstance(event, StepCancelled) and self._running.get(unit_of(event), True)

    def _take(self, event: Told) -> None:
        if isinstance(event, StepFact):
            self._running.pop(unit_of(event))
        cancelled: list[tuple[str, int]] = []
        for decision in self.machine.handle(event):
            assert self.finish is None, "nothing comes after the end"
            match decision:
                case StepStarted():
                    self._begin(decision)
                case Cancel(units):
                    cancelled += units
                    self._running |= dict.fromkeys(units, True)
                case RunFinished():
                    self.finish = decision
        for unit in cancelled:
            if unit in self._running:
                self._take(StepCancelled(unit[0], "", visit=unit[1], written=dict(self._kept(unit))))
        if self.design.branch_timeout is not None:
            self._set_alarms(self.design.branch_timeout)

    def _begin(self, started: StepStarted) -> None:
        visit = self.machine.visit_of(started)
        if started.step_id not in self.machine.decisions:
            self._start(visit, self.machine.branch_of(started))
        else:
            self._running[unit_of(started)] = False
            self._later(self.design.seconds_to_decide(*visit), self._decision(visit))

    def _set_alarms(self, seconds: float) -> None:
        running = [
            self.machine.branch_of(StepStarted(step, "", visit=number)) for step, number in self._running
        ]
        working = {one for branch in running if branch is not None for one in branch.lineage()}
        for branch in tuple(self._alarms):
            if branch not in working:
                since, _ = self._alarms.pop(branch)
                self._time_left[branch] -= self.now - since
        for branch in self.machine.open_branches.values():
            if branch in working and branch not in self._alarms:
                alarm = BranchTimedOut(
                    branch=branch.identity, failure=_failure(TIMED_OUT), raised=TimeoutError(TIMED_OUT)
                )
                self._alarms[branch] = self.now, alarm
                self._later(self._time_left.setdefault(branch, seconds), alarm)

    def _start(self, visit: Visit, branch: Any) -> None:
        design, part = self.design, self.design.nodes[visit.node]
        memory = {name: value for name, value in branch.memory.items() if name in (part.reads or (name,))}
        errors = {name: _said(failure.error) for name, failure in branch.failures.items()}
        outputs = {name: without_sends(output) for name, output in branch.outputs.items()}
        self.seen.append(Seen(visit.node, visit.number, memory, outputs, errors))
        self._running[visit] = False
        act = part.act(visit.number)
        written = writes_of(part, visit.node, act)
        attempts = min(act.fails + 1, part.attempts)
        error = RuntimeError(VIOLATION if act.fails < part.attempts else error_text(*visit))
        fails = act.fails >= part.attempts or written is None
        event: Told = (
            StepFailed(
                visit.node,
                _failure(str(error)),
                visit=visit.number,
                raised=error,
                written=dict(act.kept),
            )
            if fails
            else StepFinished(visit.node, output_of(act), visit=visit.number, written=written or {})
        )
        seconds = design.seconds(*visit)
        at = self.now
        for _ in range(attempts):
            at += seconds
        self._at(at, event)

    def _visit(self, step_id: str, number: int) -> Visit:
        return self.machine.visit_of(StepStarted(step_id, "", visit=number))

    def _kept(self, unit: tuple[str, int]) -> Any:
        visit = self._visit(*unit)
        return self.design.nodes[visit.node].act(visit.number).kept if visit == unit else {}

    def _decision(self, visit: Visit) -> Told:
        candidates = [way for way in self.design.ways_from(visit.node) if way.when == "llm_decide"]
        said = self.design.decisions[visit.node].target
        if any(way.target == said for way in candidates):
            assert said is not None
            return self._decided(visit, Choice(said, "as the script says"))
        fallback = next(way.target for way in candidates if way.fallback)
        return self._decided(visit, Choice(fallback, "", "it said nothing that could be"))

    @staticmethod
    def _decided(visit: Visit, decision: Choice) -> StepFinished:
        return StepFinished(decision_name(visit.node), decision, visit=visit.number)

    def _later(self, seconds: float, event: Told) -> None:
        self._at(self.now + seconds, event)

    def _at(self, moment: float, event: Told) -> None:
        self._number += 1
        heapq.heappush(self._due, (moment, self._number, event))

    def _outcome(self, finish: RunFinished) -> Outcome:
        machine = self.machine
        assert machine.ending is not None
        salvage(machine.root, machine.plan)
        outcome = Outcome(
            status=machine.ending,
            path=machine.root.path,
            memory=dict(machine.root.memory),
            visits=dict(machine.visits),
            errors={name: _said(error) for name, error in machine.failures.items()},
            seen=self.seen,
            at=self.now,
        )
        if isinstance(finish.raised, MemoryConflict):
            outcome.conflicts = {finish.raised.args[:3]}
        outcome.reason = reason_of(machine.ending, finish.reason)
        if machine.ending == "finished":
            outcome.quality = "degraded" if machine.failures or machine.timeouts else "clean"
            first = next(name for name in self.design.terminals if name in machine.reached)
            outcome.output = machine.reached[first]
        else:
            outcome.quality = "failed"
        return outcome


def _failure(message: str) -> FailureFacts:
    return FailureFacts(error_type="RuntimeError", message=message, failure_class="ambiguous")


def _said(error: object) -> str:
    return IN_A_CIRCLE if isinstance(error, VisitsExhausted) else str(error)


REASONS = {
    "max_steps": "max_steps",
    "every node of a cycle": "cycle",
    "no terminal": "no terminal",
    "both wrote": "conflict",
    "conflict": "conflict",
}


def reason_of(status: str, text: str) -> str:
    """In the words of the reference."""
    if status == "finished":
        return ""
    return next((reason for part, reason in REASONS.items() if part in text), "node")


def described(decision: Decision) -> object:
    """A decision as a value: branches and forks by their names, errors by their texts."""
    known = {name: value for name, value in _fields(decision) if name not in ("part", "timestamp")}
    if isinstance(decision, RunFinished):
        known |= {"duration_ms": None, "spent_in": None, "raised": decision.failure}
    return type(decision).__name__, {name: _named(value) for name, value in known.items()}


def _fields(value: Any) -> Iterator[tuple[str, object]]:
    return ((one.name, getattr(value, one.name)) for one in fields(value))


def _named(value: object) -> object:
    match value:
        case Branch():
            return value.identity
        case Fork():
            return value.identity, value.join, [branch.identity for branch in value.branches]
        case BaseException():
            return repr(value)
        case Joined(fork):
            return "joined", _named(fork)
        case _:
            return value


class RecordedMachine(GraphMachine):
    """Keeps what it was told, and what it decided."""

    def __init__(
        self, plan: GraphPlan, part: Part = NOWHERE, *, known: Mapping[Unit, bool] | None = None
    ) -> None:
        super().__init__(plan, part, known=known)
        self.known = known
        self.journal: list[tuple[Told | Unit, list[object]]] = []

    def handle(self, fact: Told) -> list[Decision]:
        decisions = super().handle(fact)
        self.journal.append((fact, [described(one) for one in decisions]))
        return decisions

    def started(self, visit: Unit) -> list[Decision]:
        decisions = super().started(visit)
        self.journal.append((visit, [described(one) for one in decisions]))
        return decisions


def assert_replays(machine: RecordedMachine) -> None:
    """Feed what happened to a machine that knows nothing of it, and compare what it decides."""
    fresh = GraphMachine(machine.plan, known=machine.known)
    for fact, decisions in machine.journal:
        decided = fresh.started(fact) if isinstance(fact, tuple) else fresh.handle(fact)
        again = [described(decision) for decision in decided]
        assert again == decisions, f"{fact} is decided otherwise"


@pytest.fixture(autouse=True)
def graph_machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RecordedMachine]]:
    """The state machines of a test's runs of graphs, each of which must decide the same again."""
    machines: list[RecordedMachine] = []

    class Recorded(RecordedMachine):
        def __init__(
            self, plan: GraphPlan, part: Part = NOWHERE, *, known: Mapping[Unit, bool] | None = None
        ) -> None:
            super().__init__(plan, part, known=known)
            machines.append(self)

    monkeypatch.setattr("fastroai.graphs.setup.GraphMachine", Recorded)
    yield machines
    for machine in machines:
        assert_replays(machine)

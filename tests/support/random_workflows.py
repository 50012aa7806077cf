"""Random workflows, and what becomes of each visit to their steps, whatever else runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from fastroai.expressions import Expression
from fastroai.runs.running.machine import Cancel, Decision, Told, Unit
from fastroai.runtime import facts
from fastroai.runtime.fact_base import FailureFacts
from fastroai.workflows.facts import CheckpointSet
from fastroai.workflows.machine.machine import WorkflowMachine
from fastroai.workflows.plan import WorkflowPlan, plan_of
from fastroai.workflows.spec.document import FlowSpec, GateSpec, Reference, StepSpec, WorkflowSpec

MOST_FACTS = 400
"""After so many facts, a run is left where it is."""


@dataclass(frozen=True)
class Fates:
    """What becomes of each visit to a step: `ok` or `bad`, or what is decided at a gate."""

    of_steps: Mapping[str, Sequence[str]]

    def of(self, step_id: str, visit: int) -> str:
        """Return the fate of a visit; those that are listed come again and again."""
        known = self.of_steps[step_id]
        return known[(visit - 1) % len(known)]


@st.composite
def workflows(draw: st.DrawFn) -> tuple[WorkflowPlan, Fates]:
    """Draw a workflow of one or two flows, and fates for all of its steps."""
    inner = draw(_flows("inner", children=False))
    entry = draw(_flows("main", children=True))
    plan = plan_of_flows(entry, inner)
    fates: dict[str, Sequence[str]] = {}
    for step_id, (_, step) in plan.steps.items():
        kinds = ["ok", "ok", "bad"]
        if step.gate is not None:
            kinds = ["approve", "approve", "kill", *(["revise"] if step.gate.on_revise else [])]
        fates[step_id] = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    return plan, Fates(fates)


def plan_of_flows(entry: FlowSpec, *others: FlowSpec) -> WorkflowPlan:
    """The plan of a workflow of these flows, which begins with the first."""
    spec = WorkflowSpec(
        version="0.2",
        text="",
        source=None,
        contracts={},
        functions={},
        flows={one.name: one for one in (entry, *others)},
        workflow=None,
        entry=entry.name,
    )
    return plan_of(spec)


def flow_of(
    name: str,
    *steps: StepSpec,
    max_rounds: int | None = None,
    routed_only: frozenset[str] = frozenset(),
    needs: Mapping[str, tuple[str, ...]] | None = None,
) -> FlowSpec:
    """A flow of these steps without inputs and budgets; by default no step needs another."""
    return FlowSpec(
        name=name,
        input={},
        output=None,
        budget=None,
        max_rounds=max_rounds,
        steps=steps,
        routed_only=routed_only,
        needs={step.id: () for step in steps} if needs is None else dict(needs),
    )


@st.composite
def _flows(draw: st.DrawFn, name: str, *, children: bool) -> FlowSpec:
    count = draw(st.integers(1, 6))
    names = [f"s{number}" for number in range(count)]
    needs: dict[str, tuple[str, ...]] = {}
    steps: list[StepSpec] = []
    for number, step in enumerate(names):
        before = draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=2)) if number else []
        needs[step] = tuple(before)
        steps.append(draw(_steps(step, names, number, before, children=children)))
    targets = {one.on_fail for one in steps} | {one.gate.on_kill for one in steps if one.gate is not None}
    routed_only = {one for one in targets if one is not None and draw(st.booleans())}
    needs = {step: tuple(one for one in before if one not in routed_only) for step, before in needs.items()}
    rounds = draw(st.sampled_from([None, 1, 2, 3]))
    return flow_of(name, *steps, max_rounds=rounds, routed_only=frozenset(routed_only), needs=needs)


@st.composite
def _steps(
    draw: st.DrawFn, step: str, names: list[str], number: int, before: list[str], *, children: bool
) -> StepSpec:
    others = [name for name in names if name != step]
    somewhere = st.sampled_from(others) if others else st.none()
    inputs: dict[str, Any] = {
        one: Reference(text=one, step_id=one, path=("n",) if draw(st.booleans()) else ()) for one in before
    }
    kind = draw(st.sampled_from(["inline", "inline", "inline", "gate", *(["flow"] if children else [])]))
    if kind == "gate":
        gate = GateSpec(
            on_approve=draw(st.none() | somewhere),
            on_revise=draw(st.sampled_from(names[:number])) if number and draw(st.booleans()) else None,
            on_kill=draw(st.none() | somewhere),
            policy=draw(st.sampled_from(["gate", "gate", "flag", "skip"])),
        )
        return StepSpec(id=step, kind="gate", inputs=inputs, gate=gate)
    routes = st.one_of(st.none(), st.none(), somewhere)
    skip_if = None
    if before and draw(st.integers(0, 4)) == 0:
        skip_if = Expression(f"steps.{before[0]}.output.n == 1")
    return StepSpec(
        id=step,
        kind="flow" if kind == "flow" else "inline",
        flow="inner" if kind == "flow" else None,
        inputs=inputs,
        attempts=1 if kind == "flow" else draw(st.integers(1, 3)),
        on_fail=draw(routes),
        next=draw(routes),
        skip_if=skip_if,
    )


class Drive:
    """One run of a machine: each unit ends as its fate says, in an order that somebody chooses."""

    def __init__(self, plan: WorkflowPlan, fates: Fates, width: int | None) -> None:
        self.plan, self.fates = plan, fates
        self.machine = WorkflowMachine(plan, width=width)
        self.told: list[Told] = []
        self.decided: list[list[Decision]] = []
        self.running: dict[Unit, facts.StepStarted] = {}
        self.asking: dict[Unit, None] = {}
        self.cancelled: set[Unit] = set()
        self.finish: facts.RunFinished | None = None
        self.most_at_once = 0

    def tell(self, fact: Told) -> list[Decision]:
        """Tell the machine, and follow what it decides."""
        self.told.append(fact)
        decisions = self.machine.handle(fact)
        self.decided.append(decisions)
        if not isinstance(fact, CheckpointSet):
            self.finish = None
        for decision in decisions:
            match decision:
                case facts.StepStarted():
                    self.running[decision.step_id, decision.visit] = decision
                case Cancel(units):
                    self.cancelled |= set(units)
                case facts.RunFinished():
                    self.finish = decision
                case _:
                    pass
        self.most_at_once = max(self.most_at_once, len(self.running))
        return decisions

    @property
    def units(self) -> list[Unit]:
        """What can end now."""
        return [*self.running, *self.asking]

    def end(self, unit: Unit) -> None:
        """End a unit as its fate says."""
        step_id, visit = unit
        fate, gate = self.fates.of(step_id, visit), self.plan.steps[step_id][1].gate
        if unit in self.cancelled:
            self.running.pop(unit)
            self.tell(facts.StepCancelled(step_id, "cancelled", visit=visit))
        elif gate is not None and unit in self.running and self.machine.record(step_id).policy == "gate":
            self.running.pop(unit)
            self.asking[unit] = None
            self.tell(facts.QuestionAsked(step_id, "?", id=f"{step_id}#{visit}", visit=visit))
        elif gate is not None:
            is_flag = self.running.pop(unit, None) is not None
            self.asking.pop(unit, None)
            answer = {"decision": "approve", "resolved_by": "system"} if is_flag else fate
            self.tell(facts.AnswerGiven(step_id, answer, visit=visit))
        else:
            self.running.pop(unit)
            output = {"n": visit, "given": self.machine.inputs(step_id)}
            if fate == "bad":
                failure = FailureFacts(error_type="EnsureFailed", message="bad", failure_class="terminal")
                self.tell(facts.StepFailed(step_id, failure, visit=visit, violations=("bad",), output=output))
            else:
                self.tell(facts.StepFinished(step_id, output, visit=visit))
        if self.finish is not None and self.finish.status != "paused":
            self.asking.clear()
        self.asking = {one: None for one in self.asking if one in self.machine.state.asking}

    @property
    def has_ended(self) -> bool:
        """Whether the run is over, by the rules."""
        return self.finish is not None and self.finish.status != "paused"

"""The state of a run of a workflow: plain data, which a checkpoint copies as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from pydantic import JsonValue

from fastroai.runs.running.machine import Unit
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import ReasonCode, RunStatus, Wait
from fastroai.workflows.machine.iterations import Loop, Reported
from fastroai.workflows.plan import FlowPlan
from fastroai.workflows.spec.document import GatePolicy

FlowKey: TypeAlias = tuple[str, int]
"""The key of a flow that runs: its path in the plan, and its number among the flows begun there."""

Stage: TypeAlias = Literal["ready", "running", "asking", "halted", "inside", "over"]
"""The stage of a step: it may start, runs, asks a person, waits, runs its flow, or is over."""


ResolvedBy: TypeAlias = Literal["human", "agent", "system"]
"""The one who decided at a gate, as far as FastroAI knows.

`human`: a person, whose decision came through the inbox, the command line, the caller's own program or a
trusted MCP client. `agent`: an agent, or somebody whose decision an agent has reported. `system`: the policy
of the gate, or the end of its time.
"""

GateOutcome: TypeAlias = Literal["approve", "revise", "kill"]
"""The decision at a gate."""


@dataclass(slots=True)
class Record:
    """The record of one entry of a step, for the audit."""

    type: Literal["step", "gate", "skip", "policy"]
    step: str
    """Id of the step in its flow."""
    visits: list[int] = field(default_factory=list)
    """Numbers of the visits that have started."""
    attempts: int = 0
    """Number of the current attempt. A visit that is repeated after a revert is not another attempt."""
    outcome: str = "open"
    violations: list[tuple[str, ...]] = field(default_factory=list)
    """Violations of each attempt that was not accepted."""
    error: str = ""
    resolved_by: ResolvedBy | None = None
    rationale: str = ""
    policy: GatePolicy | None = None
    skip_reason: str = ""
    loop: Loop | None = None
    child: FlowKey | None = None
    """Key of the flow that the step ran."""

    def copied(self) -> Record:
        """Return a copy that shares nothing that can change."""
        return replace(
            self,
            visits=[*self.visits],
            violations=[*self.violations],
            loop=None if self.loop is None else self.loop.copied(),
        )


@dataclass(slots=True)
class StepState:
    """The state of a step in its current or last entry. Each time that a flow comes to a step is an entry."""

    stage: Stage
    entry: int
    """Number of this entry among those of the whole run."""
    visit: int
    """Number of the last visit among those of the whole run."""
    attempt: int
    record: int
    """Position of the record among those of the flow; -1 before there is one."""
    why: str
    """The cause of the next start."""
    routed_from: str | None = None
    """The step that has routed to this one in this entry."""
    is_started: bool = False
    """Whether the visit has started before; then the same visit starts anew, since the run was resumed."""


@dataclass(slots=True)
class FlowState:
    """A flow that runs or ran at a place of the plan."""

    plan: FlowPlan
    number: int
    parent: FlowKey | None
    inputs: Mapping[str, JsonValue]
    status: Literal["running", "complete", "killed", "failed"] = "running"
    killing: bool = False
    """Whether a gate has killed the flow, and its cleanup goes on."""
    kill_reason: str = ""
    steps: dict[str, StepState] = field(default_factory=dict)
    """States of the steps that were entered, by their ids in the flow."""
    outputs: dict[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """Outputs by step, as `{"output": ...}`, which is the form that conditions read."""
    output: JsonValue = None
    """The output of the flow, once it is complete."""
    last: tuple[int, int] | None = None
    """The pass and the position of the step that finished last, by the order of the flow."""
    passes: int = 0
    cursor: int = 0
    """Position of the step that is looked at next; see `FlowOrder`."""
    admitted: int | None = None
    """Position at which the pass began, if a step has routed there."""
    router: int | None = None
    """Position of a step that can route and is not over: nothing after it starts before that."""
    todo: dict[int, int] = field(default_factory=dict)
    """Positions of steps that were reached and are not over, with the number of their open needs."""
    failing: str | None = None
    """The step that has failed, and routes elsewhere when everything before it is over."""
    routes: int = 0
    """Number of routes in this round."""
    round: int = 0
    records: list[Record] = field(default_factory=list)
    """Records of this round."""
    rounds: list[tuple[Record, ...]] = field(default_factory=list)
    """Records of each earlier round."""
    iterations: dict[str, list[Reported]] = field(default_factory=dict)
    """Reports to loops in this round, by step."""
    archived_iterations: list[Mapping[str, list[Reported]]] = field(default_factory=list)
    """Reports to loops in each earlier round, by step."""

    @property
    def path(self) -> str:
        """The path of the flow in the plan."""
        return self.plan.path

    @property
    def key(self) -> FlowKey:
        """The path and the number of the flow, which together are unique in a run."""
        return self.path, self.number

    def copied(self) -> FlowState:
        """Return a copy that shares nothing that can change."""
        return replace(
            self,
            steps={name: replace(one) for name, one in self.steps.items()},
            outputs={**self.outputs},
            todo={**self.todo},
            records=[one.copied() for one in self.records],
            rounds=[*self.rounds],
            iterations={name: [*reported] for name, reported in self.iterations.items()},
            archived_iterations=[*self.archived_iterations],
        )


@dataclass(frozen=True, slots=True)
class Stopped:
    """The end of a run: its status, its reason, and the step where it happened."""

    status: RunStatus
    code: ReasonCode
    reason: str
    step_id: str = ""
    failure: FailureFacts | None = None
    error: BaseException | None = None
    is_final: bool = True
    """Whether the run has ended by the rules of the workflow; otherwise it can be resumed."""
    violations: tuple[str, ...] = ()


@dataclass(slots=True)
class RunState:
    """Everything that a revert restores: all but the numbers of visits and entries, which only grow."""

    flows: dict[str, FlowState] = field(default_factory=dict)
    """The latest flow at each path at which one has begun."""
    past: dict[str, tuple[FlowState, ...]] = field(default_factory=dict)
    """Earlier flows at each path; they no longer change."""
    ready: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    """A heap of the steps that may start: their positions from the outermost flow on, and their ids."""
    running: dict[Unit, None] = field(default_factory=dict)
    """Units that run, first started first."""
    asking: dict[Unit, Wait] = field(default_factory=dict)
    """Gates that wait for a decision, first asked first."""
    halted: dict[Unit, tuple[Wait, ...]] = field(default_factory=dict)
    again: dict[Unit, None] = field(default_factory=dict)
    """Units that failed or were cancelled when the run ended; they start anew when the run is resumed."""
    unwinding: dict[str, str] = field(default_factory=dict)
    """Steps whose flows have failed, with the reason; they fail when nothing runs in their flows any more."""
    stopped: Stopped | None = None

    def copied(self) -> RunState:
        """Return a copy that shares nothing that can change."""
        return RunState(
            flows={path: flow.copied() for path, flow in self.flows.items()},
            past={**self.past},
            ready=[*self.ready],
            running={**self.running},
            asking={**self.asking},
            halted={**self.halted},
            again={**self.again},
            unwinding={**self.unwinding},
            stopped=self.stopped,
        )

"""The state of a run of a workflow: plain data, which a checkpoint copies as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from pydantic import JsonValue

from fastroai.runs.machine import Unit
from fastroai.runtime.facts import FailureFacts, ReasonCode, RunStatus, Wait
from fastroai.workflows.machine.iterations import Loop, Reported
from fastroai.workflows.spec.document import GatePolicy

FlowKey: TypeAlias = tuple[str, int]
"""A flow that runs: its place in the plan, and how many have begun there with it."""

Stage: TypeAlias = Literal["ready", "running", "asking", "halted", "inside", "over"]
"""Where a step is: it may start, runs, asks a person, waits for something else, runs its flow, or is over."""


@dataclass(slots=True)
class Record:
    """What happened in one entry of a step, for its audit."""

    type: Literal["step", "gate", "skip", "policy"]
    step: str
    """Its id in the flow."""
    visits: list[int] = field(default_factory=list)
    """The visits of the attempts that have started."""
    attempts: int = 0
    """How many attempts have started, as it counts; after a revert, fewer than visits."""
    outcome: str = "open"
    violations: list[tuple[str, ...]] = field(default_factory=list)
    """Of each attempt that was not accepted."""
    error: str = ""
    resolved_by: str = ""
    rationale: str = ""
    policy: GatePolicy | None = None
    skip_reason: str = ""
    loop: Loop | None = None
    child: FlowKey | None = None
    """The flow that the step ran."""

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
    """A step in its present or last entry."""

    stage: Stage
    entry: int
    """How many entries there were with it, in the whole run."""
    visit: int
    """The number of its last visit, in the whole run."""
    attempt: int
    record: int
    """Position of its record in the flow."""
    why: str
    """Why it starts, when it does next."""
    routed_from: str | None = None
    """The step that has routed to it in this entry."""
    is_started: bool = False
    """Whether that visit has started before; then it starts anew, since the run was resumed."""

    def copied(self) -> StepState:
        """Return a copy."""
        return replace(self)


@dataclass(slots=True)
class FlowState:
    """A flow that runs or ran at a place of the plan."""

    path: str
    number: int
    parent: FlowKey | None
    inputs: Mapping[str, JsonValue]
    status: Literal["running", "complete", "killed", "failed"] = "running"
    killing: bool = False
    """Whether it was killed, and cleans up."""
    kill_reason: str = ""
    steps: dict[str, StepState] = field(default_factory=dict)
    """Those that were entered, by their ids in the flow."""
    outputs: dict[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """By step, as `{"output": ...}`, which is how conditions read them."""
    output: JsonValue = None
    """Its own, once it is complete."""
    last: tuple[int, int] | None = None
    """The pass and the position of the step that finished last, in the order of the flow."""
    passes: int = 0
    cursor: int = 0
    """The position that comes up next; see `FlowOrder`."""
    admitted: int | None = None
    """The position that something has routed to, if the pass began with that."""
    router: int | None = None
    """The step that has come up and can route: nothing after it comes up before it is over."""
    todo: dict[int, int] = field(default_factory=dict)
    """Steps that have come up and are not over, with how many needs of theirs are not over."""
    failing: int | None = None
    """The step that has failed and routes elsewhere when everything before it is over."""
    routes: int = 0
    """How often something was routed to in this round."""
    round: int = 0
    records: list[Record] = field(default_factory=list)
    """Of this round."""
    rounds: list[tuple[Record, ...]] = field(default_factory=list)
    """Those of each round before."""
    iterations: dict[str, list[Reported]] = field(default_factory=dict)
    """What was reported to loops in this round, by step."""
    archived_iterations: list[Mapping[str, list[Reported]]] = field(default_factory=list)
    """The same of each round before."""

    @property
    def key(self) -> FlowKey:
        """What tells it from all others."""
        return self.path, self.number

    def copied(self) -> FlowState:
        """Return a copy that shares nothing that can change."""
        return replace(
            self,
            steps={name: one.copied() for name, one in self.steps.items()},
            outputs={**self.outputs},
            todo={**self.todo},
            records=[one.copied() for one in self.records],
            rounds=[*self.rounds],
            iterations={name: [*reported] for name, reported in self.iterations.items()},
            archived_iterations=[*self.archived_iterations],
        )


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why a run ends."""

    status: RunStatus
    code: ReasonCode
    reason: str
    step_id: str = ""
    failure: FailureFacts | None = None
    error: BaseException | None = None
    is_final: bool = True
    """Whether the rules of the workflow say so; otherwise the run can be resumed."""
    violations: tuple[str, ...] = ()


@dataclass(slots=True)
class RunState:
    """Everything that can change, but for the numbers of visits and entries, which only grow."""

    flows: dict[str, FlowState] = field(default_factory=dict)
    """The flow at each place at which one has begun."""
    past: dict[str, tuple[FlowState, ...]] = field(default_factory=dict)
    """Those that were there before; they change no longer."""
    ready: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    """A heap of the steps that may start: their positions from the outermost flow on, and their ids."""
    running: dict[Unit, None] = field(default_factory=dict)
    """First started first."""
    asking: dict[Unit, Wait] = field(default_factory=dict)
    """Gates that wait for a decision, first asked first."""
    halted: dict[Unit, tuple[Wait, ...]] = field(default_factory=dict)
    again: dict[Unit, None] = field(default_factory=dict)
    """What failed or was cancelled when the run ended, and starts anew when it is resumed."""
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

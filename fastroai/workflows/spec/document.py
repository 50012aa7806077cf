"""A valid workflow spec, as values. `reading` makes them, and nothing changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from fastroai.expressions import Expression
from fastroai.usage import Budget

Version: TypeAlias = Literal["0.1", "0.2", "0.3"]
"""A version of the format of specs."""

RETRIES_ARE_ATTEMPTS: Final[tuple[Version, ...]] = ("0.1", "0.2")
"""The versions in which `retries` are attempts in all. In others, they come on top of the first attempt."""

Mode: TypeAlias = Literal["infer", "compute", "gate"]
"""How a function is carried out: by a model or agent, by code, or by a person."""

FieldType: TypeAlias = Literal["string", "number", "integer", "boolean", "array", "object"]

GatePolicy: TypeAlias = Literal["gate", "flag", "skip"]
"""The policy of a gate: ask a person; approve, with an answer on record; or approve and skip the gate."""

StepKind: TypeAlias = Literal["function", "inline", "flow", "gate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A value of another part of the flow: `$.input.x` or `$.steps.id.output.field`."""

    text: str
    """The reference as the spec has it."""
    step_id: str | None
    """The step whose output the reference reads; `None` for an input of the flow."""
    path: tuple[str | int, ...]
    """Names of fields and positions in lists, from the inputs or the output on."""
    is_declared: bool = False
    """Whether the first field of the path is declared. An optional field may be missing, and is then null."""


Binding: TypeAlias = Reference | JsonValue
"""The value of an input of a step: a reference, or a literal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field of a contract, or an input of a function, flow or workflow."""

    type: FieldType
    values: tuple[JsonValue, ...] | None = None
    """The only values that the field may have; `None` allows every value of its type."""
    required: bool = True
    default: JsonValue = None
    has_default: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractSpec:
    """A contract: the fields of a result."""

    name: str
    fields: Mapping[str, FieldSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """A function that steps can carry out."""

    name: str
    mode: Mode
    intent: str = ""
    context: str = ""
    input: Mapping[str, FieldSpec] = field(default_factory=dict)
    output: str | None = None
    """The contract of the result; gates have none."""
    ensure: tuple[Expression, ...] = ()
    attempts: int = 3
    """Attempts in all, the first included."""
    budget: Budget | None = None
    model: str | None = None
    timeout: float | None = None
    """Seconds that a gate waits for a decision, before it kills the flow by itself."""


ACCUMULATED_FIELDS: Final[Mapping[str, FieldSpec]] = {
    "accumulated": FieldSpec(type="array"),
    "accumulated_count": FieldSpec(type="integer"),
}
"""Fields that a loop with `accumulate` adds to its step's output: all different items, and their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSpec:
    """The repetition of a step until its result is good enough."""

    max_iterations: int
    exit_criterion: Expression | None = None
    accumulate: str | None = None
    """Name of the list in the result whose items are gathered over the iterations."""
    accumulate_key: str | None = None
    """The field by which items are compared; without it, whole items are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """The steps to which a gate leads, and the policy by which it decides."""

    on_approve: str | None
    """The step that follows an approval; `None`: an approval completes the flow."""
    on_revise: str | None
    """An earlier step, from which the flow is done again; `None`: the gate cannot revise."""
    on_kill: str | None
    """The step that cleans up before the flow ends as killed; `None`: the flow ends at once."""
    policy: GatePolicy | Reference = "gate"
    policy_fallback: GatePolicy = "gate"
    """The policy that holds if the reference in `policy` gives none of the three policies."""
    timeout: float | None = None
    """Seconds that the gate waits for a decision, before it kills the flow by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """A step of a flow: a function, an inline intent, a sub-flow, or a gate."""

    id: str
    kind: StepKind
    function: str | None = None
    """The function of a function step or of a gate."""
    flow: str | None = None
    """The sub-flow of a step that runs one."""
    mode: Mode | None = None
    """How the function is carried out."""
    intent: str = ""
    """What is to be done: the intent of the function, or that of an inline step."""
    context: str = ""
    """The context of the function."""
    agent: str | None = None
    """The agent that an inline step is meant for, such as `claude`. The caller gives the name a meaning."""
    model: str | None = None
    inputs: Mapping[str, Binding] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    output_schema: Mapping[str, JsonValue] | None = None
    output_contract: str | None = None
    """The contract of the result: that of the function, the inline step, or the output of the sub-flow."""
    ensure: tuple[Expression, ...] = ()
    """Conditions of the result: those of the function, or those of a step without a function."""
    attempts: int = 1
    """Attempts in all, the first included."""
    budgets: tuple[Budget, ...] = ()
    """Budgets of the function, or of a step without one. Each holds for all attempts of one entry."""
    skip_if: Expression | None = None
    skip_reason: str = ""
    on_fail: str | None = None
    next: str | None = None
    iteration: IterationSpec | None = None
    gate: GateSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSpec:
    """A flow: its steps, in the order in which they are carried out."""

    name: str
    input: Mapping[str, FieldSpec]
    output: str | None
    """The contract of the output."""
    budget: Budget | None
    max_rounds: int | None
    """Maximum number of revisions. Each begins another round, so N revisions are N + 1 rounds."""
    steps: tuple[StepSpec, ...]
    """The steps in topological order over references and `depends_on`, and else in the order of the spec."""
    routed_only: frozenset[str]
    """Steps that run only where another step routes to them: recovery and cleanup."""
    needs: Mapping[str, tuple[str, ...]]
    """For each step, the steps that must be over before it, by references or `depends_on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInfo:
    """The section `workflow` of version 0.2."""

    name: str
    description: str = ""
    input: Mapping[str, FieldSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSpec:
    """A valid workflow spec, read by `load_spec`: its contracts, functions and flows, by name.

    Nothing changes it. Pass it to `Workflow` to run one of its flows.
    """

    version: Version
    text: str
    """The text of the spec, as it was read. It is on record with each run."""
    source: str | None
    """The file from which the spec was read."""
    contracts: Mapping[str, ContractSpec]
    functions: Mapping[str, FunctionSpec]
    flows: Mapping[str, FlowSpec]
    workflow: WorkflowInfo | None
    entry: str
    """The flow that runs by default: that of the workflow's name, or the first that no other flow runs."""

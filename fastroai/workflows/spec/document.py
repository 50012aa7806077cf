"""What a valid workflow spec says, as values. `reading` makes them, and nothing changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import JsonValue

from fastroai.expressions import Expression
from fastroai.usage import Budget

Mode: TypeAlias = Literal["infer", "compute", "gate"]
"""How a function is carried out: by a model or agent, by code, or by a person."""

FieldType: TypeAlias = Literal["string", "number", "integer", "boolean", "array", "object"]

GatePolicy: TypeAlias = Literal["gate", "flag", "skip"]
"""What a gate does: ask, approve and put that on record, or approve without a word."""

StepKind: TypeAlias = Literal["function", "inline", "flow", "gate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A value of another part of the flow: `$.input.x` or `$.steps.id.output.field`."""

    text: str
    """As it is in the spec."""
    step_id: str | None
    """The step whose output it reads; `None` for an input of the flow."""
    path: tuple[str | int, ...]
    """Names of fields and positions in lists, from the inputs or the output on."""


Binding: TypeAlias = Reference | JsonValue
"""What a step is given: a reference, or a literal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field of a contract, or an input of a function, flow or workflow."""

    type: FieldType
    values: tuple[JsonValue, ...] | None = None
    """The values that it may have, if they are limited."""
    required: bool = True
    default: JsonValue = None
    has_default: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractSpec:
    """The fields of a result."""

    name: str
    fields: Mapping[str, FieldSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """What a step can carry out."""

    name: str
    mode: Mode
    intent: str = ""
    context: str = ""
    input: Mapping[str, FieldSpec] = field(default_factory=dict)
    output: str | None = None
    """The contract of the result; gates have none."""
    ensure: tuple[Expression, ...] = ()
    retries: int = 3
    """Attempts in all, the first included."""
    budget: Budget | None = None
    model: str | None = None
    timeout: float | None = None
    """Of a gate: seconds until it is killed by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSpec:
    """A step that is repeated until its result is good enough."""

    max_iterations: int
    exit_criterion: Expression | None = None
    accumulate: str | None = None
    """The list of the result whose items are gathered over the iterations."""
    accumulate_key: str | None = None
    """The field by which two items are the same; whole items are compared if it is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """Where a gate leads, and who decides."""

    on_approve: str | None
    """The step that follows; `None`: the flow is complete."""
    on_revise: str | None
    """An earlier step, from which on everything is done again; `None`: the gate cannot revise."""
    on_kill: str | None
    """The step that cleans up before the flow ends as killed; `None`: it ends at once."""
    policy: GatePolicy | Reference = "gate"
    policy_fallback: GatePolicy = "gate"
    """The policy that holds where the reference of `policy` gives none of the three."""
    timeout: float | None = None
    """Seconds until it is killed by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """A step of a flow: one of a function, an inline intent, a sub-flow, or a gate."""

    id: str
    kind: StepKind
    function: str | None = None
    """The function, of a function step and of a gate."""
    flow: str | None = None
    """The sub-flow."""
    intent: str = ""
    agent: str | None = None
    """Whom an inline step is meant for, such as `claude`; a name that the caller gives a meaning."""
    model: str | None = None
    inputs: Mapping[str, Binding] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    output_schema: Mapping[str, JsonValue] | None = None
    output_contract: str | None = None
    """The contract of the result: that of the function, the inline step, or the sub-flow's output."""
    ensure: tuple[Expression, ...] = ()
    """Those of the function first, then those of the step."""
    retries: int = 1
    """Attempts in all, the first included."""
    budgets: tuple[Budget, ...] = ()
    """Of the function and of the step; each holds for itself, over all attempts of one entry."""
    skip_if: Expression | None = None
    skip_reason: str = ""
    on_fail: str | None = None
    next: str | None = None
    iteration: IterationSpec | None = None
    gate: GateSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSpec:
    """Steps in the order in which they are carried out."""

    name: str
    input: Mapping[str, FieldSpec]
    output: str | None
    """The contract of the output."""
    budget: Budget | None
    max_rounds: int | None
    """How many rounds there may be, the first included: each revision begins another one."""
    steps: tuple[StepSpec, ...]
    """In topological order over references and `depends_on`; in the order of the spec between equals."""
    routed_only: frozenset[str]
    """Steps that are run only where something routes to them: recovery and cleanup."""
    needs: Mapping[str, tuple[str, ...]]
    """By step, those that must be over before it, through references or `depends_on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInfo:
    """The section `workflow` of version 0.2."""

    name: str
    description: str = ""
    input: Mapping[str, FieldSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSpec:
    """A valid spec."""

    version: Literal["0.1", "0.2"]
    text: str
    """As it was read. It is on record with each run."""
    source: str | None
    """The file that it was read from."""
    contracts: Mapping[str, ContractSpec]
    functions: Mapping[str, FunctionSpec]
    flows: Mapping[str, FlowSpec]
    workflow: WorkflowInfo | None
    entry: str
    """The flow that runs unless another one is named: the first that no other flow runs."""

"""The form of a spec: the keys of each part, and the types of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, JsonValue

from fastroai.documents.parts import Part, PartsAt
from fastroai.documents.yaml_text import Way


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, bool) else value


Condition: TypeAlias = Annotated[str, BeforeValidator(_as_text)]
"""An expression. The values `true` and `false` of YAML become the expressions `True` and `False`."""


class FieldPart(Part):
    """A field of a contract, or an input."""

    type: str
    values: list[JsonValue] | None = None
    required: bool | None = None
    default: JsonValue = None
    description: str | None = None


class BudgetPart(Part):
    """The budget of a flow, a function or a step."""

    # `Budget` says which values are allowed here: money, for one, is a number or a text.
    ms: object = None
    usd: object = None
    tokens: object = None


class FunctionPart(Part):
    """A function."""

    mode: str
    intent: str | None = None
    context: str | None = None
    input: dict[str, FieldPart] | None = None
    output: str | None = None
    ensure: list[str] | None = None
    retries: int | None = None
    budget: BudgetPart | None = None
    model: str | None = None
    timeout: float | None = None


class StepPart(Part):
    """A step of a flow."""

    id: str
    function: str | None = None
    intent: str | None = None
    flow: str | None = None
    agent: str | None = None
    inputs: dict[str, JsonValue] | None = None
    depends_on: list[str] | None = None
    output_schema: dict[str, JsonValue] | None = None
    output_contract: str | None = None
    ensure: list[str] | None = None
    retries: int | None = None
    model: str | None = None
    budget: BudgetPart | None = None
    skip_if: Condition | None = None
    skip_reason: str | None = None
    on_fail: str | None = None
    next: str | None = None
    max_iterations: int | None = None
    exit_criterion: Condition | None = None
    accumulate: str | None = None
    accumulate_key: str | None = None
    on_approve: str | None = None
    on_revise: str | None = None
    on_kill: str | None = None
    policy: str | None = None
    policy_fallback: str | None = None


class FlowPart(Part):
    """A flow."""

    input: dict[str, FieldPart] | None = None
    output: str | None = None
    budget: BudgetPart | None = None
    max_rounds: int | None = None
    steps: list[StepPart]


class WorkflowPart(Part):
    """The name of the workflow, its description and its inputs."""

    name: str
    description: str | None = None
    input: dict[str, FieldPart] | None = None


class SpecPart(Part):
    """The whole spec."""

    version: str
    workflow: WorkflowPart | None = None
    contracts: dict[str, dict[str, FieldPart]] | None = None
    functions: dict[str, FunctionPart] | None = None
    flows: dict[str, FlowPart]


PARTS_AT: Final[PartsAt] = {
    (): SpecPart,
    ("workflow",): WorkflowPart,
    ("workflow", "input", "*"): FieldPart,
    ("contracts", "*", "*"): FieldPart,
    ("functions", "*"): FunctionPart,
    ("functions", "*", "input", "*"): FieldPart,
    ("functions", "*", "budget"): BudgetPart,
    ("flows", "*"): FlowPart,
    ("flows", "*", "input", "*"): FieldPart,
    ("flows", "*", "budget"): BudgetPart,
    ("flows", "*", "steps", "*"): StepPart,
    ("flows", "*", "steps", "*", "budget"): BudgetPart,
}

_NEW_IN_02: Final[Mapping[type[Part], frozenset[str]]] = {
    SpecPart: frozenset({"workflow"}),
    FunctionPart: frozenset({"timeout"}),
    FlowPart: frozenset({"max_rounds"}),
    StepPart: frozenset(StepPart.model_fields) - {"id", "function", "inputs", "depends_on", "output_schema"},
}


def new_keys(spec: SpecPart) -> list[Way]:
    """Return the places where a spec of version 0.1 uses something that only version 0.2 has."""
    found: list[Way] = []

    def look(part: Part, *way: str | int) -> None:
        new = _NEW_IN_02.get(type(part), frozenset())
        found.extend((*way, key) for key in part.model_fields_set if key in new)

    look(spec)
    for name, function in (spec.functions or {}).items():
        look(function, "functions", name)
        if function.mode == "gate":
            found.append(("functions", name, "mode"))
    for name, flow in spec.flows.items():
        look(flow, "flows", name)
        for index, step in enumerate(flow.steps):
            look(step, "flows", name, "steps", index)
    return found

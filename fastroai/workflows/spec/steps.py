"""The steps of a flow: the kind of each step, and whether its keys are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, cast, get_args

from fastroai.documents.parts import told
from fastroai.documents.yaml_text import Way
from fastroai.expressions import Expression
from fastroai.workflows.spec.conditions import (
    ITERATION_NAMES,
    Scope,
    read_ensure,
    read_expression,
    steps_read,
)
from fastroai.workflows.spec.document import (
    ACCUMULATED_FIELDS,
    Binding,
    ContractSpec,
    FieldSpec,
    FunctionSpec,
    GatePolicy,
    GateSpec,
    IterationSpec,
    Reference,
    StepKind,
    StepSpec,
)
from fastroai.workflows.spec.fields import accepts, expected, fits
from fastroai.workflows.spec.functions import at_least_one, known_contract, read_attempts, read_budget
from fastroai.workflows.spec.parts import FlowPart, FunctionPart, StepPart
from fastroai.workflows.spec.problems import Problems, cut, listed
from fastroai.workflows.spec.references import (
    ID,
    Known,
    Sources,
    is_reference,
    read_bindings,
    read_reference,
)
from fastroai.workflows.spec.schemas import known_fields, read_schema

POLICIES: Final[tuple[GatePolicy, ...]] = get_args(GatePolicy)
_MODES: Final = ("function", "intent", "flow")
_OF_THE_FUNCTION: Final = ("ensure", "retries", "output_contract", "model", "budget")
_NOT_OF_SUB_FLOWS: Final = (
    "agent",
    "retries",
    "output_contract",
    "model",
    "budget",
    "max_iterations",
    "exit_criterion",
    "accumulate",
    "accumulate_key",
)
_OF_GATES: Final = ("on_approve", "on_revise", "on_kill", "policy", "policy_fallback")
_NOT_OF_GATES: Final = {
    "agent": "a person decides",
    "skip_if": "use policy to approve it without a question",
    "skip_reason": "use policy to approve it without a question",
    "output_schema": "it has no output",
    "max_iterations": "it has rounds, by on_revise",
    "exit_criterion": "it has rounds, by on_revise",
    "accumulate": "it has no output",
    "accumulate_key": "it has no output",
    "on_fail": "it has on_revise and on_kill",
    "next": "it has on_approve",
}
_NEEDS: Final = {
    "exit_criterion": "max_iterations",
    "accumulate": "max_iterations",
    "accumulate_key": "accumulate",
    "skip_reason": "skip_if",
    "policy_fallback": "policy",
}
"""Keys of steps that mean something only beside another key."""


@dataclass(frozen=True, slots=True)
class Library:
    """The contracts, functions and flows that the flows of a spec can use."""

    version: str
    contracts: Mapping[str, ContractSpec]
    function_parts: Mapping[str, FunctionPart]
    functions: Mapping[str, FunctionSpec]
    """The functions that could be read."""
    flow_parts: Mapping[str, FlowPart]
    flow_inputs: Mapping[str, Mapping[str, FieldSpec]]

    def reported(self, part: StepPart) -> Known:
        """Return the known fields of a result as it is reported, before a loop adds fields of its own."""
        if part.flow is not None:
            name = self.flow_parts[part.flow].output if part.flow in self.flow_parts else None
        elif part.function is not None:
            function = self.functions.get(part.function)
            name = None if function is None else function.output
        else:
            name = part.output_contract
        return known_fields(None if name is None else self.contracts.get(name), part.output_schema)

    def sources(self, flow: str, parts: Mapping[str, StepPart]) -> Sources:
        """Return what the steps of a flow can refer to; `parts` are these steps."""
        outputs = {name: self.reported(part) for name, part in parts.items()}
        for name, part in parts.items():
            if part.accumulate is not None:
                known = outputs[name]
                outputs[name] = replace(known, fields={**known.fields, **ACCUMULATED_FIELDS})
        gates = {name for name, function in self.functions.items() if function.mode == "gate"}
        asking = frozenset(name for name, part in parts.items() if part.function in gates)
        return Sources(self.flow_inputs[flow], outputs, asking)


class StepReader:
    """Reads the steps of one flow."""

    def __init__(self, library: Library, sources: Sources, problems: Problems) -> None:
        self._library, self._sources, self._problems = library, sources, problems
        self.needs: dict[str, list[str]] = {}
        """For each step, the existing steps that it names in references, conditions and `depends_on`."""

    def read(self, part: StepPart, way: Way) -> StepSpec | None:
        """Read a step, and note its problems. Return `None` if the kind of the step is unclear."""
        problems = self._problems
        kind = self._kind(part, way)
        for key, needed in _NEEDS.items():
            if getattr(part, needed) is None:
                message = f"step {cut(part.id)!r} has {key} without {needed}, which it needs"
                self._refuse(part, key, way, message)
        if part.output_schema is not None:
            read_schema(part.output_schema, (*way, "output_schema"), problems)
        inputs = read_bindings(part.inputs, (*way, "inputs"), problems)
        skip_if = self._skip_if(part, way)
        policy = self._policy(part, way)
        references = {name: value for name, value in inputs.items() if isinstance(value, Reference)}
        sources: dict[str, FieldSpec | None] = {}
        for name, reference in references.items():
            inputs[name] = replace(reference, is_declared=self._sources.declares(reference))
            sources[name] = self._sources.field(reference, (*way, "inputs", name), problems)
        self._note_needs(part, way, [*references.values()], skip_if, policy)
        iteration = self._iteration(part, way)
        ensure = self._ensure(part, way)
        budget = read_budget(part.budget, (*way, "budget"), problems)
        attempts = read_attempts(part.retries, self._library.version, (*way, "retries"), problems, 1)
        contract = known_contract(
            part.output_contract, (*way, "output_contract"), self._library.contracts, problems
        )
        if kind is None:
            return None
        self._check_kind(kind, part, way)
        self._check_inputs(part, inputs, sources, way)
        if part.flow is not None:
            contract = self._library.flow_parts[part.flow].output
        function = self._library.functions.get(part.function or "")
        said = function or FunctionSpec(
            name=part.id,
            mode="infer",
            intent=part.intent or "",
            output=contract,
            ensure=ensure,
            attempts=attempts,
            budget=budget,
            model=part.model,
        )
        gate = GateSpec(
            on_approve=part.on_approve,
            on_revise=part.on_revise,
            on_kill=part.on_kill,
            policy=policy,
            policy_fallback=cast("GatePolicy", part.policy_fallback or "gate"),
            timeout=said.timeout,
        )
        return StepSpec(
            id=part.id,
            kind=kind,
            function=part.function,
            flow=part.flow,
            mode=None if function is None else function.mode,
            intent=said.intent,
            context=said.context,
            agent=part.agent,
            model=said.model,
            inputs=inputs,
            depends_on=tuple(dict.fromkeys(part.depends_on or ())),
            output_schema=part.output_schema,
            output_contract=said.output,
            ensure=said.ensure,
            attempts=1 if kind == "gate" else said.attempts,
            budgets=() if said.budget is None else (said.budget,),
            skip_if=skip_if,
            skip_reason=part.skip_reason or "",
            on_fail=part.on_fail,
            next=part.next,
            iteration=iteration,
            gate=gate if kind == "gate" else None,
        )

    # --- kinds ---

    def _kind(self, part: StepPart, way: Way) -> StepKind | None:
        modes = [mode for mode in _MODES if getattr(part, mode) is not None]
        if len(modes) != 1:
            named = " and ".join(modes) or "none of them"
            message = f"step {cut(part.id)!r} needs exactly one of function, intent and flow; it has {named}"
            self._problems.add(message, (*way, modes[1] if modes else "id"), of_key=bool(modes))
            return None
        if part.flow is not None:
            if part.flow not in self._library.flow_parts:
                self._problems.unknown("flow", part.flow, (*way, "flow"), self._library.flow_parts)
                return None
            return "flow"
        if part.function is None:
            if not part.intent:
                self._problems.add("intent is empty; expected what is to be done", (*way, "intent"))
            return "inline"
        if part.function not in self._library.function_parts:
            self._problems.unknown(
                "function", part.function, (*way, "function"), self._library.function_parts
            )
            return None
        function = self._library.functions.get(part.function)
        if function is None:
            return None  # its own problem has been noted
        return "gate" if function.mode == "gate" else "function"

    def _check_kind(self, kind: StepKind, part: StepPart, way: Way) -> None:
        shown = cut(part.id)
        if kind in ("function", "gate"):
            for key in _OF_THE_FUNCTION:
                self._refuse(part, key, way, f"step {shown!r} has a function; {key} belongs there")
        if kind == "flow":
            for key in _NOT_OF_SUB_FLOWS:
                message = (
                    f"step {shown!r} is a sub-flow, whose own steps have {key}; it has ensure and on_fail"
                )
                self._refuse(part, key, way, message)
        if kind == "gate":
            for key, instead in _NOT_OF_GATES.items():
                self._refuse(part, key, way, f"step {shown!r} is a gate, which has no {key}: {instead}")
            for key in ("on_approve", "on_kill"):
                if key not in part.model_fields_set:
                    message = f"gate {shown!r} does not say {key}; expected a step, or null"
                    self._problems.add(message, (*way, "id"))
        else:
            for key in _OF_GATES:
                self._refuse(part, key, way, f"step {shown!r} is not a gate, so it has no {key}")

    def _refuse(self, part: StepPart, key: str, way: Way, message: str) -> None:
        if getattr(part, key) is not None:
            self._problems.add(message, (*way, key), of_key=True)

    # --- inputs ---

    def _note_needs(
        self,
        part: StepPart,
        way: Way,
        references: list[Reference],
        skip_if: Expression | None,
        policy: GatePolicy | Reference,
    ) -> None:
        there = self._sources.outputs
        for index, name in enumerate(part.depends_on or ()):
            if name not in there:
                self._problems.unknown("step", name, (*way, "depends_on", index), there)
        named = [*(part.depends_on or ()), *(reference.step_id for reference in references)]
        named += steps_read(skip_if) if skip_if is not None else []
        named += [policy.step_id] if isinstance(policy, Reference) else []
        self.needs[part.id] = list(
            dict.fromkeys(step for step in named if step is not None and step in there)
        )

    def _check_inputs(
        self,
        part: StepPart,
        inputs: Mapping[str, Binding],
        sources: Mapping[str, FieldSpec | None],
        way: Way,
    ) -> None:
        """Compare the inputs of a step with those that its function or sub-flow takes."""
        if part.flow is not None:
            taken = self._library.flow_inputs[part.flow]
        else:
            function = self._library.functions.get(part.function or "")
            taken = {} if function is None else function.input
        if not taken:
            return  # without declared inputs, any input is allowed
        for name, value in inputs.items():
            at: Way = (*way, "inputs", name)
            if name not in taken:
                message = f"there is no input {cut(name)!r}; {part.function or part.flow} takes "
                self._problems.add(f"{message}{listed(taken)}.", at, of_key=True, name=name, allowed=taken)
            elif name not in sources:
                if not isinstance(value, Reference) and not fits(value, taken[name]):
                    described = f"input {cut(name)!r} is {told(value)}"
                    self._problems.add(f"{described}; expected {expected(taken[name])}", at)
            elif (source := sources[name]) is not None and not accepts(taken[name].type, source.type):
                described = f"input {cut(name)!r} is of type {source.type}"
                self._problems.add(f"{described}; expected {taken[name].type}", at)
        inputs_given = part.inputs or {}
        missing = [name for name, field in taken.items() if field.required and name not in inputs_given]
        if missing:
            message = f"step {cut(part.id)!r} does not give {part.function or part.flow} what it takes: "
            key = "id" if part.inputs is None else "inputs"
            self._problems.add(f"{message}{listed(missing)}", (*way, key), of_key=key == "inputs")

    # --- conditions ---

    def _skip_if(self, part: StepPart, way: Way) -> Expression | None:
        if part.skip_if is None:
            return None
        at: Way = (*way, "skip_if")
        read = read_expression(part.skip_if, at, self._problems)
        if read is not None:
            scope = Scope({"input": Known(self._sources.inputs)}, steps=self._sources)
            scope.check(read, at, self._problems)
        return read

    def _ensure(self, part: StepPart, way: Way) -> tuple[Expression, ...]:
        if part.function is not None:
            return ()
        result = self._sources.outputs.get(part.id, Known({}, closed=False))
        scope = Scope({"result": result, "input": Known(dict.fromkeys(part.inputs or ()))})
        at: Way = (*way, "ensure")
        return read_ensure(part.ensure, scope, at, self._problems)

    def _iteration(self, part: StepPart, way: Way) -> IterationSpec | None:
        problems = self._problems
        criterion = None
        if part.exit_criterion is not None:
            at: Way = (*way, "exit_criterion")
            criterion = read_expression(part.exit_criterion, at, problems)
            if criterion is not None:
                more = frozenset(ITERATION_NAMES if part.accumulate is not None else ())
                Scope({"result": self._library.reported(part)}, values=more).check(criterion, at, problems)
        accumulate = self._accumulated(part, way)
        by = self._field_name(part.accumulate_key, "item", (*way, "accumulate_key"))
        if part.max_iterations is None:
            return None
        return IterationSpec(
            max_iterations=at_least_one(part.max_iterations, (*way, "max_iterations"), problems, 1),
            exit_criterion=criterion,
            accumulate=accumulate,
            accumulate_key=by,
        )

    def _accumulated(self, part: StepPart, way: Way) -> str | None:
        at: Way = (*way, "accumulate")
        name = self._field_name(part.accumulate, "result", at)
        if name is None:
            return None
        reported = self._library.reported(part)
        if reported.closed and name not in reported.fields:
            self._problems.unknown("field", name, at, reported.fields)
        elif (field := reported.fields.get(name)) is not None and field.type != "array":
            message = f"accumulate names {cut(name)!r}, which is of type {field.type}; expected an array"
            self._problems.add(message, at)
        for added, field in ACCUMULATED_FIELDS.items():
            declared = reported.fields.get(added)
            if declared is not None and not accepts(declared.type, field.type):
                message = (
                    f"accumulate adds a field {added!r} of type {field.type}, but the output declares it as "
                    f"{declared.type}; change that type, or rename the field"
                )
                self._problems.add(message, at)
        return name

    def _field_name(self, text: str | None, of: str, at: Way) -> str | None:
        """Return the field that a path such as `result.findings` names; a bare name is allowed too."""
        if text is None:
            return None
        name = text.removeprefix(f"{of}.")
        if ID.fullmatch(name):
            return name
        self._problems.add(f"{at[-1]} is {cut(text)!r}; expected one field, as in {of}.name", at)
        return None

    # --- gates ---

    def _policy(self, part: StepPart, way: Way) -> GatePolicy | Reference:
        problems = self._problems
        if part.policy_fallback is not None:
            problems.choice((*way, "policy_fallback"), part.policy_fallback, POLICIES)
        at: Way = (*way, "policy")
        if part.policy is None:
            return "gate"
        if not is_reference(part.policy):
            return cast("GatePolicy", part.policy) if problems.choice(at, part.policy, POLICIES) else "gate"
        read = read_reference(part.policy, at, problems)
        if read is None:
            return "gate"
        source = self._sources.field(read, at, problems)
        if source is not None and source.type != "string":
            problems.add(f"policy refers to {source.type}; expected a string, one of {listed(POLICIES)}", at)
        return read

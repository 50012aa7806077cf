"""The flows of a spec: the order of their steps, and the routes from one step to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastroai.documents.yaml_text import Way
from fastroai.workflows.spec.document import FieldSpec, FlowSpec, StepSpec
from fastroai.workflows.spec.functions import at_least_one, known_contract, read_budget
from fastroai.workflows.spec.limits import MAX_FLOW_STEPS, MAX_ID_CHARACTERS, MAX_NESTING, MAX_STEPS
from fastroai.workflows.spec.order import ordered
from fastroai.workflows.spec.parts import FlowPart, StepPart
from fastroai.workflows.spec.problems import Problems, cut, listed
from fastroai.workflows.spec.references import ID
from fastroai.workflows.spec.steps import Library, StepReader

_ROUTES = ("on_approve", "on_revise", "on_kill", "on_fail", "next")


def check_names(names: Iterable[str], way: Way, problems: Problems) -> None:
    """Note names that are not allowed."""
    for name in names:
        check_name(name, (*way, name), problems, of_key=True)


def check_name(name: str, way: Way, problems: Problems, *, of_key: bool = False) -> None:
    """Note a name that is not allowed."""
    if len(name) > MAX_ID_CHARACTERS:
        message = (
            f"the name {cut(name)!r} has {len(name):,} characters; at most {MAX_ID_CHARACTERS} are allowed"
        )
        problems.add(message, way, of_key=of_key)
    elif not ID.fullmatch(name):
        message = (
            f"{cut(name)!r} is not a name; expected letters, digits, '_' and '-', not a digit or '-' first"
        )
        problems.add(message, way, of_key=of_key)


def read_flow(name: str, part: FlowPart, library: Library, problems: Problems) -> FlowSpec:
    """Return a flow, and note the problems of its steps."""
    way: Way = ("flows", name)
    if not part.steps:
        problems.add(f"flow {cut(name)!r} has no steps", (*way, "steps"), of_key=True)
    if len(part.steps) > MAX_FLOW_STEPS:
        message = f"flow {cut(name)!r} has {len(part.steps):,} steps; at most {MAX_FLOW_STEPS:,} are allowed"
        problems.add(message, (*way, "steps"), of_key=True)
    at = _steps_by_id(part, (*way, "steps"), problems)
    parts = {step_id: part.steps[index] for step_id, index in at.items()}
    reader = StepReader(library, library.sources(name, parts), problems)
    read: dict[str, StepSpec] = {}
    for index, step_part in enumerate(part.steps):
        step = reader.read(step_part, (*way, "steps", index))
        if step is not None and at[step_part.id] == index:
            read[step.id] = step
    order, circles = ordered(tuple(parts), reader.needs)
    for circle in circles:
        message = f"steps need each other in a circle: {_shown_circle(circle)}; remove one of these needs"
        problems.add(message, (*way, "steps", at[circle[0]], "id"))
    rank = {step_id: number for number, step_id in enumerate(order)}
    for step_id, step_part in parts.items():
        _check_routes(step_part, (*way, "steps", at[step_id]), parts, rank, problems)
    return FlowSpec(
        name=name,
        input=library.flow_inputs[name],
        output=known_contract(part.output, (*way, "output"), library.contracts, problems),
        budget=read_budget(part.budget, (*way, "budget"), problems),
        max_rounds=None
        if part.max_rounds is None
        else at_least_one(part.max_rounds, (*way, "max_rounds"), problems, 1),
        steps=tuple(read[step_id] for step_id in order if step_id in read),
        routed_only=_routed_only(read, rank),
        needs={step_id: tuple(needs) for step_id, needs in reader.needs.items()},
    )


def _steps_by_id(part: FlowPart, way: Way, problems: Problems) -> dict[str, int]:
    at: dict[str, int] = {}
    for index, step in enumerate(part.steps):
        check_name(step.id, (*way, index, "id"), problems)
        if step.id in at:
            line = problems.text.place((*way, at[step.id], "id"))[0]
            message = f"step {cut(step.id)!r} exists already, in line {line}; give it another id"
            problems.add(message, (*way, index, "id"))
        at.setdefault(step.id, index)
    return at


def _shown_circle(members: list[str]) -> str:
    return " → ".join([*map(cut, members[:20]), *(["…"] if len(members) > 20 else []), cut(members[0])])


def _check_routes(
    part: StepPart, way: Way, parts: Mapping[str, StepPart], rank: Mapping[str, int], problems: Problems
) -> None:
    for key in _ROUTES:
        target: str | None = getattr(part, key)
        at: Way = (*way, key)
        if target is None:
            continue
        if target not in parts:
            problems.unknown("step", target, at, parts)
        elif target == part.id:
            message = f"{key} leads from {cut(part.id)!r} to itself, an endless loop; expected another step"
            problems.add(message, at)
        elif key == "on_revise" and rank.get(target, -1) > rank.get(part.id, len(rank)):
            message = f"on_revise leads from {cut(part.id)!r} to {cut(target)!r}, which comes after it; "
            problems.add(f"{message}expected an earlier step", at)


def _routed_only(steps: Mapping[str, StepSpec], rank: Mapping[str, int]) -> frozenset[str]:
    """Return the steps for recovery and cleanup, to which `on_fail` or `on_kill` of an earlier step leads."""
    return frozenset(
        target
        for step in steps.values()
        for target in (step.on_fail, step.gate.on_kill if step.gate else None)
        if target is not None and rank.get(target, -1) > rank.get(step.id, len(rank))
    )


# --- flows in flows ---


def check_flows(flows: Mapping[str, FlowSpec], parts: Mapping[str, FlowPart], problems: Problems) -> None:
    """Note circles of sub-flows, too many steps or levels, and `on_fail` of steps that cannot fail."""
    names = tuple(flows)
    runs = {name: [step.flow for step in flow.steps if step.flow is not None] for name, flow in flows.items()}
    order, circles = ordered(names, runs)
    for circle in circles:
        message = f"flows run each other in a circle: {_shown_circle(circle)}"
        problems.add(message, ("flows", circle[0]), of_key=True)
    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}
    for name in order:
        sizes[name] = len(flows[name].steps) + sum(sizes[one] for one in runs[name])
        depths[name] = 1 + max((depths[one] for one in runs[name]), default=0)
        if sizes[name] > MAX_STEPS:
            sizes[name] = 0  # told once, not for each flow that runs it
            message = f"flow {cut(name)!r} has more than {MAX_STEPS:,} steps, those of its sub-flows included"
            problems.add(message, ("flows", name), of_key=True)
        if depths[name] > MAX_NESTING:
            depths[name] = 0
            message = f"flow {cut(name)!r} has flows in flows, more than {MAX_NESTING} levels deep"
            problems.add(message, ("flows", name), of_key=True)
    can_fail = {name for name in names if name not in order}
    for name in order:
        if _flow_can_fail(flows[name], can_fail):
            can_fail.add(name)
    for name, flow in flows.items():
        _check_on_fail(flow, parts[name], can_fail, problems)


def _flow_can_fail(flow: FlowSpec, flows: set[str]) -> bool:
    if flow.output is not None or flow.budget is not None or flow.max_rounds is not None:
        return True
    return any(_step_can_fail(step, flows) for step in flow.steps)


def _step_can_fail(step: StepSpec, flows: set[str]) -> bool:
    checked = step.ensure or step.output_schema is not None or step.output_contract is not None
    return bool(checked or step.budgets or step.flow in flows)


def _check_on_fail(flow: FlowSpec, part: FlowPart, can_fail: set[str], problems: Problems) -> None:
    steps = {step.id: step for step in flow.steps}
    for index, step_part in enumerate(part.steps):
        step = steps.get(step_part.id)
        if step_part.on_fail and step and step.kind != "gate" and not _step_can_fail(step, can_fail):
            message = (
                f"step {cut(step.id)!r} has on_fail, but nothing that can fail; "
                "give it ensure, output_schema, a contract or a budget"
            )
            problems.add(message, ("flows", flow.name, "steps", index, "on_fail"), of_key=True)


def entry_of(flows: Mapping[str, FlowSpec]) -> str:
    """Return the flow that runs by default: the first that no other flow runs."""
    inner = {step.flow for flow in flows.values() for step in flow.steps}
    return next((name for name in flows if name not in inner), next(iter(flows)))


def same_inputs(said: Mapping[str, FieldSpec], of_flow: Mapping[str, FieldSpec]) -> str | None:
    """Return how two sets of inputs differ, as text; `None` if they have the same names and types."""
    missing = [name for name in of_flow if name not in said]
    if missing:
        return f"it lacks {listed(missing)}"
    more = [name for name in said if name not in of_flow]
    if more:
        return f"the flow has no {listed(more)}"
    other = [name for name in said if said[name].type != of_flow[name].type]
    if other:
        return f"{cut(other[0])!r} is of type {said[other[0]].type}, and there {of_flow[other[0]].type}"
    return None

"""Workflow specs from YAML, with every problem at once and the place of each."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, cast

from fastroai.documents.parts import Misshapen, shaped
from fastroai.documents.yaml_text import YamlText, read_yaml_of
from fastroai.errors import WorkflowProblem, WorkflowValidationError
from fastroai.workflows.spec.document import FlowSpec, WorkflowInfo, WorkflowSpec
from fastroai.workflows.spec.fields import read_contracts, read_fields
from fastroai.workflows.spec.flows import check_flows, check_names, entry_of, read_flow, same_inputs
from fastroai.workflows.spec.functions import read_functions, uses_of
from fastroai.workflows.spec.limits import MAX_SPEC_DEPTH
from fastroai.workflows.spec.parts import PARTS_AT, SpecPart, WorkflowPart, new_keys
from fastroai.workflows.spec.problems import Problems, TooManyProblems, cut
from fastroai.workflows.spec.steps import Library

VERSIONS: Final = ("0.1", "0.2")


def load_spec(source: str | Path) -> WorkflowSpec:
    """Read a workflow spec, and check everything about it that can be checked before a run.

    Args:
        source: The text of the spec, or the `Path` of a file.

    Raises:
        WorkflowValidationError: It is not YAML, or not a spec that can run; with all its problems.
        OSError: The file cannot be read.
        MissingExtraError: PyYAML is not installed, or jsonschema-rs, which `output_schema` needs (the extra
            `workflows`).
    """
    file = str(source) if isinstance(source, Path) else None
    text = read_yaml_of(source, "load_spec", max_depth=MAX_SPEC_DEPTH)
    problems = Problems(text, text.text.splitlines())
    try:
        spec = _read(text, file, problems)
    except TooManyProblems:
        spec = None
    if problems.found or spec is None:
        raise WorkflowValidationError(_in_order(problems.found), file)
    return spec


def _in_order(problems: list[WorkflowProblem]) -> tuple[WorkflowProblem, ...]:
    return tuple(sorted(problems, key=lambda one: (one.line, one.column)))


def _read(text: YamlText, file: str | None, problems: Problems) -> WorkflowSpec | None:
    for found in text.problems:
        problems.add_found(found)
    if problems.found:
        return None
    try:
        part = shaped(SpecPart, text.data, text, PARTS_AT)
    except Misshapen as error:
        for misfit in error.misfits:
            problems.add_misfit(misfit)
        return None
    return _spec(part, text.text, file, problems)


def _spec(part: SpecPart, text: str, file: str | None, problems: Problems) -> WorkflowSpec | None:
    problems.choice(("version",), part.version, VERSIONS)
    if part.version == "0.1":
        for way in new_keys(part):
            message = f'{way[-1]} is not in version "0.1" like this; say version: "0.2"'
            problems.add(message, way, of_key=True)
    if not part.flows:
        problems.add("flows is empty; expected a flow", ("flows",))
        return None
    check_names(part.contracts or {}, ("contracts",), problems)
    check_names(part.functions or {}, ("functions",), problems)
    check_names(part.flows, ("flows",), problems)
    contracts = read_contracts(part.contracts, problems)
    uses = uses_of(part.flows.values())
    functions = read_functions(part.functions or {}, contracts, uses, problems)
    library = Library(
        contracts=contracts,
        function_parts=part.functions or {},
        functions=functions,
        flow_parts=part.flows,
        flow_inputs={
            name: read_fields(flow.input, ("flows", name, "input"), problems)
            for name, flow in part.flows.items()
        },
        flow_outputs={name: flow.output for name, flow in part.flows.items()},
    )
    flows = {name: read_flow(name, flow, library, problems) for name, flow in part.flows.items()}
    check_flows(flows, part.flows, problems)
    entry = entry_of(flows) if part.workflow is None else _entry(part.workflow, flows, problems)
    return WorkflowSpec(
        version=cast("Literal['0.1', '0.2']", part.version),
        text=text,
        source=file,
        contracts=contracts,
        functions=functions,
        flows=flows,
        workflow=None if part.workflow is None else _info(part.workflow, flows[entry], problems),
        entry=entry,
    )


def _entry(part: WorkflowPart, flows: dict[str, FlowSpec], problems: Problems) -> str:
    """The flow of the same name, or the only one."""
    if part.name in flows:
        return part.name
    if len(flows) > 1:
        problems.unknown(
            f"workflow {cut(part.name)!r} runs the flow of its name; flow",
            part.name,
            ("workflow", "name"),
            flows,
        )
    return next(iter(flows))


def _info(part: WorkflowPart, entry: FlowSpec, problems: Problems) -> WorkflowInfo:
    inputs = read_fields(part.input, ("workflow", "input"), problems)
    difference = same_inputs(inputs, entry.input)
    if difference is not None:
        message = f"the inputs of the workflow are not those of its flow {cut(entry.name)!r}: {difference}"
        problems.add(message, ("workflow", "input"), of_key=True)
    return WorkflowInfo(name=part.name, description=part.description or "", input=inputs)

"""Workflow specs read from YAML, with all problems at once and the place of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, cast, get_args

from fastroai.documents.parts import Misfit, Misshapen, mended, shaped
from fastroai.documents.yaml_text import YamlText, read_yaml
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.spec.document import FlowSpec, Version, WorkflowInfo, WorkflowSpec
from fastroai.workflows.spec.fields import completed, read_contracts, read_fields
from fastroai.workflows.spec.flows import (
    check_flows,
    check_name,
    check_names,
    entry_of,
    read_flow,
    same_inputs,
)
from fastroai.workflows.spec.functions import read_functions, uses_of
from fastroai.workflows.spec.limits import MAX_SPEC_DEPTH, MAX_SPEC_VALUES
from fastroai.workflows.spec.parts import PARTS_AT, SpecPart, WorkflowPart, new_keys
from fastroai.workflows.spec.problems import Problems, TooManyProblems, cut
from fastroai.workflows.spec.steps import Library

VERSIONS: Final[tuple[Version, ...]] = get_args(Version)


def load_spec(source: str | Path) -> WorkflowSpec:
    """Read a workflow spec, and check everything about it that can be checked before a run.

    Args:
        source: The text of the spec, or the `Path` of a file. A `str` is always a text, never a path.

    Raises:
        WorkflowValidationError: The text is not YAML, or not a spec that can run; the error has all problems
            that were found. When these are corrected, others may be found.
        OSError: The file cannot be read.
        MissingExtraError: PyYAML is not installed, or jsonschema-rs, which `output_schema` needs (the extra
            `workflows`).
    """
    file = str(source) if isinstance(source, Path) else None
    text = read_yaml(source, "load_spec", max_depth=MAX_SPEC_DEPTH, max_values=MAX_SPEC_VALUES)
    problems = Problems(text, file, text.text.splitlines())
    try:
        spec = _read(text, problems)
    except TooManyProblems:
        spec = None
    if problems.found or spec is None:
        in_order = sorted(problems.found, key=lambda one: (one.line, one.column))
        raise WorkflowValidationError(tuple(in_order), file)
    return spec


def _read(text: YamlText, problems: Problems) -> WorkflowSpec | None:
    for found in text.problems:
        problems.add_misfit(Misfit(found))
    if not text.is_whole:
        return None
    part = _shaped(text, problems)
    return None if part is None else _spec(part, text.text, problems)


def _shaped(text: YamlText, problems: Problems) -> SpecPart | None:
    """Return the data as parts of a spec. Note parts of the wrong form; leave them out if possible."""
    try:
        return shaped(SpecPart, text.data, text, PARTS_AT)
    except Misshapen as error:
        for misfit in error.misfits:
            problems.add_misfit(misfit)
        data = mended(text.data, error.misfits)
    try:
        return shaped(SpecPart, data, text, PARTS_AT)
    except Misshapen:
        return None


def _spec(part: SpecPart, text: str, problems: Problems) -> WorkflowSpec | None:
    problems.choice(("version",), part.version, VERSIONS)
    if part.version == "0.1":
        for way in new_keys(part):
            message = f'version "0.1" does not have {way[-1]} in this form; set version: "0.2"'
            problems.add(message, way, of_key=True)
    if not part.flows:
        problems.add("flows is empty; expected a flow", ("flows",))
        return None
    check_names(part.contracts or {}, ("contracts",), problems)
    check_names(part.functions or {}, ("functions",), problems)
    check_names(part.flows, ("flows",), problems)
    contracts = read_contracts(part.contracts, problems)
    uses = uses_of(part.flows.values())
    functions = read_functions(part.functions or {}, contracts, uses, part.version, problems)
    library = Library(
        version=part.version,
        contracts=contracts,
        function_parts=part.functions or {},
        functions=functions,
        flow_parts=part.flows,
        flow_inputs={
            name: read_fields(flow.input, ("flows", name, "input"), problems)
            for name, flow in part.flows.items()
        },
    )
    flows = {name: read_flow(name, flow, library, problems) for name, flow in part.flows.items()}
    check_flows(flows, part.flows, problems)
    entry = entry_of(flows)
    if part.workflow is not None:
        check_name(part.workflow.name, ("workflow", "name"), problems)
        entry = _entry(part.workflow, flows, problems) or entry
    return WorkflowSpec(
        version=cast("Version", part.version),
        text=text,
        source=problems.file,
        contracts=contracts,
        functions=functions,
        flows=flows,
        workflow=None
        if part.workflow is None
        else WorkflowInfo(
            name=part.workflow.name,
            description=part.workflow.description or "",
            input=flows[entry].input,
        ),
        entry=entry,
    )


def _entry(part: WorkflowPart, flows: dict[str, FlowSpec], problems: Problems) -> str | None:
    """Return the flow of the workflow's name, or the only flow, completed by the inputs of the workflow."""
    name = part.name if part.name in flows else next(iter(flows)) if len(flows) == 1 else None
    if name is None:
        what = "the workflow runs the flow of its name; flow"
        problems.unknown(what, part.name, ("workflow", "name"), flows)
        return None
    said = read_fields(part.input, ("workflow", "input"), problems)
    difference = same_inputs(said, flows[name].input)
    if difference is not None:
        message = f"the inputs of the workflow are not those of its flow {cut(name)!r}: {difference}"
        key = "name" if part.input is None else "input"
        problems.add(message, ("workflow", key), of_key=True)
        return name
    inputs = dict(flows[name].input)
    for key, field in (part.input or {}).items():
        inputs[key] = completed(inputs[key], field, said[key], ("workflow", "input", key), problems)
    flows[name] = replace(flows[name], input=inputs)
    return name

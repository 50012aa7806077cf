"""The tools that read, check and write specs. Their docstrings tell agents what they do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from anyio.to_thread import run_sync
from mcp_types import CallToolResult
from pydantic import Field, RootModel

from fastroai.errors import WorkflowProblem, WorkflowValidationError
from fastroai.workflows.answers import Answer, ErrorAnswer, Problem, error
from fastroai.workflows.server.desk import Call, desk_of
from fastroai.workflows.server.replies import AN_OBJECT, reply
from fastroai.workflows.spec.document import WorkflowSpec
from fastroai.workflows.spec.reading import load_spec

_PATTERNS: Final = ("*.workflow.yaml", "*.stratum.yaml")
"""The names of files that have specs."""
_MOST_FILES: Final = 1_000
"""Files of a folder that are read at once."""

Spec: TypeAlias = Annotated[str, Field(description="The text of the spec, in YAML; not the path of a file.")]


class Validated(Answer):
    """Whether a spec can run."""

    status: Literal["ok"]
    valid: bool
    errors: tuple[Problem, ...]
    """Everything that is wrong with it."""
    entry: str | None = None
    """The flow that runs unless another one is named."""
    flows: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """The steps of each flow, in the order in which they are done."""


class FoundWorkflow(Answer):
    """A workflow that a file of the workspace has."""

    name: str
    description: str
    input: dict[str, str]
    """The types of its inputs, by name."""
    path: str
    """The file, from the workspace on."""


class WorkflowList(Answer):
    """The workflows in a folder."""

    status: Literal["ok"]
    workflows: tuple[FoundWorkflow, ...]
    errors: tuple[str, ...]
    """What is wrong with files that have no valid spec."""


class WorkflowListResult(RootModel[WorkflowList | ErrorAnswer]):
    """The workflows in a folder."""

    model_config = AN_OBJECT


async def validate(call: Call, spec: Spec) -> Annotated[CallToolResult, Validated]:
    """Check a workflow spec, and get everything that is wrong with it, with line and column.

    Do this before fastroai_plan. Where `valid` is true, `flows` says in which order the steps will be done.
    """
    try:
        found = await run_sync(load_spec, spec)
    except WorkflowValidationError as invalid:
        return reply(Validated(status="ok", valid=False, errors=tuple(map(_problem, invalid.problems))))
    order = {name: tuple(step.id for step in flow.steps) for name, flow in found.flows.items()}
    return reply(Validated(status="ok", valid=True, errors=(), entry=found.entry, flows=order))


async def list_workflows(
    call: Call,
    workflows_dir: Annotated[
        str,
        Field(description="A folder of the workspace; the workspace itself unless given."),
    ] = ".",
) -> Annotated[CallToolResult, WorkflowListResult]:
    """List the workflows whose specs are in a folder: files *.workflow.yaml and *.stratum.yaml.

    To begin one, read its file and give the text of it to fastroai_plan.
    """
    return reply(await run_sync(_listed, desk_of(call).workspace, workflows_dir))


def _listed(workspace: Path, folder: str) -> WorkflowList | ErrorAnswer:
    within = _within(workspace, folder)
    if within is None or not within.is_dir():
        return error("invalid_input", f"{folder[:200]!r} is no folder of the workspace")
    workflows: dict[str, FoundWorkflow] = {}
    errors: list[str] = []
    for file in sorted({path for pattern in _PATTERNS for path in within.glob(pattern)})[:_MOST_FILES]:
        path = file.relative_to(workspace).as_posix()
        if (inside := _within(workspace, path)) is None or not inside.is_file():
            errors.append(f"{path}: it leads out of the workspace, or to no file")
            continue
        try:
            found = _described(load_spec(file), path)
        except (WorkflowValidationError, OSError) as invalid:
            errors.append(f"{path}: {invalid}"[:2_000])
            continue
        if (other := workflows.setdefault(found.name, found)) is not found:
            errors.append(f"{path}: workflow {found.name!r} is in {other.path} as well")
    return WorkflowList(status="ok", workflows=tuple(workflows.values()), errors=tuple(errors))


def _described(spec: WorkflowSpec, path: str) -> FoundWorkflow:
    info, entry = spec.workflow, spec.flows[spec.entry]
    return FoundWorkflow(
        name=spec.entry if info is None else info.name,
        description="" if info is None else info.description,
        input={name: field.type for name, field in (entry.input if info is None else info.input).items()},
        path=path,
    )


def _within(workspace: Path, path: str) -> Path | None:
    """Return a path of the workspace with all links followed; `None` if it leads out of there."""
    try:
        found = (workspace / path).resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    return found if found.is_relative_to(workspace) else None


def _problem(problem: WorkflowProblem) -> Problem:
    path = ".".join(part for part in (problem.flow, problem.step) if part is not None)
    return Problem(message=problem.message, line=problem.line, column=problem.column, path=path)

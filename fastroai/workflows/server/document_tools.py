"""The tools that read, check and write specs. Their docstrings tell agents what they do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from anyio.to_thread import run_sync
from mcp_types import CallToolResult
from pydantic import Field, RootModel

from fastroai.errors import ConfigurationError
from fastroai.workflows.answers import Answer, DeclaredField, ErrorAnswer, Problem, error
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.server.context import Call, context_of
from fastroai.workflows.server.replies import AN_OBJECT, reply
from fastroai.workflows.spec import catalog, drafting, speckit
from fastroai.workflows.spec.document import RETRIES_ARE_ATTEMPTS, Version
from fastroai.workflows.spec.reading import load_spec

_MOST_LISTED: Final = 100
"""Maximum number of invalid files that an answer names."""

Spec: TypeAlias = Annotated[str, Field(description="The text of the spec, in YAML; not the path of a file.")]


class Validated(Answer):
    """Whether a spec can run."""

    status: Literal["ok"]
    valid: bool
    errors: tuple[Problem, ...]
    """All problems of the spec."""
    version: Version | None = None
    """The version of the format that the spec follows."""
    retries_are: Literal["attempts in all", "extra attempts"] | None = None
    """What `retries` counts in this version: attempts in all, the first included, or those after it."""
    entry: str | None = None
    """The flow that runs by default."""
    flows: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """The steps of each flow, in the order in which they are done."""


class FoundWorkflow(Answer):
    """A workflow that a file of the workspace has."""

    name: str
    description: str
    input: dict[str, DeclaredField]
    """Its inputs, by name."""
    path: str
    """Path of the file in the workspace."""


class WorkflowList(Answer):
    """The workflows in a folder."""

    status: Literal["ok"]
    workflows: tuple[FoundWorkflow, ...]
    errors: tuple[str, ...]
    """The problems of files without a valid spec."""


class WrittenTask(Answer):
    """A task of spec-kit, as a step."""

    id: str
    title: str
    parallel: bool
    ensures: tuple[str, ...]
    """The acceptance criteria that are checked."""
    judgment: tuple[str, ...]
    """The acceptance criteria that only the agent can judge; they are in the intent of the step."""


class WrittenSpec(Answer):
    """A spec that was written from task files of spec-kit, or from a list of phases. It is in no file yet."""

    status: Literal["ok"]
    yaml: str
    """The text of the spec, for `fastroai_plan`."""
    flow_name: str
    steps: tuple[WrittenTask, ...] = ()


class ListResult(RootModel[WorkflowList | ErrorAnswer]):
    """The workflows in a folder."""

    model_config = AN_OBJECT


class WrittenResult(RootModel[WrittenSpec | ErrorAnswer]):
    """A spec that was written, or why it could not be."""

    model_config = AN_OBJECT


async def validate(call: Call, spec: Spec) -> Annotated[CallToolResult, Validated]:
    """Check a workflow spec, and get everything that is wrong with it, with line and column.

    Do this before fastroai_plan. Where `valid` is true, `flows` says in which order the steps will be done.
    The resource fastroai://spec-format has every key of a spec.
    """
    try:
        found = await run_sync(load_spec, spec)
    except WorkflowValidationError as invalid:
        errors = tuple(map(Problem.model_validate, invalid.problems))
        return reply(Validated(status="ok", valid=False, errors=errors))
    order = {name: tuple(step.id for step in flow.steps) for name, flow in found.flows.items()}
    return reply(
        Validated(
            status="ok",
            valid=True,
            errors=(),
            version=found.version,
            retries_are="attempts in all" if found.version in RETRIES_ARE_ATTEMPTS else "extra attempts",
            entry=found.entry,
            flows=order,
        )
    )


async def list_workflows(
    call: Call,
    workflows_dir: Annotated[
        str, Field(description="A folder of the workspace; the workspace itself unless given.")
    ] = ".",
) -> Annotated[CallToolResult, ListResult]:
    """List the workflows whose specs are in a folder: files *.workflow.yaml and *.stratum.yaml.

    To begin one, read its file and give the text of it to fastroai_plan.
    """
    return reply(await run_sync(_listed, context_of(call).workspace, workflows_dir))


async def compile_speckit(
    call: Call,
    tasks_dir: Annotated[str, Field(description="A folder of the workspace with task files, *.md.")],
    flow_name: Annotated[str, Field(description="The name of the flow.")] = "tasks",
) -> Annotated[CallToolResult, WrittenResult]:
    """Make a workflow spec of the task files of spec-kit. Pass its `yaml` to fastroai_plan, or edit it first.

    Each task is a step. Its acceptance criteria become checks where they say that a file exists or contains a
    text, that tests pass, or that there are no lint errors. Tasks marked [P] do not wait for each other.
    """
    return reply(await run_sync(_compiled, context_of(call).workspace, tasks_dir, flow_name))


async def draft_pipeline(
    call: Call,
    draft: Annotated[
        drafting.PipelineDraft, Field(description="A name, and phases in the order in which they are done.")
    ],
) -> Annotated[CallToolResult, WrittenResult]:
    """Make a workflow spec of a list of phases. Pass its `yaml` to fastroai_plan, or edit it first.

    A phase has a name, and perhaps an intent, a capability (scout looks around, builder makes something,
    critic reviews) and a policy, which puts a gate after it: gate asks a person, flag approves and puts it on
    record, skip approves.
    """
    text = await run_sync(drafting.draft_spec, draft)
    spec = await run_sync(load_spec, text)
    return reply(WrittenSpec(status="ok", yaml=text, flow_name=spec.entry))


def _listed(workspace: Path, folder: str) -> WorkflowList | ErrorAnswer:
    within = _folder(workspace, folder, *catalog.PATTERNS)
    if isinstance(within, ErrorAnswer):
        return within
    found = catalog.find_specs(within)
    workflows = tuple(
        FoundWorkflow(
            name=entry.name,
            description=entry.description,
            input={name: DeclaredField.of(field) for name, field in entry.inputs.items()},
            path=entry.path.relative_to(workspace).as_posix(),
        )
        for entry in found.entries
    )
    errors = [
        f"{path.relative_to(workspace).as_posix()}: {'; '.join(map(str, problems[:3]))}"
        for path, problems in list(found.invalid.items())[:_MOST_LISTED]
    ]
    return WorkflowList(status="ok", workflows=workflows, errors=tuple(errors))


def _compiled(workspace: Path, folder: str, flow: str) -> WrittenSpec | ErrorAnswer:
    within = _folder(workspace, folder, "*.md")
    if isinstance(within, ErrorAnswer):
        return within
    try:
        made = speckit.compile_speckit(within, flow)
    except ConfigurationError as invalid:
        return error("invalid_input", str(invalid))
    except OSError as unreadable:
        return error("invalid_input", f"a task file cannot be read: {unreadable.strerror}")
    steps = tuple(map(WrittenTask.model_validate, made.tasks))
    return WrittenSpec(status="ok", yaml=made.text, flow_name=made.flow, steps=steps)


def _folder(workspace: Path, name: str, *patterns: str) -> Path | ErrorAnswer:
    """Return a folder of the workspace. Refuse it if a file in it that fits `patterns` is outside."""
    try:
        folder = (workspace / name).resolve()
        if not folder.is_relative_to(workspace) or not folder.is_dir():
            return error("invalid_input", f"{name[:200]!r} is not a folder of the workspace")
        for file in (file for pattern in patterns for file in folder.glob(pattern)):
            if not file.resolve().is_relative_to(workspace):
                return error("invalid_input", f"{file.name!r} is a link that leads out of the workspace")
    except (OSError, ValueError, RuntimeError):
        return error("invalid_input", f"{name[:200]!r} is not a folder that can be read")
    return folder

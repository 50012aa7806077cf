"""`workflow validate`, `workflow list`, `workflow compile` and `workflow draw`."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fastroai import workflows
from fastroai.cli.exits import FAILED, NOT_FOUND, OK, complain
from fastroai.cli.options import AsJson, SpecFile, SpecFlow
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import fields_of
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.plain_text import plain

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.workflows import WorkflowProblem, WorkflowSpec
    from fastroai.workflows.spec.catalog import CatalogEntry

Output = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The file to write; by default standard output.", show_default=False),
]


def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="SPEC...", help="Files with specs.", show_default=False)
    ],
    as_json: AsJson = False,
) -> int:
    """Check specs, and list everything that is wrong with them."""
    code = OK
    shapes: list[dict[str, JsonValue]] = []
    for file in files:
        problems: tuple[WorkflowProblem, ...] = ()
        spec: WorkflowSpec | None = None
        try:
            spec = workflows.load_spec(Path(file))
        except workflows.WorkflowValidationError as error:
            problems, code = error.problems, max(code, FAILED)
        except OSError as error:
            unread = workflows.WorkflowProblem(message=f"it cannot be read: {error.strerror}")
            problems, code = (unread,), NOT_FOUND
        shapes.append(_validated(file, spec, problems))
        if not as_json:
            _print_validated(file, spec, problems)
    if as_json:
        print_json(shapes)
    return code


def _validated(
    file: str, spec: WorkflowSpec | None, problems: Sequence[WorkflowProblem]
) -> dict[str, JsonValue]:
    return {
        "path": file,
        "valid": spec is not None,
        "entry": None if spec is None else spec.entry,
        "flows": {}
        if spec is None
        else {name: [one.id for one in flow.steps] for name, flow in spec.flows.items()},
        "errors": _shapes(problems),
    }


def _shapes(problems: Iterable[WorkflowProblem]) -> list[JsonValue]:
    names = ("message", "line", "column", "flow", "step", "allowed", "nearest")
    return [fields_of(names, one) for one in problems]


def _print_validated(file: str, spec: WorkflowSpec | None, problems: Sequence[WorkflowProblem]) -> None:
    for one in problems:
        print(plain(f"{file}:{one.line}:{one.column}: {one.message}"))
    if spec is not None:
        steps = sum(len(flow.steps) for flow in spec.flows.values())
        print(plain(f"{file}: valid, flows {', '.join(spec.flows)}, {steps} steps"))


def list_specs(
    folder: Annotated[str, typer.Argument(metavar="[FOLDER]", help="The folder to search.")] = ".",
    as_json: AsJson = False,
) -> int:
    """List the workflows of a folder: its files *.stratum.yaml and *.workflow.yaml."""
    if not Path(folder).is_dir():
        complain(f"there is no folder {folder!r}")
        return NOT_FOUND
    catalog = workflows.find_specs(Path(folder))
    if as_json:
        invalid: list[JsonValue] = [
            {"path": str(path), "errors": _shapes(problems)} for path, problems in catalog.invalid.items()
        ]
        print_json({"workflows": [_entry(one) for one in catalog.entries], "invalid": invalid})
        return OK
    for entry in catalog.entries:
        inputs = ", ".join(f"{name}: {field.type}" for name, field in entry.inputs.items())
        told = f"{entry.name}({inputs})  {entry.path}"
        print(plain(f"{told}  {entry.description}" if entry.description else told))
    for path, problems in catalog.invalid.items():
        complain(f"{path} is no valid spec: {problems[0]}")
    return OK


def _entry(entry: CatalogEntry) -> JsonValue:
    from fastroai.workflows.answers import DeclaredField

    return {
        "name": entry.name,
        "description": entry.description,
        "path": str(entry.path),
        "input": {
            name: DeclaredField.of(field).model_dump(mode="json") for name, field in entry.inputs.items()
        },
    }


def compile_tasks(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The folder of the task files *.md.", show_default=False)
    ],
    flow: Annotated[str, typer.Option(help="The name of the workflow and its flow.")] = "tasks",
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Make a spec of task files of spec-kit."""
    if not Path(folder).is_dir():
        complain(f"there is no folder {folder!r}")
        return NOT_FOUND
    compiled = workflows.compile_speckit(Path(folder), flow)
    if output is not None:
        _write(output, compiled.text)
    if as_json:
        names = ("id", "title", "parallel", "ensures", "judgment")
        steps: list[JsonValue] = [fields_of(names, task) for task in compiled.tasks]
        print_json({"flow_name": flow, "steps": steps, "yaml": compiled.text, "path": output})
    elif output is None:
        print(plain(compiled.text), end="")
    return OK


def _write(output: str, text: str) -> None:
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            "--output", output, f"a file that can be written: {error.strerror}"
        ) from error


def draw(
    file: SpecFile,
    flow: SpecFlow = None,
    form: Annotated[
        Literal["mermaid", "svg"], typer.Option("--format", help="The language of the drawing.")
    ] = "mermaid",
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Draw a flow of a spec, with every way between its steps."""
    from fastroai import drawing

    try:
        spec = workflows.load_spec(Path(file))
    except OSError as error:
        complain(f"{file} cannot be read: {error.strerror}")
        return NOT_FOUND
    if flow is not None and flow not in spec.flows:
        hint = nearest_hint(flow, spec.flows)
        raise ConfigurationError("--flow", flow, f"a flow of the spec: {', '.join(spec.flows)}.{hint}")
    drawn = (drawing.svg if form == "svg" else drawing.mermaid)(workflows.draw_flow(spec, flow))
    if output is not None:
        _write(output, drawn)
    if as_json:
        print_json({"flow": flow or spec.entry, "format": form, "drawing": drawn, "path": output})
    elif output is None:
        print(plain(drawn), end="")
    return OK

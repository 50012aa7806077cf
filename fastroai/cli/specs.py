"""`workflow validate`, `workflow list`, `workflow compile` and `workflow draw`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from fastroai.cli.exits import FAILED, NOT_FOUND, OK, complain
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import fields_of
from fastroai.drawing import mermaid, svg
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.plain_text import plain
from fastroai.workflows.answers import DeclaredField
from fastroai.workflows.errors import WorkflowProblem, WorkflowValidationError
from fastroai.workflows.spec.catalog import CatalogEntry, find_specs
from fastroai.workflows.spec.document import WorkflowSpec
from fastroai.workflows.spec.drawing import draw_flow
from fastroai.workflows.spec.reading import load_spec
from fastroai.workflows.spec.speckit import compile_speckit

_FORMATS: Final = {"mermaid": mermaid, "svg": svg}


def validate(files: Sequence[str], as_json: bool) -> int:
    """See `app`."""
    code, shapes = OK, list[dict[str, JsonValue]]()
    for file in files:
        problems: tuple[WorkflowProblem, ...] = ()
        spec: WorkflowSpec | None = None
        try:
            spec = load_spec(Path(file))
        except WorkflowValidationError as error:
            problems, code = error.problems, max(code, FAILED)
        except OSError as error:
            unread = WorkflowProblem(message=f"it cannot be read: {error.strerror}")
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


def list_specs(folder: str, as_json: bool) -> int:
    """See `app`."""
    if not Path(folder).is_dir():
        complain(f"there is no folder {folder!r}")
        return NOT_FOUND
    catalog = find_specs(Path(folder))
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
    return {
        "name": entry.name,
        "description": entry.description,
        "path": str(entry.path),
        "input": {
            name: DeclaredField.of(field).model_dump(mode="json") for name, field in entry.inputs.items()
        },
    }


def compile_tasks(folder: str, flow: str, output: str | None, as_json: bool) -> int:
    """See `app`."""
    if not Path(folder).is_dir():
        complain(f"there is no folder {folder!r}")
        return NOT_FOUND
    compiled = compile_speckit(Path(folder), flow)
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


def draw(file: str, flow: str | None, form: str, output: str | None, as_json: bool) -> int:
    """See `app`."""
    try:
        spec = load_spec(Path(file))
    except WorkflowValidationError as error:
        complain(error)
        return FAILED
    except OSError as error:
        complain(f"{file} cannot be read: {error.strerror}")
        return NOT_FOUND
    if flow is not None and flow not in spec.flows:
        hint = nearest_hint(flow, spec.flows)
        raise ConfigurationError("--flow", flow, f"a flow of the spec: {', '.join(spec.flows)}.{hint}")
    drawn = _FORMATS[form](draw_flow(spec, flow))
    if output is not None:
        _write(output, drawn)
    if as_json:
        print_json({"flow": flow or spec.entry, "format": form, "drawing": drawn, "path": output})
    elif output is None:
        print(plain(drawn), end="")
    return OK

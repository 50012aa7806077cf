"""`workflow run`: FastroAI carries out the steps of a spec itself."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from fastroai import agent, steps, workflows
from fastroai.cli.exits import FAILED, OK, complain
from fastroai.cli.opened import opened_flow_store
from fastroai.cli.options import AsJson, Codec, Deps, FlowStore, SpecFile, SpecFlow
from fastroai.cli.reading import print_json
from fastroai.cli.running import made_by
from fastroai.cli.shapes import fields_of
from fastroai.cli.targets import codec_at, import_target, json_object, json_value
from fastroai.cli.text import known_cost
from fastroai.errors import ConfigurationError, RunNotFound, nearest_hint
from fastroai.plain_text import plain, plain_json

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.runs.openings import OnExisting
    from fastroai.workflows import WorkflowResult
    from fastroai.workflows.spec.document import FieldSpec

_ENDED_WELL: Final = ("complete", "paused")


async def run(
    file: SpecFile,
    flow: SpecFlow = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=VALUE",
            help="An input: text, or JSON if the input is not a string. Repeatable.",
        ),
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="JSON", help="All inputs: a JSON object, or @file.")
    ] = None,
    functions: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="A mapping of functions by name, as in app:functions."),
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="A mapping of FastroAgents by name, as in app:agents."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="PROVIDER:MODEL", help="The model of steps whose spec names none.")
    ] = None,
    deps: Deps = None,
    store: FlowStore = None,
    run_id: Annotated[
        str | None, typer.Option(help="The id of the run. If the store has that run, it continues.")
    ] = None,
    workspace: Annotated[str, typer.Option(help="The folder whose files the checks see.")] = ".",
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """Run a workflow with agents, functions and people. Exits with 0 if it is complete or waits at a gate."""
    from fastroai.store.opening import shown_place
    from fastroai.store.reading.history import RunHistory

    try:
        workflow = workflows.Workflow.load(Path(file), flow=flow)
    except OSError as error:
        raise ConfigurationError("SPEC", file, f"a file that can be read; {error.strerror}") from error
    values = {**(json_object("--inputs", inputs) or {}), **_values(workflow.inputs, given or ())}
    bound = workflow.bind(
        functions=_mapping("--functions", functions, callable, "a callable"),
        agents=_mapping("--agents", agents, lambda one: isinstance(one, agent.FastroAgent), "a FastroAgent"),
        model=model,
        workspace=workspace,
        config=steps.PipelineConfig(codec=codec_at(codec)),
    )
    made: Any = await made_by(deps)
    existing: OnExisting = "fail" if run_id is None else "resume"
    async with opened_flow_store(store, may_be_new=True) as (opened, place):
        if run_id is not None:
            with suppress(RunNotFound):  # a resumed run has its inputs on record
                values = {**(await RunHistory(opened, codec=codec_at(codec)).trace(run_id)).inputs, **values}
        result = await bound.run(
            values, deps=made, store=opened, run_id=run_id, on_existing=existing, progress=True
        )
        if as_json:
            print_json(_shape(result, shown_place(place)))
        else:
            options = {
                "--flow": flow,
                "--functions": functions,
                "--agents": agents,
                "--model": model,
                "--deps": deps,
                "--store": None if store is None else shown_place(store),
                "--run-id": result.run_id,
                "--workspace": None if workspace == "." else workspace,
                "--codec": codec,
            }
            _tell(result, shown_place(place), codec, ("workflow", "run", file, *_words(options)))
    return OK if result.status in _ENDED_WELL else FAILED


def _values(inputs: Mapping[str, FieldSpec], given: Sequence[str]) -> dict[str, JsonValue]:
    """Return the inputs that `--input NAME=VALUE` gives: text for a string, JSON for all else."""
    values: dict[str, JsonValue] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise ConfigurationError("--input", one, "NAME=VALUE")
        field = inputs.get(name)
        if field is None:
            known = f"an input of the flow: {', '.join(inputs) or 'it has none'}."
            raise ConfigurationError("--input", name, known + nearest_hint(name, inputs))
        values[name] = text if field.type == "string" else json_value("--input", text)
    return values


def _mapping(
    option: str, target: str | None, is_wanted: Callable[[Any], bool], wanted: str
) -> dict[str, Any]:
    """Return the mapping that an option names, with its values checked."""
    if target is None:
        return {}
    found = import_target(option, target)
    if not isinstance(found, Mapping):
        raise ConfigurationError(option, target, "a mapping of names, as in app:functions")
    named = {str(name): one for name, one in cast("Mapping[object, Any]", found).items()}
    for name, one in named.items():
        if not is_wanted(one):
            raise ConfigurationError(f"{option} {target}[{name!r}]", one, wanted)
    return named


def _shape(result: WorkflowResult, place: str) -> dict[str, JsonValue]:
    from fastroai.store.reading.as_json import as_json

    return {
        **fields_of(("run_id", "status", "reason", "output"), result),
        "violations": {step: [*wrong] for step, wrong in result.violations.items()},
        "questions": [as_json(question) for question in result.questions],
        **fields_of(("cost_usd", "cost_complete"), result.usage),
        "store": place,
    }


def _words(options: Mapping[str, str | None]) -> list[str]:
    """Return options as words of a command, without those that were not given."""
    return [word for name, value in options.items() if value is not None for word in (name, value)]


def _tell(result: WorkflowResult, place: str, codec: str | None, again: Sequence[str]) -> None:
    """Print how a run ended. If it can go on, print the commands for that; `again` is the last of them."""
    from fastroai.runtime.facts import RunFinished

    spent = known_cost(result.usage.cost_usd, is_complete=result.usage.cost_complete)
    print(plain(f"run {result.run_id}: {result.status}, {spent}. {result.reason}"))
    for question in result.questions:
        answers = [one if isinstance(one, str) else json.dumps(one) for one in question.options or ()]
        chosen = f" ({', or '.join(answers)})" if answers else ""
        words = [question.id, *(answers[:1] or ["ANSWER"]), *_words({"--store": place, "--codec": codec})]
        command = shlex.join(["fastroai", "review", "answer", *words])
        print(plain(f"question of {question.node}{chosen}: {command}"))
    ends = [one for one in result.trace.entries if isinstance(one, RunFinished)]
    if ends and ends[-1].resume_at:
        print(plain(f"to go on: {shlex.join(['fastroai', *again])}"))
    if result.ok:
        print(plain_json(json.dumps(result.output, ensure_ascii=False)))
    if result.error is not None and not result.violations:
        complain(result.error)

"""`workflow run`: FastroAI carries out the steps of a spec itself."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from pydantic import JsonValue

from fastroai.agent import FastroAgent
from fastroai.cli.exits import FAILED, OK, complain
from fastroai.cli.opened import opened_flow_store
from fastroai.cli.reading import print_json
from fastroai.cli.running import made_by
from fastroai.cli.targets import codec_at, import_target, json_object, json_value
from fastroai.cli.text import known_cost
from fastroai.errors import ConfigurationError, RunNotFound, nearest_hint
from fastroai.plain_text import plain, plain_json
from fastroai.runs.openings import OnExisting
from fastroai.runtime.facts import RunFinished
from fastroai.steps import PipelineConfig
from fastroai.store.opening import shown_place
from fastroai.store.reading.as_json import as_json as in_json
from fastroai.store.reading.history import RunHistory
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.result import WorkflowResult
from fastroai.workflows.spec.document import FieldSpec
from fastroai.workflows.workflow import Workflow

_ENDED_WELL: Final = ("complete", "paused")


async def run(
    file: str,
    flow: str | None,
    inputs: str | None,
    given: Sequence[str],
    functions: str | None,
    agents: str | None,
    model: str | None,
    deps: str | None,
    store: str | None,
    run_id: str | None,
    workspace: str,
    codec: str | None,
    as_json: bool,
) -> int:
    """See `app`."""
    try:
        workflow = Workflow.load(Path(file), flow=flow)
    except OSError as error:
        raise ConfigurationError("SPEC", file, f"a file that can be read; {error.strerror}") from error
    except WorkflowValidationError as error:
        complain(error)
        return FAILED
    values = {**(json_object("--inputs", inputs) or {}), **_values(workflow.inputs, given)}
    bound = workflow.bind(
        functions=_mapping("--functions", functions, callable, "a callable"),
        agents=_mapping("--agents", agents, _is_agent, "a FastroAgent"),
        model=model,
        workspace=workspace,
        config=PipelineConfig(codec=codec_at(codec)),
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


def _is_agent(value: object) -> bool:
    return isinstance(value, FastroAgent)


def _shape(result: WorkflowResult, place: str) -> dict[str, JsonValue]:
    return {
        "run_id": result.run_id,
        "status": result.status,
        "reason": result.reason,
        "output": result.output,
        "violations": {step: [*wrong] for step, wrong in result.violations.items()},
        "questions": [in_json(question) for question in result.questions],
        "cost_usd": str(result.usage.cost_usd),
        "cost_complete": result.usage.cost_complete,
        "store": place,
    }


def _words(options: Mapping[str, str | None]) -> list[str]:
    """Return options as words of a command, without those that were not given."""
    return [word for name, value in options.items() if value is not None for word in (name, value)]


def _tell(result: WorkflowResult, place: str, codec: str | None, again: Sequence[str]) -> None:
    """Print how a run ended. If it can go on, print the commands for that; `again` is the last of them."""
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

"""`runs resume` and `fork`: they run the user's pipeline."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from fastroai.cli.exits import FAILED, OK, complain, exit_code_of
from fastroai.cli.opened import opened_store
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import run_shape
from fastroai.cli.targets import codec_at, import_target, json_object, json_value
from fastroai.cli.text import cost
from fastroai.errors import ConfigurationError, FastroAIError, FlowStopped
from fastroai.plain_text import plain, plain_json
from fastroai.store.reading.history import RunHistory

if TYPE_CHECKING:
    from fastroai.runs.door import FrontDoor


async def resume(
    run_id: str,
    store: str,
    pipeline: str,
    deps: str | None,
    inputs: str | None,
    answer: str | None,
    node: str | None,
    force: bool,
    on_changed: str | None,
    codec: str | None,
    as_json: bool,
) -> int:
    """See `app`."""
    target = _door(pipeline, "resume")
    options = _of_graph(inputs, answer, node) if _is_graph(target) else _of_pipeline(inputs, answer, node)
    if on_changed is not None:
        options["on_changed"] = on_changed
    made = await made_by(deps)
    async with opened_store(store) as opened:
        return await _run(
            RunHistory(opened, codec=codec_at(codec)),
            run_id,
            lambda: target.resume(run_id, store=opened, deps=made, force=force, progress=True, **options),
            as_json,
        )


def _of_pipeline(inputs: str | None, answer: str | None, node: str | None) -> dict[str, Any]:
    for option, given in (("--answer", answer), ("--node", node)):
        if given is not None:
            raise ConfigurationError(option, given, "no value for a pipeline, which takes --inputs")
    return {"inputs": json_object("--inputs", inputs)}


def _of_graph(inputs: str | None, answer: str | None, node: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {"inputs": json_object("--inputs", inputs)}
    if answer is not None:
        options["input"] = json_value("--answer", answer)
    return options if node is None else {**options, "node": node}


async def fork(
    run_id: str,
    store: str,
    pipeline: str,
    at: str | None,
    new_run_id: str | None,
    deps: str | None,
    inputs: str | None,
    outputs: str | None,
    codec: str | None,
    as_json: bool,
) -> int:
    """See `app`."""
    target, given = _door(pipeline, "fork"), json_object("--inputs", inputs)
    put, made = json_object("--outputs", outputs), await made_by(deps)
    async with opened_store(store) as opened:
        return await _run(
            RunHistory(opened, codec=codec_at(codec)),
            new_run_id,
            lambda: target.fork(
                run_id,
                at=at,
                inputs=given,
                outputs=put,
                new_run_id=new_run_id,
                store=opened,
                deps=made,
                progress=True,
            ),
            as_json,
        )


async def _run(
    history: RunHistory, run_id: str | None, run: Callable[[], Awaitable[object]], as_json: bool
) -> int:
    """Await a run, print how it ended, and return the exit code. The end is on record by then."""
    code = OK
    try:
        result = await run()
        run_id = getattr(result, "run_id", run_id)  # the result of a flow is its output
        if isinstance(failed := getattr(result, "error", None), FastroAIError):  # graphs do not raise
            raise failed
    except FlowStopped as stopped:  # as other runs that are paused or cancelled, which raise nothing
        run_id = stopped.run_id
    except FastroAIError as error:
        code, run_id = exit_code_of(error), error.run_id or run_id
        if code != FAILED or run_id is None:
            raise
        complain(error)
    if run_id is not None:  # unknown only for the fork of a flow that was given no id
        await _tell(history, run_id, as_json)
    return code


async def _tell(history: RunHistory, run_id: str, as_json: bool) -> None:
    run, trace = await history.summary(run_id), await history.trace(run_id)
    if as_json:
        print_json({**run_shape(run, run.spent(trace)), "output": trace.output})
        return
    usage = run.spent(trace)
    spent = f", {cost(usage)} in all" if cost(usage) else ""
    print(plain(f"run {run_id}: {run.status}{spent}"))
    if run.status == "finished":
        output = trace.output
        print(
            plain(output) if isinstance(output, str) else plain_json(json.dumps(output, ensure_ascii=False))
        )


def _door(target: str, method: Literal["resume", "fork"]) -> FrontDoor[Any, Any, Any]:
    found = import_target("--pipeline", target)
    if isinstance(found, type) or not hasattr(found, method):
        kind = "class" if isinstance(found, type) else type(found).__name__
        expected = f"a Pipeline or a Graph; it is a {kind}"
        raise ConfigurationError("--pipeline", target, expected)
    return cast("FrontDoor[Any, Any, Any]", found)


def _is_graph(target: object) -> bool:
    from fastroai.graphs import Graph  # only here: by now, the user's module has loaded it

    return isinstance(target, Graph)


async def made_by(target: str | None) -> object:
    """Return the object at `target`, or the value that it makes if it is a function or a class."""
    if target is None:
        return None
    found = import_target("--deps", target)
    if not (inspect.isroutine(found) or isinstance(found, type)):
        return found
    try:
        made: object = found()
        return await made if inspect.isawaitable(made) else made
    except Exception as error:
        raise ConfigurationError(
            "--deps",
            target,
            f"a class or function that can be called without arguments; {type(error).__name__}: {error}",
        ) from error

"""`runs resume` and `fork`: they run the user's pipeline."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from fastroai.cli.exits import FAILED, OK, complain, exit_code_of
from fastroai.cli.opened import opened_store
from fastroai.cli.options import AsJson, Codec, Deps, Run, Store
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import run_shape
from fastroai.cli.targets import codec_at, import_target, json_object, json_value
from fastroai.cli.text import cost
from fastroai.errors import ConfigurationError, FastroAIError, FlowStopped
from fastroai.plain_text import plain, plain_json

if TYPE_CHECKING:
    from fastroai.runs.door import FrontDoor
    from fastroai.store.record.entries import RunState
    from fastroai.store.run_store import RunStore

Target = Annotated[
    str, typer.Option(metavar="MODULE:NAME", help="The pipeline or graph, as module:name, as in app:support.")
]
Inputs = Annotated[str | None, typer.Option(metavar="JSON", help="Inputs with new values: JSON, or @file.")]


async def resume(
    run: Run,
    store: Store,
    pipeline: Target,
    deps: Deps = None,
    inputs: Inputs = None,
    answer: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The answer that a graph waits for: JSON, or @file."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="The node that is answered; by default the one that asked first.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Continue even if the pipeline has changed or a process is running it."),
    ] = False,
    on_changed: Annotated[
        str | None,
        typer.Option(
            metavar="ask|keep|fail",
            help="What to do with stored answers whose prompt, model or output type has changed.",
        ),
    ] = None,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """Continue a run that was interrupted, failed, or paused."""
    target = _door(pipeline, "resume")
    options: dict[str, Any] = {"inputs": json_object("--inputs", inputs)}
    for option, given in (("--answer", answer), ("--node", node)):
        if given is not None and not _is_graph(target):
            raise ConfigurationError(option, given, "no value for a pipeline, which takes --inputs")
    if answer is not None:
        options["input"] = json_value("--answer", answer)
    if node is not None:
        options["node"] = node
    if on_changed is not None:
        options["on_changed"] = on_changed
    made = await made_by(deps)
    async with opened_store(store) as opened:
        return await _run(
            opened,
            codec,
            run,
            lambda: target.resume(run, store=opened, deps=made, force=force, progress=True, **options),
            as_json,
        )


async def fork(
    run: Run,
    store: Store,
    pipeline: Target,
    at: Annotated[
        str | None, typer.Option(metavar="STEP", help="The step to run again, with all steps that need it.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="The id of the new run.")] = None,
    deps: Deps = None,
    inputs: Inputs = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="Outputs to use in place of those of the run, by step: JSON, or @file."
        ),
    ] = None,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """Start a new run from a step of this one. What happened before that step is reused, at no cost."""
    target, given = _door(pipeline, "fork"), json_object("--inputs", inputs)
    put, made = json_object("--outputs", outputs), await made_by(deps)
    async with opened_store(store) as opened:
        return await _run(
            opened,
            codec,
            run_id,
            lambda: target.fork(
                run,
                at=at,
                inputs=given,
                outputs=put,
                new_run_id=run_id,
                store=opened,
                deps=made,
                progress=True,
            ),
            as_json,
        )


async def _run(
    store: RunStore,
    codec: str | None,
    run_id: str | None,
    run: Callable[[], Awaitable[object]],
    as_json: bool,
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
    if run_id is None:  # unknown only for the fork of a flow that was given no id
        return code
    has_failed = await _tell(store, codec, run_id, as_json) == "failed"
    return FAILED if has_failed else code  # a workflow that had failed before raises nothing


async def _tell(store: RunStore, codec: str | None, run_id: str, as_json: bool) -> RunState:
    """Print how a run ended, and return its status."""
    from fastroai.store.reading.history import RunHistory

    history = RunHistory(store, codec=codec_at(codec))
    run, trace = await history.summary(run_id), await history.trace(run_id)
    if as_json:
        print_json({**run_shape(run, run.spent(trace)), "output": trace.output})
        return run.status
    usage = run.spent(trace)
    spent = f", {cost(usage)} in all" if cost(usage) else ""
    print(plain(f"run {run_id}: {run.status}{spent}"))
    if run.status == "finished":
        output = trace.output
        print(
            plain(output) if isinstance(output, str) else plain_json(json.dumps(output, ensure_ascii=False))
        )
    return run.status


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

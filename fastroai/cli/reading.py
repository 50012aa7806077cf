"""`runs list`, `show`, `trace`, `transcript` and `diff`."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fastroai.cli.exits import FAILED, OK
from fastroai.cli.opened import opened_history
from fastroai.cli.options import AsJson, Codec, Limit, Run, Store
from fastroai.cli.shapes import conversation_shape, difference_shape, run_shape, step_shape
from fastroai.plain_text import plain, plain_json

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.store.record.entries import RunState


async def list_runs(
    store: Store,
    status: Annotated[
        str | None,
        typer.Option(help="running, finished, paused, failed, cancelled, interrupted or unreadable."),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="Only runs of the pipeline, graph or workflow with this name.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only runs with this tag.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only runs of this tenant.")] = None,
    limit: Limit = 100,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """List runs, newest first."""
    async with opened_history(store, codec) as history:
        found = await history.list(
            status=cast("RunState | None", status),
            pipeline=pipeline,
            tag=tag,
            tenant=tenant,
            limit=limit + 1,
        )
    shown = found[:limit]
    if as_json:
        print_json([run_shape(run) for run in shown])
        return OK
    from fastroai.cli.tables import console, nothing, runs_table

    output = console()
    output.print(runs_table(shown) if shown else nothing("no runs found", store))
    if len(found) > limit:
        output.print(f"... these are the newest {limit}; --limit shows more")
    return OK


async def show(run: Run, store: Store, codec: Codec = None, as_json: AsJson = False) -> int:
    """Show the steps of a run, with status, time and cost."""
    async with opened_history(store, codec) as history:
        summary, trace = await history.summary(run), await history.trace(run)
    if as_json:
        shape: dict[str, JsonValue] = {**run_shape(summary, summary.spent(trace)), "version": trace.version}
        print_json({**shape, "steps": [step_shape(step) for step in trace.steps]})
        return OK
    from fastroai.cli.tables import console, run_lines, steps_table

    output = console()
    output.print(*run_lines(summary, trace), sep="\n")
    if trace.steps:  # a run of rows has none
        output.print()
        output.print(steps_table(trace))
    return OK


async def trace(run: Run, store: Store, codec: Codec = None, as_json: AsJson = False) -> int:
    """Tell why each step of a run started, waited, was retried or was skipped."""
    async with opened_history(store, codec) as history:
        found = await history.trace(run)
    print(plain_json(found.to_json()) if as_json else plain(found.explain()))
    return OK


async def transcript(
    run: Run,
    store: Store,
    step: Annotated[
        str | None, typer.Option(help="Only this step, as `runs show` names it, or a path in the run.")
    ] = None,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """Show what agents and models said to each other in a run."""
    async with opened_history(store, codec) as history:
        found = await history.trace(run)
    if as_json:
        print_json([conversation_shape(one) for one in found.conversations(step)])
    else:
        print(plain(found.transcript(step)) or "no messages on record")
    return OK


async def diff(
    run: Run,
    other: Annotated[
        str, typer.Argument(metavar="OTHER", help="The id of the other run.", show_default=False)
    ],
    store: Store,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """Compare two runs, ignoring ids and times. Exits with 1 if they differ."""
    async with opened_history(store, codec) as history:
        differences = (await history.trace(run)).diff(await history.trace(other))
    if as_json:
        print_json([difference_shape(difference) for difference in differences])
    else:
        print("\n".join(plain(str(difference)) for difference in differences) or "no difference")
    return FAILED if differences else OK


def print_json(value: JsonValue | list[dict[str, JsonValue]]) -> None:
    """Print JSON, for programs."""
    print(plain_json(json.dumps(value, indent=2, ensure_ascii=False)))

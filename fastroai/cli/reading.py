"""`runs list`, `show`, `trace`, `transcript` and `diff`."""

from __future__ import annotations

import json
from typing import cast

from pydantic import JsonValue

from fastroai.cli.exits import FAILED, OK
from fastroai.cli.opened import opened_history
from fastroai.cli.shapes import conversation_shape, difference_shape, run_shape, step_shape
from fastroai.plain_text import plain, plain_json
from fastroai.store.record.entries import RunState


async def list_runs(
    store: str,
    status: str | None,
    pipeline: str | None,
    tag: str | None,
    tenant: str | None,
    limit: int,
    codec: str | None,
    as_json: bool,
) -> int:
    """See `app`."""
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


async def show(run_id: str, store: str, codec: str | None, as_json: bool) -> int:
    """See `app`."""
    async with opened_history(store, codec) as history:
        run, trace = await history.summary(run_id), await history.trace(run_id)
    if as_json:
        shape: dict[str, JsonValue] = {**run_shape(run, run.spent(trace)), "version": trace.version}
        print_json({**shape, "steps": [step_shape(step) for step in trace.steps]})
        return OK
    from fastroai.cli.tables import console, run_lines, steps_table

    output = console()
    output.print(*run_lines(run, trace), sep="\n")
    if trace.steps:  # a run of rows has none
        output.print()
        output.print(steps_table(trace))
    return OK


async def trace(run_id: str, store: str, codec: str | None, as_json: bool) -> int:
    """See `app`."""
    async with opened_history(store, codec) as history:
        found = await history.trace(run_id)
    print(plain_json(found.to_json()) if as_json else plain(found.explain()))
    return OK


async def transcript(run_id: str, step: str | None, store: str, codec: str | None, as_json: bool) -> int:
    """See `app`."""
    async with opened_history(store, codec) as history:
        found = await history.trace(run_id)
    if as_json:
        print_json([conversation_shape(one) for one in found.conversations(step)])
    else:
        print(plain(found.transcript(step)) or "no messages on record")
    return OK


async def diff(run_id: str, other_id: str, store: str, codec: str | None, as_json: bool) -> int:
    """See `app`."""
    async with opened_history(store, codec) as history:
        run, other = await history.trace(run_id), await history.trace(other_id)
    differences = run.diff(other)
    if as_json:
        print_json([difference_shape(difference) for difference in differences])
    else:
        print("\n".join(plain(str(difference)) for difference in differences) or "no difference")
    return FAILED if differences else OK


def print_json(value: JsonValue | list[dict[str, JsonValue]]) -> None:
    """Print JSON, for programs."""
    print(plain_json(json.dumps(value, indent=2, ensure_ascii=False)))

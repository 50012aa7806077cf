"""`runs delete` and `purge`."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fastroai.cli.exits import OK, REFUSED, USAGE, complain
from fastroai.cli.opened import opened_history
from fastroai.cli.options import AsJson, Run, Store
from fastroai.cli.reading import print_json
from fastroai.cli.targets import age
from fastroai.plain_text import plain

if TYPE_CHECKING:
    from fastroai.store.record.entries import RunState

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


async def delete(
    run: Run,
    store: Store,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it even if a process is running it, or it cannot be read.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Delete a run."""
    async with opened_history(store) as history:
        if not force:
            await history.header(run)  # fails before the user is asked
        if (refusal := _refusal(f"Delete run {run}?", yes)) is not None:
            return refusal
        await history.delete(run, force=force)
    return _told((run,), as_json)


async def purge(
    store: Store,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="An age, as in 12h, 30d or 8w.")],
    status: Annotated[str | None, typer.Option(help="Only runs with this status.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Delete the runs in which nothing has happened for the given age, except those that are running."""
    oldest, state = age("--older-than", older_than), cast("RunState | None", status)
    async with opened_history(store) as history:
        found = await history.purge(oldest, status=state, dry_run=True)
        if dry_run:
            return _told(found, as_json, "would delete")
        if found and (refusal := _refusal(f"Delete {len(found)} runs?", yes)) is not None:
            return refusal
        deleted = await history.purge(oldest, status=state)
    return _told(deleted, as_json)


def _refusal(question: str, yes: bool) -> int | None:
    """Return the exit code if the user refuses, or if there is no terminal to ask; `None` to go on."""
    if yes:
        return None
    if not sys.stdin.isatty():
        complain(f"{question} There is no terminal to ask on; add --yes to confirm")
        return USAGE
    return None if typer.confirm(plain(question), err=True) else REFUSED


def _told(run_ids: tuple[str, ...], as_json: bool, what: str = "deleted") -> int:
    if as_json:
        print_json({what.replace(" ", "_"): list(run_ids)})
    else:
        print("\n".join(f"{what} {plain(run_id)}" for run_id in run_ids) or "nothing to delete")
    return OK

"""`runs delete` and `purge`."""

from __future__ import annotations

import sys
from typing import cast

import typer

from fastroai.cli.exits import OK, REFUSED, USAGE, complain
from fastroai.cli.opened import opened_history
from fastroai.cli.reading import print_json
from fastroai.cli.targets import age
from fastroai.plain_text import plain
from fastroai.store.record.entries import RunState


async def delete(run_id: str, store: str, force: bool, yes: bool, as_json: bool) -> int:
    """See `app`."""
    async with opened_history(store) as history:
        if not force:
            await history.header(run_id)  # fails before the user is asked
        if (refusal := _refusal(f"Delete run {run_id}?", yes)) is not None:
            return refusal
        await history.delete(run_id, force=force)
    return _told((run_id,), as_json)


async def purge(
    store: str, older_than: str, status: str | None, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """See `app`."""
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

"""Runs that belong to another run, which are deleted with it: those of the rows of a run of rows."""

from __future__ import annotations

from fastroai.runtime.facts import RunStarted
from fastroai.store.paging import pages, read_page
from fastroai.store.record.definitions import kind_of
from fastroai.store.record.entries import RunHeader, entry_in_store
from fastroai.store.record.headers import log_key
from fastroai.store.run_store import RunStore


async def child_runs(store: RunStore, header: RunHeader) -> tuple[str, ...]:
    """Return the ids of the runs that belong to a run of rows; none for other runs.

    Raises:
        RunCorrupt: an entry of the log cannot be read.
        RunFromNewerVersion: a newer version of FastroAI has written an entry.
    """
    first, _ = await read_page(store, log_key(header), after=0, limit=1)
    opened = entry_in_store(header.run_id, 1, first[0]) if first else None
    if not isinstance(opened, RunStarted) or kind_of(opened.definition) != "rows":
        return ()
    found: dict[str, None] = {}
    async for before, values, _ in pages(store, log_key(header)):
        for position, value in enumerate(values, before + 1):
            if child := entry_in_store(header.run_id, position, value).child_run:
                found[child] = None
    return tuple(found)

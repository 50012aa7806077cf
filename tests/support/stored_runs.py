"""Runs in a store, for tests that begin them by hand, look at what is held of them, or change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastroai.errors import RunNotFound
from fastroai.runtime.fact_base import Fact, Part
from fastroai.runtime.facts import AnyFact, RunResumed, RunStarted
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.store.lease import DEFAULT_TERMS, LeaseTerms
from fastroai.store.record.entries import (
    RunHeader,
)
from fastroai.store.record.headers import encode_header, header_key, log_key, read_header, read_log
from fastroai.store.record.memo import Memo
from fastroai.store.record.runs import DurableRun, RecordOptions


async def header_of(store: Any, run_id: str) -> RunHeader:
    """The header of a run."""
    return (await read_header(store, run_id)).header


async def change_header(store: Any, run_id: str, **changes: Any) -> RunHeader:
    """Write the header of a run anew, with these changes."""
    found = await read_header(store, run_id)
    changed = replace(found.header, **changes)
    await store.compare_and_set(header_key(run_id), encode_header(changed), revision=found.revision)
    return changed


async def log_key_of(store: Any, run_id: str) -> str:
    """Where the log of a run is."""
    return log_key(await header_of(store, run_id))


async def entries_of(store: Any, run_id: str) -> list[AnyFact]:
    """The log of a run; empty if there is no such run."""
    try:
        header = await header_of(store, run_id)
    except RunNotFound:
        return []
    return await read_log(store, header)


async def raw_log(store: Any, run_id: str) -> tuple[bytes, ...]:
    """The log of a run as it is stored; empty if there is no such run."""
    try:
        values: tuple[bytes, ...] = (await store.read(await log_key_of(store, run_id))).values
    except RunNotFound:
        return ()
    return values


async def replace_log(store: Any, run_id: str, values: Sequence[bytes]) -> None:
    """Let the log of a run be this. Its header then says nothing of the number of entries."""
    key = log_key(await change_header(store, run_id, log_revision=0))
    await store.delete(key)
    await store.append(key, values, revision=0)


async def begin(
    store: Any, run_id: str = "r", *, labels: Labels = NO_LABELS, terms: LeaseTerms = DEFAULT_TERMS
) -> DurableRun:
    options = RecordOptions(store=store, codec=None, labels=labels, terms=terms)
    return await DurableRun.begin(options, [RunStarted(part=Part(run_id, "p", ("p",)))])


async def take_up(store: Any, *also: Fact, run_id: str = "r") -> DurableRun:
    found = await read_header(store, run_id)
    recorded = Memo(run_id, await read_log(store, found.header))
    options = RecordOptions(store=store, codec=None)
    return await DurableRun.take_up(options, recorded, RunResumed(), found=found, also=also)

"""Requests to pause or cancel a run that another process runs, or none. They need no code of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from fastroai.errors import RevisionConflict, RunCorrupt, RunInProgress, RunNotFound, RunStatusConflict
from fastroai.records import Usage
from fastroai.runtime.budgets.in_flight import AgentCharges
from fastroai.runtime.fact_base import Ends, Fact
from fastroai.runtime.facts import RunFinished, RunResumed
from fastroai.store.reading.child_runs import child_runs
from fastroai.store.record.headers import FoundHeader, is_running, read_header, read_log
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec, is_sealed_definition
from fastroai.store.record.requests_on_record import ChargeOnRecord
from fastroai.store.record.runs import DurableRun, RecordOptions, change_header
from fastroai.store.record.unsealing import entries_to_go_on
from fastroai.store.run_store import RunStore
from fastroai.store.signals import Signal, send_signal

_TRIES: Final = 10


async def signal_elsewhere(store: RunStore, run_id: str, signal: Signal) -> bool:
    """Leave a signal for the process that has the run. Returns False if no process has it.

    Raises:
        RunNotFound: the store has no such run.
        RunStatusConflict: a run with this status cannot take the signal.
    """
    found = await read_header(store, run_id)
    header = found.header
    if is_running(header, found.now):
        await send_signal(store, header, signal)
        return True
    if signal != "cancel":
        expected = "a run that a process is running"
        if header.status == "running" and header.owner is None:
            expected += "; this one is driven from outside, call by call"
        raise RunStatusConflict(run_id, "interrupted" if found.is_interrupted else header.status, expected)
    if header.status in ("finished", "cancelled"):
        raise RunStatusConflict(run_id, header.status, "a run that is running, or can be resumed")
    return False


async def cancel_elsewhere(store: RunStore, run_id: str, codec: PayloadCodec | None) -> None:
    """Cancel a run and the runs of its rows that wait: in the process that has it, or without one.

    Raises:
        RunNotFound: the store has no such run.
        RunStatusConflict: it has finished, or was cancelled before.
        RunInProgress: processes have taken it up, and let it go, again and again meanwhile.
        RunCorrupt: it cannot be read, or went through another codec.
    """
    for left in reversed(range(_TRIES)):
        if await signal_elsewhere(store, run_id, "cancel"):
            return
        try:
            await cancel_halted(store, run_id, codec)
            return await cancel_waiting_rows(store, run_id, codec)
        except RunInProgress:  # a process has taken it up meanwhile, which gets the signal
            if not left:
                raise


async def cancel_halted(store: RunStore, run_id: str, codec: PayloadCodec | None) -> None:
    """Cancel a run that no process runs: it is paused, has failed, or its process died.

    Raises:
        RunInProgress: a process has taken it up meanwhile.
        RunNotFound: it was deleted meanwhile.
        RunCorrupt: it cannot be read, or went through another codec.
    """
    recorded, found = await read_to_go_on(store, run_id, codec, running_too=False)
    options = RecordOptions(store=store, codec=codec)
    run = await DurableRun.take_up(options, recorded, RunResumed(), found=found)
    if (rows := found.header.rows) is not None:
        run.counts = lambda: {"rows": replace(rows, waiting=0)}
    spent = await _spent(store, recorded, codec)
    await run.end(RunFinished(status="cancelled", reason_code="cancelled"), spent)


async def cancel_waiting_rows(store: RunStore, run_id: str, codec: PayloadCodec | None) -> None:
    """Cancel the runs of rows that wait, if their run of rows is cancelled: nobody is asked for them."""
    header = (await read_header(store, run_id)).header
    for child in await child_runs(store, header) if header.status == "cancelled" else ():
        with suppress(RunNotFound, RunInProgress):
            if (await read_header(store, child)).header.status == "paused":
                await cancel_halted(store, child, codec)


async def resume_elsewhere(
    store: RunStore,
    run_id: str,
    codec: PayloadCodec | None,
    *,
    inputs: Mapping[str, JsonValue],
    also: Callable[[Memo, FoundHeader], Sequence[Fact]],
) -> None:
    """Let workers go on with a run that waits, has failed, or was cancelled. This needs no code of the run.

    `inputs` are as stored. The facts of `also` are put on record with the resume, or neither is.

    Raises:
        RunInProgress: a process has the run.
        RunStatusConflict: the run has finished.
    """
    recorded, found = await read_to_go_on(store, run_id, codec, running_too=False)
    if found.header.status == "finished":
        raise RunStatusConflict(run_id, "finished", "a run that can continue")
    options, resumed = RecordOptions(store=store, codec=codec), RunResumed(inputs=dict(inputs))
    run = await DurableRun.take_up(options, recorded, resumed, found=found, also=also(recorded, found))
    await run.let_go(await _spent(store, recorded, codec))


async def _spent(store: RunStore, recorded: Memo, codec: PayloadCodec | None) -> Usage:
    """Return the spending of a run that no process has, with that of its child runs."""
    records, in_children = [charge.record for charge in recorded.requests.charges()], Usage()
    begun: dict[str, Fact] = {}
    for fact in recorded.entries:
        if isinstance(fact, Ends):
            in_children.include(fact.child_usage)
            begun.pop(fact.child_run, None)
        elif fact.child_run:
            begun.setdefault(fact.child_run, fact)  # the same run goes on in each process
    for started in begun.values():
        charges, _ = await charged_in_child(store, started, codec)
        records += [charge.record for charge in charges]
    return Usage.of(records) + in_children


async def charged_in_child(
    store: RunStore, started: Fact, codec: PayloadCodec | None
) -> tuple[Sequence[ChargeOnRecord], Sequence[AgentCharges]]:
    """Return the charges and agent calls in a child run since the fact that says that it began."""
    try:
        recorded, _ = await read_to_go_on(store, started.child_run, codec, running_too=True)
    except RunNotFound:  # the process died before the run had begun
        return (), ()
    charges = [one for one in recorded.requests.charges() if one.begins.timestamp >= started.timestamp]
    return charges, recorded.requests.agent_calls(charges)


async def release(store: RunStore, run_id: str) -> None:
    """Let workers take up a run again that was set aside because they died with it.

    Raises:
        RunNotFound: the store has no such run.
        RunStatusConflict: it was not set aside.
    """
    for left in reversed(range(_TRIES)):
        found = await read_header(store, run_id)
        routing = found.header.routing
        if routing is None or not routing.is_set_aside:
            raise RunStatusConflict(run_id, found.state, "a run that was set aside")
        changed = replace(found.header, routing=replace(routing, deaths=0, is_set_aside=False))
        try:
            return await change_header(store, found, changed)
        except RevisionConflict:
            if not left:
                raise


async def read_to_go_on(
    store: RunStore, run_id: str, codec: PayloadCodec | None, *, running_too: bool
) -> tuple[Memo, FoundHeader]:
    """Return the record of a run that goes on, and its header, which was read before the record.

    Raises:
        RunInProgress: a process has the run, and `running_too` is not set.
        RunNotFound: the store has no such run.
        RunCorrupt: it cannot be read, or went through a codec, and none is given.
    """
    found = await read_header(store, run_id)
    if not running_too:
        found.check_not_running()
    entries = await read_log(store, found.header)
    recorded = Memo(run_id, entries_to_go_on(run_id, entries, codec))
    if codec is None and is_sealed_definition(recorded.opened.definition):
        reason = "it was written with a codec; set PipelineConfig(codec=...) as it was then"
        raise RunCorrupt(run_id, 1, reason)
    return recorded, found

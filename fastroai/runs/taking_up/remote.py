"""Requests to pause or cancel a run that another process runs, or none."""

from __future__ import annotations

from fastroai.errors import RunStatusConflict
from fastroai.records import Usage
from fastroai.runs.openings import RunKeeper
from fastroai.runtime.facts import RunFinished
from fastroai.store.record.headers import is_running, read_header
from fastroai.store.run_store import RunStore
from fastroai.store.signals import Signal, send_signal


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
        raise RunStatusConflict(run_id, header.status, "a run that goes on, or can be resumed")
    return False


async def cancel_halted(keeper: RunKeeper, run_id: str) -> None:
    """Cancel a run that no process runs: it is paused, has failed, or its process died."""
    opening = await keeper.take_up(run_id, None, force=True)
    run = await opening.open(opening.inputs)
    spent = Usage.of([charge.record for charge in run.recorded.charges()])
    await run.end(RunFinished(status="cancelled", reason_code="cancelled"), spent)

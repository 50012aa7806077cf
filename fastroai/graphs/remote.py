"""Asking something of a run in another process."""

from __future__ import annotations

from fastroai.errors import ConfigurationError, RunNotFound
from fastroai.store.headers import decode_header, header_key, is_running
from fastroai.store.run_store import RunStore
from fastroai.store.signals import Signal, send_signal


async def signal_elsewhere(store: RunStore | None, run_id: str, signal: Signal) -> None:
    """Leave word for the process that has the run.

    Raises:
        RunNotFound: there is no store, or it has no such run.
        ConfigurationError: nobody runs it.
    """
    if store is None:
        raise RunNotFound(run_id, "the runs of this graph in this process")
    found = await store.read(header_key(run_id))
    if not found.values:
        raise RunNotFound(run_id, repr(store))
    header = decode_header(run_id, found.values[-1])
    if not is_running(header, found.now):
        raise ConfigurationError("run_id", run_id, f"a run that is running; it is {header.status}")
    await send_signal(store, run_id, signal)

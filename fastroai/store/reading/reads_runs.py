"""Reading of one run from a store, for `RunHistory` and for the stores themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import read_header, read_log
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.run_store import RunStore

if TYPE_CHECKING:
    from fastroai.store.reading.trace import RunTrace


async def read_trace(store: RunStore, header: RunHeader, codec: PayloadCodec | None) -> RunTrace:
    """Return what happened in a run, as far as it is on record.

    Raises:
        RunCorrupt: the record of the run cannot be read.
    """
    from fastroai.store.reading.trace import RunTrace
    from fastroai.store.record.unsealing import unseal_entry, unseal_log

    run_id = header.run_id
    entries = await read_log(store, header)
    try:
        return RunTrace(unseal_log(run_id, entries, lambda entry: unseal_entry(entry, codec)))
    except ConfigurationError:
        raise RunCorrupt(run_id, 1, "a log begins with run_started, and this one does not") from None


class ReadsRuns:
    """A base class for stores of runs, so that `await store.trace(run_id)` works."""

    async def trace(self: RunStore, run_id: str) -> RunTrace:
        """Return what happened in a run, as far as it is on record. Raises as `RunHistory.trace`."""
        return await read_trace(self, (await read_header(self, run_id)).header, None)

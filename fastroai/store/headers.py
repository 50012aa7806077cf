"""The header of a run, which says how far it is and who has it; and the keys that a run has in a store."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from fastroai.errors import RunCorrupt, RunFromNewerVersion, RunInProgress, RunNotFound
from fastroai.runtime.owner import is_dead
from fastroai.store.entries import FORMAT, AnyEntry, RunHeader, decode_entry
from fastroai.store.run_store import RunStore, StoredKey

_PAGE: Final = 500


def header_key(run_id: str) -> str:
    """Where the header of a run is."""
    return f"run:{run_id}"


def new_epoch() -> str:
    """Return a name for a run that no other run has, whatever its id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def log_key(header: RunHeader) -> str:
    """Where the entries of a run are.

    The key ends with the run's epoch. When the run is deleted, its process finds nothing to append to there,
    even if another run has the same id by then.
    """
    return f"log:{header.run_id}:{header.epoch}"


def signal_key(header: RunHeader) -> str:
    """Where the last signal to a run is."""
    return f"signal:{header.run_id}:{header.epoch}"


def run_of(key: str) -> tuple[str, str]:
    """The run id and the epoch that a key of a log or signal has."""
    run_id, _, epoch = key.partition(":")[2].rpartition(":")
    return run_id, epoch


def keys_of(header: RunHeader) -> tuple[str, ...]:
    """All keys of a run besides its header."""
    return log_key(header), signal_key(header)


async def keys_of_id(store: RunStore, run_id: str) -> list[str]:
    """The same for all runs that ever had this id: for one whose header cannot be read."""
    prefixes = (f"log:{run_id}:", f"signal:{run_id}:")
    return [
        found.key
        for prefix in prefixes
        async for found in keys_with(store, prefix)
        if run_of(found.key)[0] == run_id
    ]


async def keys_with(store: RunStore, prefix: str) -> AsyncIterator[StoredKey]:
    """All keys that begin with a prefix, in order."""
    after = ""
    while page := await store.list(prefix, after=after, limit=_PAGE):
        for found in page:
            yield found
        after = page[-1].key


@cache
def _headers() -> TypeAdapter[RunHeader]:
    return TypeAdapter(RunHeader)


def encode_header(header: RunHeader) -> bytes:
    """A header as it is stored."""
    return _headers().dump_json(header)


def decode_header(run_id: str, stored: bytes) -> RunHeader:
    """A header as it was.

    Raises:
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunCorrupt: it cannot be read.
    """
    try:
        header = _headers().validate_json(stored)
    except ValidationError as error:
        raise _unreadable(run_id, stored) from error
    if header.format > FORMAT:
        raise RunFromNewerVersion(run_id, header.format, FORMAT)
    return header


def _unreadable(run_id: str, stored: bytes) -> Exception:
    try:
        known = from_json(stored)
    except ValueError:
        return RunCorrupt(run_id, 0, "its header is not JSON")
    if isinstance(known, dict) and isinstance(known.get("format"), int) and known["format"] > FORMAT:
        return RunFromNewerVersion(run_id, known["format"], FORMAT)
    return RunCorrupt(run_id, 0, "its header is not one")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHeader:
    """A header as it was found in a store."""

    header: RunHeader
    revision: int
    now: datetime
    """The time of the store's own clock."""

    def check_not_running(self) -> None:
        """Raise `RunInProgress` if a process has the run."""
        header = self.header
        if is_running(header, self.now):
            assert header.owner is not None
            assert header.lease_until is not None
            raise RunInProgress(header.run_id, header.owner, header.lease_until)


async def read_header(store: RunStore, run_id: str) -> FoundHeader:
    """Read the header of a run.

    Raises:
        RunNotFound: there is no such run.
        RunCorrupt: its header cannot be read.
        RunFromNewerVersion: a later version of FastroAI has written it.
    """
    found = await store.read(header_key(run_id))
    if not found.values:
        raise RunNotFound(run_id, repr(store))
    header = decode_header(run_id, found.values[-1])
    return FoundHeader(header=header, revision=found.revision, now=found.now)


def is_running(header: RunHeader, now: datetime) -> bool:
    """Whether a process has the run, as far as the lease and the process itself tell."""
    return (
        header.owner is not None
        and header.lease_until is not None
        and header.lease_until > now
        and not is_dead(header.owner)
    )


async def read_log(store: RunStore, header: RunHeader) -> list[AnyEntry]:
    """Read all entries of a run. Raises `RunCorrupt` and `RunFromNewerVersion`."""
    stored = await store.read(log_key(header))
    return [decode_entry(header.run_id, number, value) for number, value in enumerate(stored.values, 1)]

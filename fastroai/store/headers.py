"""The header of a run, which says how far it is and who has it; and the keys that a run has in a store."""

from __future__ import annotations

from datetime import datetime
from functools import cache

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from fastroai.errors import RunCorrupt, RunInProgress
from fastroai.runtime.facts import AnyFact
from fastroai.runtime.owner import is_dead
from fastroai.store.entries import RunHeader, check_format, decode_log
from fastroai.store.run_store import RunStore


def header_key(run_id: str) -> str:
    """Where the header of a run is."""
    return f"run:{run_id}"


def log_key(run_id: str) -> str:
    """Where the entries of a run are."""
    return f"log:{run_id}"


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
        RunCorrupt: it cannot be read, or an earlier version has written it.
    """
    try:
        header = _headers().validate_json(stored)
    except ValidationError as error:
        raise RunCorrupt(run_id, 0, _unreadable(run_id, stored)) from error
    check_format(run_id, 0, header.format)
    return header


def _unreadable(run_id: str, stored: bytes) -> str:
    """Why a header cannot be read. Raises as `decode_header` for one of another version."""
    try:
        known = from_json(stored)
    except ValueError:
        return "its header is not JSON"
    if isinstance(known, dict):
        check_format(run_id, 0, known.get("format"))
    return "its header is not one"


def is_running(header: RunHeader, now: datetime) -> bool:
    """Whether a process has the run, as far as the lease and the process itself tell."""
    return (
        header.owner is not None
        and header.lease_until is not None
        and header.lease_until > now
        and not is_dead(header.owner)
    )


def check_not_running(header: RunHeader, now: datetime) -> None:
    """Raises `RunInProgress` where a process has the run."""
    if is_running(header, now):
        assert header.owner is not None
        assert header.lease_until is not None
        raise RunInProgress(header.run_id, header.owner, header.lease_until)


async def read_log(store: RunStore, run_id: str) -> list[AnyFact]:
    """All entries of a run. Raises `RunCorrupt` and `RunFromNewerVersion`."""
    stored = await store.read(log_key(run_id))
    return decode_log(run_id, stored.values)

"""The formats of what stores hold: which are read, and how earlier ones become the one that is written."""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import from_json

from fastroai.errors import RunFromNewerVersion, RunFromOlderVersion
from fastroai.runtime.facts import FORMAT

OLDEST: Final = 2
"""The oldest format that is read. Runs in it can be resumed, forked and answered, too."""


def in_this_format(run_id: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of a log, or of a trace as JSON, as this version writes it.

    A run of an earlier format that goes on has entries of several formats in its log. So it is what an entry
    has that says what to convert, and not its position or the format of the run.

    Raises:
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunFromOlderVersion: an earlier version of FastroAI has written it, in a format that is not read.
    """
    if isinstance(written := entry.get("format"), int):
        check_format(run_id, written)
        entry["format"] = FORMAT
    return entry


def check_format(run_id: str, written: int) -> None:
    """Raise `RunFromNewerVersion` or `RunFromOlderVersion` if another version wrote the record."""
    if written > FORMAT:
        raise RunFromNewerVersion(run_id, written, FORMAT)
    if written < OLDEST:
        raise RunFromOlderVersion(run_id, written, OLDEST)


def check_format_in(run_id: str, text: bytes) -> None:
    """Check the format of a text that cannot be read, if it names one. Raises as `check_format`."""
    try:
        known = from_json(text)
    except ValueError:
        return
    if isinstance(known, dict) and isinstance(known.get("format"), int):
        check_format(run_id, known["format"])

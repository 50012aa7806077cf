"""What a page says when it cannot be shown."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException

from fastroai.errors import (
    ConfigurationError,
    RunCorrupt,
    RunFromNewerVersion,
    RunFromOlderVersion,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    StoreUnavailable,
)
from fastroai.viewer.access import Refused

_TITLES: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (StoreUnavailable, 503, "The store does not answer"),
    (RunFromNewerVersion, 409, "A newer FastroAI has written this run"),
    (RunFromOlderVersion, 409, "An older FastroAI has written this run"),
    (RunCorrupt, 409, "This run cannot be read"),
    (RunInProgress, 409, "A process is running this run"),
    (RunStatusConflict, 409, "The run is in another state now"),
    (ConfigurationError, 400, "This address is not right"),
)


def refusal_of(error: Exception) -> Refused:
    """Return the status, title and reason that a page shows for an error."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, RunNotFound):
        reason = f"No run has the id {error.run_id!r}. It may have been deleted, or you may not see it."
        return Refused(404, "There is no such run", reason)
    for kind, status, title in _TITLES:
        if isinstance(error, kind):
            return Refused(status, title, str(error))
    if isinstance(error, HTTPException) and error.status_code == 400:
        return Refused(400, "The form cannot be read", str(error.detail))
    if isinstance(error, HTTPException):
        return Refused(error.status_code, "There is no such page", "Choose one above.")
    reason = f"{type(error).__name__}. The log of the server says more. Other pages still work."
    return Refused(500, "This page has failed", reason)

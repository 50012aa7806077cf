"""How a step ends that waits for a person or an event."""

from __future__ import annotations

from fastroai.runtime.retrying.failures import leaves


class Halted(BaseException):
    """Ends a step that waits. As with a cancellation, `except Exception` does not catch the exception."""

    def __init__(self, due_at: float | None = None) -> None:
        """`due_at` is when it goes on by itself, in seconds since 1970, if nothing on record says so."""
        super().__init__(due_at)
        self.due_at = due_at


def is_halt(error: BaseException) -> bool:
    """Return whether an exception ended a step because it waits, perhaps inside of a group of tasks."""
    return any(isinstance(one, Halted) for one in leaves(error))

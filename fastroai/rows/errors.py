"""The exception of a run of rows that a failed row has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastroai.errors import FastroAIError

if TYPE_CHECKING:
    from fastroai.rows.table import RowTable


class RowFailed(FastroAIError):
    """A row has failed, and `on_error="stop"`. `table` has the rows that ended before.

    What to do: Correct the row, or leave `on_error` out, so that the other rows continue. With a store, the
    same call with the same `run_id` asks only the rows that have no output.
    """

    table: RowTable[Any] | None = None

    def __init__(self, name: str, number: int, key: str, reason: str) -> None:
        super().__init__(name, number, key, reason)
        self.name, self.number, self.key, self.reason = name, number, key, reason

    def __str__(self) -> str:
        return f"row {self.number} ({self.key}) of {self.name!r} failed: {self.reason}"

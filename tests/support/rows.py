"""A fact that is all that a log has of a row: its key, its result, and what it has cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from fastroai.data_kinds import Name, Payload
from fastroai.records import RequestRecord
from fastroai.runtime.fact_base import Begins, Ends, Outcome, PlacedFact


@dataclass(slots=True, kw_only=True)
class RowDone(PlacedFact, Begins, Ends):
    """A row of a table is done, or has failed."""

    kind: ClassVar[str] = "row_done_in_tests"
    says: ClassVar = None
    identity: ClassVar = ("row", "place", "key")
    key: Name[str]
    result: Payload[Any] = None
    failed: bool = False
    record: RequestRecord | None = None

    @property
    @override
    def outcome(self) -> Outcome:
        return "failed" if self.failed else "succeeded"

    @property
    @override
    def spending(self) -> RequestRecord | None:
        return self.record

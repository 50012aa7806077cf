"""The quality of one run, by what is on record of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from fastroai.places import attempt_around
from fastroai.records import RequestRecord
from fastroai.runtime import facts

Quality: TypeAlias = Literal["clean", "degraded"]


class QualityOnRecord:
    """Whether something in a log failed although its run went on. The log is read fact by fact."""

    def __init__(self, entries: Iterable[facts.Fact] = ()) -> None:
        """Read the facts of a log from its beginning."""
        self._failed: set[str] = set()
        """Outermost steps whose last attempt failed."""
        self._is_degraded = False
        for entry in entries:
            self.read(entry)

    def read(self, entry: facts.Fact) -> None:
        """Read the next fact."""
        if not isinstance(entry, facts.StepEnds):
            return
        if isinstance(entry, facts.StepFailed):
            if attempt_around(entry.place) is None:
                self._failed.add(entry.place)
        elif self._failed:
            self._failed.discard(entry.place)
        if isinstance(entry, facts.StepFinished) and entry.degraded:
            self._is_degraded = True

    def quality(self, records: Iterable[RequestRecord]) -> Quality:
        """Return the quality of the run, which has finished and has these records of spending."""
        degraded = self._is_degraded or self._failed or any(record.is_doubtful for record in records)
        return "degraded" if degraded else "clean"

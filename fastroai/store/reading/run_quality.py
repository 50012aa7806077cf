"""The quality of one run, by what is on record of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from fastroai.places import attempt_around
from fastroai.records import RequestRecord
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Ends, Fact, PlanFact

Quality: TypeAlias = Literal["clean", "degraded"]


class QualityOnRecord:
    """Whether something in a log failed although its run went on. The log is read fact by fact."""

    def __init__(self, entries: Iterable[Fact] = ()) -> None:
        """Read the facts of a log from its beginning."""
        self._failed: set[str] = set()
        """Outermost steps whose last attempt failed, and other parts of the run that did."""
        self._is_degraded = False
        for entry in entries:
            self.read(entry)

    def read(self, entry: Fact) -> None:
        """Read the next fact."""
        if not isinstance(entry, facts.StepEnds):
            if isinstance(entry, PlanFact) and isinstance(entry, Ends):
                self._note(entry.about[-1], entry.outcome == "failed")
            return
        if isinstance(entry, facts.StepFailed):
            if attempt_around(entry.place) is None:
                self._failed.add(entry.place)
        elif self._failed:
            self._failed.discard(entry.place)
        if isinstance(entry, facts.StepFinished) and entry.degraded:
            self._is_degraded = True

    def _note(self, part: str, has_failed: bool) -> None:
        """Note how a part of the run that is no step ended last, such as a row of a table."""
        if has_failed:
            self._failed.add(part)
        else:
            self._failed.discard(part)

    def quality(self, records: Iterable[RequestRecord]) -> Quality:
        """Return the quality of the run, which has finished and has these records of spending."""
        degraded = self._is_degraded or self._failed or any(record.is_doubtful for record in records)
        return "degraded" if degraded else "clean"

"""How far a run of rows is, from the events that listeners are told or that a log has."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from fastroai.records import Usage
from fastroai.rows.facts import RowEnded, RowGivenBack
from fastroai.runtime.facts import RunEvent, RunFinished, RunResumed, RunStarted, RunStatus


class RowProgress:
    """The counts of a run of rows while it goes on: give it the events of the run, one by one.

        progress = RowProgress()
        table = await classify.map(tickets, on_event=progress)

    The facts of a run in another process, from `RunHistory.follow`, do as well.
    """

    def __init__(self) -> None:
        """Begin with nothing known."""
        self.total: int | None = None
        """The number of rows; `None` while it is not known, as of an iterator."""
        self.done = 0
        """Rows that have their output, those of earlier processes included."""
        self.failed = 0
        """Rows that have failed."""
        self.given_back = 0
        """Rows among `done` that were not asked again, because their answers are on record."""
        self.usage = Usage()
        """What the rows that have ended have spent, in this process."""
        self.status: RunStatus = "running"
        """The status of the run."""
        self._began: datetime | None = None
        self._last: datetime | None = None

    def __call__(self, event: RunEvent) -> None:
        """Take in the next event or fact of the run."""
        match event:
            case RunStarted() | RunResumed():
                total = event.inputs.get("total")
                self.total = total if isinstance(total, int) else None
                self._began = event.at
                if isinstance(event, RunResumed):
                    self.done, self.failed, self.status = 0, 0, "running"
            case RowGivenBack():
                self.given_back += 1
                self.done += 1
            case RowEnded():
                self._last = event.at
                self.usage.include(event.usage)
                if event.failure is None:
                    self.done += 1
                else:
                    self.failed += 1
            case RunFinished(part=part) if not part.place:
                self.status = event.status
            case _:
                pass

    @property
    def cost_usd(self) -> Decimal:
        """Exact known cost of the rows that have ended in this process, in US dollars."""
        return self.usage.cost_usd

    @property
    def rows_per_second(self) -> float | None:
        """Rows that were asked and have ended in a second, on average; `None` before the first has."""
        if self._began is None or self._last is None:
            return None
        seconds = (self._last - self._began).total_seconds()
        return (self.done + self.failed - self.given_back) / seconds if seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last row ends, at this rate; `None` if the total or the rate is not known."""
        rate = self.rows_per_second
        if self.total is None or not rate:
            return None
        return max(0, self.total - self.done - self.failed) / rate

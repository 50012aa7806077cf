"""What the page of a run shows: its drawing, the rows of its timeline, and what it has cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from fastroai.drawing import svg
from fastroai.places import without_visit
from fastroai.runtime.facts import AnswerGiven
from fastroai.store.reading.history import RunSummary
from fastroai.store.reading.timeline_rows import TimelineRow
from fastroai.store.reading.timeline_scale import Rectangle, TimelineScale
from fastroai.store.reading.trace import RunTrace
from fastroai.store.record.payloads import is_sealed_definition
from fastroai.usage.reports.report import UsageReport
from fastroai.usage.reports.report_rows import UsageRow

ROWS: Final = 200
"""Rows of the timeline on one page."""
MOST_DRAWN: Final = 250
"""Steps of a drawing that is made without being asked for."""
DEAREST: Final = 20
"""Rows of each table of costs."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address of the page asks for."""

    step: str = ""
    """The row whose panel is open, by its id."""
    opened: tuple[str, ...] = ()
    """Nodes of the drawing that are drawn with what is inside of them."""
    first: int = 0
    """Number of the first row of the timeline that is shown."""
    is_all_drawn: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Asked:
        """Read the parameters of an address. Wrong ones count as none."""
        first = query.get("row", "")
        return cls(
            step=query.get("step", ""),
            opened=tuple(filter(None, query.get("open", "").split("|"))),
            first=int(first) if first.isascii() and first.isdecimal() and len(first) < 9 else 0,
            is_all_drawn=query.get("draw") == "all",
        )

    def query(self, **changes: str | None) -> dict[str, str | None]:
        """Return the parameters of an address that asks for the same, but for changes."""
        return {
            "step": self.step,
            "open": "|".join(self.opened),
            "row": str(self.first or ""),
            "draw": "all" if self.is_all_drawn else None,
            **changes,
        }

    def toggled(self, node: str) -> str:
        """Return the nodes that are open when one of them is opened or closed."""
        if node in self.opened:
            return "|".join(one for one in self.opened if one != node)
        return "|".join((*self.opened, node))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the timeline as it is drawn."""

    row: TimelineRow
    bars: Sequence[Rectangle]
    took: timedelta | None
    has_inside: bool

    @property
    def visit(self) -> str:
        """The number of the visit to its node; empty for the first one."""
        return self.row.place.removeprefix(without_visit(self.row.place)) if self.row.kind == "step" else ""

    @property
    def node(self) -> str:
        """The id of its node in the drawing."""
        return without_visit(self.row.id) if self.row.kind == "step" else self.row.id


class RunView:
    """One run as its page shows it, at one point in time."""

    def __init__(self, run: RunSummary, trace: RunTrace, asked: Asked, now: datetime | None = None) -> None:
        self.run, self.trace, self.asked = run, trace, asked
        self._now = now or datetime.now(UTC)

    @cached_property
    def drawing(self) -> str | None:
        """The drawing as SVG; `None` if it would have too many nodes, and nobody asks for it."""
        if self.count > MOST_DRAWN and not self.asked.is_all_drawn:
            return None
        return svg(self.trace.drawing(self.asked.opened), style="")

    @cached_property
    def answered(self) -> Mapping[str, str]:
        """Who has answered the questions that have answers, by their ids; an empty text if nobody knows."""
        return {one.id: one.reviewer for one in self.trace.entries if isinstance(one, AnswerGiven)}

    @property
    def count(self) -> int:
        """Number of steps and calls of the outermost level."""
        return sum(row.depth == 0 for row in self.trace.timeline)

    @cached_property
    def _scale(self) -> TimelineScale:
        """The timeline, which ends with the last thing that happened, or now."""
        is_running = self.run.status == "running"
        ends_at = max(self._now, self.trace.started_at) if is_running else self.trace.entries[-1].at
        return TimelineScale(self.trace.started_at, ends_at)

    @property
    def took(self) -> timedelta:
        """The time from the start to the end, waits included."""
        return self._scale.took

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The rows of the timeline that are shown."""
        found, scale = self.trace.timeline, self._scale
        shown = found[self.asked.first : self.asked.first + ROWS]
        rows = list[Row]()
        for position, row in enumerate(shown, self.asked.first):
            has_inside = position + 1 < len(found) and found[position + 1].depth > row.depth
            rows.append(Row(row, scale.rectangles(row), scale.took_by(row), has_inside))
        return rows

    @property
    def rows_before(self) -> int | None:
        """Number of the first row of the page before; `None` if this is the first."""
        return max(self.asked.first - ROWS, 0) if self.asked.first else None

    @property
    def rows_after(self) -> int | None:
        """Number of the first row of the next page; `None` if this is the last."""
        following = self.asked.first + ROWS
        return following if following < len(self.trace.timeline) else None

    @cached_property
    def report(self) -> UsageReport:
        """The cost of the run."""
        return self.trace.report()

    @property
    def costs(self) -> Mapping[str, Sequence[tuple[str, UsageRow]]]:
        """The dearest rows by step, model and tool."""
        groups = {"Step": self.report.by_step, "Model": self.report.by_model, "Tool": self.report.by_tool}
        return {title: list(rows.items())[:DEAREST] for title, rows in groups.items() if rows}

    @property
    def is_sealed(self) -> bool:
        """Whether what it has on record went through a codec that is not known here."""
        return is_sealed_definition(self.trace.opened.definition)

    @property
    def has_output(self) -> bool:
        """Whether the run gave an output."""
        return self.run.status == "finished" and self.trace.output is not None

    @property
    def is_live(self) -> bool:
        """Whether something of it can still change by itself."""
        return self.run.status in ("running", "paused", "interrupted", "queued", "set_aside")


def row_of(trace: RunTrace, wanted: str) -> TimelineRow | None:
    """Return the row with an id, or of a step with that name; of several visits to a node, the last one."""
    found = [row for row in trace.timeline if wanted in (row.id, without_visit(row.id))]
    named = [row for row in trace.timeline if row.name == wanted]
    exact = [row for row in found if row.id == wanted] or found or named
    return exact[-1] if exact else None

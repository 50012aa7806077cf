"""The visits of one run, with what each has spent and how long it took."""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.graphs.events import Visit
from fastroai.places import quoted
from fastroai.runtime import Scope


@dataclass(slots=True)
class VisitRecord:
    """A visit that was started, in this process or an earlier one; or a decision after it."""

    scope: Scope
    branch: str
    """What tells its branch from others."""
    started_ms: float
    """From the start of the run."""
    finished_ms: float | None = None
    error: BaseException | None = None

    @property
    def duration_ms(self) -> float:
        """Wall time, retries included; 0 while it goes on."""
        return 0.0 if self.finished_ms is None else self.finished_ms - self.started_ms


def visit_place(visit: Visit) -> str:
    """Where a visit is, in its graph: `review` for the first, `review#2` for the second."""
    return quoted(visit.node) if visit.number == 1 else f"{quoted(visit.node)}#{visit.number}"


def decision_name(node: str) -> str:
    """What a model's decision after a node is called, where steps have ids."""
    return f"llm_decide({node})"


def decision_place(visit: Visit) -> str:
    """Where the decision after a visit is, in its graph."""
    return visit_place(Visit(decision_name(visit.node), visit.number))

"""What happens in a graph, told to whoever listens to the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from fastroai.graphs.events import (
    Cancelled,
    Command,
    Event,
    Failed,
    Finish,
    RouteNode,
    SkipNode,
    StartNode,
    Succeeded,
    Visit,
)
from fastroai.graphs.run_events import (
    GraphPaused,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeSkipped,
    NodeStarted,
)
from fastroai.graphs.visits import VisitRecord
from fastroai.runtime import RunEvent, Scope
from fastroai.runtime.events import (
    EventPlace,
)
from fastroai.runtime.facts import (
    EdgesResolved,
)
from fastroai.steps.context import RunFacts


class GraphReports:
    """Those of one run."""

    def __init__(self, scope: Scope, facts: RunFacts) -> None:
        self._scope = scope
        self._place: EventPlace = {"run_id": scope.run_id, "pipeline": facts.pipeline, "path": facts.path}

    async def started(self, start: StartNode) -> None:
        """A visit starts."""
        about = _about(start.visit, start.branch.identity)
        await self._scope.emit(NodeStarted(**self._place, **about, cause=start.cause))

    async def tell(
        self,
        event: Event,
        commands: Sequence[Command],
        visits: Mapping[Visit, VisitRecord],
        cancelled_for: Mapping[Visit, str],
    ) -> None:
        """What has happened, and what was decided."""
        match event:
            case Succeeded(visit) | Failed(visit) if visit in visits:
                await self._scope.emit(self._outcome(event, visits[visit]))
            case Cancelled(visit) if visit in visits and visits[visit].error is not None:  # not a decision
                about = _about(visit, visits[visit].branch)
                await self._scope.emit(NodeCancelled(**self._place, **about, cause=cancelled_for[visit]))
            case _:
                pass
        for command in commands:
            if (decided := self._decided(command)) is not None:
                await self._scope.emit(decided)

    def _outcome(self, event: Succeeded | Failed, record: VisitRecord) -> NodeFinished | NodeFailed:
        about = _about(event.visit, record.branch)
        usage, duration_ms = record.scope.spent(), record.duration_ms
        if isinstance(event, Failed):
            return NodeFailed(**self._place, **about, error=event.error, usage=usage, duration_ms=duration_ms)
        return NodeFinished(**self._place, **about, output=event.output, usage=usage, duration_ms=duration_ms)

    def _decided(self, command: Command) -> RunEvent | None:
        match command:
            case SkipNode(visit, cause, branch):
                return NodeSkipped(**self._place, **_about(visit, branch.identity), cause=cause)
            case RouteNode(visit=visit, edges=edges, branch=branch) if edges:
                about = _about(visit, branch.identity)
                return EdgesResolved(**self._place, **about, edges=tuple(edges))
            case Finish(status="paused", waiting=waiting):
                return GraphPaused(**self._place, resume_at=waiting)
            case _:
                return None


class _AboutVisit(TypedDict):
    step_id: str
    visit: int
    branch: str


def _about(visit: Visit, branch: str) -> _AboutVisit:
    return {"step_id": visit.node, "visit": visit.number, "branch": branch}

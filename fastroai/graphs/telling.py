"""Tells whoever listens to a run what happens in a graph."""

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
from fastroai.graphs.told import (
    EdgesResolved,
    GraphPaused,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeSkipped,
    NodeStarted,
)
from fastroai.graphs.visits import VisitRecord
from fastroai.runtime import Scope
from fastroai.runtime.events import EventPlace
from fastroai.steps.context import RunFacts


class _OfVisit(TypedDict):
    step_id: str
    visit: int


class Telling:
    """The events of one run."""

    def __init__(self, scope: Scope, facts: RunFacts) -> None:
        self._scope = scope
        self._place: EventPlace = {"run_id": scope.run_id, "pipeline": facts.pipeline, "path": facts.path}

    async def started(self, start: StartNode) -> None:
        """A visit starts."""
        await self._scope.emit(
            NodeStarted(**self._place, **_of(start.visit), branch=start.branch.identity, cause=start.cause)
        )

    async def tell(
        self, event: Event, commands: Sequence[Command], visits: Mapping[Visit, VisitRecord]
    ) -> None:
        """What has happened, and what was decided."""
        if isinstance(event, Succeeded | Failed | Cancelled) and event.visit in visits:
            await self._outcome(event, visits[event.visit])
        for command in commands:
            match command:
                case SkipNode(visit=visit, cause=cause, branch=branch):
                    await self._scope.emit(
                        NodeSkipped(**self._place, **_of(visit), branch=branch.identity, cause=cause)
                    )
                case RouteNode(visit=visit, edges=edges, branch=branch) if edges:
                    await self._scope.emit(
                        EdgesResolved(**self._place, **_of(visit), branch=branch.identity, edges=tuple(edges))
                    )
                case Finish(status="paused", waiting=waiting):
                    await self._scope.emit(GraphPaused(**self._place, resume_at=waiting))
                case _:
                    pass

    async def _outcome(self, event: Succeeded | Failed | Cancelled, record: VisitRecord) -> None:
        about = _of(event.visit)
        match event:
            case Succeeded(output=output):
                await self._scope.emit(
                    NodeFinished(
                        **self._place,
                        **about,
                        branch=record.branch,
                        output=output,
                        usage=record.scope.spent(),
                        duration_ms=record.duration_ms,
                    )
                )
            case Failed(error=error):
                await self._scope.emit(
                    NodeFailed(
                        **self._place,
                        **about,
                        branch=record.branch,
                        error=error,
                        usage=record.scope.spent(),
                        duration_ms=record.duration_ms,
                    )
                )
            case Cancelled() if record.error is not None:  # else the decision after it was
                cause = "its branch is over, or the run is stopped"
                await self._scope.emit(
                    NodeCancelled(**self._place, **about, branch=record.branch, cause=cause)
                )


def _of(visit: Visit) -> _OfVisit:
    return {"step_id": visit.node, "visit": visit.number}

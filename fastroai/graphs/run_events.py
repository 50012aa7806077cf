"""What happens in a graph, as typed events: for `stream()`, hooks and progress displays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastroai.graphs.events import Ending
from fastroai.graphs.routing import EdgeOutcome
from fastroai.runtime import RunEvent, RunFinished, StepFailed, StepFinished, StepSkipped, StepStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted(StepStarted):
    """A visit to a node started."""

    visit: int
    """From 1."""
    branch: str
    """The branch that it is in; empty outside of forks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFinished(StepFinished):
    """A visit to a node finished with an output; that of a pause node with its question."""

    visit: int
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed(StepFailed):
    """A visit to a node failed, after its retries."""

    visit: int
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCancelled(RunEvent):
    """A visit to a node was cancelled, because of `cause`."""

    step_id: str
    visit: int
    branch: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSkipped(StepSkipped):
    """A node is over its visit limit, and did not run."""

    visit: int
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgesResolved(RunEvent):
    """It was decided where the graph goes after a visit to a node."""

    step_id: str
    visit: int
    branch: str
    edges: Sequence[EdgeOutcome]
    """All that leave the node, in declaration order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFinished(RunFinished):
    """A run of a graph ended, or halts; `error` is there only if it failed."""

    status: Ending
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPaused(RunEvent):
    """The run halts: a person is asked, or `pause` was called."""

    resume_at: tuple[str, ...]
    """The nodes with which it goes on."""

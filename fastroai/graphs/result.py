"""The result of a run of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from fastroai.graphs.machine.branches import GraphPath
from fastroai.graphs.machine.events import Ending
from fastroai.other_names import other_names
from fastroai.runs.result import RunResult
from fastroai.runs.running.units import BegunUnits
from fastroai.runs.stream import RunStream
from fastroai.runs.usage import RunUsage, steps_together
from fastroai.runtime import Scope
from fastroai.runtime.facts import ReasonCode, Wait
from fastroai.steps import StepUsage
from fastroai.store.open_questions import Question
from fastroai.store.record.log import RunLog

GraphQuality: TypeAlias = Literal["clean", "degraded", "failed"]

OutputT = TypeVar("OutputT", default=Any, covariant=True)


class GraphUsage(RunUsage):
    """The cost, tokens and requests of a run of a graph: of the whole, of each node, and of each visit.

    Its sums, such as `cost_usd`, are those of the whole run, with what it spent in earlier processes.
    `by_node` has a `StepUsage` for each node, and `by_visit` one for each visit.
    """

    def __init__(self, scope: Scope, units: BegunUnits, decisions: Mapping[str, str]) -> None:
        """Take the scope of a run that has ended, its visits, and the decisions after them.

        `decisions` are the nodes after which models decide, by the name of the decision.
        """
        super().__init__(scope)
        self._units, self._decisions = units, decisions

    def __getstate__(self) -> dict[str, object]:
        """Plain data for pickling and copying: usage and times of visits instead of their live scopes."""
        known = {"by_visit": self.by_visit, "processing_time_ms": self.processing_time_ms}
        return {**self.__dict__, **known, "_units": BegunUnits()}

    def _added(self, other: Any) -> dict[str, object]:
        return {
            **super()._added(other),
            "by_visit": steps_together(self.by_visit, other.by_visit),
            "by_node": steps_together(self.by_node, other.by_node),
            "processing_time_ms": self.processing_time_ms + other.processing_time_ms,
        }

    @cached_property
    def processing_time_ms(self) -> float:
        """Wall time from the start of the run to the end of its last node, in milliseconds."""
        return max((begun.finished_ms for _, begun in self._units.items() if begun.is_over), default=0.0)

    def model_dump(self) -> dict[str, object]:
        """Return a dict of `total`, `cost_complete`, `by_model`, `by_variant` and `nodes`, the usage by node.

        The values are objects, such as a `Usage`; `result.model_dump()` has them as values of JSON.
        """
        return {**super().model_dump(), "nodes": self.by_node}

    @cached_property
    def by_visit(self) -> Mapping[tuple[str, int], StepUsage]:
        """Usage of every visit, by node and number. It includes the decision after the visit."""
        found: dict[tuple[str, int], StepUsage] = {}
        for (step_id, number), begun in self._units.items():
            visit = (self._decisions.get(step_id, step_id), number)
            usage = begun.usage
            found[visit] = usage if visit not in found else found[visit] + usage
        return found

    @cached_property
    def by_node(self) -> Mapping[str, StepUsage]:
        """Usage of every node that was visited, all visits together."""
        found: defaultdict[str, StepUsage] = defaultdict(StepUsage)
        for (node, _), usage in self.by_visit.items():
            found[node] = found[node] + usage
        return dict(found)


@other_names(
    attributes={
        "success": "result.ok",
        "execution_quality": "result.quality",
        "total_tokens": "result.usage.total_tokens",
        "steps_executed": "sum(result.visits.values())",
        "node_visit_counts": "result.visits",
        "total_retries": "result.trace.attempts",
        "retry_details": "result.trace.attempts",
        "had_partial_failures": 'result.quality == "degraded"',
        "nodes_with_failures": "result.errors",
        "paused_at": "result.resume_at",
        "session_state": "the store: graph.resume(result.run_id, store=…)",
    }
)
@dataclass(frozen=True, kw_only=True)
class GraphResult(RunResult, Generic[OutputT]):
    """The result of a run of a graph, however it ended: a failed or paused run has a result, too.

    `status` says how it ended, and `reason` why. `output` is the output of a terminal if the run has
    finished, otherwise `None`. `error` is the exception of a run that failed.
    """

    run_id: str
    status: Ending
    """`"finished"`: a terminal was reached. `"paused"`: the run waits for a person, a message or a time, or a
    pause was asked for. `"failed"`, `"cancelled"` or `"budget_exceeded"`."""
    quality: GraphQuality
    """`clean`: every node succeeded, perhaps after retries. `degraded`: some node failed, or a branch took
    too long, or an answer that was used broke off before its end. `failed`: no terminal was reached."""
    output: OutputT | None
    """Output of the terminal that was reached; if several were, of the one that is declared first."""
    outputs: Mapping[str, Any]
    """The latest output of each node. Of a run that was resumed, those of earlier processes are decoded when
    they are read, which raises `RunCorrupt` if their node declares another type now."""
    memory: Mapping[str, Any]
    """The inputs and the values that nodes wrote, whatever the status is. Decoded like `outputs`."""
    path: GraphPath
    """Nodes in the order in which they were visited; a fork is a mapping of its branches by target."""
    visits: Mapping[str, int]
    """Number of visits to each node."""
    errors: Mapping[str, BaseException] = field(default_factory=dict)
    """Latest failure of each node that has failed, also of those whose failure was handled. A failure of an
    earlier process is a `RecordedError`."""
    usage: GraphUsage  # pyright: ignore[reportIncompatibleMethodOverride]
    reason: str
    """Why the run ended in this way, for people."""
    reason_code: ReasonCode | None
    """Why the run ended in this way, as a word for programs."""
    error: BaseException | None = None
    """The exception that stopped the run, if it failed."""
    resume_at: tuple[str, ...] = ()
    """The nodes with which an unfinished run goes on when it is resumed, once for each visit. Empty if the
    run would end in the same way."""
    waits: tuple[Wait, ...] = ()
    """The waits of the nodes of a paused run, with their deadlines."""
    questions: tuple[Question, ...] = ()
    """The open questions of a paused run, in the order in which they were asked."""
    log: RunLog = field(repr=False, compare=False)
    """The facts of the run, from which `trace` is made."""

    @property
    def ok(self) -> bool:
        """True if the run has finished: a terminal was reached. Nodes may have failed: see `quality`."""
        return self.status == "finished"


GraphStream: TypeAlias = RunStream[GraphResult[OutputT]]
"""The stream of a run of a graph: `result` is a `GraphResult` once the iteration has ended."""

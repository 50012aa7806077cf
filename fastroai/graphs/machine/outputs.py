"""The memory and the outputs of nodes, as one visit to a node sees them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping

from fastroai.errors import MissingDependencyError, nearest_hint
from fastroai.graphs.machine.branches import Branch
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.runtime.scope import Scoped
from fastroai.steps.context import RunData, StepData
from fastroai.steps.copies import Copies
from fastroai.steps.outputs import Outputs
from fastroai.steps.visits import NodeVisit


def data_of_visit(
    run: RunData, plan: GraphPlan, branch: Branch, step: Scoped, visit: NodeVisit | None
) -> StepData:
    """Return what one visit to a node can read: values in the memory of its branch, and outputs in its past.

    `visit` is `None` for the decision after a visit.
    """
    inputs = Copies(branch.memory, step, plan.reads.get(branch.node))
    outputs = NodeOutputs(plan.edges, branch.sources, Copies(branch.outputs, step))
    return StepData(run, inputs, outputs, visit)


class NodeOutputs(Outputs):
    """The latest output of each node in the past of a branch; its sources are what the visit depends on."""

    __slots__ = ("_nodes", "_sources")

    def __init__(
        self, nodes: Collection[str], sources: tuple[str, ...], latest: Mapping[str, object]
    ) -> None:
        self._nodes, self._sources = nodes, sources
        self.values = latest  # type: ignore[assignment]  # nobody writes here: the state machine does

    def needs_of(self, reader: str) -> tuple[str, ...]:
        """Return the sources with an output, of the visited node: only that asks."""
        return tuple(source for source in self._sources if source in self.values)

    def is_read_by(self, reader: str, step_id: str) -> bool:
        """Return whether the node has an output."""
        return step_id in self.values

    def showing(self, values: Mapping[str, object]) -> NodeOutputs:
        """Return the same outputs, some of them with other values."""
        return NodeOutputs(self._nodes, self._sources, ChainMap(dict(values), self.values))

    def get(self, reader: str, step_id: str) -> object:
        """Return the latest output of a node. Raises `MissingDependencyError`."""
        try:
            return self.values[step_id]
        except KeyError:
            reason = (
                "it has no output yet, because it has not run before this node, or has failed; use "
                "ctx.get_dependency_or_none where that can happen"
            )
            if step_id not in self._nodes:
                known, hint = ", ".join(map(repr, self._nodes)), nearest_hint(step_id, self._nodes)
                reason = f"the graph has no such node; it has {known}.{hint}"
            raise MissingDependencyError(reader, step_id, reason) from None

    def may_have(self, reader: str, step_id: str) -> bool:
        """Return whether the node has an output."""
        return step_id in self.values

    def is_ancestor(self, step_id: str, of: str) -> bool:
        """Return whether the node has an output: only nodes in the past of the branch have one here."""
        return step_id in self.values

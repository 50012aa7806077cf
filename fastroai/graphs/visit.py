"""A visit to a node while it goes on: what its step reads and writes, and its conversation."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fastroai.errors import ConfigurationError, MissingDependencyError, nearest_hint
from fastroai.graphs.conversation.threads import Threads
from fastroai.graphs.machine.branches import Branch
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.runtime.facts import StepStarted
from fastroai.runtime.scope import Scoped
from fastroai.steps.context import RunData, StepData
from fastroai.steps.copies import Copies
from fastroai.steps.outputs import Outputs
from fastroai.steps.visits import NodeFailure, NodeVisit

if TYPE_CHECKING:  # they load PydanticAI
    from fastroai.graphs.conversation.talk import Talk
    from fastroai.graphs.conversation.thread import Phase


class OpenVisit:
    """A visit that goes on, with the values and messages of its latest attempt. Steps see a `NodeVisit`.

    One is made for each visit, and most steps do not use it. So properties are computed when they are read.
    """

    __slots__ = (
        "_on_write",
        "_setup",
        "_threads",
        "branch",
        "kept",
        "started",
        "step",
        "talk_so_far",
        "written",
    )

    def __init__(
        self,
        setup: GraphSetup,
        threads: Threads,
        on_write: Callable[[OpenVisit, str, object], object],
        started: StepStarted,
        branch: Branch,
        step: Scoped,
    ) -> None:
        """`on_write` puts a value on record, and returns the copy that is kept."""
        self._setup, self._threads, self._on_write = setup, threads, on_write
        self.started, self.branch, self.step = started, branch, step
        self.written: dict[str, object] = {}
        """Values that this attempt has written so far, by key."""
        self.kept = self.written
        """The same values; those of the previous attempt, until this one writes a value."""
        self.talk_so_far: Talk | None = None
        """The conversation of this attempt; `None` before it begins."""

    @property
    def number(self) -> int:
        """Number of this visit among those to its node, from 1."""
        return self.started.visit

    @property
    def goal(self) -> str | None:
        """The goal of the graph, if it has one."""
        return self._setup.goal

    @property
    def failures(self) -> Mapping[str, NodeFailure]:
        """Latest failure of each node in the past of the branch that has not succeeded since."""
        return self.branch.failures

    @property
    def talk(self) -> Talk:
        """The conversation of this attempt; it begins when it is first needed."""
        if self.talk_so_far is None:
            focus = self._setup.nodes[self.started.step_id].focus
            self.talk_so_far = self._threads.talk(self.branch, focus)
        return self.talk_so_far

    def phase(self, written: Mapping[str, object], error: BaseException | None = None) -> Phase | None:
        """Return the messages of the last attempt as a phase; `None` if it called no agent."""
        return None if self.talk_so_far is None else self.talk_so_far.phase(written, error)

    def begin_attempt(self) -> None:
        """Drop the values and messages of the previous attempt. `kept` has its values until a write."""
        self.written, self.talk_so_far = {}, None

    def write(self, key: str, value: object) -> None:
        """Write a value to memory, where it stays even if the node fails.

        Raises:
            ConfigurationError: the node declares its `writes`, and the key is not one of them.
            ValueNotStorable: the run is on record, and the value is not plain JSON.
        """
        if not isinstance(key, str) or not key:
            raise ConfigurationError("key", key, "a non-empty string")
        declared: Sequence[str] | None = self._setup.plan.writes.get(self.started.step_id)
        if declared is not None and key not in declared:
            names = ", ".join(map(repr, declared))
            expected = f"one of the node's writes, {names}.{nearest_hint(key, declared)}"
            raise ConfigurationError("key", key, expected)
        self.written[key] = self._on_write(self, key, value)
        self.kept = self.written


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

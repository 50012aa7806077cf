"""What the runs of one graph have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from fastroai.calls.call import AgentLike
from fastroai.contracts import adapter_of
from fastroai.contracts.annotations import Annotation
from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.conversation.threads import Threads
from fastroai.graphs.machine.events import Visit
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.shape.node import Node
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.runtime.facts import Part
from fastroai.steps import ResolvedConfig
from fastroai.steps.contracts import BoundContract


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSetup:
    """A graph, ready to run."""

    name: str
    goal: str | None
    plan: GraphPlan
    nodes: Mapping[str, Node[Any]]
    configs: Mapping[str, ResolvedConfig]
    """Settings of nodes, and of the decisions after them, by step id."""
    contracts: Mapping[str, BoundContract]
    input_types: Mapping[str, Annotation]
    """Declared types of inputs, by name; of those that have any."""
    declared: Mapping[str, Annotation]
    """Declared types of outputs, by node; of those that have any."""
    answers: Mapping[str, Annotation]
    """Types of answers, by pause node; of those that have any."""
    decider: AgentLike[Any] | None
    conversation: GraphConversation
    branch_timeout: float | None
    """Seconds."""

    def answer_schema(self, node: str) -> dict[str, JsonValue] | None:
        """Return the JSON Schema of the answer to a pause node; `None` where its type is not declared."""
        declared = self.answers.get(node)
        adapter = None if declared is None else adapter_of(declared)
        return None if adapter is None else adapter.json_schema()

    def machine(self, part: Part, *, known: Mapping[Visit, bool] | None = None) -> GraphMachine:
        """The state machine of a run; `known` as it takes it."""
        return GraphMachine(self.plan, part, known=known)

    def threads(self) -> Threads:
        """The conversations of a run."""
        return Threads(self.conversation, self.goal)

"""The data that all runs of one graph share."""

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
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.shape.node import Node
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.runs.running.machine import Unit
from fastroai.runtime.fact_base import Part
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
    """Declared types of inputs, by name; only for inputs that have one."""
    declared: Mapping[str, Annotation]
    """Declared types of outputs, by node; only for nodes that have one."""
    answers: Mapping[str, Annotation]
    """Types of answers, by pause node; only for nodes that have one."""
    decider: AgentLike[Any] | None
    conversation: GraphConversation
    branch_timeout: float | None
    """Seconds for which a branch may work; `None` for no limit."""

    def answer_schema(self, node: str) -> dict[str, JsonValue] | None:
        """Return the JSON Schema of the answer to a pause node; `None` if its type is not declared."""
        declared = self.answers.get(node)
        adapter = None if declared is None else adapter_of(declared)
        return None if adapter is None else adapter.json_schema()

    def machine(self, part: Part, *, known: Mapping[Unit, bool] | None = None) -> GraphMachine:
        """Return the state machine of a new run; `known` is passed on to it."""
        return GraphMachine(self.plan, part, known=known)

    def threads(self) -> Threads:
        """Return the conversations of a new run."""
        return Threads(self.conversation, self.goal)

"""The data that all runs of one graph share, with the settings of its nodes after inheritance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import JsonValue

from fastroai.calls.call import AgentLike
from fastroai.contracts import adapter_of
from fastroai.contracts.annotations import Annotation
from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.conversation.threads import Threads
from fastroai.graphs.machine.events import decision_name
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.shape.node import Node
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.records import NotGiven
from fastroai.runs.running.machine import Unit
from fastroai.runtime.fact_base import Part
from fastroai.steps import PipelineConfig, ResolvedConfig, StepConfig
from fastroai.steps.config import resolve
from fastroai.steps.contracts import BoundContract

NODE_RETRIES: Final = 2
"""Default number of extra attempts at a node, which makes three attempts."""


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


def configs_of(
    nodes: Mapping[str, Node[Any]], asking: Iterable[str], config: PipelineConfig
) -> dict[str, ResolvedConfig]:
    """Return the settings of every node, and of the decisions after the nodes in `asking`, by step id.

    A node that judges itself makes its own attempts, so the default retries do not apply to it.
    """
    said = not (isinstance(config.retries, NotGiven) and isinstance(config.retry, NotGiven))
    retried = config if said else replace(config, retries=NODE_RETRIES)
    decider = resolve(StepConfig(), pipeline=config)
    configs = dict.fromkeys(map(decision_name, asking), decider)
    for node_id, node in nodes.items():
        has_judge = getattr(node.step, "judges_itself", False) is True
        configs[node_id] = resolve(node.step.config, pipeline=config if has_judge else retried)
    return configs

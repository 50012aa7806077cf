"""The decision after a node, as a step."""

from __future__ import annotations

from typing import Any

from fastroai.calls.call import AgentLike
from fastroai.graphs.agents.decider import Candidate, decide
from fastroai.graphs.machine.routing import Choice
from fastroai.graphs.setup import GraphSetup
from fastroai.steps import BaseStep, StepContext


class DecideStep(BaseStep[Any, Choice]):
    """Asks the decider of a graph which of the `llm_decide` edges of a node is taken."""

    def __init__(self, decider: AgentLike[Any], setup: GraphSetup, node: str, output: object) -> None:
        self._decider, self._setup, self._node, self._output = decider, setup, node, output

    async def execute(self, context: StepContext[Any]) -> Choice:
        """Ask; where there is no answer that can be used, the fallback holds."""
        edges = [edge for edge in self._setup.plan.edges[self._node] if edge.when == "llm_decide"]
        return await decide(
            self._decider,
            context,
            goal=self._setup.goal,
            node=self._node,
            output=self._output,
            candidates=[Candidate(edge.target, self._setup.nodes[edge.target].focus) for edge in edges],
            fallback=next(edge.target for edge in edges if edge.fallback),
        )

"""Graphs: state machines whose nodes are steps, and whose edges say which node comes next."""

from fastroai.graphs.agent_node import AgentNode
from fastroai.graphs.branches import GraphPath
from fastroai.graphs.conversation import Conversation
from fastroai.graphs.edge import Edge, When
from fastroai.graphs.events import Ending
from fastroai.graphs.graph import Graph
from fastroai.graphs.judging import Ruling, Verdict
from fastroai.graphs.node import Node
from fastroai.graphs.plan import OnBranchFailure, OnConflict
from fastroai.graphs.result import GraphQuality, GraphResult, GraphStream, GraphUsage, Question
from fastroai.graphs.routing import EdgeOutcome
from fastroai.graphs.run_events import (
    GraphFinished,
    GraphPaused,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeSkipped,
    NodeStarted,
)
from fastroai.runtime.facts import (
    EdgesResolved,
)

__all__ = [
    "AgentNode",
    "Conversation",
    "Edge",
    "EdgeOutcome",
    "EdgesResolved",
    "Ending",
    "Graph",
    "GraphFinished",
    "GraphPaused",
    "GraphQuality",
    "GraphResult",
    "GraphStream",
    "GraphUsage",
    "Node",
    "NodeCancelled",
    "NodeFailed",
    "NodeFinished",
    "NodeSkipped",
    "NodeStarted",
    "OnBranchFailure",
    "OnConflict",
    "GraphPath",
    "Question",
    "Ruling",
    "Verdict",
    "When",
]

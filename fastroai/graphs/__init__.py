"""Graphs: state machines whose nodes are steps, and whose edges say which node comes next."""

from fastroai.graphs.agents.agent_node import AgentNode
from fastroai.graphs.agents.judging import Ruling, Verdict
from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.graph import Graph
from fastroai.graphs.machine.branches import GraphPath
from fastroai.graphs.machine.events import Ending
from fastroai.graphs.machine.routing import EdgeOutcome
from fastroai.graphs.machine.sends import Send
from fastroai.graphs.result import GraphQuality, GraphResult, GraphStream, GraphUsage
from fastroai.graphs.shape.edge import Edge, When
from fastroai.graphs.shape.node import Node
from fastroai.graphs.shape.plan import OnBranchFailure, OnConflict, Reducer
from fastroai.runs.driving import DrivenRuns, DrivenState, Due
from fastroai.runtime.facts import (
    AnswerGiven,
    BranchTimedOut,
    EdgesResolved,
    FailureFacts,
    QuestionAsked,
    ReasonCode,
    RunFinished,
    RunStarted,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepHalted,
    StepSkipped,
    StepStarted,
    Wait,
)
from fastroai.steps.visits import NodeFailure

__all__ = [
    "AgentNode",
    "AnswerGiven",
    "BranchTimedOut",
    "GraphConversation",
    "DrivenRuns",
    "DrivenState",
    "Due",
    "Edge",
    "EdgeOutcome",
    "EdgesResolved",
    "Ending",
    "FailureFacts",
    "Graph",
    "GraphPath",
    "GraphQuality",
    "GraphResult",
    "GraphStream",
    "GraphUsage",
    "Node",
    "NodeFailure",
    "OnBranchFailure",
    "OnConflict",
    "QuestionAsked",
    "ReasonCode",
    "Reducer",
    "Ruling",
    "RunFinished",
    "RunStarted",
    "Send",
    "StepCancelled",
    "StepFailed",
    "StepFinished",
    "StepHalted",
    "StepSkipped",
    "StepStarted",
    "Verdict",
    "Wait",
    "When",
]

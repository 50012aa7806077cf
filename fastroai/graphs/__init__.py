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
from fastroai.runs.driving import DrivenRuns, DrivenState, Due
from fastroai.runtime.facts import (
    AnswerGiven,
    BranchTimedOut,
    EdgesResolved,
    FailureFacts,
    QuestionAsked,
    RunFinished,
    RunStarted,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)

__all__ = [
    "AgentNode",
    "AnswerGiven",
    "BranchTimedOut",
    "Conversation",
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
    "OnBranchFailure",
    "OnConflict",
    "Question",
    "QuestionAsked",
    "Ruling",
    "RunFinished",
    "RunStarted",
    "StepCancelled",
    "StepFailed",
    "StepFinished",
    "StepSkipped",
    "StepStarted",
    "Verdict",
    "When",
]

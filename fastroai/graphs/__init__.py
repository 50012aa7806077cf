"""Graphs: state machines whose nodes are steps, and whose edges say which node comes next."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.graphs.agents.agent_node import AgentNode as AgentNode
    from fastroai.graphs.agents.judging import Ruling as Ruling
    from fastroai.graphs.agents.judging import Verdict as Verdict
    from fastroai.graphs.conversation.conversation import GraphConversation as GraphConversation
    from fastroai.graphs.errors import GraphProblem as GraphProblem
    from fastroai.graphs.errors import GraphStopped as GraphStopped
    from fastroai.graphs.errors import GraphValidationError as GraphValidationError
    from fastroai.graphs.errors import JudgeEscalated as JudgeEscalated
    from fastroai.graphs.errors import JudgeNotSatisfied as JudgeNotSatisfied
    from fastroai.graphs.errors import MemoryConflict as MemoryConflict
    from fastroai.graphs.errors import VisitsExhausted as VisitsExhausted
    from fastroai.graphs.facts import BranchTimedOut as BranchTimedOut
    from fastroai.graphs.facts import EdgesResolved as EdgesResolved
    from fastroai.graphs.facts import MessagesAdded as MessagesAdded
    from fastroai.graphs.facts import ValueWritten as ValueWritten
    from fastroai.graphs.graph import Graph as Graph
    from fastroai.graphs.machine.branches import GraphPath as GraphPath
    from fastroai.graphs.machine.events import Ending as Ending
    from fastroai.graphs.machine.routing import EdgeOutcome as EdgeOutcome
    from fastroai.graphs.machine.sends import Send as Send
    from fastroai.graphs.result import GraphQuality as GraphQuality
    from fastroai.graphs.result import GraphResult as GraphResult
    from fastroai.graphs.result import GraphStream as GraphStream
    from fastroai.graphs.result import GraphUsage as GraphUsage
    from fastroai.graphs.shape.edge import Edge as Edge
    from fastroai.graphs.shape.edge import When as When
    from fastroai.graphs.shape.node import Node as Node
    from fastroai.graphs.shape.plan import OnBranchFailure as OnBranchFailure
    from fastroai.graphs.shape.plan import OnConflict as OnConflict
    from fastroai.graphs.shape.plan import Reducer as Reducer
    from fastroai.steps.visits import NodeFailure as NodeFailure
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        unlisted=[
            "EdgeOutcome",
            "Ending",
            "GraphQuality",
            "NodeFailure",
            "OnBranchFailure",
            "OnConflict",
            "Reducer",
            "When",
        ],
    )

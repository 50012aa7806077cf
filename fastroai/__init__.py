"""FastroAI: PydanticAI agents in production, with exact cost, budgets, pipelines and tracing.

The names here are those that most programs need; the packages below have all others. Each is loaded when it
is first used, so that `import fastroai` costs next to nothing.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names
from fastroai.renamed import RENAMED
from fastroai.version import refuse_namesake

if TYPE_CHECKING:
    from fastroai.agent import AgentConfig as AgentConfig
    from fastroai.agent import AgentStepWrapper as AgentStepWrapper
    from fastroai.agent import ChatResponse as ChatResponse
    from fastroai.agent import FastroAgent as FastroAgent
    from fastroai.agent import Metered as Metered
    from fastroai.agent import StreamChunk as StreamChunk
    from fastroai.errors import BudgetExceeded as BudgetExceeded
    from fastroai.errors import ConfigurationError as ConfigurationError
    from fastroai.errors import CostBudgetExceeded as CostBudgetExceeded
    from fastroai.errors import CostBudgetExceededError as CostBudgetExceededError
    from fastroai.errors import FastroAIError as FastroAIError
    from fastroai.errors import PipelineValidationError as PipelineValidationError
    from fastroai.errors import RunInProgress as RunInProgress
    from fastroai.errors import RunNotFound as RunNotFound
    from fastroai.errors import SpendLimitExceeded as SpendLimitExceeded
    from fastroai.errors import StepExecutionError as StepExecutionError
    from fastroai.errors import TimeLimitExceeded as TimeLimitExceeded
    from fastroai.errors import usage_of as usage_of
    from fastroai.functions import Flow as Flow
    from fastroai.functions import compute as compute
    from fastroai.functions import configure as configure
    from fastroai.functions import contract as contract
    from fastroai.functions import flow as flow
    from fastroai.functions import infer as infer
    from fastroai.functions import opaque as opaque
    from fastroai.functions import parallel as parallel
    from fastroai.functions import refine as refine
    from fastroai.functions import run as run
    from fastroai.graphs import AgentNode as AgentNode
    from fastroai.graphs import Edge as Edge
    from fastroai.graphs import Graph as Graph
    from fastroai.graphs import GraphResult as GraphResult
    from fastroai.graphs import Node as Node
    from fastroai.graphs import Verdict as Verdict
    from fastroai.human import Inbox as Inbox
    from fastroai.human import send_message as send_message
    from fastroai.pipelines import BasePipeline as BasePipeline
    from fastroai.pipelines import BaseStep as BaseStep
    from fastroai.pipelines import ConversationState as ConversationState
    from fastroai.pipelines import ConversationStatus as ConversationStatus
    from fastroai.pipelines import Pipeline as Pipeline
    from fastroai.pipelines import PipelineConfig as PipelineConfig
    from fastroai.pipelines import PipelineResult as PipelineResult
    from fastroai.pipelines import PipelineUsage as PipelineUsage
    from fastroai.pipelines import Service as Service
    from fastroai.pipelines import SplitPipeline as SplitPipeline
    from fastroai.pipelines import StepConfig as StepConfig
    from fastroai.pipelines import StepContext as StepContext
    from fastroai.pipelines import StepUsage as StepUsage
    from fastroai.pipelines import step as step
    from fastroai.runtime import RetryPolicy as RetryPolicy
    from fastroai.runtime import budget_scope as budget_scope
    from fastroai.steps import spend as spend
    from fastroai.store import MemoryRunStore as MemoryRunStore
    from fastroai.store import PostgresRunStore as PostgresRunStore
    from fastroai.store import RedisRunStore as RedisRunStore
    from fastroai.store import RunHistory as RunHistory
    from fastroai.store import SQLiteRunStore as SQLiteRunStore
    from fastroai.testing import ModelServer as ModelServer
    from fastroai.tools import FunctionToolsetBase as FunctionToolsetBase
    from fastroai.tools import SafeToolset as SafeToolset
    from fastroai.tools import safe_tool as safe_tool
    from fastroai.tracing import LogfireTracer as LogfireTracer
    from fastroai.tracing import NoOpTracer as NoOpTracer
    from fastroai.tracing import SimpleTracer as SimpleTracer
    from fastroai.tracing import Tracer as Tracer
    from fastroai.usage import Budget as Budget
    from fastroai.usage import CostCalculator as CostCalculator
    from fastroai.usage import SpendLimit as SpendLimit
    from fastroai.usage import format_cost as format_cost
    from fastroai.version import __version__ as __version__
    from fastroai.workflows import Workflow as Workflow
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        unlisted=[  # where programs for fastroai 0.6 import these from
            "AgentStepWrapper",
            "ConversationState",
            "ConversationStatus",
            "CostBudgetExceededError",
            "FunctionToolsetBase",
            "LogfireTracer",
            "NoOpTracer",
            "PipelineUsage",
            "PipelineValidationError",
            "SafeToolset",
            "StepUsage",
            "StreamChunk",
            "Tracer",
        ],
        of_others=RENAMED,
    )
    refuse_namesake()

"""FastroAI: PydanticAI agents in production, with exact cost, budgets, pipelines and tracing.

The names here are the promise to users. Each is loaded when it is first used, so that `import fastroai`
costs next to nothing.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names
from fastroai.renamed import RENAMED

if TYPE_CHECKING:
    from fastroai.agent import AgentConfig as AgentConfig
    from fastroai.agent import AgentStepWrapper as AgentStepWrapper
    from fastroai.agent import AskPeople as AskPeople
    from fastroai.agent import ChatResponse as ChatResponse
    from fastroai.agent import Dispatch as Dispatch
    from fastroai.agent import FastroAgent as FastroAgent
    from fastroai.agent import Metered as Metered
    from fastroai.agent import StreamChunk as StreamChunk
    from fastroai.contracts import Check as Check
    from fastroai.contracts import Contract as Contract
    from fastroai.contracts import ContractRegistry as ContractRegistry
    from fastroai.errors import AnswerCutError as AnswerCutError
    from fastroai.errors import BudgetExceeded as BudgetExceeded
    from fastroai.errors import CallChangedError as CallChangedError
    from fastroai.errors import CircuitOpenError as CircuitOpenError
    from fastroai.errors import ConfigurationError as ConfigurationError
    from fastroai.errors import ContractViolation as ContractViolation
    from fastroai.errors import CostBudgetExceeded as CostBudgetExceeded
    from fastroai.errors import CostBudgetExceededError as CostBudgetExceededError
    from fastroai.errors import DispatchSkippedError as DispatchSkippedError
    from fastroai.errors import ExpressionError as ExpressionError
    from fastroai.errors import FastroAIError as FastroAIError
    from fastroai.errors import ForkedScopeError as ForkedScopeError
    from fastroai.errors import GraphStopped as GraphStopped
    from fastroai.errors import GraphValidationError as GraphValidationError
    from fastroai.errors import MemoryConflict as MemoryConflict
    from fastroai.errors import OnceInterrupted as OnceInterrupted
    from fastroai.errors import PipelineValidationError as PipelineValidationError
    from fastroai.errors import RequestBudgetExceeded as RequestBudgetExceeded
    from fastroai.errors import RunConflict as RunConflict
    from fastroai.errors import RunCorrupt as RunCorrupt
    from fastroai.errors import RunDefinitionChanged as RunDefinitionChanged
    from fastroai.errors import RunExists as RunExists
    from fastroai.errors import RunFromNewerVersion as RunFromNewerVersion
    from fastroai.errors import RunFromOlderVersion as RunFromOlderVersion
    from fastroai.errors import RunInProgress as RunInProgress
    from fastroai.errors import RunNotFound as RunNotFound
    from fastroai.errors import RunStatusConflict as RunStatusConflict
    from fastroai.errors import RunStoreUnavailable as RunStoreUnavailable
    from fastroai.errors import RunTakenOver as RunTakenOver
    from fastroai.errors import SpendLimitExceeded as SpendLimitExceeded
    from fastroai.errors import SpendStoreUnavailable as SpendStoreUnavailable
    from fastroai.errors import StepExecutionError as StepExecutionError
    from fastroai.errors import TimeBudgetExceeded as TimeBudgetExceeded
    from fastroai.errors import TimeLimitExceeded as TimeLimitExceeded
    from fastroai.errors import TokenBudgetExceeded as TokenBudgetExceeded
    from fastroai.errors import UnboundedRequestError as UnboundedRequestError
    from fastroai.errors import UnpricedModelError as UnpricedModelError
    from fastroai.errors import ValueNotStorable as ValueNotStorable
    from fastroai.errors import usage_of as usage_of
    from fastroai.expressions import Expression as Expression
    from fastroai.functions import compute as compute
    from fastroai.functions import contract as contract
    from fastroai.functions import flow as flow
    from fastroai.functions import infer as infer
    from fastroai.functions import opaque as opaque
    from fastroai.functions import refine as refine
    from fastroai.graphs import AgentNode as AgentNode
    from fastroai.graphs import Edge as Edge
    from fastroai.graphs import Graph as Graph
    from fastroai.graphs import GraphConversation as GraphConversation
    from fastroai.graphs import GraphResult as GraphResult
    from fastroai.graphs import Node as Node
    from fastroai.graphs import Send as Send
    from fastroai.graphs import Verdict as Verdict
    from fastroai.human import Inbox as Inbox
    from fastroai.human import send_message as send_message
    from fastroai.pipelines import BasePipeline as BasePipeline
    from fastroai.pipelines import BaseStep as BaseStep
    from fastroai.pipelines import ConversationState as ConversationState
    from fastroai.pipelines import ConversationStatus as ConversationStatus
    from fastroai.pipelines import ExecutionConfig as ExecutionConfig
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
    from fastroai.runtime import DEFAULT_RETRY as DEFAULT_RETRY
    from fastroai.runtime import BudgetRefused as BudgetRefused
    from fastroai.runtime import BudgetWaiting as BudgetWaiting
    from fastroai.runtime import BudgetWarning as BudgetWarning
    from fastroai.runtime import CircuitBreaker as CircuitBreaker
    from fastroai.runtime import FailureClass as FailureClass
    from fastroai.runtime import FailureContext as FailureContext
    from fastroai.runtime import ProviderLimit as ProviderLimit
    from fastroai.runtime import Remaining as Remaining
    from fastroai.runtime import RetryPolicy as RetryPolicy
    from fastroai.runtime import SpendRecorded as SpendRecorded
    from fastroai.runtime import budget_scope as budget_scope
    from fastroai.runtime import classify as classify
    from fastroai.steps import Spend as Spend
    from fastroai.steps import spend as spend
    from fastroai.store import MemoryRunStore as MemoryRunStore
    from fastroai.store import PostgresRunStore as PostgresRunStore
    from fastroai.store import RedisRunStore as RedisRunStore
    from fastroai.store import RunHistory as RunHistory
    from fastroai.store import RunStore as RunStore
    from fastroai.store import RunTrace as RunTrace
    from fastroai.store import SQLiteRunStore as SQLiteRunStore
    from fastroai.store import open_run_store as open_run_store
    from fastroai.store import trace_of as trace_of
    from fastroai.tools import FunctionToolsetBase as FunctionToolsetBase
    from fastroai.tools import SafeToolset as SafeToolset
    from fastroai.tools import safe_tool as safe_tool
    from fastroai.tracing import LogfireTracer as LogfireTracer
    from fastroai.tracing import NoOpTracer as NoOpTracer
    from fastroai.tracing import OpenTelemetryTracer as OpenTelemetryTracer
    from fastroai.tracing import SimpleTracer as SimpleTracer
    from fastroai.tracing import Tracer as Tracer
    from fastroai.tracing import set_redaction as set_redaction
    from fastroai.usage import Budget as Budget
    from fastroai.usage import CostCalculator as CostCalculator
    from fastroai.usage import Endpoint as Endpoint
    from fastroai.usage import ModelFallback as ModelFallback
    from fastroai.usage import Quote as Quote
    from fastroai.usage import SpendBook as SpendBook
    from fastroai.usage import SpendLimit as SpendLimit
    from fastroai.usage import UsageReport as UsageReport
    from fastroai.usage import format_cost as format_cost
    from fastroai.version import __version__ as __version__

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".agent": (
            "AgentConfig",
            "AgentStepWrapper",
            "AskPeople",
            "ChatResponse",
            "Dispatch",
            "FastroAgent",
            "Metered",
            "StreamChunk",
        ),
        ".contracts": ("Check", "Contract", "ContractRegistry"),
        ".errors": (
            "AnswerCutError",
            "BudgetExceeded",
            "CallChangedError",
            "CircuitOpenError",
            "ConfigurationError",
            "ContractViolation",
            "CostBudgetExceeded",
            "CostBudgetExceededError",
            "DispatchSkippedError",
            "ExpressionError",
            "FastroAIError",
            "ForkedScopeError",
            "GraphStopped",
            "GraphValidationError",
            "MemoryConflict",
            "OnceInterrupted",
            "PipelineValidationError",
            "RequestBudgetExceeded",
            "RunConflict",
            "RunCorrupt",
            "RunDefinitionChanged",
            "RunExists",
            "RunFromNewerVersion",
            "RunFromOlderVersion",
            "RunInProgress",
            "RunNotFound",
            "RunStatusConflict",
            "RunStoreUnavailable",
            "RunTakenOver",
            "SpendLimitExceeded",
            "SpendStoreUnavailable",
            "StepExecutionError",
            "TimeBudgetExceeded",
            "TimeLimitExceeded",
            "TokenBudgetExceeded",
            "UnboundedRequestError",
            "UnpricedModelError",
            "ValueNotStorable",
            "usage_of",
        ),
        ".expressions": ("Expression",),
        ".functions": ("compute", "contract", "flow", "infer", "opaque", "refine"),
        ".graphs": (
            "AgentNode",
            "GraphConversation",
            "Edge",
            "Graph",
            "GraphResult",
            "Node",
            "Send",
            "Verdict",
        ),
        ".human": ("Inbox", "send_message"),
        ".pipelines": (
            "BasePipeline",
            "BaseStep",
            "ConversationState",
            "ConversationStatus",
            "ExecutionConfig",
            "Pipeline",
            "PipelineConfig",
            "PipelineResult",
            "PipelineUsage",
            "Service",
            "SplitPipeline",
            "StepConfig",
            "StepContext",
            "StepUsage",
            "step",
        ),
        ".runtime": (
            "BudgetRefused",
            "BudgetWaiting",
            "BudgetWarning",
            "CircuitBreaker",
            "DEFAULT_RETRY",
            "FailureClass",
            "FailureContext",
            "ProviderLimit",
            "Remaining",
            "RetryPolicy",
            "SpendRecorded",
            "budget_scope",
            "classify",
        ),
        ".steps": ("Spend", "spend"),
        ".store": (
            "MemoryRunStore",
            "PostgresRunStore",
            "RedisRunStore",
            "RunHistory",
            "RunStore",
            "RunTrace",
            "SQLiteRunStore",
            "open_run_store",
            "trace_of",
        ),
        ".tools": ("FunctionToolsetBase", "SafeToolset", "safe_tool"),
        ".tracing": (
            "LogfireTracer",
            "NoOpTracer",
            "OpenTelemetryTracer",
            "SimpleTracer",
            "Tracer",
            "set_redaction",
        ),
        ".usage": (
            "Budget",
            "CostCalculator",
            "Endpoint",
            "ModelFallback",
            "Quote",
            "SpendBook",
            "SpendLimit",
            "UsageReport",
            "format_cost",
        ),
        ".version": ("__version__",),
    },
    of_others=RENAMED,
)

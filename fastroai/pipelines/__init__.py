"""Pipelines: steps with dependencies, routers between pipelines, results and events.

The names of `fastroai.steps` are here too.
"""

from fastroai.pipelines.pipeline import Pipeline
from fastroai.pipelines.result import PipelineResult, PipelineUsage
from fastroai.pipelines.router import BasePipeline, SplitPipeline
from fastroai.pipelines.stream import PipelineStream
from fastroai.runs.driving import DrivenRuns, DrivenState, Due
from fastroai.runs.openings import OnExisting
from fastroai.runs.turns import OnBusy
from fastroai.runs.usage import StepTiming
from fastroai.runtime import (
    BudgetRefused,
    BudgetWaiting,
    BudgetWarning,
    ContractViolated,
    RunEvent,
    RunFinished,
    RunStarted,
    SpendRecorded,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepHalted,
    StepRetried,
    StepSkipped,
    StepStarted,
    TextChunk,
)
from fastroai.runtime.facts import FailureFacts, Wait
from fastroai.steps import (
    BaseStep,
    ConversationState,
    ConversationStatus,
    ExecutionConfig,
    FunctionStep,
    PipelineConfig,
    ResolvedConfig,
    StepConfig,
    StepContext,
    StepUsage,
    step,
)

__all__ = [
    "OnBusy",
    "OnExisting",
    "BasePipeline",
    "BaseStep",
    "BudgetRefused",
    "BudgetWaiting",
    "BudgetWarning",
    "ContractViolated",
    "ConversationState",
    "ConversationStatus",
    "DrivenRuns",
    "DrivenState",
    "Due",
    "ExecutionConfig",
    "FailureFacts",
    "FunctionStep",
    "Pipeline",
    "PipelineConfig",
    "PipelineResult",
    "PipelineStream",
    "PipelineUsage",
    "ResolvedConfig",
    "RunEvent",
    "RunFinished",
    "RunStarted",
    "SpendRecorded",
    "SplitPipeline",
    "StepCancelled",
    "StepConfig",
    "StepContext",
    "StepFailed",
    "StepFinished",
    "StepHalted",
    "StepRetried",
    "StepSkipped",
    "StepStarted",
    "StepTiming",
    "StepUsage",
    "TextChunk",
    "Wait",
    "step",
]

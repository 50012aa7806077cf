"""Steps, their context, and their configuration."""

from fastroai.steps.base import BaseStep, FunctionStep, step
from fastroai.steps.config import ExecutionConfig, PipelineConfig, ResolvedConfig, StepConfig
from fastroai.steps.context import StepContext
from fastroai.steps.conversation import ConversationState, ConversationStatus
from fastroai.steps.reserving import Spend, spend
from fastroai.steps.usage import StepUsage

__all__ = [
    "BaseStep",
    "ConversationState",
    "ConversationStatus",
    "ExecutionConfig",
    "FunctionStep",
    "PipelineConfig",
    "ResolvedConfig",
    "Spend",
    "StepConfig",
    "StepContext",
    "StepUsage",
    "spend",
    "step",
]

"""FastroAI: PydanticAI agents in production, with exact cost, budgets, pipelines and tracing.

The names here are the promise to users. Each is loaded when it is first used, so that `import fastroai`
costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastroai.agent import (
        AgentConfig,
        ChatResponse,
        Dispatch,
        FastroAgent,
        Metered,
        StreamChunk,
    )
    from fastroai.errors import (
        BudgetExceeded,
        ConfigurationError,
        CostBudgetExceeded,
        CostBudgetExceededError,
        DispatchSkippedError,
        FastroAIError,
        PipelineValidationError,
        RequestBudgetExceeded,
        SpendLimitExceeded,
        SpendStoreUnavailable,
        StepExecutionError,
        TimeBudgetExceeded,
        TimeLimitExceeded,
        TokenBudgetExceeded,
        UnboundedRequestError,
        UnpricedModelError,
        usage_of,
    )
    from fastroai.pipelines import (
        BasePipeline,
        BaseStep,
        ConversationState,
        ConversationStatus,
        ExecutionConfig,
        Pipeline,
        PipelineConfig,
        PipelineResult,
        PipelineUsage,
        SplitPipeline,
        StepConfig,
        StepContext,
        StepUsage,
        step,
    )
    from fastroai.runtime import (
        BudgetRefused,
        BudgetWarning,
        Remaining,
        SpendRecorded,
        budget_scope,
    )
    from fastroai.tools import FunctionToolsetBase, SafeToolset, safe_tool
    from fastroai.tracing import LogfireTracer, NoOpTracer, OpenTelemetryTracer, SimpleTracer, Tracer
    from fastroai.usage import (
        Budget,
        CostCalculator,
        ModelFallback,
        Quote,
        SpendLimit,
        UsageReport,
        format_cost,
    )

__all__ = [
    "AgentConfig",
    "BasePipeline",
    "BaseStep",
    "Budget",
    "BudgetExceeded",
    "BudgetRefused",
    "BudgetWarning",
    "ChatResponse",
    "ConfigurationError",
    "ConversationState",
    "ConversationStatus",
    "CostBudgetExceeded",
    "CostBudgetExceededError",
    "CostCalculator",
    "Dispatch",
    "DispatchSkippedError",
    "ExecutionConfig",
    "FastroAIError",
    "FastroAgent",
    "FunctionToolsetBase",
    "LogfireTracer",
    "Metered",
    "ModelFallback",
    "NoOpTracer",
    "OpenTelemetryTracer",
    "Pipeline",
    "PipelineConfig",
    "PipelineResult",
    "PipelineUsage",
    "PipelineValidationError",
    "Quote",
    "Remaining",
    "RequestBudgetExceeded",
    "SafeToolset",
    "SimpleTracer",
    "SpendLimit",
    "SpendLimitExceeded",
    "SpendRecorded",
    "SpendStoreUnavailable",
    "SplitPipeline",
    "StepConfig",
    "StepContext",
    "StepExecutionError",
    "StepUsage",
    "StreamChunk",
    "TimeBudgetExceeded",
    "TimeLimitExceeded",
    "TokenBudgetExceeded",
    "Tracer",
    "UnboundedRequestError",
    "UnpricedModelError",
    "UsageReport",
    "__version__",
    "budget_scope",
    "format_cost",
    "safe_tool",
    "step",
    "usage_of",
]

_HOMES = {
    "fastroai.agent": ("AgentConfig", "ChatResponse", "Dispatch", "FastroAgent", "Metered", "StreamChunk"),
    "fastroai.errors": (
        "BudgetExceeded",
        "ConfigurationError",
        "CostBudgetExceeded",
        "CostBudgetExceededError",
        "DispatchSkippedError",
        "FastroAIError",
        "PipelineValidationError",
        "RequestBudgetExceeded",
        "SpendLimitExceeded",
        "SpendStoreUnavailable",
        "StepExecutionError",
        "TimeBudgetExceeded",
        "TimeLimitExceeded",
        "TokenBudgetExceeded",
        "UnboundedRequestError",
        "UnpricedModelError",
        "usage_of",
    ),
    "fastroai.pipelines": (
        "BasePipeline",
        "BaseStep",
        "ConversationState",
        "ConversationStatus",
        "ExecutionConfig",
        "Pipeline",
        "PipelineConfig",
        "PipelineResult",
        "PipelineUsage",
        "SplitPipeline",
        "StepConfig",
        "StepContext",
        "StepUsage",
        "step",
    ),
    "fastroai.runtime": ("BudgetRefused", "BudgetWarning", "Remaining", "SpendRecorded", "budget_scope"),
    "fastroai.tools": ("FunctionToolsetBase", "SafeToolset", "safe_tool"),
    "fastroai.tracing": ("LogfireTracer", "NoOpTracer", "OpenTelemetryTracer", "SimpleTracer", "Tracer"),
    "fastroai.usage": (
        "Budget",
        "CostCalculator",
        "ModelFallback",
        "Quote",
        "SpendLimit",
        "UsageReport",
        "format_cost",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("fastroai")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fastroai' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

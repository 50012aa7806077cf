"""Pipelines: steps with dependencies, routers between pipelines, results and events.

The names of `fastroai.steps` are here too.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.pipelines.fallbacks import FallbackOn as FallbackOn
    from fastroai.pipelines.pipeline import Pipeline as Pipeline
    from fastroai.pipelines.result import PipelineResult as PipelineResult
    from fastroai.pipelines.result import PipelineStream as PipelineStream
    from fastroai.pipelines.result import PipelineUsage as PipelineUsage
    from fastroai.pipelines.router import BasePipeline as BasePipeline
    from fastroai.pipelines.router import SplitPipeline as SplitPipeline
    from fastroai.runs.openings import OnExisting as OnExisting
    from fastroai.runs.progress.progress import OnProgress as OnProgress
    from fastroai.runs.progress.progress import Progress as Progress
    from fastroai.runs.progress.showing import ShowProgress as ShowProgress
    from fastroai.runs.running.turns import OnBusy as OnBusy
    from fastroai.runs.taking_up.serving import Service as Service
    from fastroai.runs.usage import StepTiming as StepTiming
    from fastroai.runtime.events import BudgetRefused as BudgetRefused
    from fastroai.runtime.events import BudgetWaiting as BudgetWaiting
    from fastroai.runtime.events import BudgetWarning as BudgetWarning
    from fastroai.runtime.events import ContractViolated as ContractViolated
    from fastroai.runtime.events import RequestWaited as RequestWaited
    from fastroai.runtime.events import SpendRecorded as SpendRecorded
    from fastroai.runtime.events import TextChunk as TextChunk
    from fastroai.runtime.fact_base import Begins as Begins
    from fastroai.runtime.fact_base import Ends as Ends
    from fastroai.runtime.fact_base import Fact as Fact
    from fastroai.runtime.fact_base import FailureFacts as FailureFacts
    from fastroai.runtime.fact_base import Notes as Notes
    from fastroai.runtime.fact_base import RunEvent as RunEvent
    from fastroai.runtime.fact_base import RunFact as RunFact
    from fastroai.runtime.facts import AgentCallEnded as AgentCallEnded
    from fastroai.runtime.facts import AnswerGiven as AnswerGiven
    from fastroai.runtime.facts import AnyFact as AnyFact
    from fastroai.runtime.facts import CallChanged as CallChanged
    from fastroai.runtime.facts import CallEnded as CallEnded
    from fastroai.runtime.facts import CallLeftOver as CallLeftOver
    from fastroai.runtime.facts import OnceDone as OnceDone
    from fastroai.runtime.facts import OnceFailed as OnceFailed
    from fastroai.runtime.facts import OnceStarted as OnceStarted
    from fastroai.runtime.facts import PauseRequested as PauseRequested
    from fastroai.runtime.facts import QuestionAsked as QuestionAsked
    from fastroai.runtime.facts import ReasonCode as ReasonCode
    from fastroai.runtime.facts import ReplayDiverged as ReplayDiverged
    from fastroai.runtime.facts import RequestEnded as RequestEnded
    from fastroai.runtime.facts import RequestInBatch as RequestInBatch
    from fastroai.runtime.facts import RequestSent as RequestSent
    from fastroai.runtime.facts import RunFinished as RunFinished
    from fastroai.runtime.facts import RunResumed as RunResumed
    from fastroai.runtime.facts import RunStarted as RunStarted
    from fastroai.runtime.facts import SpendingRecorded as SpendingRecorded
    from fastroai.runtime.facts import StepCancelled as StepCancelled
    from fastroai.runtime.facts import StepFact as StepFact
    from fastroai.runtime.facts import StepFailed as StepFailed
    from fastroai.runtime.facts import StepFinished as StepFinished
    from fastroai.runtime.facts import StepHalted as StepHalted
    from fastroai.runtime.facts import StepRetried as StepRetried
    from fastroai.runtime.facts import StepSkipped as StepSkipped
    from fastroai.runtime.facts import StepStarted as StepStarted
    from fastroai.runtime.facts import StopRequested as StopRequested
    from fastroai.runtime.facts import ToolEnded as ToolEnded
    from fastroai.runtime.facts import UnknownFact as UnknownFact
    from fastroai.runtime.facts import Wait as Wait
    from fastroai.runtime.facts import WaitEnded as WaitEnded
    from fastroai.runtime.facts import WaitStarted as WaitStarted
    from fastroai.steps import BaseStep as BaseStep
    from fastroai.steps import ConversationState as ConversationState
    from fastroai.steps import ConversationStatus as ConversationStatus
    from fastroai.steps import ExecutionConfig as ExecutionConfig
    from fastroai.steps import FunctionStep as FunctionStep
    from fastroai.steps import PipelineConfig as PipelineConfig
    from fastroai.steps import ResolvedConfig as ResolvedConfig
    from fastroai.steps import Spend as Spend
    from fastroai.steps import StepConfig as StepConfig
    from fastroai.steps import StepContext as StepContext
    from fastroai.steps import StepUsage as StepUsage
    from fastroai.steps import step as step
    from fastroai.store.record.declarations import OnChanged as OnChanged
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        unlisted=[
            "AnyFact",
            "Begins",
            "Ends",
            "FallbackOn",
            "Notes",
            "OnBusy",
            "OnChanged",
            "OnExisting",
            "OnProgress",
            "ReasonCode",
            "ResolvedConfig",
            "RunFact",
            "ShowProgress",
            "StepFact",
            "StepTiming",
        ],
    )

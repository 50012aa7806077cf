"""Typed AI functions: a signature and a contract, whose implementation is a model."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.errors import FastroAIWarning as FastroAIWarning
    from fastroai.errors import FlowStopped as FlowStopped
    from fastroai.functions.computing import ComputeFunction as ComputeFunction
    from fastroai.functions.computing import compute as compute
    from fastroai.functions.configuring import Configuration as Configuration
    from fastroai.functions.configuring import configuration as configuration
    from fastroai.functions.configuring import configure as configure
    from fastroai.functions.configuring import configured as configured
    from fastroai.functions.configuring import reset as reset
    from fastroai.functions.declaring.contracts import contract as contract
    from fastroai.functions.declaring.opacity import opaque as opaque
    from fastroai.functions.declaring.schemas import hash_of as hash_of
    from fastroai.functions.declaring.schemas import schema_of as schema_of
    from fastroai.functions.errors import CompileError as CompileError
    from fastroai.functions.errors import ConsensusFailure as ConsensusFailure
    from fastroai.functions.errors import ConvergenceFailure as ConvergenceFailure
    from fastroai.functions.errors import FailedAttempt as FailedAttempt
    from fastroai.functions.errors import FlowDiverged as FlowDiverged
    from fastroai.functions.errors import HumanTimeoutError as HumanTimeoutError
    from fastroai.functions.errors import ParallelFailed as ParallelFailed
    from fastroai.functions.errors import ParallelValidationFailed as ParallelValidationFailed
    from fastroai.functions.errors import ParseFailure as ParseFailure
    from fastroai.functions.errors import PostconditionFailed as PostconditionFailed
    from fastroai.functions.errors import PreconditionFailed as PreconditionFailed
    from fastroai.functions.errors import StabilityAssertionError as StabilityAssertionError
    from fastroai.functions.flow_runs.flows import Flow as Flow
    from fastroai.functions.flow_runs.flows import flow as flow
    from fastroai.functions.flow_runs.people import HumanDecision as HumanDecision
    from fastroai.functions.flow_runs.people import HumanReviewContext as HumanReviewContext
    from fastroai.functions.flow_runs.people import await_human as await_human
    from fastroai.functions.function import Function as Function
    from fastroai.functions.inferring import InferFunction as InferFunction
    from fastroai.functions.inferring import infer as infer
    from fastroai.functions.kept_calls import KeptCall as KeptCall
    from fastroai.functions.kept_calls import call_records as call_records
    from fastroai.functions.prompt import CompiledPrompt as CompiledPrompt
    from fastroai.functions.refining import refine as refine
    from fastroai.functions.running import run as run
    from fastroai.functions.several.debating import debate as debate
    from fastroai.functions.several.outcomes import Failure as Failure
    from fastroai.functions.several.outcomes import Success as Success
    from fastroai.functions.several.probabilistic import Probabilistic as Probabilistic
    from fastroai.functions.several.side_by_side import parallel as parallel
    from fastroai.functions.several.side_by_side import race as race
    from fastroai.records import CallRecord as CallRecord
    from fastroai.usage import Budget as Budget
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        # `Budget`, `FastroAIWarning` and `FlowStopped` are public elsewhere. They are here, too, so that a
        # program of Stratum has one import to change.
        unlisted=["Budget", "FastroAIWarning", "FlowStopped", "Function", "KeptCall"],
        of_others={
            "exporters": "configure(tracer=OpenTelemetryTracer())",
            "StratumError": "FastroAIError, in fastroai.errors",
            "StratumCompileError": "CompileError",
            "StratumWarning": "FastroAIWarning",
            "HITLTimeoutError": "HumanTimeoutError",
            "TraceRecord": "CallRecord",
            "all_records": "call_records(), or the `records` of a function or flow",
            "clear_traces": "call_records(after=...), with the number of the last call that you have seen",
            "ReviewSink": "configure(review_sink=function), which is called with each question",
            "ConsoleReviewSink": "nothing: without a store, questions are asked at the terminal",
            "PendingReview": "fastroai.human.Question, which Inbox(store).answer(question.id, value) answers",
        },
    )

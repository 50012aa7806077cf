"""Workflows: typed specs in YAML, driven by a coding agent over MCP or run by FastroAI itself."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.workflows.answers import AuditAnswer as AuditAnswer
    from fastroai.workflows.answers import AwaitGate as AwaitGate
    from fastroai.workflows.answers import Committed as Committed
    from fastroai.workflows.answers import ErrorAnswer as ErrorAnswer
    from fastroai.workflows.answers import ExecuteFlow as ExecuteFlow
    from fastroai.workflows.answers import ExecuteStep as ExecuteStep
    from fastroai.workflows.answers import FlowEnded as FlowEnded
    from fastroai.workflows.answers import FlowList as FlowList
    from fastroai.workflows.answers import IterationAnswer as IterationAnswer
    from fastroai.workflows.answers import NoTimeout as NoTimeout
    from fastroai.workflows.answers import ReportedUsage as ReportedUsage
    from fastroai.workflows.driven_flows import WorkflowRuns as WorkflowRuns
    from fastroai.workflows.errors import ResultRejected as ResultRejected
    from fastroai.workflows.errors import WorkflowProblem as WorkflowProblem
    from fastroai.workflows.errors import WorkflowValidationError as WorkflowValidationError
    from fastroai.workflows.facts import CheckpointRestored as CheckpointRestored
    from fastroai.workflows.facts import CheckpointSet as CheckpointSet
    from fastroai.workflows.facts import IterationAborted as IterationAborted
    from fastroai.workflows.facts import IterationReported as IterationReported
    from fastroai.workflows.facts import IterationStarted as IterationStarted
    from fastroai.workflows.facts import SkipRequested as SkipRequested
    from fastroai.workflows.result import WorkflowResult as WorkflowResult
    from fastroai.workflows.result import WorkflowUsage as WorkflowUsage
    from fastroai.workflows.spec.catalog import find_specs as find_specs
    from fastroai.workflows.spec.document import WorkflowSpec as WorkflowSpec
    from fastroai.workflows.spec.drafting import PhaseDraft as PhaseDraft
    from fastroai.workflows.spec.drafting import PipelineDraft as PipelineDraft
    from fastroai.workflows.spec.drafting import draft_spec as draft_spec
    from fastroai.workflows.spec.drawing import draw_flow as draw_flow
    from fastroai.workflows.spec.reading import load_spec as load_spec
    from fastroai.workflows.spec.speckit import compile_speckit as compile_speckit
    from fastroai.workflows.workflow import BoundWorkflow as BoundWorkflow
    from fastroai.workflows.workflow import Workflow as Workflow
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        unlisted=["Committed", "ErrorAnswer", "FlowList", "IterationAnswer", "NoTimeout", "ReportedUsage"],
    )

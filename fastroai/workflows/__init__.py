"""Workflows: typed specs in YAML, driven by a coding agent over MCP or run by FastroAI itself."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.errors import ResultRejected as ResultRejected
    from fastroai.errors import WorkflowValidationError as WorkflowValidationError
    from fastroai.workflows.flows import WorkflowRuns as WorkflowRuns
    from fastroai.workflows.result import WorkflowResult as WorkflowResult
    from fastroai.workflows.result import WorkflowUsage as WorkflowUsage
    from fastroai.workflows.spec.document import WorkflowSpec as WorkflowSpec
    from fastroai.workflows.spec.reading import load_spec as load_spec
    from fastroai.workflows.workflow import BoundWorkflow as BoundWorkflow
    from fastroai.workflows.workflow import Workflow as Workflow

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".flows": ("WorkflowRuns",),
        ".result": ("WorkflowResult", "WorkflowUsage"),
        ".spec.document": ("WorkflowSpec",),
        ".spec.reading": ("load_spec",),
        ".workflow": ("BoundWorkflow", "Workflow"),
        "fastroai.errors": ("ResultRejected", "WorkflowValidationError"),
    },
)

"""Pipelines and routers inside a step."""

from __future__ import annotations

from typing import Any

from fastroai.errors import ConfigurationError, StepExecutionError
from fastroai.pipelines.result import OutputT, PipelineResult
from fastroai.steps import StepContext
from fastroai.steps.context import scope_of


def output_inside(result: PipelineResult[OutputT], context: StepContext[Any]) -> OutputT:
    """Return the output of a step that ran a pipeline.

    A conversation that stopped the pipeline stops the outer run, too.

    Raises:
        StepExecutionError: the output step of the pipeline did not run, because of a failure inside.
        ConfigurationError: the pipeline is paused on a record of its own, as the run around has none.
    """
    scope_of(context).degraded |= result.quality == "degraded"
    if result.stopped_early:
        return result.conversation_state  # type: ignore[return-value]  # the outer runner looks for it
    if result.status == "paused":
        expected = (
            f"a store for the outermost run, because the pipeline of step {context.step_id!r} is paused as "
            f"{result.run_id!r} ({result.reason}), and only a stored run can wait for it"
        )
        raise ConfigurationError("store", None, expected)
    check_output(result)
    return result.output  # type: ignore[return-value]  # OutputT may itself include None


def check_output(result: PipelineResult[Any]) -> None:
    """Raise `StepExecutionError` if the output step did not run, because of a failure inside."""
    is_over = not result.stopped_early and result.status != "paused"
    if is_over and result.output_step not in result.step_outputs:
        step_id, error = next(iter(result.errors.items()))
        raise StepExecutionError(step_id, error) from error

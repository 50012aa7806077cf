"""Pipelines and routers inside a step."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol

from fastroai.errors import StepExecutionError
from fastroai.pipelines.result import OutputT, PipelineResult
from fastroai.steps import StepContext


class GivesResult(Protocol[OutputT]):
    """A pipeline or a router."""

    async def execute(
        self,
        inputs: Mapping[str, Any] | None = None,
        deps: Any = None,
        *,
        context: MutableMapping[str, Any] | None = None,
    ) -> PipelineResult[OutputT]:
        """Run to the result."""
        ...


async def output_inside(
    inner: GivesResult[OutputT], inputs: Mapping[str, Any], context: StepContext[Any]
) -> OutputT:
    """What a step gives that runs a pipeline; a conversation that stopped it stops the outer run too.

    Raises:
        StepExecutionError: its output step did not run, because of a failure inside.
    """
    result = await inner.execute(inputs, context.deps, context=context.shared)
    context.scope.degraded |= result.quality == "degraded"
    if result.stopped_early:
        return result.conversation_state  # type: ignore[return-value]  # the outer runner looks for it
    if result.output_step not in result.step_outputs:
        step_id, error = next(iter(result.errors.items()))
        raise StepExecutionError(step_id, error) from error
    return result.output  # type: ignore[return-value]  # OutputT may itself include None

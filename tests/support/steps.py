"""Running one step for real, in a pipeline of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fastroai.errors import StepExecutionError
from fastroai.pipelines import BaseStep, Pipeline, PipelineResult, StepContext, step


async def run_alone(
    alone: BaseStep[Any, Any] | Callable[[StepContext[Any]], Awaitable[Any]],
    *,
    inputs: dict[str, Any] | None = None,
    deps: Any = None,
    tracer: Any = None,
    **pipeline_options: Any,
) -> PipelineResult[Any]:
    """The result of a pipeline `p` whose only step is `alone`."""
    one = alone if isinstance(alone, BaseStep) else step(alone)
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"alone": one}, **pipeline_options)
    return await pipeline.execute(inputs, deps, tracer)


async def failure_of(
    alone: BaseStep[Any, Any] | Callable[[StepContext[Any]], Awaitable[Any]], **options: Any
) -> BaseException:
    """What the step fails with."""
    with pytest.raises(StepExecutionError) as caught:
        await run_alone(alone, **options)
    return caught.value.original_error

"""Steps of a pipeline or graph, replaced for a test."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.graphs import Graph
from fastroai.pipelines import Pipeline
from fastroai.steps import BaseStep, StepContext


@contextmanager
def replaced(
    composed: Pipeline[Any, Any, Any] | Graph[Any, Any, Any], steps: Mapping[str, object]
) -> Iterator[None]:
    """Replace steps of a pipeline, or nodes of a graph, by their ids, until the end of the `with` block.

        with replaced(support, {"classify": "billing", "look_up": TimeoutError("no answer")}):
            result = await support.run({"text": "Where is my refund?"})

    A replacement is the output of the step, an exception or class of exceptions that every attempt raises, a
    function of the `StepContext`, async or not, that returns the output, or another step. Anything else that
    can be called is called as a function, too, so it cannot be an output. Settings, retries, time limits,
    contracts and hooks of the replaced step still apply. The replacement holds in all runs, threads and tasks
    of this process, also where the step is used elsewhere under the same id. To replace a step of a nested
    pipeline, pass that pipeline.

    Raises:
        ConfigurationError: the pipeline or graph has no step with one of these ids. Then nothing is replaced.
    """
    if isinstance(composed, Graph):
        known: Mapping[str, BaseStep[Any, Any]] = {name: node.step for name, node in composed.nodes.items()}
    else:
        known = composed.steps
    for step_id in steps:
        if step_id not in known:
            expected = f"ids of steps of {composed.name!r}: {', '.join(known)}.{nearest_hint(step_id, known)}"
            raise ConfigurationError("steps", step_id, expected)
    with ExitStack() as stack:
        for step_id, replacement in steps.items():
            # On the object, so that whoever runs the step, and however, runs the replacement.
            execute = _execute(step_id, known[step_id].execute, replacement)
            stack.enter_context(patch.object(known[step_id], "execute", execute))
        yield


def _execute(
    step_id: str, original: Callable[[StepContext[Any]], Awaitable[Any]], replacement: object
) -> Callable[[StepContext[Any]], Awaitable[Any]]:
    async def execute(context: StepContext[Any]) -> Any:
        if context.step_id != step_id:
            return await original(context)
        if isinstance(replacement, BaseException) or (
            isinstance(replacement, type) and issubclass(replacement, BaseException)
        ):
            raise replacement
        if isinstance(replacement, BaseStep):
            return await replacement.execute(context)
        if not callable(replacement):
            return replacement
        output = replacement(context)
        return await output if inspect.isawaitable(output) else output

    return execute

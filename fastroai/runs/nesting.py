"""What runs steps, as a step: pipelines, routers, graphs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from pydantic import JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.steps import BaseStep, StepConfig, StepContext
from fastroai.steps.base import DepsT, OutputT, OutputT_co
from fastroai.steps.estimating import InputsToCome, OutputNotKnown
from fastroai.usage import Quote


class Executable(Protocol[OutputT_co]):
    """What can be nested: it runs inputs to an output."""

    @property
    def definition(self) -> JsonValue:
        """Its shape, as plain data."""
        ...

    async def run_inside(self, inputs: Mapping[str, Any], context: StepContext[Any]) -> OutputT_co:
        """Run inside a step, to what that gives; the scope of the step knows afterwards if it was degraded.

        A conversation that stops it is what the step gives, so that it stops the outer run too.

        Raises:
            StepExecutionError: there is no output, because of a failure inside.
        """
        ...

    @property
    def estimate(self) -> Callable[[Any, Any], Awaitable[Quote]]:
        """What that costs, with these inputs and deps."""
        ...

    def declared_output(self) -> Annotation | None:
        """The type that its output is declared to have."""
        ...


class NestedStep(BaseStep[DepsT, OutputT]):
    """Runs a pipeline, router or graph inside a step; made by `as_step`. Its usage is part of the step's."""

    checks_output_itself = True

    def __init__(
        self,
        inner: Executable[OutputT],
        inputs: Callable[[StepContext[DepsT]], Mapping[str, Any]] | None,
        config: StepConfig,
    ) -> None:
        self.inner, self.inputs, self.config = inner, inputs, config

    def __repr__(self) -> str:
        return f"<step of {self.inner!r}>"

    def inferred_output(self) -> Annotation | None:
        """What is declared inside."""
        return self.inner.declared_output()

    async def execute(self, context: StepContext[DepsT]) -> OutputT:
        """Run what is nested. Raises `StepExecutionError` if a failure inside left it without an output."""
        return await self.inner.run_inside(self._make_inputs(context), context)

    async def estimate(self, context: StepContext[DepsT]) -> Quote:
        """The quote of what is nested, with those of its inputs that are known."""
        inputs: Mapping[str, object]
        try:
            inputs = self._make_inputs(context)
        except OutputNotKnown as missing:
            if self.inputs is None:
                to_come = {step_id: step_id for step_id in context.dependencies}
                inputs = InputsToCome(context.inputs, to_come, None)
            else:
                inputs = InputsToCome({}, {}, missing.step_id)
        return (await self.inner.estimate(inputs, context.deps)).retried(context.config.retries)

    def _make_inputs(self, context: StepContext[DepsT]) -> Mapping[str, Any]:
        if self.inputs is not None:
            return self.inputs(context)
        return {**context.inputs, **context.direct_outputs}


def definition_inside(step: BaseStep[Any, Any]) -> JsonValue:
    """The definition of what a step runs; `None` for any other step."""
    if not isinstance(step, NestedStep):
        return None
    inner: Executable[Any] = step.inner
    return inner.definition

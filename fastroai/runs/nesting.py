"""Pipelines and routers as steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol

from pydantic import JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.errors import StepExecutionError
from fastroai.pipelines.result import OutputT, PipelineResult
from fastroai.steps import BaseStep, StepConfig, StepContext
from fastroai.steps.base import DepsT
from fastroai.steps.estimating import InputsToCome, OutputNotKnown
from fastroai.usage import Quote


class Executable(Protocol[OutputT]):
    """What can be nested: it runs inputs to a `PipelineResult`."""

    @property
    def definition(self) -> JsonValue:
        """Its shape, as plain data."""
        ...

    async def execute(
        self,
        inputs: Mapping[str, Any] | None = None,
        deps: Any = None,
        *,
        context: MutableMapping[str, Any] | None = None,
    ) -> PipelineResult[OutputT]:
        """Run to the result."""
        ...

    async def estimate(self, inputs: Mapping[str, Any] | None = None, deps: Any = None) -> Quote:
        """What that costs."""
        ...

    def declared_output(self) -> Annotation | None:
        """The type that its output is declared to have."""
        ...


class NestedStep(BaseStep[DepsT, OutputT]):
    """Runs a pipeline or router inside a step; made by `as_step`. Its usage is part of the step's."""

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
        """What the nested pipeline declares."""
        return self.inner.declared_output()

    async def execute(self, context: StepContext[DepsT]) -> OutputT:
        """Run what is nested; a conversation that stopped it stops the outer run too.

        Raises:
            StepExecutionError: its output step did not run, because of a failure inside.
        """
        result = await self.inner.execute(self._make_inputs(context), context.deps, context=context.shared)
        context.scope.degraded |= result.quality == "degraded"
        if result.stopped_early:
            return result.conversation_state  # type: ignore[return-value]  # the outer runner looks for it
        if result.output_step not in result.step_outputs:
            step_id, error = next(iter(result.errors.items()))
            raise StepExecutionError(step_id, error) from error
        return result.output  # type: ignore[return-value]  # OutputT may itself include None

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

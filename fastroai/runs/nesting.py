"""Pipelines, routers and graphs as steps of other runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from pydantic import JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError
from fastroai.records import first_given
from fastroai.steps import BaseStep, StepConfig, StepContext
from fastroai.steps.base import DepsT, OutputT, OutputT_co
from fastroai.steps.estimating import InputsToCome, OutputNotKnown
from fastroai.usage import Quote

NO_TIMEOUT: Final = (
    "total_timeout for a step that runs a pipeline, router, graph or flow. Its clock would stand still while "
    "that runs; a timeout for the steps inside goes into the config of what is nested"
)
"""What is expected in place of the `timeout` of a nested step."""


class Executable(Protocol[OutputT_co]):
    """A pipeline, router or graph that can be nested: it takes inputs and gives an output."""

    @property
    def definition(self) -> JsonValue:
        """The shape, as plain data."""
        ...

    async def run_inside(self, inputs: Mapping[str, Any], context: StepContext[Any]) -> OutputT_co:
        """Run inside a step, and return the output of the step. Its scope is marked if the run was degraded.

        An incomplete conversation inside becomes the output of the step, so that it stops the outer run, too.

        Raises:
            StepExecutionError: there is no output, because of a failure inside.
        """
        ...

    @property
    def estimate(self) -> Callable[[Any, Any], Awaitable[Quote]]:
        """Function that returns the quote of a run with these inputs and deps."""
        ...

    def declared_output(self) -> Annotation | None:
        """Return the declared type of the output; `None` without one."""
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
        if sets_timeout(config):
            raise ConfigurationError("timeout", config.timeout, NO_TIMEOUT)
        self.inner, self.inputs, self.config = inner, inputs, config

    def __repr__(self) -> str:
        return f"<step of {self.inner!r}>"

    def inferred_output(self) -> Annotation | None:
        """Return the output type that the nested pipeline, router or graph declares."""
        return self.inner.declared_output()

    async def execute(self, context: StepContext[DepsT]) -> OutputT:
        """Run the nested pipeline, router or graph. Raises `StepExecutionError` if it has no output."""
        return await self.inner.run_inside(self._make_inputs(context), context)

    async def estimate(self, context: StepContext[DepsT]) -> Quote:
        """Return the quote of the nested pipeline, router or graph, by the inputs that are known."""
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


def sets_timeout(config: object) -> bool:
    """Return whether a config of a step sets a `timeout`, which a nested step has no use for."""
    return isinstance(config, StepConfig) and first_given(config.timeout, default=None) is not None


def definition_inside(step: BaseStep[Any, Any]) -> JsonValue:
    """Return the definition of the pipeline, router or graph that a step runs; `None` for any other step."""
    if not isinstance(step, NestedStep):
        return None
    inner: Executable[Any] = step.inner
    return inner.definition

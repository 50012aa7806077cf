"""The body of a flow, as the only step of its pipeline."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fastroai.contracts.annotations import Annotation
from fastroai.functions.declaring.signature import Signature
from fastroai.functions.flow_runs.flow_run import FlowRun
from fastroai.steps import BaseStep, StepContext
from fastroai.steps.context import scope_of
from fastroai.usage import Quote


@dataclass(frozen=True, eq=False)
class FlowBody(BaseStep[Any, Any]):
    """The step that calls the function of a flow."""

    opens_span = False
    goes_on = True
    checks_output_itself = True

    name: str
    """The name of the flow."""
    function: Callable[..., Coroutine[Any, Any, Any]]
    signature: Signature
    calls_at_once: Callable[[], int | None]
    """Function that returns the most calls that the body makes at once; `None` for any number."""

    def inferred_output(self) -> Annotation | None:
        """Return the annotated result type of the function."""
        return self.signature.returns.annotation

    async def estimate(self, context: StepContext[Any]) -> Quote:
        """Return an unknown quote, because the body may call anything."""
        return Quote.unknown("its body is code, which may call anything; give it a budget: @flow(budget=...)")

    async def execute(self, context: StepContext[Any]) -> Any:
        """Call the function, and compare its calls with the record."""
        scope, at_once = scope_of(context), self.calls_at_once()
        bound = inspect.BoundArguments(inspect.signature(self.function), {**context.inputs})
        scope.calls_at_once = None if at_once is None else asyncio.Semaphore(at_once)
        flow_run = FlowRun(self.name, self.signature, scope)
        scope.flow_run = flow_run
        with flow_run.following(scope):
            return self.signature.check_output(await self.function(*bound.args, **bound.kwargs))

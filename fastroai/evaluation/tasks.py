"""What is evaluated: agents, typed functions, pipelines, graphs, flows and functions, as tasks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, get_type_hints, overload

from pydantic import JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError
from fastroai.evaluation.code import code_digest, plain
from fastroai.evaluation.results import metrics_of
from fastroai.rows.door import MapsRows
from fastroai.rows.options import RowOptions
from fastroai.rows.run import RowRun
from fastroai.rows.source import inputs_of_row
from fastroai.rows.table import RowFailed
from fastroai.rows.target import RowCall, RowTarget, check_deps
from fastroai.runs.request import RunRequest
from fastroai.runtime.concurrency.threads import run_in_thread
from fastroai.steps import PipelineConfig
from fastroai.usage import Quote

T = TypeVar("T")

Variant: TypeAlias = MapsRows[T] | Callable[[Any], T | Awaitable[T]]
"""Something to evaluate: an agent, a typed function, a pipeline, graph, router or flow, or a function of the
inputs, sync or async."""

_NO_CONFIG: Final = PipelineConfig()
_INPUTS: Final = "inputs"


async def call_in_thread(function: Callable[[Any], Any], given: object, name: str) -> Any:
    """Call a function, in a thread if it is not async, and await what it returns if that can be awaited."""
    if inspect.iscoroutinefunction(function):
        return await function(given)
    made = await run_in_thread(partial(function, given), what=name)
    return await made if inspect.isawaitable(made) else made


class CodeRows:
    """Code of the user as what rows are given to: the parts that tasks and evaluators share."""

    parameters: Mapping[str, bool] | None = None
    makes_runs: bool = False
    takes_deps: bool = True
    config: PipelineConfig = _NO_CONFIG

    def check_batches(self) -> None:
        """Refuse: code sends no requests that could be in a batch. Raises `ConfigurationError`."""
        raise ConfigurationError("batch", True, "an agent or a typed function; this is code")

    def bind(self, values: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the inputs as they are."""
        return values

    async def quote(self, inputs: Mapping[str, Any], deps: object) -> Quote:
        """Say that the cost is not known."""
        return Quote.unknown("it is code")


@dataclass(frozen=True)
class CallableRows(CodeRows, Generic[T]):
    """A plain function as what rows are given to: it gets the inputs of a case as its only argument."""

    function: Callable[[Any], T | Awaitable[T]]
    kind: str = "function"

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @cached_property
    def returns(self) -> Annotation | None:
        """The type that it is annotated to return."""
        try:
            return get_type_hints(self.function).get("return")
        except (TypeError, NameError):  # it is no function, or its annotations name what cannot be found
            return None

    def as_json(self, inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the inputs as JSON."""
        return {_INPUTS: plain(inputs[_INPUTS])}

    def declares(self) -> Mapping[str, str]:
        """Return a hash of the code."""
        return {"code": code_digest(self.function)}

    async def call(self, inputs: Mapping[str, Any], how: RowCall) -> T:
        """Call the function."""
        return cast("T", await call_in_thread(self.function, inputs[_INPUTS], self.name))


def target_of(variant: object, option: str) -> RowTarget[Any]:
    """Return a variant as what rows are given to.

    Raises:
        ConfigurationError: it can't be evaluated.
    """
    if isinstance(variant, MapsRows):
        return variant.rows_target()
    if callable(variant) and not isinstance(variant, type):
        return CallableRows(variant)
    expected = (
        "an agent, a typed function, a pipeline, graph, router or flow, or a function of the inputs; "
        "for an Agent of PydanticAI, FastroAgent(agent=...)"
    )
    raise ConfigurationError(option, variant, expected)


def inputs_for(target: RowTarget[Any], given: object) -> Mapping[str, object]:
    """Return the inputs of a case by name. Raises `ValueError` or `TypeError` as `inputs_of_row`."""
    if isinstance(target, CallableRows):
        return {_INPUTS: given}
    return inputs_of_row(given, target.parameters, None, target.name)


@overload
def task(
    variant: MapsRows[T], *, deps: object = None, retries: int | None = None
) -> Callable[[Any], Awaitable[T]]: ...
@overload
def task(
    variant: Callable[[Any], Awaitable[T]], *, deps: object = None, retries: int | None = None
) -> Callable[[Any], Awaitable[T]]: ...
@overload
def task(
    variant: Callable[[Any], T], *, deps: object = None, retries: int | None = None
) -> Callable[[Any], Awaitable[T]]: ...
def task(variant: Any, *, deps: object = None, retries: int | None = None) -> Callable[[Any], Awaitable[Any]]:
    """Return an agent, function, pipeline, graph, router or flow as a task for `pydantic_evals`.

        report = await dataset.evaluate(task(support))

    The task is an async function of the inputs of a case, and returns the output. Its errors are those of the
    variant. Each case has the metrics `cost_usd`, `total_tokens`, `request_count` and `attempts`, except
    those that are 0. pydantic_evals keeps none for a case on which the task fails.

    Args:
        variant: What is run on each case. Inputs that are a mapping are given by name; any other value is the
            only argument. A plain function gets the inputs as they are.
        deps: As in `run` or `execute` of the variant.
        retries: As in `map`: extra attempts at a case that has failed.

    Raises:
        ConfigurationError: `variant` cannot be evaluated, `retries` is not a whole number from 0, or `deps`
            are given for a typed function or flow, which takes none.
    """
    target = target_of(variant, "variant")
    check_deps(target, deps)
    inputs_of = partial(inputs_for, target)
    options = RowOptions(inputs=inputs_of, concurrency=1, retries=retries, on_error="stop")

    async def run(inputs: Any) -> Any:
        request: RunRequest[Any] = RunRequest(deps=deps)
        try:
            table = await RowRun(target, [inputs], options, request, None).table()
        except RowFailed as failed:
            raise failed.__cause__ or failed from None
        return await _record(table)

    run.__name__ = target.name
    return run


async def _record(table: Any) -> Any:
    """Tell pydantic_evals the metrics of the only row, and return its output."""
    output: Any = None
    async for row in table:
        output = row.output
        if (evals := sys.modules.get("pydantic_evals.dataset")) is not None:
            for name, amount in metrics_of(row.usage, row.attempts).items():
                evals.increment_eval_metric(name, amount)
    return output

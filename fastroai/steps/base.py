"""What a step is: a class, a decorated function, or an agent behind `as_step`."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast, overload

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError
from fastroai.records import NOT_GIVEN, NotGiven
from fastroai.steps.config import OnError, StepConfig
from fastroai.usage import BudgetLike, Quote

if TYPE_CHECKING:
    from fastroai.steps.context import StepContext

DepsT = TypeVar("DepsT", default=Any)
OutputT = TypeVar("OutputT", default=Any)
# A step that needs less of the deps, or nothing, fits where more is given.
DepsT_contra = TypeVar("DepsT_contra", default=Any, contravariant=True)
OutputT_co = TypeVar("OutputT_co", default=Any, covariant=True)

StepFunction: TypeAlias = (
    "Callable[[StepContext[DepsT]], Awaitable[OutputT]] | Callable[[StepContext[DepsT]], OutputT]"
)


class BaseStep(ABC, Generic[DepsT_contra, OutputT_co]):
    """One unit of work in a pipeline.

    Subclass it for steps with state of their own; `config` may be set on the class or on an instance.

        class Classify(BaseStep[Deps, Category]):
            config = StepConfig(timeout=30)

            async def execute(self, context: StepContext[Deps]) -> Category:
                response = await context.run(classifier, context.get_input("text"))
                return response.output
    """

    config: StepConfig = StepConfig()

    @abstractmethod
    def execute(self, context: StepContext[DepsT_contra]) -> Awaitable[OutputT_co]:
        """Do the work. Write it as `async def`."""

    async def estimate(self, context: StepContext[DepsT_contra]) -> Quote:
        """What the step costs, told before the pipeline runs; its budget need not be taken into account.

        A step is arbitrary code, so nothing is known unless you say it. The context has the inputs and the
        deps; outputs of other steps are not there yet, and nothing can be spent. Count the retries too:
        `quote.retried(context.config.retries)`.
        """
        return Quote.unknown(
            "arbitrary code, which may call models; give it a budget, or an estimate() of its own"
        )


class FunctionStep(BaseStep[DepsT, OutputT]):
    """A function as a step; made by `@step`. Calling it calls the function."""

    def __init__(self, function: StepFunction[DepsT, OutputT], config: StepConfig) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.config = config
        self.is_async = inspect.iscoroutinefunction(function)

    def __call__(self, context: StepContext[DepsT]) -> Awaitable[OutputT] | OutputT:
        """Call the function itself."""
        return self.function(context)

    def __repr__(self) -> str:
        return f"<step {getattr(self.function, '__name__', self.function)!r}>"

    def execute(self, context: StepContext[DepsT]) -> Awaitable[OutputT]:
        """Call the function: a coroutine function on the loop, any other in a worker thread."""
        if self.is_async:
            return cast("Awaitable[OutputT]", self.function(context))
        return self._execute_in_thread(context)

    async def _execute_in_thread(self, context: StepContext[DepsT]) -> OutputT:
        result = await context.run_in_thread(self.function)
        # A lambda or a decorator's wrapper may be plain and still return a coroutine.
        return await result if inspect.isawaitable(result) else cast("OutputT", result)


@overload
def step(function: Callable[[StepContext[DepsT]], Awaitable[OutputT]], /) -> FunctionStep[DepsT, OutputT]: ...
@overload
def step(function: Callable[[StepContext[DepsT]], OutputT], /) -> FunctionStep[DepsT, OutputT]: ...
@overload
def step(
    *,
    timeout: float | NotGiven | None = ...,
    total_timeout: float | NotGiven | None = ...,
    retries: int | NotGiven = ...,
    retry_delay: float | NotGiven = ...,
    cost_budget: int | NotGiven | None = ...,
    budget: BudgetLike | NotGiven | None = ...,
    trace: bool | NotGiven = ...,
    on_error: OnError | NotGiven = ...,
) -> _StepDecorator: ...


def step(
    function: StepFunction[Any, Any] | None = None,
    /,
    *,
    timeout: float | NotGiven | None = NOT_GIVEN,
    total_timeout: float | NotGiven | None = NOT_GIVEN,
    retries: int | NotGiven = NOT_GIVEN,
    retry_delay: float | NotGiven = NOT_GIVEN,
    cost_budget: int | NotGiven | None = NOT_GIVEN,
    budget: BudgetLike | NotGiven | None = NOT_GIVEN,
    trace: bool | NotGiven = NOT_GIVEN,
    on_error: OnError | NotGiven = NOT_GIVEN,
) -> FunctionStep[Any, Any] | _StepDecorator:
    """Make a function a step: `@step`, or `@step(timeout=…, retries=…)` with the options of `StepConfig`.

    The function takes the `StepContext`. One that is not `async` runs in a worker thread.

        @step(retries=2)
        async def classify(ctx: StepContext[Deps]) -> str: ...

    Raises:
        ConfigurationError: an option that cannot be meant, or something that cannot be called.
    """
    config = StepConfig(
        timeout=timeout,
        total_timeout=total_timeout,
        retries=retries,
        retry_delay=retry_delay,
        cost_budget=cost_budget,
        budget=budget,
        trace=trace,
        on_error=on_error,
    )
    decorate = _StepDecorator(config)
    return decorate if function is None else decorate(function)


class _StepDecorator:
    """What `@step(...)` returns; a class, because only a generic `__call__` keeps the function's types."""

    def __init__(self, config: StepConfig) -> None:
        self._config = config

    @overload
    def __call__(
        self, function: Callable[[StepContext[DepsT]], Awaitable[OutputT]]
    ) -> FunctionStep[DepsT, OutputT]: ...
    @overload
    def __call__(self, function: Callable[[StepContext[DepsT]], OutputT]) -> FunctionStep[DepsT, OutputT]: ...
    def __call__(self, function: StepFunction[Any, Any]) -> FunctionStep[Any, Any]:
        if not callable(function) or isinstance(function, type):
            raise ConfigurationError("step", function, "a function that takes the StepContext")
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            expected = "a function that returns its output, without `yield`; ctx.run_stream streams in it"
            raise ConfigurationError("step", function, expected)
        return FunctionStep(function, self._config)

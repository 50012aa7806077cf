"""Steps: classes, decorated functions, and agents behind `as_step`."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypedDict, Unpack, cast, overload

from typing_extensions import TypeVar

from fastroai.contracts import Contract
from fastroai.contracts.accepted import Accepts
from fastroai.contracts.annotations import Annotation
from fastroai.contracts.contract import Condition
from fastroai.contracts.declared import argument_of, returned_type
from fastroai.errors import ConfigurationError
from fastroai.keyword_options import takes_options
from fastroai.records import NOT_GIVEN, Duration, NotGiven
from fastroai.runtime import Classifier
from fastroai.steps.config import OnError, RetryLike, StepConfig
from fastroai.steps.context import in_thread
from fastroai.steps.hooks import OnRetry, OnStepFailure, OnStepStart, OnStepSuccess
from fastroai.usage import BudgetLike, Quote

if TYPE_CHECKING:
    from fastroai.steps.context import StepContext

DepsT = TypeVar("DepsT", default=Any)
OutputT = TypeVar("OutputT", default=Any)
# A step that needs less of the deps, or nothing, fits where more is given.
DepsT_contra = TypeVar("DepsT_contra", default=Any, contravariant=True)
OutputT_co = TypeVar("OutputT_co", default=Any, covariant=True)

UNKNOWN_COST: Final = "arbitrary code, which may call models; give it a budget, or an estimate() of its own"
"""The reason for the quote of a step that gives no estimate."""

_LAST_USAGE: Final = (
    "a step has no last_usage: what its agents use is counted without it, also with agent.run(); "
    "add other spending with ctx.record_usage(...), and read ctx.usage or result.usage.steps"
)

StepFunction: TypeAlias = (
    "Callable[[StepContext[DepsT]], Awaitable[OutputT]] | Callable[[StepContext[DepsT]], OutputT]"
)


_NO_CONFIG: Final = StepConfig()
_NO_CONTRACT: Final = Contract()


class BaseStep(ABC, Generic[DepsT_contra, OutputT_co]):
    """One unit of work in a pipeline or graph, as a class: the base class of all steps.

    Subclass it for steps with attributes of their own; `@step` makes a step of a function. All runs share the
    instance, so keep nothing of a run on it. `config` and `contract` may be set on the class or on an
    instance. pydantic validates the output as the output type, and may convert it. That is the second type
    parameter, `Category` here, or otherwise the return annotation of `execute`. An output that does not fit
    fails the step with a `ContractViolation`. Without an output type, nothing is checked.

        class Classify(BaseStep[Deps, Category]):
            config = StepConfig(timeout=30)

            async def execute(self, context: StepContext[Deps]) -> Category:
                response = await context.run(classifier, context.get_input("text"))
                return response.output
    """

    config: StepConfig = _NO_CONFIG
    contract: Contract = _NO_CONTRACT
    """Conditions that are checked before and after each attempt."""
    checks_output_itself: ClassVar[bool] = False
    """Whether `execute` itself has checked that its outputs are of the inferred type."""
    opens_span: ClassVar[bool] = True
    """Whether the step has a span of its own. False if it only runs something that has one."""
    goes_on: ClassVar[bool] = False
    """Whether a failed attempt goes on when the run is resumed, because its work so far is on record."""

    if not TYPE_CHECKING:  # for type checkers, there is no such attribute

        @property
        def last_usage(self) -> None:
            """Not available: reading or setting it raises `AttributeError`.

            Runs share the step, so no run's usage can be kept on it. Use `ctx.usage` or `result.usage.steps`.
            """
            raise AttributeError(_LAST_USAGE, name="last_usage", obj=self)

        @last_usage.setter
        def last_usage(self, usage: object) -> None:
            raise AttributeError(_LAST_USAGE, name="last_usage", obj=self)

    @abstractmethod
    def execute(self, context: StepContext[DepsT_contra]) -> Awaitable[OutputT_co]:
        """Do one attempt at the work of the step, and return its output. Write it as `async def`.

        An exception makes the attempt fail; it is repeated if the retries of the step allow that.
        """

    def for_items(self) -> BaseStep[DepsT_contra, OutputT_co]:
        """Return the step that `ctx.map` runs for each item: by default, this step itself.

        That step reads the item as its input `item`.
        """
        return self

    def declares(self) -> Mapping[str, str]:
        """Return hashes, by name, of what the code fixes for model calls of this step, such as instructions.

        `map` of a pipeline or graph compares these hashes with those on record. If one has changed, it runs
        every row again from its first step, unless `on_changed` says otherwise. A name that is new or gone
        changes nothing. The default is no hashes.
        """
        return {}

    def inferred_output(self) -> Annotation | None:
        """Return the type of the output that the class declares; `None` if it declares none, or `Any`.

        The type is the one in `BaseStep[Deps, Category]`, also through subclasses and generic aliases, or
        otherwise the return annotation of `execute`. Outputs are validated as this type, unless a contract
        of the step declares another one.
        """
        said: Annotation | None = argument_of(self, BaseStep, 1)
        return returned_type(self.execute) if said is None else said

    async def estimate(self, context: StepContext[DepsT_contra]) -> Quote:
        """Return an estimate of the cost of the step, before the pipeline runs.

        The default returns a quote of an unknown cost, because a step is arbitrary code. To give an estimate,
        override this method. The context has the inputs and the deps, but no outputs of other steps, and
        nothing can be spent. Include the retries: `quote.retried(context.config.retries)`. You need not take
        the budget of the step into account.
        """
        return Quote.unknown(UNKNOWN_COST)


class FunctionStep(BaseStep[DepsT, OutputT]):
    """A function as a step, made by `@step`. A call of this object calls the function.

    In a pipeline, an `async` function runs on the event loop, any other in a worker thread.
    """

    def __init__(
        self, function: StepFunction[DepsT, OutputT], config: StepConfig, contract: Contract | None = None
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.config = config
        self.contract = _NO_CONTRACT if contract is None else contract
        self._execute: Callable[[StepContext[DepsT]], Awaitable[OutputT]] = (
            cast("Callable[[StepContext[DepsT]], Awaitable[OutputT]]", function)
            if _is_coroutine_function(function)
            else self._execute_in_thread
        )

    def __call__(self, context: StepContext[DepsT]) -> Awaitable[OutputT] | OutputT:
        """Call the function itself."""
        return self.function(context)

    def __repr__(self) -> str:
        return f"<step {getattr(self.function, '__name__', self.function)!r}>"

    def inferred_output(self) -> Annotation | None:
        """Return the annotated return type of the function. By default, outputs are validated as this type.

        `None` if there is none, if it is `Any`, or if it has names that the module of the function does not
        have.
        """
        return returned_type(self.function)

    def execute(self, context: StepContext[DepsT]) -> Awaitable[OutputT]:
        """Call the function with the context, and return its output, to await.

        An `async` function runs on the event loop, any other in a worker thread. If the function in the
        thread returns an awaitable, that is awaited.
        """
        return self._execute(context)

    async def _execute_in_thread(self, context: StepContext[DepsT]) -> OutputT:
        result: object = await in_thread(context, lambda: self.function(context))
        # A lambda or a decorator's wrapper may be plain and still return a coroutine.
        return cast("OutputT", await result if inspect.isawaitable(result) else result)


class _ConfigOptions(TypedDict, total=False):
    """The settings of `StepConfig`."""

    timeout: Duration | NotGiven | None
    total_timeout: Duration | NotGiven | None
    retries: int | NotGiven
    retry_delay: Duration | NotGiven
    retry: RetryLike | NotGiven
    classifiers: Sequence[Classifier]
    cost_budget: int | NotGiven | None
    budget: BudgetLike | NotGiven | None
    trace: bool | NotGiven
    on_error: OnError | NotGiven
    on_step_start: OnStepStart | None
    on_step_success: OnStepSuccess | None
    on_step_failure: OnStepFailure | None
    on_retry: OnRetry | None


class StepOptions(_ConfigOptions, total=False):
    """The keyword arguments of `step`: the settings of the step, and its contract."""

    accepts: Accepts | NotGiven
    returns: Annotation | NotGiven
    require: Sequence[Condition[StepContext[Any]]] | NotGiven
    ensure: Sequence[Condition[Any]] | NotGiven


@overload
def step(function: Callable[[StepContext[DepsT]], Awaitable[OutputT]], /) -> FunctionStep[DepsT, OutputT]: ...
@overload
def step(function: Callable[[StepContext[DepsT]], OutputT], /) -> FunctionStep[DepsT, OutputT]: ...
@overload
def step(**options: Unpack[StepOptions]) -> _StepDecorator: ...


@takes_options(
    StepOptions,
    default=NOT_GIVEN,
    defaults={
        "classifiers": (),
        **dict.fromkeys(("on_step_start", "on_step_success", "on_step_failure", "on_retry")),
    },
    instead={
        "input": "accepts=",
        "output": "returns=",
        "node_id": "the key in Pipeline(steps={…})",
        "name": "the key in Pipeline(steps={…})",
        "depends_on": "Pipeline(dependencies={step_id: […]})",
        "max_retries": "retries=",
        "timeout_seconds": "timeout=",
    },
)
def step(
    function: StepFunction[Any, Any] | None = None, /, **options: Unpack[StepOptions]
) -> FunctionStep[Any, Any] | _StepDecorator:
    """Make a function a step: `@step`, or `@step(timeout=…, retries=…)` with the options of `StepConfig`.

    The function takes the `StepContext`, and returns the output of the step. A function that is not `async`
    runs in a worker thread. The decorator returns a `FunctionStep`, which can still be called as a function.
    Its id is its key in `Pipeline(steps={…})`. Options that are not given are inherited from the pipeline,
    except `total_timeout`, `cost_budget` and `budget`. `accepts`, `returns`, `require` and `ensure` are those
    of a `Contract`, which is checked before and after each attempt. Without `returns`, outputs are validated
    as the return annotation.

        @step(retries=2)
        async def classify(ctx: StepContext[Deps]) -> str: ...

    Raises:
        ConfigurationError: an option is invalid, or the decorated object is not a function that can be a
            step: it must take the context as its only required argument, and must not be a generator.
    """
    if function is not None and not options:
        return _PLAIN(function)
    contract = Contract(
        accepts=options.pop("accepts", NOT_GIVEN),
        returns=options.pop("returns", NOT_GIVEN),
        require=options.pop("require", NOT_GIVEN),
        ensure=options.pop("ensure", NOT_GIVEN),
    )
    decorate = _StepDecorator(StepConfig(**cast("_ConfigOptions", options)), contract)
    return decorate if function is None else decorate(function)


class _StepDecorator:
    """The decorator that `@step(...)` returns: a class, because `__call__` keeps the types of functions."""

    def __init__(self, config: StepConfig, contract: Contract) -> None:
        self._config, self._contract = config, contract

    @overload
    def __call__(
        self, function: Callable[[StepContext[DepsT]], Awaitable[OutputT]]
    ) -> FunctionStep[DepsT, OutputT]: ...
    @overload
    def __call__(self, function: Callable[[StepContext[DepsT]], OutputT]) -> FunctionStep[DepsT, OutputT]: ...
    def __call__(self, function: StepFunction[Any, Any]) -> FunctionStep[Any, Any]:
        if not callable(function) or isinstance(function, type):
            raise ConfigurationError("step", function, "a function that takes the StepContext")
        if not _is_coroutine_function(function) and (
            inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
        ):
            expected = "a function that returns its output, without `yield`; ctx.run_stream streams in it"
            raise ConfigurationError("step", function, expected)
        if not _takes_context(function):
            expected = "a function that takes the StepContext, and nothing else that has no default"
            raise ConfigurationError("step", function, expected)
        return FunctionStep(function, self._config, self._contract)


def _takes_context(function: Callable[..., object]) -> bool:
    """Try a signature only where a function has none of the usual code: there may be thousands of steps."""
    code = function.__code__ if isinstance(function, FunctionType) else None
    if code is not None and code.co_argcount == 1 and not code.co_kwonlyargcount:
        return True
    try:
        inspect.signature(function, follow_wrapped=False).bind(None)
    except TypeError:
        return False
    except ValueError:  # some built-ins do not say what they take
        return True
    return True


def _is_coroutine_function(function: Callable[..., object]) -> bool:
    """Look at the flag of the function first: `inspect` unwraps all else, and there may be thousands."""
    code = getattr(function, "__code__", None)
    return bool(code and code.co_flags & inspect.CO_COROUTINE) or inspect.iscoroutinefunction(function)


_PLAIN: Final = _StepDecorator(_NO_CONFIG, _NO_CONTRACT)

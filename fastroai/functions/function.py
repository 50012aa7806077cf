"""Typed functions, made by `@infer` and `@compute`: they can be awaited, and they are steps."""

from __future__ import annotations

import functools
import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from types import FunctionType
from typing import Any, ClassVar, Final, Generic, Literal, Never, ParamSpec, TypeAlias, overload

from pydantic import JsonValue
from typing_extensions import TypeVar, Unpack

from fastroai.agent.other_models.batching import current_batching
from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError, ContractViolation
from fastroai.functions.calling import perform
from fastroai.functions.configuring import configuration
from fastroai.functions.declaring.conditions import Conditions, OutputConditions, Postcondition, Precondition
from fastroai.functions.declaring.schemas import hash_of
from fastroai.functions.declaring.signature import Signature
from fastroai.functions.errors import CompileError, PreconditionFailed
from fastroai.functions.kept_calls import CallDraft, FunctionCall, kept_records
from fastroai.functions.pending import Pending
from fastroai.records import CallRecord
from fastroai.rows.door import EstimateOptions, MapsRows
from fastroai.rows.source import RowSource, inputs_of_row
from fastroai.rows.target import RowCall, RowTarget
from fastroai.runtime import current_scope, run_blocking
from fastroai.steps import BaseStep, PipelineConfig, ResolvedConfig, StepConfig, StepContext
from fastroai.steps.base import UNKNOWN_COST
from fastroai.steps.config import resolve
from fastroai.steps.estimating import nothing_paid
from fastroai.usage import BudgetLike, Quote
from fastroai.usage.limits import NO_LIMITS

P = ParamSpec("P")
OutputT = TypeVar("OutputT", default=Any)

StepInputs: TypeAlias = (
    "Mapping[str, str] | Callable[[StepContext[Any]], Mapping[str, object] | Awaitable[Mapping[str, object]]]"
)
"""The source of arguments for a function that is a step: names of inputs or steps by parameter, or a function
of the context that returns the arguments themselves."""

_NO_DEFAULTS: Final = PipelineConfig()
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


FindArguments: TypeAlias = "Callable[[StepContext[Any]], Awaitable[Mapping[str, object]]]"
"""Returns arguments for a call in a step. Missing ones come from outputs and inputs."""


async def _refused(violation: ContractViolation) -> Never:
    raise violation


async def no_arguments(context: StepContext[Any]) -> Mapping[str, object]:
    """Return no arguments: all of them come from outputs and inputs."""
    return {}


class Function(BaseStep[Any, OutputT], MapsRows[OutputT], Generic[P, OutputT]):
    """A typed function. It is awaited like any coroutine function, and can be in `steps=` and `nodes=`.

    As a step, it takes its arguments from the outputs and inputs that have the names of its parameters.
    """

    checks_output_itself = True
    kind: ClassVar[Literal["infer", "compute"]]

    def __init__(
        self,
        function: Callable[..., object],
        *,
        given: Conditions,
        ensure: OutputConditions,
        budget: BudgetLike | None,
    ) -> None:
        """Check a declaration.

        Raises:
            CompileError: the declaration cannot work. Every problem is named.
        """
        if not isinstance(function, FunctionType):
            name = getattr(function, "__name__", repr(function))
            raise CompileError(f"function {name!r}", ("it must be a function: def or async def",))
        functools.update_wrapper(self, function)  # first, because it also takes the function's attributes
        self.function: Final = function
        """The decorated function."""
        self.signature: Final = Signature(self.function)
        """The declared parameters and result."""
        self.name: Final[str] = self.signature.name
        self._returns = self.signature.returns.annotation
        self._given = Precondition(given, self.signature.parameters)
        self._ensure = Postcondition(ensure, self.signature.returns)
        problems = [*self._given.problems, *self._ensure.problems, *self._problems()]
        if problems:
            raise CompileError(f"function {self.name!r}", tuple(problems))
        self._contract_hash = hash_of(self._returns)
        self._own = StepConfig(budget=budget)
        self._config = resolve(self._own, pipeline=_NO_DEFAULTS)
        parameters = inspect.signature(self.function).parameters.values()
        self._named = tuple(one.name for one in parameters if one.kind not in _VARIADIC)

    @abstractmethod
    def _problems(self) -> Iterator[str]:
        """Yield the problems of a declaration that only this kind of function has."""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.signature}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Pending[OutputT]:
        """Bind and check the arguments. The call is made when this is awaited.

        Raises:
            TypeError: an argument is missing, unknown, or given twice.
            ContractViolation: an argument is not of the type of its parameter. It is raised when this is
                awaited, so that one call of several side by side fails by itself.
        """
        try:
            arguments = self.signature.bind(args, kwargs)
        except ContractViolation as violation:
            refuse = functools.partial(_refused, violation)
            return Pending(self.name, refuse, self._without_await(violation))
        begin = functools.partial(self._performed, arguments, self._config)
        return Pending(self.name, begin, self._without_await(arguments))

    def _without_await(
        self, arguments: Mapping[str, Any] | ContractViolation
    ) -> Callable[[], OutputT] | None:
        """Return what makes the call as a condition without `await`, or refuses it; `None` if nothing can."""
        return None

    @property
    def records(self) -> tuple[CallRecord, ...]:
        """The calls of this function among the last 10,000 calls in this process, oldest first.

        A call that was answered from the record of its run has the cost of the time when it was made.
        """
        return kept_records(self.signature)

    def inferred_output(self) -> Annotation:
        """Return the type of a call's result."""
        return self._returns

    async def execute(self, context: StepContext[Any]) -> OutputT:
        """Make a call in a step, with the outputs and inputs that have the names of the parameters."""
        return await self.called_in(context, {})

    def called_in(
        self, context: StepContext[Any], arguments: Mapping[str, object]
    ) -> Coroutine[Any, Any, OutputT]:
        """Make a call in a step with these arguments. Missing ones come from outputs and inputs.

        Raises:
            MissingInputError: no output or input has the name of a parameter without a default.
        """
        config = resolve(self._own, pipeline=context.config.as_defaults())
        return self._performed(self._found(context, arguments), config, context)

    def _found(self, context: StepContext[Any], arguments: Mapping[str, object]) -> dict[str, Any]:
        found = {**context.read(name for name in self._named if name not in arguments), **arguments}
        for name in self.signature.required:
            if name not in found:
                context.get_input(name)  # raises, and says which inputs there are
        return self.signature.bind((), found)

    @overload
    async def estimate(self, context: StepContext[Any], /) -> Quote: ...
    @overload
    async def estimate(
        self, *, rows: RowSource, sample: int = ..., **options: Unpack[EstimateOptions]
    ) -> Quote: ...
    @overload
    async def estimate(self, *args: P.args, **kwargs: P.kwargs) -> Quote: ...
    async def estimate(self, *args: Any, **kwargs: Any) -> Quote:
        """Estimate the cost of a call with these arguments, without making it: `classify.estimate("text")`.

        The quote says at least, expected, at most, and why. Given the context of a step, it is the quote of
        this function as that step; for any prompt, if an argument is not known yet. With `rows=`, it is the
        quote of `map`, from a sample of the rows: see `estimate_rows`.

        Raises:
            TypeError: an argument is missing, unknown, or given twice.
            ContractViolation: an argument is not of the type of its parameter.
        """
        if not kwargs and len(args) == 1 and isinstance(args[0], StepContext):
            return await self.quoted(args[0], no_arguments)
        if "rows" in kwargs and not args and "rows" not in self.signature.parameters:
            known = ("rows", "sample", *EstimateOptions.__annotations__)
            if unknown := next((name for name in kwargs if name not in known), None):
                takes = ", ".join(f"{name}=" for name in known)
                raise TypeError(f"{self.name}.estimate() of rows takes no {unknown}=; it takes {takes}")
            return await self.estimate_rows(**kwargs)
        arguments = self.signature.bind(args, kwargs)
        async with nothing_paid(self._config.limits):
            return await self._quoted_with(arguments)

    @overload
    def estimate_sync(
        self, *, rows: RowSource, sample: int = ..., **options: Unpack[EstimateOptions]
    ) -> Quote: ...
    @overload
    def estimate_sync(self, *args: P.args, **kwargs: P.kwargs) -> Quote: ...
    def estimate_sync(self, *args: Any, **kwargs: Any) -> Quote:
        """Estimate the cost of a call, or of a `map`, as `estimate` does. For scripts and worker threads.

        Raises:
            RunningLoopError: this thread has a running event loop: `await` the method `estimate` there.
        """
        return run_blocking(
            lambda: self.estimate(*args, **kwargs),
            called=f"{self.name}.estimate_sync",
            instead=f"{self.name}.estimate",
        )

    async def quoted(self, context: StepContext[Any], find: FindArguments) -> Quote:
        """Estimate a call with the arguments that `find` returns."""
        return await self._quoted_with({})

    async def _quoted_with(self, arguments: Mapping[str, Any]) -> Quote:
        return self._within_budget(Quote.unknown(UNKNOWN_COST))

    def _within_budget(self, quote: Quote) -> Quote:
        limits = self._config.limits
        return quote.within(*(limits or NO_LIMITS).budgets)

    def as_step(
        self, inputs: StepInputs | None = None, *, config: StepConfig | None = None
    ) -> FunctionCallStep[OutputT]:
        """Return a step that calls this function with arguments from elsewhere, or with settings of its own.

        `inputs` maps parameters to inputs, or to steps that this one depends on, where the names differ. Or
        it is a function of the context that returns the arguments themselves.

            Pipeline(steps={"classify": classify.as_step({"text": "email"})})

        Raises:
            ConfigurationError: the function has no such parameter.
        """
        return FunctionCallStep(self, inputs or {}, config or StepConfig())

    def for_items(self) -> BaseStep[Any, OutputT]:
        """Return the step that `ctx.map` runs. An item has the arguments by name, or is the only one.

        If there is a parameter `item`, the item is its argument.
        """
        return self if "item" in self.signature.parameters else self.as_step(self._arguments_of_item)

    def _arguments_of_item(self, context: StepContext[Any]) -> Mapping[str, object]:
        item = context.get_input("item")
        return inputs_of_row(item, self.rows_target().parameters, None, self.name)

    def rows_target(self) -> RowTarget[OutputT]:
        """Return this function as what rows are given to: each row has the arguments of a call."""
        return _FunctionRows(self)

    def _performed_for_row(self, arguments: Mapping[str, Any], how: RowCall) -> Coroutine[Any, Any, OutputT]:
        config, retries = self._config, how.retries
        if retries is not None and self.kind == "infer":  # a body of code is tried again with its row
            config = resolve(self._own, pipeline=PipelineConfig(retries=retries))
        return self._performed(arguments, config, is_end_kept=how.is_end_kept)

    def _performed(
        self,
        arguments: Mapping[str, Any],
        config: ResolvedConfig,
        around: StepContext[Any] | None = None,
        *,
        is_end_kept: bool = False,
    ) -> Coroutine[Any, Any, OutputT]:
        call: FunctionCall[OutputT] = FunctionCall(
            signature=self.signature,
            name=self.name,
            kind=self.kind,
            inputs=self.signature.shown(arguments),
            key="" if current_scope() is None else self.signature.inputs_hash(arguments),
            returns=self._returns,
            config=config,
            declares=self.declares,
            is_end_kept=is_end_kept,
        )
        return perform(call, functools.partial(self._checked_run, arguments), around=around)

    def check_batches(self) -> None:
        """Check that the requests of calls can be sent in batches. Raises `ConfigurationError`."""
        expected = f"a function that a model implements; {self.name!r} has a body. Leave batch= out"
        raise ConfigurationError("batch", True, expected)

    def declares(self) -> Mapping[str, str]:
        """Return hashes of what is declared for calls, by name; nothing for a function that has a body."""
        return {}

    def _checked_run(
        self, arguments: Mapping[str, Any], context: StepContext[Any], draft: CallDraft
    ) -> Coroutine[Any, Any, OutputT]:
        self._check_given(arguments)
        return self._run(arguments, context, draft)

    def _check_given(self, arguments: Mapping[str, Any]) -> None:
        if violations := self._given.violations(arguments):
            raise PreconditionFailed(self.name, tuple(violations), arguments)

    @abstractmethod
    async def _run(
        self, arguments: Mapping[str, Any], context: StepContext[Any], draft: CallDraft
    ) -> OutputT:
        """Make the call itself. The preconditions hold."""


def without_options(decorator: str, given: object, needed: str) -> CompileError:
    """Return the error for a decorator that is used without the options that it needs."""
    name = getattr(given, "__name__", repr(given))
    return CompileError(
        f"function {name!r}", (f"{decorator} takes options, by name: @{decorator}({needed})",)
    )


class FunctionCallStep(BaseStep[Any, OutputT]):
    """A call of a typed function as a step; made by `as_step`."""

    checks_output_itself = True

    def __init__(self, function: Function[..., OutputT], inputs: StepInputs, config: StepConfig) -> None:
        """Take the function, and the source of its arguments."""
        known = function.signature.parameters
        for name in () if callable(inputs) else inputs:
            if name not in known:
                expected = f"parameters of {function.name!r}, which are {', '.join(map(repr, known))}"
                raise ConfigurationError("inputs", name, expected)
        self.function, self.config, self._inputs = function, config, inputs

    def __repr__(self) -> str:
        return f"<step of {self.function!r}>"

    def inferred_output(self) -> Annotation:
        """Return the type of a call's result."""
        return self.function.inferred_output()

    def declares(self) -> Mapping[str, str]:
        """Return hashes of what the function declares for its calls."""
        return self.function.declares()

    async def execute(self, context: StepContext[Any]) -> OutputT:
        """Find the arguments, and make the call."""
        return await self.function.called_in(context, await self._arguments(context))

    async def estimate(self, context: StepContext[Any]) -> Quote:
        """Estimate a call before it is made; for any prompt, if an argument is not known yet."""
        return await self.function.quoted(context, self._arguments)

    async def _arguments(self, context: StepContext[Any]) -> Mapping[str, object]:
        if callable(self._inputs):
            given = self._inputs(context)
            return await given if inspect.isawaitable(given) else given
        found = context.read(self._inputs.values())
        return {
            parameter: found[name] if name in found else context.get_input(name)
            for parameter, name in self._inputs.items()
        }


class _FunctionRows(Generic[OutputT]):
    """A typed function as what rows are given to."""

    makes_runs: bool = False
    takes_deps: bool = False

    def __init__(self, function: Function[..., OutputT]) -> None:
        signature, self._function = function.signature, function
        self.name, self.kind, self.returns = function.name, function.kind, function.inferred_output()
        self.parameters: Mapping[str, bool] = {
            name: name in signature.required for name in signature.parameters
        }
        self.declares, self.check_batches = function.declares, function.check_batches

    @property
    def config(self) -> PipelineConfig:
        """The store of `configure`."""
        return PipelineConfig(store=configuration().store)

    def bind(self, values: Mapping[str, object]) -> Mapping[str, Any]:
        """Return arguments by parameter. Raises as `Signature.bind`."""
        return self._function.signature.bind((), values)

    def as_json(self, inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return arguments as JSON."""
        return self._function.signature.json_of(inputs)

    async def call(self, inputs: Mapping[str, Any], how: RowCall) -> OutputT:
        """Call the function."""
        current_batching.set(how.batching)  # in the context of this row
        return await self._function._performed_for_row(inputs, how)

    async def quote(self, inputs: Mapping[str, Any], deps: object) -> Quote:
        """Estimate a call."""
        return await self._function._quoted_with(inputs)

"""`@compute`: a typed function that runs its body, and never asks a model."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, Literal, ParamSpec, Protocol, cast, overload

from typing_extensions import TypeVar, override

from fastroai.errors import ContractViolation
from fastroai.functions.declaring.conditions import Conditions, OutputConditions
from fastroai.functions.errors import PostconditionFailed
from fastroai.functions.function import Function
from fastroai.functions.kept_calls import CallDraft
from fastroai.other_names import other_names
from fastroai.steps import StepContext
from fastroai.steps.context import in_thread
from fastroai.usage import BudgetLike

P = ParamSpec("P")
OutputT = TypeVar("OutputT", default=Any)
R = TypeVar("R")


class ComputeFunction(Function[P, OutputT], Generic[P, OutputT]):
    """A typed function whose output is computed by its own body, not asked of a model; made by `compute`.

    It is awaited, checked and put on record like a function of `@infer`, and can be a step. Its body may call
    agents and functions of `@infer`, which its `budget` limits.
    """

    kind: ClassVar[Literal["infer", "compute"]] = "compute"

    def __init__(
        self,
        function: Callable[..., object],
        given: Conditions,
        ensure: OutputConditions,
        budget: BudgetLike | None,
    ) -> None:
        """Check a declaration.

        Raises:
            CompileError: the declaration cannot work. Every problem is named.
        """
        super().__init__(function, given=given, ensure=ensure, budget=budget)
        self._is_async = inspect.iscoroutinefunction(function)
        names: dict[Any, list[str]] = defaultdict(list)
        for one in inspect.signature(function).parameters.values():
            names[one.kind].append(one.name)
        kinds = inspect.Parameter
        self._by_place = names[kinds.POSITIONAL_ONLY] + names[kinds.POSITIONAL_OR_KEYWORD]
        self._more_by_place = names[kinds.VAR_POSITIONAL]
        self._by_name, self._more_by_name = names[kinds.KEYWORD_ONLY], names[kinds.VAR_KEYWORD]

    @override
    def _problems(self) -> Iterator[str]:
        if inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            yield "it yields, and must return its output"

    @override
    def _without_await(
        self, arguments: Mapping[str, Any] | ContractViolation
    ) -> Callable[[], OutputT] | None:
        return None if self._is_async else partial(self._at_once, arguments)

    def _at_once(self, arguments: Mapping[str, Any] | ContractViolation) -> OutputT:
        if isinstance(arguments, ContractViolation):
            raise arguments
        self._check_given(arguments)
        return self._checked_output(self._bound(arguments)())

    async def _run(
        self, arguments: Mapping[str, Any], context: StepContext[Any], draft: CallDraft
    ) -> OutputT:
        draft.contract_hash = self._contract_hash
        call = self._bound(arguments)
        return self._checked_output(await call() if self._is_async else await in_thread(context, call))

    def _checked_output(self, returned: object) -> OutputT:
        output = self.signature.check_output(returned)
        if violations := self._ensure.violations(output):
            raise PostconditionFailed(self.name, tuple(violations), output)
        return cast("OutputT", output)

    def _bound(self, arguments: Mapping[str, Any]) -> Callable[[], Any]:
        args = [arguments[name] for name in self._by_place]
        kwargs = {name: arguments[name] for name in self._by_name}
        for name in self._more_by_place:
            args += arguments[name]
        for name in self._more_by_name:
            kwargs |= arguments[name]
        return partial(self.function, *args, **kwargs)


class _Compute(Protocol):
    """The decorator that `compute(...)` returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> ComputeFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> ComputeFunction[P, R]: ...


@overload
def compute(function: Callable[P, Coroutine[Any, Any, R]], /) -> ComputeFunction[P, R]: ...
@overload
def compute(function: Callable[P, R], /) -> ComputeFunction[P, R]: ...
@overload
def compute(
    *, given: Conditions = ..., ensure: OutputConditions = ..., budget: BudgetLike | None = ...
) -> _Compute: ...
@other_names()
def compute(
    function: Callable[..., object] | None = None,
    /,
    *,
    given: Conditions = None,
    ensure: OutputConditions = None,
    budget: BudgetLike | None = None,
) -> Any:
    """Make a typed function of code. It is awaited, checked and on record like a function of `@infer`.

        @compute
        def classify(text: str) -> Sentiment:
            return Sentiment(label="positive" if "great" in text else "neutral", confidence=1, reasoning="")

    So one kind can replace the other, and callers stay as they are. Arguments and output are checked by their
    types, as pydantic converts them. A function that is not `async` runs in a worker thread. In a flow, the
    output is on record, and a resumed flow does not compute it again. A call of a function that is not
    `async` may also be a condition without `await`: `if is_urgent(ticket):`. Then it runs at once, and a
    resumed flow computes it again.

    A call raises `TypeError` at once if an argument is missing or unknown. When it is awaited, it raises
    `ContractViolation` if an argument or the output is not of its type, `PreconditionFailed` if `given` does
    not hold, and `PostconditionFailed` if `ensure` does not. Exceptions of the body are raised as they are.

    Args:
        function: The function.
        given: Conditions on the arguments, as for `infer`.
        ensure: Conditions on the output, as for `infer`. There is no second attempt.
        budget: Limits on the spending of calls that the function makes.

    Raises:
        CompileError: the function cannot work as it is declared. Every problem is named.
    """
    if function is not None:
        return ComputeFunction(function, given, ensure, budget)
    return lambda decorated: ComputeFunction(decorated, given, ensure, budget)

"""`parallel` and `race`: several calls side by side. All, some or one of them must succeed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, Literal, Never, TypeAlias, overload

from typing_extensions import TypedDict, TypeVar, Unpack

from fastroai.errors import ConfigurationError
from fastroai.functions.configuring import configuration
from fastroai.functions.declaring.conditions import Postcondition
from fastroai.functions.errors import ParallelValidationFailed
from fastroai.functions.pending import Pending
from fastroai.functions.several.members import close_all, run_members
from fastroai.functions.several.outcomes import Outcome, OutcomeTally
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.options import check_count

T = TypeVar("T")
T1 = TypeVar("T1", default=Never)
T2 = TypeVar("T2", default=Never)
T3 = TypeVar("T3", default=Never)
T4 = TypeVar("T4", default=Never)
T5 = TypeVar("T5", default=Never)
T6 = TypeVar("T6", default=Never)
# The default `Never` adds nothing to a union: it is the type for a coroutine that is not given.

Call: TypeAlias = Coroutine[Any, Any, T]
Check: TypeAlias = Callable[[T], object] | None

Require: TypeAlias = Literal["all", "any"] | int
"""How many calls must succeed: all; one; a number; or 0, which takes successes and failures alike."""


class _Options(TypedDict, Generic[T], total=False):
    """The options of `parallel` besides `require`. `T` is the type of the results."""

    validate: Check[T]
    concurrency: int | None


class _All(_Options[T], Generic[T], total=False):
    """The options of `parallel`, if all coroutines must succeed."""

    require: Literal["all"]


# Type checkers can tell the types in a tuple only for a fixed number of coroutines: here, up to six, as in
# `asyncio.gather`; of outcomes, up to three. A union needs one overload, which writes out its options:
# pyright leaves type variables without an argument in a `TypedDict`.


@overload
def parallel(a: Call[T1], /, **options: Unpack[_All[tuple[T1]]]) -> Pending[tuple[T1]]: ...
@overload
def parallel(
    a: Call[T1], b: Call[T2], /, **options: Unpack[_All[tuple[T1, T2]]]
) -> Pending[tuple[T1, T2]]: ...
@overload
def parallel(
    a: Call[T1], b: Call[T2], c: Call[T3], /, **options: Unpack[_All[tuple[T1, T2, T3]]]
) -> Pending[tuple[T1, T2, T3]]: ...
@overload
def parallel(
    a: Call[T1], b: Call[T2], c: Call[T3], d: Call[T4], /, **options: Unpack[_All[tuple[T1, T2, T3, T4]]]
) -> Pending[tuple[T1, T2, T3, T4]]: ...
@overload
def parallel(
    a: Call[T1],
    b: Call[T2],
    c: Call[T3],
    d: Call[T4],
    e: Call[T5],
    /,
    **options: Unpack[_All[tuple[T1, T2, T3, T4, T5]]],
) -> Pending[tuple[T1, T2, T3, T4, T5]]: ...
@overload
def parallel(
    a: Call[T1],
    b: Call[T2],
    c: Call[T3],
    d: Call[T4],
    e: Call[T5],
    f: Call[T6],
    /,
    **options: Unpack[_All[tuple[T1, T2, T3, T4, T5, T6]]],
) -> Pending[tuple[T1, T2, T3, T4, T5, T6]]: ...
@overload
def parallel(
    a: Call[T1], /, *, require: Literal[0], **options: Unpack[_Options[tuple[Outcome[T1]]]]
) -> Pending[tuple[Outcome[T1]]]: ...
@overload
def parallel(
    a: Call[T1],
    b: Call[T2],
    /,
    *,
    require: Literal[0],
    **options: Unpack[_Options[tuple[Outcome[T1], Outcome[T2]]]],
) -> Pending[tuple[Outcome[T1], Outcome[T2]]]: ...
@overload
def parallel(
    a: Call[T1],
    b: Call[T2],
    c: Call[T3],
    /,
    *,
    require: Literal[0],
    **options: Unpack[_Options[tuple[Outcome[T1], Outcome[T2], Outcome[T3]]]],
) -> Pending[tuple[Outcome[T1], Outcome[T2], Outcome[T3]]]: ...
@overload
def parallel(
    a: Call[T1],
    b: Call[T2] = ...,
    c: Call[T3] = ...,
    d: Call[T4] = ...,
    e: Call[T5] = ...,
    f: Call[T6] = ...,
    /,
    *,
    require: Literal[0],
    validate: Check[tuple[Outcome[T1 | T2 | T3 | T4 | T5 | T6], ...]] = None,
    concurrency: int | None = None,
) -> Pending[tuple[Outcome[T1 | T2 | T3 | T4 | T5 | T6], ...]]: ...
@overload
def parallel(
    *coroutines: Call[T], require: Literal[0], **options: Unpack[_Options[tuple[Outcome[T], ...]]]
) -> Pending[tuple[Outcome[T], ...]]: ...
@overload
def parallel(
    a: Call[T1],
    b: Call[T2] = ...,
    c: Call[T3] = ...,
    d: Call[T4] = ...,
    e: Call[T5] = ...,
    f: Call[T6] = ...,
    /,
    *,
    require: Literal["any"] | int,
    validate: Check[tuple[T1 | T2 | T3 | T4 | T5 | T6, ...]] = None,
    concurrency: int | None = None,
) -> Pending[tuple[T1 | T2 | T3 | T4 | T5 | T6, ...]]: ...
@overload
def parallel(
    *coroutines: Call[T], require: Require = "all", **options: Unpack[_Options[tuple[T, ...]]]
) -> Pending[tuple[T, ...]]: ...
def parallel(
    *coroutines: Call[Any],
    require: Require = "all",
    validate: Check[Any] = None,
    concurrency: int | None = None,
) -> Pending[tuple[Any, ...]]:
    """Await several coroutines side by side, until enough of them have succeeded, or no longer can.

        first, second = await parallel(classify(text), summarize(text))
        quickest_two = await parallel(ask(a), ask(b), ask(c), require=2)
        outcomes = await parallel(ask(a), ask(b), require=0)

    The result is a tuple. With `require="all"`, the results are in the order of the coroutines. The first
    failure cancels the others and is raised as it is; failures that come meanwhile are notes of it. With a
    number, exactly that many results are returned, in the order in which they came; `"any"` is 1. With 0,
    each coroutine gives a `Success` or a `Failure`, in the order of the coroutines, and all run to their end.
    Coroutines that are no longer needed are cancelled, and have ended when this returns. If one waits for a
    person in a run that a store keeps, the others run to their end before the run pauses.

    `concurrency` is the maximum number of coroutines that run at once, by default all; the others wait for
    their turn, in order.

    If the run is stopped or cancelled, or a budget around the calls is used up, all of them end. With
    `require=0`, a used-up budget does not raise: the results that were paid for are returned, and each of the
    other calls is a `Failure`. If the budget of a function itself is used up, its call fails like any other.

    `validate` is called once, with the tuple of results, or of outcomes with `require=0`. It is like `ensure`
    of a function: a lambda that is true, or a function that returns True or False, or raises AssertionError
    or ValueError.

    Raises:
        ConfigurationError: at the call, before `await`: more results are required than there are coroutines,
            an argument is not a coroutine or is given twice, or an option is invalid. It is a ValueError.
            Nothing runs.
        ParallelFailed: a number is required, and so many coroutines have failed that too few can succeed.
        ParallelValidationFailed: `validate` refuses the results.
    """
    try:
        _check_coroutines(coroutines)
        required = _required(require, len(coroutines))
        check_count("concurrency", concurrency, least=1)
        validation = Postcondition(validate, None, option="validate", subject="results")
        if validation.problems:
            expected = f"a condition on the tuple of results ({'; '.join(validation.problems)})"
            raise ConfigurationError("validate", validate, expected)
    except ConfigurationError:
        close_all(coroutines)
        raise

    async def together() -> tuple[Any, ...]:
        if current_scope() is not None or running_loop() is None:  # `run_members` refuses a missing loop
            return await inside()
        # A scope, so that an error has the spending of all of them.
        async with Scope("call", "parallel", parent=None, tracer=configuration().tracer):
            return await inside()

    async def inside() -> tuple[Any, ...]:
        tally: OutcomeTally[Any] = OutcomeTally(len(coroutines), required)
        await run_members(coroutines, tally, concurrency)
        results = tally.all_results() if require == "all" else tally.results()
        if violations := validation.violations(results):
            raise ParallelValidationFailed(tuple(violations), results)
        return results

    return _Together("parallel", together, coroutines)


@overload
def race(
    a: Call[T1],
    b: Call[T2] = ...,
    c: Call[T3] = ...,
    d: Call[T4] = ...,
    e: Call[T5] = ...,
    f: Call[T6] = ...,
    /,
) -> Pending[T1 | T2 | T3 | T4 | T5 | T6]: ...
@overload
def race(*coroutines: Call[T]) -> Pending[T]: ...
def race(*coroutines: Call[Any]) -> Pending[Any]:
    """Await several coroutines side by side, and return the result of the first one that succeeds.

        answer = await race(ask_openai(question), ask_anthropic(question))

    The result is that of the coroutine itself, not a tuple. The others are cancelled, and have ended when
    this returns; what they have spent by then still counts. A failure does not end the race, unless the
    run is stopped or a budget around the calls is used up: then all of them end, and that error is raised.

    Raises:
        ConfigurationError: at the call, before `await`: there is no coroutine, or an argument is not one, or
            is there twice. Nothing runs.
        ParallelFailed: all coroutines have failed.
    """
    some = parallel(*coroutines, require="any")

    async def first() -> Any:
        [result] = await some
        return result

    return _Together("race", first, (some,))


class _Together(Pending[T]):
    """Members that are closed if they never begin, for example because their task is cancelled before."""

    __slots__ = ("_members",)

    def __init__(
        self, name: str, begin: Callable[[], Coroutine[Any, Any, T]], members: Sequence[object]
    ) -> None:
        super().__init__(name, begin)
        self._members = members

    def throw(self, *error: Any) -> Any:
        if not self.has_begun:
            close_all(self._members)
        return super().throw(*error)

    def close(self) -> None:
        if not self.has_begun:
            close_all(self._members)
        super().close()


def _check_coroutines(coroutines: Sequence[object]) -> None:
    for coroutine in coroutines:
        if not isinstance(coroutine, Coroutine):
            expected = "a coroutine, such as classify(text); those of a list are parallel(*calls)"
            raise ConfigurationError("coroutines", coroutine, expected)
    if len({id(coroutine) for coroutine in coroutines}) < len(coroutines):
        raise ConfigurationError("coroutines", coroutines, "each coroutine once; call the function again")


def _required(require: object, members: int) -> int:
    if require == "all":
        return members
    required = 1 if require == "any" else require
    if not isinstance(required, int) or isinstance(required, bool) or required < 0:
        raise ConfigurationError("require", require, "'all', 'any', 0 or a number of coroutines")
    if required > members == 0:
        raise ConfigurationError("coroutines", (), "at least one")
    if required > members:
        raise ConfigurationError("require", require, f"at most {members}, the number of coroutines")
    return required

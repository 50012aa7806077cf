"""`parallel` and `race`: several calls side by side. All, some or one of them must succeed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, overload

from fastroai.contracts.brief import one_line
from fastroai.errors import ConfigurationError, ParallelFailed, ParallelValidationFailed
from fastroai.functions.conditions import Conditions, Postcondition
from fastroai.functions.configuring import configuration
from fastroai.functions.members import close_all, run_members
from fastroai.functions.pending import Pending
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.failures import note_failed_beside
from fastroai.runtime.wakeup import running_loop

T = TypeVar("T")

Require: TypeAlias = Literal["all", "any"] | int
"""How many calls must succeed: all; one; a number; or 0, which takes successes and failures alike."""


@dataclass(frozen=True, slots=True)
class Success(Generic[T]):
    """The outcome of a coroutine of `parallel(..., require=0)` that returned."""

    value: T
    """The result of the coroutine."""
    ok: ClassVar[Literal[True]] = True
    error: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The outcome of a coroutine of `parallel(..., require=0)` that raised."""

    error: Exception
    """The exception of the coroutine."""
    ok: ClassVar[Literal[False]] = False
    value: ClassVar[None] = None


@overload
def parallel(
    *coroutines: Coroutine[Any, Any, T],
    require: Literal[0],
    validate: Callable[[list[Success[T] | Failure]], object] | None = None,
) -> Pending[list[Success[T] | Failure]]: ...
@overload
def parallel(
    *coroutines: Coroutine[Any, Any, T],
    require: Require = "all",
    validate: Callable[[list[T]], object] | None = None,
) -> Pending[list[T]]: ...
def parallel(
    *coroutines: Coroutine[Any, Any, T],
    require: Require = "all",
    validate: Callable[[list[Any]], object] | None = None,
) -> Pending[list[Any]]:
    """Await several coroutines side by side, until enough of them have succeeded, or no longer can.

        first, second = await parallel(classify(text), summarize(text))
        quickest_two = await parallel(ask(a), ask(b), ask(c), require=2)
        outcomes = await parallel(ask(a), ask(b), require=0)

    With `require="all"`, the results are in the order of the coroutines. The first failure is raised as it
    is, with the others as notes. With a number, exactly that many results are returned, in the order in which
    they came; `"any"` is 1. With 0, each coroutine gives a `Success` or a `Failure`, in the order of the
    coroutines, and all run to their end. Coroutines that are no longer needed are cancelled, and have ended
    when this returns.

    A stop of a budget or of the run, or a cancellation, ends all. If the own budget of a function stops it,
    that is a failure of that call alone.

    `validate` takes the list of results. It is like `ensure` of a function: a lambda that is true, or a
    function that returns True or False, or raises AssertionError or ValueError.

    Raises:
        ConfigurationError: more results are required than there are coroutines, or an argument is not a
            coroutine. It is a ValueError. Nothing runs.
        ParallelFailed: so many coroutines have failed that too few can succeed.
        ParallelValidationFailed: `validate` refuses the list.
    """
    try:
        _check_coroutines(coroutines)
        required = _required(require, len(coroutines))
        validation = _Validation(validate)
    except ConfigurationError:
        close_all(coroutines)
        raise

    async def together() -> list[Any]:
        if current_scope() is not None or running_loop() is None:  # `run_members` refuses a missing loop
            return await inside()
        # A scope, so that an error has the spending of all of them.
        async with Scope("call", "parallel", parent=None, tracer=configuration().tracer):
            return await inside()

    async def inside() -> list[Any]:
        tally: _Tally[T] = _Tally(len(coroutines), required)
        await run_members(coroutines, tally)
        results = tally.all_results() if require == "all" else tally.results()
        if violations := validation.violations(results):
            raise ParallelValidationFailed(tuple(violations), tuple(results))
        return results

    return _Together("parallel", together, coroutines)


def race(*coroutines: Coroutine[Any, Any, T]) -> Pending[T]:
    """Await several coroutines side by side, and return the result of the first one that succeeds.

        answer = await race(ask_openai(question), ask_anthropic(question))

    The others are cancelled, and have ended when this returns.

    Raises:
        ConfigurationError: there is no coroutine, or an argument is not one. Nothing runs.
        ParallelFailed: all coroutines have failed.
    """
    some = parallel(*coroutines, require="any")

    async def first() -> T:
        [result] = await some
        return result

    return _Together("race", first, (some,))


class _Validation(Postcondition):
    """A condition that must hold for all results together."""

    option: ClassVar[str] = "validate"
    subject: ClassVar[str] = "results"

    def __init__(self, given: Conditions) -> None:
        super().__init__(given, None)
        if self.problems:
            expected = f"a condition on the list of results ({'; '.join(self.problems)})"
            raise ConfigurationError("validate", given, expected)


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


class _Tally(Generic[T]):
    """Counts results and failures, in the order in which they come."""

    def __init__(self, members: int, required: int) -> None:
        """Count until `required` members have succeeded, or too few can; if it is 0, until all have ended."""
        self._members = members
        self._required = required
        self._values: dict[int, T] = {}
        self._errors: dict[int, Exception] = {}

    @property
    def is_decided(self) -> bool:
        left = self._members - len(self._errors)
        return self._required > 0 and (self._is_met or left < self._required)

    @property
    def _is_met(self) -> bool:
        return len(self._values) >= self._required

    def came(self, member: int, value: T) -> None:
        if not self.is_decided:
            self._values[member] = value

    def failed(self, member: int, error: Exception) -> None:
        self._errors[member] = error

    def ends_all(self, error: Exception) -> bool:
        """See `Tally`. The failure of a coroutine does not end the others."""
        return False

    def all_results(self) -> list[T]:
        """Return every result in the order of the members. Raises the first failure."""
        if self._errors:
            first, *others = self._errors.values()
            for other in others:
                first.add_note(f"Another coroutine failed: {one_line(f'{type(other).__name__}: {other}')}")
            note_failed_beside(first, others)
            raise first
        return [self._values[member] for member in range(self._members)]

    def results(self) -> list[T] | list[Success[T] | Failure]:
        """Return as many results as are required; or the outcome of each member, if none is required.

        Raises `ParallelFailed`.
        """
        if self._required == 0:
            return [self._outcome(member) for member in range(self._members)]
        if not self._is_met:
            errors = tuple(self._errors.values())
            failed = ParallelFailed(self._required, self._members, errors)
            note_failed_beside(failed, errors)
            raise failed from errors[0]
        return [*self._values.values()]

    def _outcome(self, member: int) -> Success[T] | Failure:
        error = self._errors.get(member)
        return Success(self._values[member]) if error is None else Failure(error)


def _check_coroutines(coroutines: Sequence[object]) -> None:
    for one in coroutines:
        if not isinstance(one, Coroutine):
            expected = "a coroutine, such as classify(text); those of a list are parallel(*calls)"
            raise ConfigurationError("coroutines", one, expected)
    if len({id(one) for one in coroutines}) < len(coroutines):
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

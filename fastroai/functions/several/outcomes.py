"""The outcomes of coroutines that run side by side: successes and failures, counted as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from fastroai.contracts.brief import one_line
from fastroai.errors import BudgetExceeded
from fastroai.functions.errors import ParallelFailed
from fastroai.runtime.retrying.failures import leaves, note_failed_beside

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Success(Generic[T]):
    """The outcome of a coroutine of `parallel(..., require=0)` that returned: its result is `value`.

    `ok` is always True, and `error` is always `None`.
    """

    value: T
    """The result of the coroutine."""
    ok: ClassVar[Literal[True]] = True
    error: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The outcome of a coroutine of `parallel(..., require=0)` that raised: its exception is `error`.

    `ok` is always False, and `value` is always `None`.
    """

    error: Exception
    """The exception of the coroutine."""
    ok: ClassVar[Literal[False]] = False
    value: ClassVar[None] = None


Outcome: TypeAlias = Success[T] | Failure


class OutcomeTally(Generic[T]):
    """Counts results and failures, in the order in which they come."""

    def __init__(self, members: int, required: int) -> None:
        """Count until `required` members have succeeded, or too few can; if it is 0, until all have ended."""
        self._members = members
        self._required = required
        self._values: dict[int, T] = {}
        self._errors: dict[int, Exception] = {}

    @property
    def is_decided(self) -> bool:
        """See `Tally`."""
        left = self._members - len(self._errors)
        return self._required > 0 and (self._is_met or left < self._required)

    @property
    def _is_met(self) -> bool:
        return len(self._values) >= self._required

    def came(self, member: int, value: T) -> None:
        """See `Tally`."""
        if not self.is_decided:
            self._values[member] = value

    def failed(self, member: int, error: Exception) -> None:
        """See `Tally`."""
        self._errors[member] = error

    def ends_all(self, error: Exception, *, is_stop: bool) -> bool:
        """See `Tally`. If no success is required, a budget that is used up leaves those that came before."""
        is_budget = any(isinstance(leaf, BudgetExceeded) for leaf in leaves(error))
        return is_stop and not (self._required == 0 and is_budget)

    def all_results(self) -> tuple[T, ...]:
        """Return every result in the order of the members. Raises the first failure."""
        if self._errors:
            first, *others = self._errors.values()
            for other in others:
                first.add_note(f"Another coroutine failed: {one_line(f'{type(other).__name__}: {other}')}")
            note_failed_beside(first, others)
            raise first
        return tuple([self._values[member] for member in range(self._members)])

    def results(self) -> tuple[T, ...] | tuple[Outcome[T], ...]:
        """Return as many results as are required; or the outcome of each member, if none is required.

        Raises `ParallelFailed`.
        """
        if self._required == 0:
            return tuple([self._outcome(member) for member in range(self._members)])
        if not self._is_met:
            errors = tuple(self._errors.values())
            failed = ParallelFailed(self._required, self._members, errors)
            note_failed_beside(failed, errors)
            raise failed from errors[0]
        return tuple(self._values.values())

    def _outcome(self, member: int) -> Outcome[T]:
        error = self._errors.get(member)
        return Success(self._values[member]) if error is None else Failure(error)

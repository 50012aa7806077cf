"""`quorum=`: several members answer one call side by side, and enough of them must agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Generic, TypeAlias, TypeVar, cast

from fastroai.errors import BudgetExceeded, ConfigurationError, nearest_hint
from fastroai.functions.declaring.conditions import is_fault
from fastroai.functions.errors import ConsensusFailure
from fastroai.functions.several.members import run_members

T = TypeVar("T")

Fields: TypeAlias = "str | Sequence[str]"
"""The name of a field, or several; a dot leads into a field: `"address.city"`."""

_CONFIDENCE = "confidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The number of members that answer, the fields on which they must agree, and how many members must."""

    members: int
    threshold: int
    agree_on: tuple[str, ...] = ()
    """Fields that must be equal; without any, the whole outputs must be."""

    @classmethod
    def of(cls, members: int, agree_on: str | None, threshold: int | None) -> Quorum:
        """Return the quorum for these options. By default, more than half of the members must agree."""
        return cls(
            members=members,
            threshold=members // 2 + 1 if threshold is None else threshold,
            agree_on=() if agree_on is None else (agree_on,),
        )


@dataclass(slots=True)
class Ballot(Generic[T]):
    """The votes of a quorum. The result is computed purely, and does not depend on the order of the votes.

    Outputs that agree form a group. A group with enough members wins. Of several such groups, the one with
    the larger sum of confidence wins, then the one with the earlier member. An output without a number as its
    `confidence` counts 1.
    """

    quorum: Quorum
    output_of: Callable[[T], object]
    """Returns the output of a vote."""
    votes: dict[int, T] = field(default_factory=dict)
    """Votes by member, from 1."""
    errors: dict[int, Exception] = field(default_factory=dict)
    """The errors of members that failed, which are votes without output."""

    def came(self, member: int, value: T) -> None:
        """See `Tally`, whose members begin at 0. Raises `ConfigurationError` as `agreed_value` does."""
        agreed_value(self.output_of(value), self.quorum.agree_on)
        self.votes[member + 1] = value

    def failed(self, member: int, error: Exception) -> None:
        """See `Tally`."""
        self.errors[member + 1] = error

    def ends_all(self, error: Exception, *, is_stop: bool) -> bool:
        """See `Tally`. A budget that stops one member stops all; a mistake in code is the same for all."""
        return is_stop or isinstance(error, BudgetExceeded | ConfigurationError) or is_fault(error)

    @property
    def is_decided(self) -> bool:
        """Whether the remaining members cannot bring any group to the threshold."""
        left = self.quorum.members - len(self.votes) - len(self.errors)
        return self._most + left < self.quorum.threshold

    def winner(self) -> T | None:
        """Return the vote with the highest confidence in the winning group; `None` if no group wins."""
        over = [group for group in self._groups() if len(group) >= self.quorum.threshold]
        if not over:
            return None
        group = max(over, key=lambda group: sum(map(self._confidence, group)))
        return self.votes[max(group, key=self._confidence)]

    def failure(self, function: str) -> ConsensusFailure:
        """Return the error for too few members that agree."""
        return ConsensusFailure(
            function,
            self._most,
            self.quorum.threshold,
            tuple(self.output_of(self.votes[member]) for member in sorted(self.votes)),
            tuple(self.errors[member] for member in sorted(self.errors)),
        )

    @property
    def _most(self) -> int:
        return max(map(len, self._groups()), default=0)

    def _groups(self) -> list[list[int]]:
        voted = [(member, self.output_of(self.votes[member])) for member in sorted(self.votes)]
        return groups(voted, self.quorum.agree_on)

    def _confidence(self, member: int) -> Fraction:
        """Return the confidence as the model wrote it: 0.1 + 0.2 is exactly 0.3, unlike with floats."""
        stated = _field_of(self.output_of(self.votes[member]), _CONFIDENCE, default=1)
        is_number = isinstance(stated, int | float | Decimal) and not isinstance(stated, bool)
        return Fraction(str(stated)) if is_number and math.isfinite(stated) else Fraction(1)


async def agreed(ballot: Ballot[T], ask: Callable[[int], Coroutine[Any, Any, T]], *, function: str) -> T:
    """Ask all members at once, and return the winning vote when all have voted.

    `ask` takes the number of a member, from 1. The remaining members are cancelled if too few can agree, or
    if something ends the call.

    Raises:
        ConsensusFailure: too few members agree, or too few can still agree.
        BudgetExceeded: a budget stopped a member, which ends all.
        ConfigurationError: an output lacks a field on which the members should agree.
        Exception: a condition of the function failed in a way that says nothing about an output.
    """
    await run_members([ask(number) for number in range(1, ballot.quorum.members + 1)], ballot)
    winner = ballot.winner()
    if winner is None:
        raise ballot.failure(function) from next(iter(ballot.errors.values()), None)
    return winner


def groups(outputs: Sequence[tuple[int, object]], on: tuple[str, ...]) -> list[list[int]]:
    """Return the numbers of outputs that agree, group by group, in the order in which they are given.

    Raises:
        ConfigurationError: an output does not have one of the fields.
    """
    found: list[tuple[object, list[int]]] = []
    for number, output in outputs:
        value = agreed_value(output, on)
        for known, members in found:
            if value == known:
                members.append(number)
                break
        else:
            found.append((value, [number]))
    return [members for _, members in found]


def agreed_value(output: object, on: tuple[str, ...]) -> object:
    """Return the value that outputs must share to agree: the values of the fields, or the whole output.

    If an output is `None`, or an optional field on the way is, the value of the field is `None`.

    Raises:
        ConfigurationError: the output does not have one of the fields.
    """
    return [_field_of(output, name) for name in on] if on else output


def fields_of(on: Fields) -> tuple[str, ...]:
    """Return the names of the fields as a tuple."""
    return (on,) if isinstance(on, str) else tuple(on)


_MISSING = object()


def _field_of(output: object, name: str, default: object = _MISSING) -> Any:
    value = output
    for part in name.split("."):
        if value is None:
            break
        if isinstance(value, Mapping):
            value = cast("Mapping[str, object]", value).get(part, _MISSING)
        else:
            value = getattr(value, part, _MISSING)
        if value is _MISSING:
            if default is not _MISSING:
                return default
            known = cast(
                "Iterable[str]", output if isinstance(output, Mapping) else getattr(output, "__dict__", ())
            )
            expected = f"a field of {type(output).__name__}.{nearest_hint(name, known)}"
            raise ConfigurationError("agree_on", name, expected)
    return value

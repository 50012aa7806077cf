"""Whether what several clients of a run store have seen could have happened one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias

Keys: TypeAlias = frozenset[tuple[str, tuple[bytes | None, ...]]]
"""All that a store holds: by key, what was at each position, `None` where it has been replaced."""
Effect: TypeAlias = Callable[[dict[str, tuple[bytes | None, ...]]], bool]
"""Changes what a store holds, and returns whether that gives the answer that a client has got."""
EMPTY: Final[Keys] = frozenset()


@dataclass(frozen=True)
class Seen:
    """An operation of a client: when it began and ended, and what it does to a store to get its answer."""

    what: str
    effect: Effect
    began: float
    ended: float = inf
    """Never, of one whose answer was lost: it happens at any time later, or not at all."""

    def __str__(self) -> str:
        return f"{self.began:.6f} to {self.ended:.6f}: {self.what}"


def append(key: str, values: Sequence[bytes], revision: int) -> Effect:
    """It has succeeded."""

    def effect(held: dict[str, tuple[bytes | None, ...]]) -> bool:
        if len(held.get(key, ())) != revision:
            return False
        if values:
            held[key] = (*held.get(key, ()), *values)
        return True

    return effect


def compare_and_set(key: str, value: bytes, revision: int) -> Effect:
    """It has succeeded."""

    def effect(held: dict[str, tuple[bytes | None, ...]]) -> bool:
        if len(held.get(key, ())) != revision:
            return False
        held[key] = (*(None,) * revision, value)
        return True

    return effect


def conflict(key: str, actual: int) -> Effect:
    """A write was refused, for a key at this revision."""
    return lambda held: len(held.get(key, ())) == actual


def delete(key: str) -> Effect:
    """It has succeeded."""

    def effect(held: dict[str, tuple[bytes | None, ...]]) -> bool:
        held.pop(key, None)
        return True

    return effect


def read(key: str, after: int, values: Sequence[bytes], revision: int) -> Effect:
    """It has given these values, at this revision."""

    def effect(held: dict[str, tuple[bytes | None, ...]]) -> bool:
        now = held.get(key, ())
        return len(now) == revision and [one for one in now[after:] if one is not None] == [*values]

    return effect


def listed(found: Sequence[tuple[str, bytes, int]]) -> Effect:
    """All keys were listed: with the last value of each, and its revision."""
    return lambda held: [(key, now[-1], len(now)) for key, now in sorted(held.items())] == [*found]


def order_of(history: Iterable[Seen]) -> list[Seen] | None:
    """Return an order in which all of it could have happened, or `None` if there is none.

    An operation comes after those that had ended before it began. This is the search of Wing and Gong (1993),
    which remembers where it has been, as Lowe's (2017) does.
    """
    operations = sorted(history, key=lambda seen: seen.began)
    been: set[tuple[int, Keys]] = set()
    order: list[Seen] = []

    def search(done: int, held: Keys) -> bool:
        left = [number for number in range(len(operations)) if not done >> number & 1]
        deadline = min((operations[number].ended for number in left), default=inf)
        if deadline == inf:
            return True  # the answers of those that are left were lost
        if (done, held) in been:
            return False
        been.add((done, held))
        for number in left:
            if operations[number].began > deadline:
                break
            now: dict[str, Any] = dict(held)
            if operations[number].effect(now):
                order.append(operations[number])
                if search(done | 1 << number, frozenset(now.items())):
                    return True
                order.pop()
        return False

    return order if search(0, EMPTY) else None

"""Rounds of comprehensions over lists and keys, each of which costs steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fastroai.expressions.evaluation import Evaluation, Problem
from fastroai.expressions.json_values import Value, is_plain, type_name
from fastroai.expressions.lookup import plain, refuse

Code: TypeAlias = Callable[[Evaluation], Value]
"""The compiled form of an expression, or of a part of it."""
Rounds: TypeAlias = Callable[[Evaluation], Iterator[Value]]


@dataclass(frozen=True, slots=True)
class Loop:
    """One `for` of a comprehension, with its `if`s."""

    source: Code
    places: Sequence[int]
    """Places of the variables that the loop binds."""
    unpacks: bool
    """Whether the variables are the parts of an item, and not the item itself."""
    conditions: Sequence[Code]
    steps: int
    """Steps that a round costs."""
    text: str
    """The source of the items, as the expression writes it."""


def looped(loops: Sequence[Loop], result: Code) -> Rounds:
    """Return the code that gives the values of `result` in all rounds of nested loops."""
    rounds = _innermost(loops[-1], result)
    for loop in reversed(loops[:-1]):
        rounds = _around(loop, rounds)
    return rounds


def _innermost(loop: Loop, result: Code) -> Rounds:
    bound, conditions = _binding(loop), loop.conditions
    if not conditions:
        return lambda evaluation: (result(evaluation) for _ in bound(evaluation))

    def rounds(evaluation: Evaluation) -> Iterator[Value]:
        for _ in bound(evaluation):
            if all(condition(evaluation) for condition in conditions):
                yield result(evaluation)

    return rounds


def _around(loop: Loop, inner: Rounds) -> Rounds:
    bound, conditions = _binding(loop), loop.conditions

    def rounds(evaluation: Evaluation) -> Iterator[Value]:
        for _ in bound(evaluation):
            if all(condition(evaluation) for condition in conditions):
                yield from inner(evaluation)

    return rounds


def _binding(loop: Loop) -> Rounds:
    """Return the code that gives the items of a loop, each bound to its variables."""
    source, text, steps, places = loop.source, loop.text, loop.steps, loop.places
    item_of = f"an item of {text}"

    def bound(evaluation: Evaluation) -> Iterator[Value]:
        variables = evaluation.variables
        for item in _items(evaluation, source(evaluation), text):
            evaluation.spend(steps)
            if not is_plain(item):
                refuse(item, item_of)
            if loop.unpacks:
                for place, part in zip(places, _unpacked(item, len(places), item_of), strict=True):
                    variables[place] = plain(part, f"a part of {item_of}")
            else:
                variables[places[0]] = item
            yield item

    return bound


def _items(evaluation: Evaluation, container: Value, text: str) -> Iterable[Value]:
    if type(container) is list or type(container) is tuple:
        return container
    if type(container) is dict:
        evaluation.check_keys(container)
        return container
    raise Problem(f"'for' goes over a list or the keys of a dict; {text} is of type {type_name(container)}")


def _unpacked(item: Value, count: int, item_of: str) -> list[Value] | tuple[Value, ...]:
    if type(item) is not list and type(item) is not tuple:
        raise Problem(f"{item_of} is of type {type_name(item)}, not a list to unpack")
    if len(item) != count:
        raise Problem(f"{item_of} is a list of {len(item)}, not of {count}")
    return item

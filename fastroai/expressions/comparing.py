"""Comparisons and membership. Equality is that of JSON: a tuple equals a list, and nan equals nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from fastroai.expressions.evaluation import Evaluation, Problem
from fastroai.expressions.json_values import Value, is_number, type_name
from fastroai.expressions.limits import MAX_DATA_DEPTH, STEPS_PER_ITEM
from fastroai.expressions.lookup import plain

Comparison: TypeAlias = Callable[[Evaluation, Value, Value], bool]


def equal(evaluation: Evaluation, left: Value, right: Value) -> bool:
    """Return whether two values are equal, at any depth."""
    return _equal(evaluation, left, right, 0)


def unequal(evaluation: Evaluation, left: Value, right: Value) -> bool:
    """Return whether two values are not equal."""
    return not _equal(evaluation, left, right, 0)


def _equal(evaluation: Evaluation, left: Value, right: Value, depth: int) -> bool:
    if type(left) is str and type(right) is str:
        if len(left) == len(right):
            evaluation.read_text(len(left))
        return left == right
    if type(left) is dict and type(right) is dict:
        return _equal_dicts(evaluation, left, right, _deeper(depth))
    if (type(left) is list or type(left) is tuple) and (type(right) is list or type(right) is tuple):
        return _equal_lists(evaluation, left, right, _deeper(depth))
    # Numbers, booleans and None have an equality of their own; otherwise the types differ.
    return bool(plain(left, "a value that is compared") == plain(right, "a value that is compared"))


def _equal_lists(
    evaluation: Evaluation,
    left: list[Value] | tuple[Value, ...],
    right: list[Value] | tuple[Value, ...],
    depth: int,
) -> bool:
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=False):
        evaluation.spend(STEPS_PER_ITEM)
        if not _equal(evaluation, one, other, depth):
            return False
    return True


def _equal_dicts(evaluation: Evaluation, left: dict[str, Value], right: dict[str, Value], depth: int) -> bool:
    evaluation.check_keys(left)
    evaluation.check_keys(right)
    if len(left) != len(right):
        return False
    for key, one in left.items():
        evaluation.spend(STEPS_PER_ITEM)
        evaluation.read_text(len(key))
        if key not in right or not _equal(evaluation, one, right[key], depth):
            return False
    return True


def _deeper(depth: int) -> int:
    if depth == MAX_DATA_DEPTH:
        raise Problem(f"the data that is compared is nested more than {MAX_DATA_DEPTH} deep")
    return depth + 1


def contained(evaluation: Evaluation, item: Value, container: Value) -> bool:
    """Return whether a text has a part, a list an item, or a dict a key."""
    if type(container) is list or type(container) is tuple:
        for other in container:
            evaluation.spend(STEPS_PER_ITEM)
            if _equal(evaluation, item, other, 0):
                return True
        return False
    if type(container) is str and type(item) is str:
        evaluation.search_text(_characters_of_search(len(container), len(item)))
        return item in container
    if type(container) is dict and type(item) is str:
        evaluation.check_keys(container)
        evaluation.read_text(len(item))
        return item in container
    if type(container) is str or type(container) is dict:
        has = "parts of a str" if type(container) is str else "keys of a dict"
        raise Problem(f"'in': {has} are of type str, not {type_name(item)}")
    raise Problem(f"'in' looks into a list, a dict or a str, not {type_name(container)}")


def _characters_of_search(text: int, part: int) -> int:
    """Return how many characters a search reads at worst. In short text, it compares the part at each place.

    The limits are those of CPython (Objects/stringlib/fastsearch.h); searching longer text is linear.
    """
    quadratic = text < 2_500 or (part < 100 and text < 30_000)
    return text + part + (text * part // 8 if quadratic else 0)


def not_contained(evaluation: Evaluation, item: Value, container: Value) -> bool:
    """Return whether a text lacks a part, a list an item, or a dict a key."""
    return not contained(evaluation, item, container)


def _ordered(symbol: str, compare: Callable[[Any, Any], bool]) -> Comparison:
    def ordered(evaluation: Evaluation, left: Value, right: Value) -> bool:
        if is_number(left) and is_number(right):
            return compare(left, right)
        if type(left) is str and type(right) is str:
            evaluation.read_text(min(len(left), len(right)))
            return compare(left, right)
        raise Problem(
            f"'{symbol}' compares two numbers or two texts, not {type_name(left)} and {type_name(right)}"
        )

    return ordered


less = _ordered("<", operator.lt)
less_or_equal = _ordered("<=", operator.le)
greater = _ordered(">", operator.gt)
greater_or_equal = _ordered(">=", operator.ge)

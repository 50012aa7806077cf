"""Arithmetic with numbers of bounded size, and concatenation of texts and of lists."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from fastroai.expressions.evaluation import Evaluation, Problem
from fastroai.expressions.json_values import Value, is_number, shown, type_name
from fastroai.expressions.limits import MAX_INTEGER_BITS

Operation: TypeAlias = Callable[[Evaluation, Value, Value], Value]


def bounded(value: Value, what: str) -> Value:
    """Return a result, unless it is an integer that is too large. `what` names the operation in the error."""
    if type(value) is int and value.bit_length() > MAX_INTEGER_BITS:
        raise Problem(f"{what} gives {shown(value)}; expressions work with up to {MAX_INTEGER_BITS:,}")
    return value


def number(value: Value, what: str) -> Any:
    """Return a value if it is a number. `what` names the operation that needs it."""
    if not is_number(value):
        raise Problem(f"{what} needs a number, not {type_name(value)}")
    return value


def _calculated(symbol: str, calculate: Callable[[Any, Any], Value]) -> Operation:
    def calculated(evaluation: Evaluation, left: Value, right: Value) -> Value:
        if not (is_number(left) and is_number(right)):
            raise Problem(f"'{symbol}' needs two numbers, not {type_name(left)} and {type_name(right)}")
        try:
            return bounded(calculate(left, right), f"'{symbol}'")
        except ArithmeticError as error:
            raise Problem(f"'{symbol}': {error}") from error

    return calculated


_added = _calculated("+", operator.add)
subtracted = _calculated("-", operator.sub)
multiplied = _calculated("*", operator.mul)
divided = _calculated("/", operator.truediv)
floor_divided = _calculated("//", operator.floordiv)
remainder = _calculated("%", operator.mod)


def added(evaluation: Evaluation, left: Value, right: Value) -> Value:
    """Return the sum of two numbers, or the concatenation of two texts or lists."""
    if is_number(left) and is_number(right):
        return _added(evaluation, left, right)
    if type(left) is str and type(right) is str:
        evaluation.build_text(left, right)
        return left + right
    if (type(left) is list or type(left) is tuple) and (type(right) is list or type(right) is tuple):
        evaluation.take_items(len(left) + len(right))
        return [*left, *right]
    raise Problem(
        f"'+' needs two numbers, two texts or two lists, not {type_name(left)} and {type_name(right)}"
    )

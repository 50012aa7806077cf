"""The functions that every expression has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from fastroai.expressions.arithmetic import bounded, number
from fastroai.expressions.comparing import contained, greater, less
from fastroai.expressions.evaluation import Evaluation, Problem
from fastroai.expressions.json_values import Value, is_number, shown, type_name
from fastroai.expressions.limits import MAX_NUMBER_CHARACTERS, MAX_ROUND_DIGITS, STEPS_PER_ROUNDING
from fastroai.expressions.lookup import plain


@dataclass(frozen=True, slots=True)
class Function:
    """A function of expressions, and the number of arguments that it takes."""

    call: Callable[..., Value]
    """The function, whose first argument is the evaluation."""
    least: int = 1
    most: int | None = 1
    takes_generator: bool = False
    """Whether `f(x for x in items)` may be written for `f([x for x in items])`, as in Python."""


def _text(value: Value, function: str) -> str:
    if type(value) is not str:
        raise Problem(f"{function}() takes text, not {type_name(value)}")
    return value


def _items(evaluation: Evaluation, value: Value, function: str) -> list[Value] | tuple[Value, ...]:
    if type(value) is not list and type(value) is not tuple:
        raise Problem(f"{function}() takes a list, not {type_name(value)}")
    evaluation.take_items(len(value))
    for item in value:
        plain(item, f"an item of {function}()")
    return value


def _len(evaluation: Evaluation, value: Value) -> Value:
    if type(value) is str or type(value) is list or type(value) is tuple or type(value) is dict:
        return len(value)
    raise Problem(f"len() takes a list, a dict or text, not {type_name(value)}")


def _extreme(name: str, better: Callable[[Evaluation, Value, Value], bool]) -> Callable[..., Value]:
    def extreme(evaluation: Evaluation, *arguments: Value) -> Value:
        items = _items(evaluation, arguments[0], name) if len(arguments) == 1 else arguments
        if not items:
            raise Problem(f"{name}() of an empty list")
        best = items[0]
        for item in items[1:]:
            if better(evaluation, item, best):
                best = item
        return best

    return extreme


def _sum(evaluation: Evaluation, value: Value) -> Value:
    items = _items(evaluation, value, "sum")
    try:
        return bounded(sum(number(item, "sum()") for item in items), "sum()")
    except ArithmeticError as error:
        raise Problem(f"sum(): {error}") from error


def _any(evaluation: Evaluation, value: Value) -> Value:
    return any(_items(evaluation, value, "any"))


def _all(evaluation: Evaluation, value: Value) -> Value:
    return all(_items(evaluation, value, "all"))


def _sorted(evaluation: Evaluation, value: Value) -> Value:
    items: Any = _items(evaluation, value, "sorted")
    rounds = len(items).bit_length()
    evaluation.spend(len(items) * rounds // 4)
    if all(type(item) is str for item in items):
        evaluation.read_text(sum(map(len, items)) * rounds)
    else:
        for item in items:
            if not is_number(item):
                raise Problem(f"sorted() takes numbers, or texts, not both and nothing else: {shown(item)}")
    return sorted(items)


def _abs(evaluation: Evaluation, value: Value) -> Value:
    return abs(number(value, "abs()"))


def _round(evaluation: Evaluation, value: Value, digits: Value = None) -> Value:
    if digits is None:
        return _converted("round", round, number(value, "round()"))
    if type(digits) is not int or not -MAX_ROUND_DIGITS <= digits <= MAX_ROUND_DIGITS:
        raise Problem(f"round() takes up to {MAX_ROUND_DIGITS} digits, as an int, not {shown(digits)}")
    evaluation.spend(STEPS_PER_ROUNDING)
    return _converted("round", round, number(value, "round()"), digits)


def _str(evaluation: Evaluation, value: Value) -> Value:
    if type(value) is str:
        return value
    if is_number(value) or value is None:
        return str(value)
    raise Problem(f"str() takes text, a number, a bool or None, not {type_name(value)}")


def _number_of(name: str, convert: Callable[[Any], Value]) -> Callable[[Evaluation, Value], Value]:
    def number_of(evaluation: Evaluation, value: Value) -> Value:
        if type(value) is str and len(value) > MAX_NUMBER_CHARACTERS:
            raise Problem(
                f"{name}() takes text of up to {MAX_NUMBER_CHARACTERS} characters, not {len(value):,}"
            )
        if type(value) is str or is_number(value):
            return _converted(name, convert, value)
        raise Problem(f"{name}() takes a number or text, not {type_name(value)}")

    return number_of


def _converted(name: str, convert: Callable[..., Value], value: Value, *more: Value) -> Value:
    try:
        return bounded(convert(value, *more), f"{name}()")
    except (ValueError, ArithmeticError) as error:
        raise Problem(f"{name}({shown(value)}): {error}") from error


def _bool(evaluation: Evaluation, value: Value) -> Value:
    return bool(value)


def _rewritten(name: str, rewrite: Callable[[str], str]) -> Callable[[Evaluation, Value], Value]:
    def rewritten(evaluation: Evaluation, value: Value) -> Value:
        text = _text(value, name)
        evaluation.build_text(text)
        return rewrite(text)

    return rewritten


def _startswith(evaluation: Evaluation, value: Value, start: Value) -> Value:
    return _text(value, "startswith").startswith(_part(evaluation, start, "startswith"))


def _endswith(evaluation: Evaluation, value: Value, end: Value) -> Value:
    return _text(value, "endswith").endswith(_part(evaluation, end, "endswith"))


def _part(evaluation: Evaluation, value: Value, function: str) -> str:
    part = _text(value, function)
    evaluation.read_text(len(part))
    return part


def _contains(evaluation: Evaluation, container: Value, item: Value) -> Value:
    return contained(evaluation, item, container)


FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {
        "len": Function(_len),
        "min": Function(_extreme("min", less), most=None, takes_generator=True),
        "max": Function(_extreme("max", greater), most=None, takes_generator=True),
        "sum": Function(_sum, takes_generator=True),
        "any": Function(_any, takes_generator=True),
        "all": Function(_all, takes_generator=True),
        "abs": Function(_abs),
        "round": Function(_round, most=2),
        "sorted": Function(_sorted, takes_generator=True),
        "str": Function(_str),
        "int": Function(_number_of("int", int)),
        "float": Function(_number_of("float", float)),
        "bool": Function(_bool),
        "lower": Function(_rewritten("lower", str.lower)),
        "upper": Function(_rewritten("upper", str.upper)),
        "strip": Function(_rewritten("strip", str.strip)),
        "startswith": Function(_startswith, least=2, most=2),
        "endswith": Function(_endswith, least=2, most=2),
        "contains": Function(_contains, least=2, most=2),
    }
)
"""The functions by name. `has` is part of the language instead: it takes a lookup, and not a value."""

import math

import pytest

from fastroai.expressions import Expression
from fastroai.expressions.limits import MAX_DATA_DEPTH


def problem_of(text: str, **data: object) -> str:
    return Expression(text).test(data).problem or ""


@pytest.mark.parametrize(
    ("left", "right", "are_equal"),
    [
        (1, 1.0, True),
        (1, True, True),
        (1, "1", False),
        (0, None, False),
        (None, None, True),
        ("a", "a", True),
        ("a", "b", False),
        ("a", "ab", False),
        ([1, [2]], [1, [2]], True),
        ([1, [2]], [1, [3]], False),
        ([1], [1, 2], False),
        ([1, (2, 3)], (1, [2, 3]), True),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({}, [], False),
        ([], 0, False),
        (math.nan, math.nan, False),
        ([math.nan], [math.nan], False),
    ],
)
def test_equality_is_that_of_json(left: object, right: object, are_equal: bool) -> None:
    data = {"left": left, "right": right}
    assert Expression("left == right").evaluate(data) is are_equal
    assert Expression("right != left").evaluate(data) is not are_equal
    assert Expression("left in [right]").evaluate(data) is are_equal


@pytest.mark.parametrize("symbol", ["<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("left", "right", "types"),
    [
        (1, "a", "int and str"),
        ("a", None, "str and None"),
        ([1], [2], "list and list"),
        ({}, 1, "dict and int"),
    ],
)
def test_what_has_no_order_is_a_problem_that_names_both_types(
    symbol: str, left: object, right: object, types: str
) -> None:
    assert problem_of(f"left {symbol} right", left=left, right=right) == (
        f"'{symbol}' compares two numbers or two texts, not {types}"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 in 'a'", "'in': parts of a str are of type str, not int"),
        ("1 in d", "'in': keys of a dict are of type str, not int"),
        ("1 in 2", "'in' looks into a list, a dict or a str, not int"),
        ("1 in None", "'in' looks into a list, a dict or a str, not None"),
    ],
)
def test_membership_of_what_cannot_be_a_member_is_a_problem(text: str, told: str) -> None:
    assert problem_of(text, d={}) == told


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_deep_data_is_compared_up_to_a_depth() -> None:
    assert Expression("a == b").test({"a": nested(MAX_DATA_DEPTH), "b": nested(MAX_DATA_DEPTH)})
    assert problem_of("a == b", a=nested(5_000), b=nested(5_000)) == (
        "the data that is compared is nested more than 100 deep"
    )


def test_data_that_contains_itself_does_not_hang() -> None:
    circle: list[object] = []
    circle.append(circle)
    other: list[object] = [circle]
    assert "nested more than" in problem_of("a == b", a=circle, b=other)
    assert "nested more than" in (Expression("f(a)", functions={"f": len}).test({"a": circle}).problem or "")


def test_foreign_values_inside_are_not_compared() -> None:
    class Foreign:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

    for text in ("a == b", "b == a", "a in [b]", "1 in a", "d == b", "a == d"):
        assert "of type Foreign" in problem_of(text, a=[Foreign()], b=[1], d=[Foreign()])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a is None", True),
        ("a is not None", False),
        ("b is None", False),
        ("b is not None and b > 0", True),
        ("a is None is None", True),
        ("0 < b is not None", True),
    ],
)
def test_none_can_be_asked_for_as_in_python(text: str, value: bool) -> None:
    assert Expression(text).evaluate({"a": None, "b": 1}) is value

import math

import pytest

from fastroai.expressions import Expression


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("'%s' % 5", "'%' needs two numbers, not str and int"),
        ("'a' * 5", "'*' needs two numbers, not str and int"),
        ("[1] * 5", "'*' needs two numbers, not list and int"),
        ("'a' + 1", "'+' needs two numbers, two texts or two lists, not str and int"),
        ("[1] + {}", "'+' needs two numbers, two texts or two lists, not list and dict"),
        ("None - 1", "'-' needs two numbers, not None and int"),
        ("-'a'", "'-' needs a number, not str"),
        ("+[]", "'+' needs a number, not list"),
        ("1 / 0", "'/': division by zero"),
        ("1 // 0", "'//': integer division or modulo by zero"),
        ("1 % 0.0", "'%': float modulo"),
        ("big * big", "'*' gives an integer of 2,001 bits; expressions work with up to 1,024"),
        (
            "(big * 8388607 + big * 8388607) * 2 ",
            "'*' gives an integer of 1,025 bits; expressions work with up",
        ),
        ("big * 8388607 * 1.0 * 100000", ""),
        ("-(big * 8388607) / 0.5", ""),
    ],
)
def test_arithmetic_that_does_not_work_out_is_a_problem(text: str, told: str) -> None:
    outcome = Expression(text).test({"big": 2**1000})
    assert (outcome.problem or "").startswith(told)
    assert bool(outcome.problem) is bool(told)


def test_floats_overflow_as_in_python() -> None:
    assert Expression("1e308 * 10").evaluate({}) == math.inf
    assert (
        Expression("x / 1e-300").test({"x": 2**1024 - 1}).problem == "'/': int too large to convert to float"
    )
    assert Expression("x != x").evaluate({"x": math.nan}) is True


def test_texts_and_lists_are_joined_into_new_ones() -> None:
    data = {"xs": [1], "s": "a"}
    assert Expression("xs + (2, 3)").evaluate(data) == [1, 2, 3]
    assert Expression("s + 'b'").evaluate(data) == "ab"
    assert data == {"xs": [1], "s": "a"}

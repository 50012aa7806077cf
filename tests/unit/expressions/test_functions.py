import math

import pytest

from fastroai.expressions import Expression

DATA: dict[str, object] = {"xs": [3, 1, 2], "words": ["b", "a"], "d": {"k": 1}, "s": " Text ", "big": 2**1000}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("len(xs)", 3), ("len(d)", 1), ("len('äö')", 2), ("len((1, 2))", 2),
        ("min(xs)", 1), ("max(xs)", 3), ("min(2, 1)", 1), ("max('a', 'b')", "b"), ("max(words)", "b"),
        ("sum(xs)", 6), ("sum([])", 0), ("sum([0.5, 1])", 1.5), ("sum(x > 1 for x in xs)", 2),
        ("any([])", False), ("any([0, 'x'])", True), ("all([])", True), ("all([1, 0])", False),
        ("all([1, 2])", True),
        ("all(x > 0 for x in xs)", True), ("all(x > 1 for x in xs)", False),
        ("abs(-2)", 2), ("abs(-2.5)", 2.5), ("round(2.6)", 3), ("round(2.345, 1)", 2.3),
        ("round(1234, -2)", 1200),
        ("sorted(xs)", [1, 2, 3]), ("sorted(words)", ["a", "b"]), ("sorted([])", []),
        ("sorted([2, 1.5, True])", [True, 1.5, 2]),
        ("str(1)", "1"), ("str(1.5)", "1.5"), ("str(None)", "None"), ("str(True)", "True"),
        ("str(s)", " Text "),
        ("int('12')", 12), ("int(2.9)", 2), ("int(True)", 1), ("float('1.5')", 1.5), ("float(2)", 2.0),
        ("float('inf')", math.inf), ("bool([])", False), ("bool('a')", True),
        ("lower(s)", " text "), ("upper(s)", " TEXT "), ("strip(s)", "Text"),
        ("startswith(s, ' T')", True), ("endswith(s, 'x')", False),
        ("contains(s, 'ex')", True), ("contains(xs, 3)", True), ("contains(d, 'x')", False),
    ],
)  # fmt: skip
def test_functions_do_what_those_of_python_do(text: str, value: object) -> None:
    given = Expression(text).evaluate(DATA)
    assert given == value
    assert type(given) is type(value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("len(1)", "len() takes a list, a dict or text, not int"),
        ("min([])", "min() of an empty list"),
        ("max(1)", "max() takes a list, not int"),
        ("max(1, 'a')", "'>' compares two numbers or two texts, not str and int"),
        ("sum('abc')", "sum() takes a list, not str"),
        ("sum(words)", "sum() needs a number, not str"),
        ("sum([big * 8388607, big * 8388607, big * 8388607])", "sum() gives an integer of 1,025 bits"),
        ("sum([1.5, largest])", "sum(): int too large to convert to float"),
        ("any(d)", "any() takes a list, not dict"),
        ("sorted([1, 'a'])", "sorted() takes numbers, or texts, not both and nothing else: 'a'"),
        ("sorted([[1]])", "sorted() takes numbers, or texts, not both and nothing else: a list of 1"),
        ("abs('a')", "abs() needs a number, not str"),
        ("round('a')", "round() needs a number, not str"),
        ("round(1, 1000000000)", "round() takes up to 300 digits, as an int, not 1000000000"),
        ("round(1, -1000000000)", "round() takes up to 300 digits, as an int, not -1000000000"),
        ("round(1, 1.0)", "round() takes up to 300 digits, as an int, not 1.0"),
        ("round(1e308 * 10)", "round(inf): cannot convert float infinity to integer"),
        ("str([1])", "str() takes text, a number, a bool or None, not list"),
        ("int('a')", "int('a'): invalid literal"),
        ("int([1])", "int() takes a number or text, not list"),
        ("int(float('nan'))", "int(nan): cannot convert float NaN to integer"),
        ("int(digits)", "int() takes text of up to 400 characters, not 5,000"),
        ("int(fewer)", "int() gives an integer of"),
        ("float('a')", "float('a'): could not convert"),
        ("float(largest)", "float(an integer of 1,024 bits): int too large"),
        ("lower(1)", "lower() takes text, not int"),
        ("startswith('a', 1)", "startswith() takes text, not int"),
        ("endswith(1, 'a')", "endswith() takes text, not int"),
        ("contains(1, 1)", "'in' looks into a list, a dict or a str, not int"),
    ],
)
def test_arguments_that_do_not_fit_are_problems(text: str, told: str) -> None:
    data = {**DATA, "digits": "9" * 5_000, "fewer": "9" * 400, "largest": 2**1024 - 1}
    assert (Expression(text).test(data).problem or "").startswith(told)


def test_foreign_items_are_refused_by_functions_over_lists() -> None:
    for name in ("sum", "min", "max", "sorted", "any", "all"):
        problem = Expression(f"{name}(xs)").test({"xs": [object(), 1]}).problem or ""
        assert problem.startswith(f"an item of {name}() is of type object, which is not JSON data")


def test_any_and_all_stop_at_the_first_value_that_decides() -> None:
    assert Expression("any(1 / x > 0 for x in [1, 0])").evaluate({}) is True
    assert Expression("all(1 / x < 0 for x in [1, 0])").evaluate({}) is False
    assert Expression("any(1 / x < 0 for x in [1, 0])").test({}).problem == "'/': division by zero"

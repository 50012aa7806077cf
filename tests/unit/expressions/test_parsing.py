import threading
import warnings

import pytest

from fastroai.errors import ExpressionError
from fastroai.expressions import Expression
from fastroai.expressions.limits import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty"),
        ("  \n ", "it is empty"),
        ("a >", "column"),
        ("a = 1", "column 3: invalid syntax"),
        ("a && b", "column 4: invalid syntax; for '&&' write 'and'"),
        ("a || b", "for '||' write 'or'"),
        ("!a", "for '!' write 'not'"),
        ("a > 1\nand b", "line 2, column 1: invalid syntax; an expression of several lines needs brackets"),
        ("a; b", "column 2"),
        ("import os", "column 1"),
        ("'\x00'", "null bytes"),
        ("'\ud800'", "it is not valid text"),
        ("x" * (MAX_CHARACTERS + 1), "it has 2,001 characters; at most 2,000 are allowed"),
        ("[" + "1," * MAX_NODES + "]", "it has 501 names, values and operators; at most 500 are allowed"),
        ("1" + "0" * 1_900, "an integer of this size is not allowed"),
        ("not " * 60 + "a", "column 201: it is nested too deeply here; at most 50 levels"),
        ("a" + ".b" * 100, "it is nested too deeply here"),
        ("1" + "+1" * 60, "it is nested too deeply here"),
    ],
)
def test_what_cannot_be_parsed_says_why_and_where(text: str, told: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text)
    assert told in str(caught.value)


def test_a_number_beyond_what_python_reads_is_refused() -> None:
    with pytest.raises(ExpressionError):
        Expression("0x" + "f" * 1_990)


@pytest.mark.parametrize(
    "opening", ["(", "[", "{", "f(", "a[", "{1:", "-", "+", "~", "- ", "(lambda:", "[0,", "f(a=b,"]
)
@pytest.mark.parametrize("inside", ["", "1", "1 1"])
def test_deep_nesting_is_refused_before_the_parser_sees_it(opening: str, inside: str) -> None:
    """In a thread whose stack is too small for the parser's own limits."""
    text = opening * (MAX_CHARACTERS // len(opening) - 5) + inside
    told: list[str] = []

    def build() -> None:
        try:
            Expression(text)
        except ExpressionError as error:
            told.append(str(error))

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=build)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert f"it is nested too deeply; at most {MAX_DEPTH} levels are allowed" in told[0]


def test_brackets_in_strings_are_not_nesting() -> None:
    assert Expression("'" + "(" * 100 + "' == x").test({"x": "(" * 100})


def test_an_expression_of_the_largest_size_is_built_and_evaluated() -> None:
    assert Expression("[" + ",".join("1" * (MAX_NODES - 1)) + "]").evaluate({}) == [1] * (MAX_NODES - 1)
    assert Expression("(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH).evaluate({}) == 1
    assert Expression("not " * (MAX_DEPTH - 1) + "0").evaluate({}) is True


@pytest.mark.parametrize("text", ["'\\d' == x", "1if 1else 2", "'\\777' == x", "0x1or 2"])
def test_what_python_warns_about_does_not_warn_here(text: str) -> None:
    before = list(warnings.filters)
    Expression(text)
    assert warnings.filters == before


def test_an_expression_may_have_several_lines_and_comments() -> None:
    assert Expression("(\r\n  a > 1  # enough\r\n  and b\r)").test({"a": 2, "b": True})

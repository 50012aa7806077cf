import pytest

from fastroai.errors import ExpressionError
from fastroai.expressions import Expression

DATA: dict[str, object] = {
    "a": 2,
    "b": 3,
    "s": "text",
    "xs": [3, 1, 2],
    "d": {"k": {"l": 7}, "odd key": 1},
    "rows": [{"n": 1, "t": ["x"]}, {"n": 2, "t": []}],
    "pairs": [["p", 1], ("q", 2)],
    "nothing": None,
}


@pytest.mark.parametrize(
    "text",
    [
        "None", "True", "1.5", "'x' 'y'", "[1, [2, 'a']]", "[]", "{}", "{'a': 1, s: a}",
        "a == 2", "a != 2", "a < b", "a <= 2", "a > b", "b >= 3", "1 < a < b", "1 < b < a", "3 > a > 1 < 2",
        "a in xs", "9 not in xs", "'ex' in s", "'k' in d", "a in (1, 2)", "1 in xs == True",
        "a and b", "0 and b", "a or b", "0 or '' or s", "not a", "not 0", "a and 0 or b",
        "a + b", "a - b", "a * b", "a / b", "b // a", "b % a", "-a", "+a", "-b // a", "1.5 % 1",
        "True + True",
        "s + 'x'", "xs + [4]", "'y' if a > b else 'n'", "1 if a else 2 if b else 3",
        "d['k']['l']", "d['odd key']", "xs[0]", "xs[-1]", "xs[a]", "xs[a - 1]", "rows[1]['n']", "pairs[0][1]",
        "[x for x in xs]", "[x * a for x in xs if x > 1 if x < 3]",
        "[[x, y] for x in xs for y in [x, a] if x != y]",
        "[[y for y in xs if y < x] for x in xs]", "[k for k in d]", "[x for x in [x for x in xs]]",
        "[x for x in xs for x in [x, x + 1]]",
        "{k: v for k, v in pairs}", "{k: [v for v in xs if v > n] for [k, n] in pairs}",
        "sum(x for x in xs)", "any(x > 2 for x in xs)", "all(x > 2 for x in xs)", "max(x for x in xs)",
        "sorted(-x for x in xs)", "min(xs[i] for i in [0, 1])",
        "any(r['n'] > 1 for r in rows)", "[r['t'] for r in rows if r['t']]",
        "any(t == 'x' for r in rows for t in r['t'])",
    ],
)  # fmt: skip
def test_an_expression_gives_what_python_gives(text: str) -> None:
    assert Expression(text).evaluate(DATA) == eval(text, dict(DATA))
    assert type(Expression(text).evaluate(DATA)) is type(eval(text, dict(DATA)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("d.k.l", 7),
        ("d.k['l']", 7),
        ("d['k'].l", 7),
        ("rows[0].n", 1),
        ("[r.n for r in rows]", [1, 2]),
        ("(1, 'a')", [1, "a"]),
        ("(rows[0] if a > 1 else d).n", 1),
    ],
)
def test_keys_are_looked_up_with_dots_too(text: str, value: object) -> None:
    assert Expression(text).evaluate(DATA) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("has(a)", True),
        ("has(z)", False),
        ("has(d.k.l)", True),
        ("has(d.z.l)", False),
        ("has(xs[2])", True),
        ("has(xs[3])", False),
        ("has(xs[z])", False),
        ("has(nothing)", True),
        ("has(nothing.k)", False),
        ("has(s.k)", False),
        ("has(a[0])", False),
        ("has(d.k) and d.k.l == 7", True),
        ("[has(r.n) for r in rows]", [True, True]),
        ("not has(z) or z > 1", True),
    ],
)
def test_has_asks_whether_a_path_exists(text: str, value: object) -> None:
    assert Expression(text).evaluate(DATA) == value


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("x.lower() == 'a'", 1, "there are no methods; write lower(x)"),
        ("x.startswith('a')", 1, "there are no methods; write startswith(x, 'a')"),
        ("'a'.format(x)", 1, "there are no methods, so 'format' cannot be called"),
        ("lenn(x)", 1, "there is no function 'lenn'"),
        ("lenn(x)", 1, "Did you mean 'len'?"),
        ("f(1)(2)", 1, "only functions can be called"),
        ("[x(1) for x in xs]", 2, "there is no function 'x'"),
        ("len()", 1, "len() takes 1 argument, not 0"),
        ("len(a, b)", 1, "len() takes 1 argument, not 2"),
        ("round(1, 2, 3)", 1, "round() takes 1 to 2 arguments, not 3"),
        ("min()", 1, "min() takes at least 1 argument, not 0"),
        ("contains(a)", 1, "contains() takes 2 arguments, not 1"),
        ("max(xs, key=len)", 13, "arguments are not given by name"),
        ("max(*xs)", 5, "'*' before a value is not allowed"),
        ("max(**xs)", 7, "arguments are not given by name"),
        ("has(1)", 1, "has() takes one name, key or index"),
        ("has(a, b)", 1, "has() takes one name, key or index"),
        ("has(len(a))", 1, "has() takes one name, key or index"),
        ("a is 1", 1, "'is' is only allowed before None; write '=='"),
        ("a is not b", 1, "'is not' is only allowed before None; write '!='"),
        ("None is a", 1, "'is' is only allowed before None; write '=='"),
        ("a is None is b", 1, "'is' is only allowed before None"),
        ("a ** 2", 1, "'**' is not allowed; multiply"),
        ("a @ 2", 1, "'@' is not allowed"),
        ("1 << a", 1, "'<<' is not allowed"),
        ("1 >> a", 1, "'>>' is not allowed"),
        ("a & b", 1, "'&' is not allowed; write 'and'"),
        ("a | b", 1, "'|' is not allowed; write 'or'"),
        ("a ^ b", 1, "'^' is not allowed"),
        ("~a", 1, "'~' is not allowed; write 'not'"),
        ("a[1:2]", 3, "slices are not allowed"),
        ("lambda: 1", 1, "functions cannot be defined here"),
        ("(a := 1)", 2, "':=' is not allowed"),
        ("{1, 2}", 1, "sets are not allowed; write a list"),
        ("{x for x in xs}", 1, "sets are not allowed; write a list"),
        ("{**a}", 4, "'**' is not allowed in a dict"),
        ("(x for x in xs)", 1, "a generator is only the one argument of all"),
        ("len(x for x in xs)", 4, "a generator is only the one argument of all"),
        ("max((x for x in xs), 1)", 5, "a generator is only the one argument of all"),
        ("any((x for x in xs), 1)", 1, "any() takes 1 argument, not 2"),
        ("[await x for x in xs]", 2, "'await' is not allowed"),
        ("[x async for x in xs]", 14, "'async for' is not allowed"),
        ("f'{a}'", 1, "f-strings are not allowed"),
        ("b'a'", 1, "a value of type bytes is not allowed"),
        ("1j", 1, "a value of type complex is not allowed"),
        ("...", 1, "a value of type ellipsis is not allowed"),
        ("none == a", 1, "'none' is not a name of data; write None or null"),
        ("[1 for true in xs]", 8, "'true' is a value, so it cannot be a name"),
        ("__import__", 1, "'__import__' is not allowed"),
        ("a.__class__", 1, "'__class__' is not allowed"),
        ("[__x for __x in xs]", 6 + 4, "'__x' is not allowed"),
        ("[y for x in y for y in y]", 24, "'y' is read before its 'for'"),
        ("[1 for x.y in xs]", 8, "'for' takes one name"),
        ("[1 for x, (y, z) in xs]", 8, "'for' takes one name"),
        ("[1 for x, *y in xs]", 8, "'for' takes one name"),
        ("(yield a)", 2, "'yield' is not allowed"),
    ],
)  # fmt: skip
def test_what_is_no_part_of_the_language_is_refused_with_its_column(
    text: str, column: int, told: str
) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text)
    found = {problem.column: problem.message for problem in caught.value.problems}
    assert told in found[column]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("null", None),
        ("[true, false, null]", [True, False, None]),
        ("a is null", True),
        ("b is not null and b.c == false", True),
        ("{'k': [x for x in [true] if x]}", {"k": [True]}),
        ("b.true", 1),
        ("'true'", "true"),
    ],
)
def test_true_false_and_null_are_read_as_json_writes_them(text: str, value: object) -> None:
    expression = Expression(text)
    found = expression.evaluate({"a": None, "b": {"c": False, "true": 1}})
    assert (found, type(found)) == (value, type(value))
    assert expression.names <= {"a", "b"}


def test_every_problem_is_told_at_once_in_the_order_of_the_text() -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression("x.upper() == f'{y}' and lenn(none) > 2 ** 3")
    assert [problem.column for problem in caught.value.problems] == [1, 14, 25, 30, 38]


def test_columns_count_characters_and_lines_are_told() -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression("(größe > 'ü' and\n  'ü' * 2 ** 3)")
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [(2, 9)]
    assert "line 2, column 9: '**' is not allowed" in str(caught.value)


def test_an_error_marks_the_places_in_the_text() -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression("a ** 2 > b.lower()")
    assert str(caught.value).endswith("\n    a ** 2 > b.lower()\n    ^        ^")

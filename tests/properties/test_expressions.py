"""Expressions against Python itself, against nonsense, and against values that must not be touched."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.canaries import canaries, canary_key, nothing_is_called
from support.examples import examples

from fastroai.errors import ExpressionError
from fastroai.expressions import Expression

MANY = settings(max_examples=examples(50))
"""An example takes a millisecond."""

# --- well-typed texts, that Python understands as well ---

Texts = st.SearchStrategy[str]


def written(template: str, **parts: Texts) -> Texts:
    """A text of a template whose names are replaced by other texts."""
    return st.fixed_dictionaries(parts).map(lambda chosen: template.format(**chosen))


@functools.cache
def numbers(depth: int) -> Texts:
    """Numbers; some of them fail, as `1 / 0` and `ns[7]` do."""
    plain = st.sampled_from(
        ["i", "f", "0", "1", "2", "7", "0.5", "-3", "d['n']", "d['e']['n']", "ns[0]", "ns[7]", "nowhere"]
    )
    if depth == 0:
        return plain
    a, b, test = numbers(depth - 1), numbers(depth - 1), booleans(depth - 1)
    ns = lists(depth - 1)
    return st.one_of(
        plain,
        *(written(f"({{a}} {symbol} {{b}})", a=a, b=b) for symbol in "+-*/%"),
        written("({a} // {b})", a=a, b=b),
        written("-{a}", a=a),
        written("({a} if {test} else {b})", a=a, b=b, test=test),
        written("({a} or {b})", a=a, b=b),
        written("({a} and {b})", a=a, b=b),
        written("{name}({ns})", name=st.sampled_from(["len", "sum", "min", "max"]), ns=ns),
        written("{name}({a}, {b})", name=st.sampled_from(["min", "max"]), a=a, b=b),
        written("{name}({a})", name=st.sampled_from(["abs", "int", "float", "round", "bool"]), a=a),
        written("sum({a} for x in {ns} if {test})", a=with_x(depth - 1), ns=ns, test=test),
        written("len({s})", s=words(depth - 1)),
        written("{ns}[{index}]", ns=ns, index=st.sampled_from(["0", "-1", "i", "2"])),
    )


@functools.cache
def with_x(depth: int) -> Texts:
    return st.one_of(
        st.just("x"), written("(x + {a})", a=numbers(depth)), written("({a} - x)", a=numbers(depth))
    )


@functools.cache
def words(depth: int) -> Texts:
    plain = st.sampled_from(
        ["s", "t", "''", "'a'", "'Ab '", "d['s']", "ss[0]", "d['nothing']", "rows[0]['s']"]
    )
    if depth == 0:
        return plain
    a, b = words(depth - 1), words(depth - 1)
    return st.one_of(
        plain,
        written("({a} + {b})", a=a, b=b),
        written("({a} if {test} else {b})", a=a, b=b, test=booleans(depth - 1)),
        written("{name}({a})", name=st.sampled_from(["lower", "upper", "strip", "str"]), a=a),
        written("str({a})", a=numbers(depth - 1)),
        written("{name}({a}, {b})", name=st.sampled_from(["min", "max"]), a=a, b=b),
    )


@functools.cache
def lists(depth: int) -> Texts:
    """Lists of numbers."""
    plain = st.sampled_from(["ns", "[]", "[1, 2, 3]", "d['ns']", "d['e']['ns']"])
    if depth == 0:
        return plain
    a, ns, test = numbers(depth - 1), lists(depth - 1), booleans(depth - 1)
    return st.one_of(
        plain,
        written("[{a}, {b}]", a=a, b=a),
        written("({a} + {b})", a=ns, b=ns),
        written("sorted({ns})", ns=ns),
        written("[{a} for x in {ns}]", a=with_x(depth - 1), ns=ns),
        written("[{a} for x in {ns} if {test} if x > {b}]", a=with_x(depth - 1), ns=ns, test=test, b=a),
        written("[x + y for x in {ns} for y in [x, {a}]]", ns=ns, a=a),
        written("[r['n'] for r in rows if {test}]", test=test),
    )


@functools.cache
def booleans(depth: int) -> Texts:
    plain = st.sampled_from(
        ["True", "False", "i > 1", "s == 'a'", "not ns", "'n' in d", "missing > 1", "d['x'] == 1"]
    )
    if depth == 0:
        return plain
    a, b, n, m, s = (
        booleans(depth - 1),
        booleans(depth - 1),
        numbers(depth - 1),
        numbers(depth - 1),
        words(depth - 1),
    )
    ns = lists(depth - 1)
    orders = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return st.one_of(
        plain,
        written("({a} and {b})", a=a, b=b),
        written("({a} or {b})", a=a, b=b),
        written("(not {a})", a=a),
        written("({n} {op} {m})", n=n, op=orders, m=m),
        written("({n} {op} {m} {other} {o})", n=n, op=orders, m=m, other=orders, o=n),
        written("({s} {op} {t})", s=s, op=orders, t=words(depth - 1)),
        written("({n} {op} {ns})", n=n, op=st.sampled_from(["in", "not in"]), ns=ns),
        written("({n} in ({m}, 1))", n=n, m=m),
        written("({s} in {t})", s=s, t=words(depth - 1)),
        written("({ns} {op} {other})", ns=ns, op=st.sampled_from(["==", "!="]), other=lists(depth - 1)),
        written("{name}(x > {n} for x in {ns})", name=st.sampled_from(["any", "all"]), n=n, ns=ns),
        written("{name}({ns})", name=st.sampled_from(["any", "all"]), ns=ns),
        written("{name}({s}, {t})", name=st.sampled_from(["startswith", "endswith", "contains"]), s=s, t=s),
        written("({{k: {n} for k in d}} == {{'n': {m}}})", n=n, m=m),
    )


expressions = st.one_of(booleans(3), numbers(3), words(2), lists(2))

finite = st.floats(-1e6, 1e6, allow_nan=False).map(lambda number: round(number, 3))
data = st.fixed_dictionaries(
    {
        "i": st.integers(-5, 5),
        "f": finite,
        "s": st.sampled_from(["", "a", "Ab", "äß "]),
        "t": st.text(max_size=5),
        "ns": st.lists(st.integers(-3, 9) | finite, max_size=4),
        "ss": st.lists(st.text(max_size=3), max_size=2),
        "d": st.fixed_dictionaries(
            {"n": st.integers(0, 9), "s": st.text(max_size=3), "ns": st.lists(st.integers(0, 3), max_size=3)},
            optional={
                "e": st.fixed_dictionaries({"n": st.integers(), "ns": st.just([4, 5])}),
                "x": st.just(1),
            },
        ),
        "rows": st.lists(st.fixed_dictionaries({"n": st.integers(0, 9), "s": st.just("r")}), max_size=3),
    },
    optional={"missing": st.integers(), "nowhere": st.just(3)},
)

PYTHON: dict[str, Any] = {
    "lower": str.lower,
    "upper": str.upper,
    "strip": str.strip,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda container, item: item in container,
}


def by_python(text: str, given_data: dict[str, Any]) -> tuple[Any, Exception | None]:
    try:
        return eval(text, PYTHON | given_data), None
    except (NameError, LookupError, ArithmeticError, TypeError, ValueError) as error:
        return None, error


@MANY
@given(expressions, data)
def test_an_expression_gives_what_python_gives_and_fails_where_python_fails(
    text: str, given_data: dict[str, Any]
) -> None:
    before = copy.deepcopy(given_data)
    expression = Expression(text)
    outcome = expression.test(given_data)
    expected, error = by_python(text, given_data)
    if error is None:
        value = expression.evaluate(given_data)
        assert value == expected
        assert type(value) is type(expected)
        assert outcome.holds is bool(expected)
    else:
        assert not outcome.holds
        assert bool(outcome.missing) is isinstance(error, NameError | LookupError)
        assert bool(outcome.problem) is not bool(outcome.missing)
    assert given_data == before


# --- nonsense ---

TOKENS = [
    "x", "y", "d", "ns", "s", "a.b", "d.n", ".", ",", ":", "(", ")", "[", "]", "{", "}", "==", "!=", "<",
    ">=", "+", "-",
    "*", "**", "/", "//", "%", "<<", "&", "|", "~", "^", "@", ":=", "=", "->", "...", "not", "and", "or",
    "in", "is", "if",
    "else", "for", "lambda", "async", "await", "yield", "import", "None", "True", "1", "0x1", "1e999",
    "1j", "1_0", "'a'",
    "b'a'", "f'{x}'", "f'", '"', "'''", "\\", "\n", "\t", "\f", "\r", "\x00", "\ud800", "é", "ｘ", "∞", "#",
    ";", "!", "$",
    "__class__", "x.__class__", "len(", "any(", "has(", "max(", "lower(", "sorted(", "x for x in ns",
    "[x for x in", "*x",
    "**d", "k: v", "for k, v in", "if x", "9" * 50, "(" * 30, "not " * 20, "-" * 40, ")" * 30,
    "if 1 else " * 10,
]  # fmt: skip

tokens = st.lists(st.sampled_from(TOKENS), max_size=30)
nonsense = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=st.characters(max_codepoint=126), max_size=60),
    tokens.map("".join),
    tokens.map(" ".join),
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A text that was valid, before parts of it were cut out, doubled or replaced."""
    text = draw(expressions)
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        kept = draw(st.sampled_from(["", text[start:end], text[start:end] * 2]))
        text = text[:start] + draw(st.sampled_from(["", *TOKENS])) + kept + text[end:]
    return text


def own_error(call: Callable[[], object]) -> ExpressionError | None:
    try:
        call()
    except ExpressionError as error:
        return error
    return None


@MANY
@given(nonsense | mutated(), data)
def test_no_text_does_anything_but_give_a_value_or_its_own_error(
    text: str, given_data: dict[str, Any]
) -> None:
    before = copy.deepcopy(given_data)
    refused = own_error(lambda: Expression(text))
    if refused:
        assert str(refused)
        assert refused.problems
        assert all(problem.line <= refused.text.count("\n") + 1 for problem in refused.problems)
        return
    expression = Expression(text)
    assert all(name.isidentifier() for name in expression.names)
    outcome = expression.test(given_data)
    assert outcome.explain()
    failed = own_error(lambda: expression.evaluate(given_data))
    assert failed is None or (str(failed) and (failed.problems or failed.missing))
    assert given_data == before


# --- values that must not be touched ---


@st.composite
def with_canaries(draw: st.DrawFn) -> dict[str, Any]:
    """Data with canaries in the place of some of its values and keys."""
    given_data = draw(data)
    places: list[tuple[Any, Any]] = [(given_data, key) for key in given_data]
    places += [(given_data["d"], key) for key in given_data["d"]]
    places += [(given_data["ns"], index) for index in range(len(given_data["ns"]))]
    places += [(row, key) for row in given_data["rows"] for key in row]
    for container, key in draw(st.lists(st.sampled_from(places), min_size=1, max_size=4)):
        container[key] = draw(st.sampled_from(canaries()))
    if type(given_data["d"]) is dict and draw(st.booleans()):
        value = given_data["d"].pop("n", 1)
        given_data["d"][canary_key("n")] = value
    return given_data


@MANY
@given(expressions | booleans(2) | lists(1), with_canaries())
def test_nothing_of_a_foreign_value_is_ever_called(text: str, given_data: dict[str, Any]) -> None:
    if own_error(lambda: Expression(text)):
        return
    expression = Expression(text)
    with nothing_is_called():
        expression.test(given_data).explain()
        str(own_error(lambda: expression.evaluate(given_data)))


def test_a_canary_notices_what_is_done_to_it() -> None:
    acts: list[Callable[[Any], object]] = [
        bool,
        len,
        str,
        hash,
        lambda x: x == 1,
        lambda x: isinstance(x, set),
    ]
    acts += [lambda x: type(x).__name__, lambda x: {"n": 1}.get(x), lambda x: x.a, lambda x: x in {"n": 1}]
    for canary in canaries():
        for act in acts:
            with pytest.raises(AssertionError), nothing_is_called():
                act(canary)
    with pytest.raises(AssertionError), nothing_is_called():
        {canary_key("n"): 1}["n"]

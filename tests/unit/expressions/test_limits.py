import tracemalloc
from typing import Any

import pytest

from fastroai.errors import ExpressionError
from fastroai.expressions import Expression
from fastroai.expressions.limits import (
    CHARACTERS_BUILT_PER_STEP,
    CHARACTERS_READ_PER_STEP,
    CHARACTERS_SEARCHED_PER_STEP,
    KEYS_CHECKED_PER_STEP,
    MAX_STEPS,
    STEPS_PER_ITEM,
    STEPS_PER_NODE,
    STEPS_PER_ROUND,
)

STOPPED = "it takes more than 100,000 steps: there is too much data to work through"
ITEMS = MAX_STEPS // STEPS_PER_ITEM
ROUNDS = MAX_STEPS // (STEPS_PER_ROUND + STEPS_PER_NODE)


def texts(length: int) -> dict[str, object]:
    return {"s": "a" * length, "t": "a" * length, "b": "b" * length}


def keys(count: int) -> dict[str, object]:
    return {"d": dict.fromkeys(map(str, range(count)))}


def items(count: int) -> dict[str, object]:
    return {"xs": [1] * count, "ys": [1] * count, "zs": ["a"] * count}


@pytest.mark.parametrize(
    ("text", "data", "fits"),
    [
        ("[x for x in xs]", items, ROUNDS),
        ("2 in xs", items, ITEMS),
        ("xs == ys", items, ITEMS),
        ("sum(xs)", items, ITEMS),
        ("max(xs)", items, ITEMS),
        ("any(xs)", items, ITEMS),
        ("xs + []", items, ITEMS),
        ("s == t", texts, MAX_STEPS * CHARACTERS_READ_PER_STEP),
        ("s <= t", texts, MAX_STEPS * CHARACTERS_READ_PER_STEP),
        ("b in s", lambda n: {"s": "a" * n, "b": "b"}, MAX_STEPS * CHARACTERS_SEARCHED_PER_STEP - 1),
        ("startswith(s, t)", texts, MAX_STEPS * CHARACTERS_READ_PER_STEP),
        ("len(lower(s))", texts, MAX_STEPS * CHARACTERS_BUILT_PER_STEP),
        ("s + ''", texts, MAX_STEPS * CHARACTERS_BUILT_PER_STEP),
        ("len(upper(s))", lambda n: {"s": "ΐ" * n}, MAX_STEPS * CHARACTERS_BUILT_PER_STEP // 4),
        ("s + t", lambda n: {"s": "a" * n, "t": "ΐ"}, MAX_STEPS * CHARACTERS_BUILT_PER_STEP // 4 - 1),
        ("len([round(x, 300) for x in xs])", items, 1_000),
        ("d['5']", keys, MAX_STEPS * KEYS_CHECKED_PER_STEP),
    ],
)  # fmt: skip
def test_work_is_counted_by_the_size_of_what_is_worked_on(text: str, data: Any, fits: int) -> None:
    expression = Expression(f"len([{text}]) == 1")
    assert expression.test(data(fits)).problem is None
    more = fits + max(CHARACTERS_READ_PER_STEP, 1_000)
    assert expression.test(data(more)).problem == STOPPED


HUGE = "\u0390" * 10_000_000
LARGE = {**items(20_000), "s": "ΐ" * 1_000, "largest": 2**1_024 - 1}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("upper(u) == u", {"u": "\u0390" * 400_000}),
        ("lower(u) == u", {"u": "\U0001d400" * 400_000}),
        ("upper(u) == u", {"u": HUGE}),
        ("contains(u, 'x') or u + u == u or strip(u) == u", {"u": HUGE}),
        ("[w + w for w in us] == us", {"us": ["\u0390" * 20_000] * 10}),
        ("any(round(x, 300) == 2 for x in xs)", {"xs": [1.1e-75] * 100_000}),
        ("[x + x for x in xs]", LARGE),
        ("[[x, [x, x]] for x in xs]", LARGE),
        ("{x + str(i): [x] for x in zs for i in xs}", LARGE),
        ("[upper(x) + s for x in zs]", LARGE),
        ("[{'a': x, 'b': [x]} for x in xs]", LARGE),
        ("[largest - x for x in xs]", LARGE),
    ],
)  # fmt: skip
def test_no_evaluation_takes_more_than_10_megabytes(text: str, data: dict[str, Any]) -> None:
    expression = Expression(text)
    tracemalloc.start()
    expression.test(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_a_text_that_is_too_long_is_refused_before_anything_is_made_of_it() -> None:
    text = "\\\n" * 5_000_000
    tracemalloc.start()
    with pytest.raises(ExpressionError, match="it has 10,000,000 characters; at most 2,000") as refused:
        Expression(text)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    assert len(str(refused.value)) < 1_000


def test_what_needs_no_work_is_free_whatever_the_size() -> None:
    data = {"s": "a" * 10_000_000, "xs": [0] * 1_000_000, "order": {"id": 7}}
    assert Expression("len(s) > 5 and len(xs) > 5 and xs[-1] == 0 and order.id == 7 and s != 'a'").test(data)


def test_a_result_is_copied_up_to_a_size() -> None:
    assert len(Expression("xs").evaluate(items(ITEMS))) == ITEMS  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it takes more than 100,000 steps"):
        Expression("xs").evaluate(items(ITEMS + 1))


def test_lists_that_share_their_items_are_bounded_when_they_leave() -> None:
    doubled = "[1]"
    for name in "abcdefghijklmnopqr":
        doubled = f"[[{name}, {name}] for {name} in {doubled}]"
    expression = Expression(doubled)
    assert expression.test({})
    with pytest.raises(ValueError, match="it takes more than 100,000 steps"):
        expression.evaluate({})

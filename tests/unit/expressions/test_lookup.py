from datetime import date
from enum import Enum, StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from fastroai.expressions import Expression


class Colour(StrEnum):
    RED = "red"


class Size(int, Enum):
    LARGE = 3


class Record(BaseModel):
    total: int = 3


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("total", "total"),
        ("order.total", "order.total"),
        ("order['total']", "order['total']"),
        ("order[key]", "order['total']"),
        ("order.empty.total", "order.empty.total"),
        ("order.empty[0]", "order.empty[0]"),
        ("order.empty[key]", "order.empty['total']"),
        ("items[3]", "items[3]"),
        ("items[-4]", "items[-4]"),
        ("items[n]", "items[7]"),
        ("items[2].price", "items[2].price"),
        ("[x.price for x in items]", "x.price"),
    ],
)
def test_what_is_not_there_is_missing_and_so_is_what_is_under_none(text: str, missing: str) -> None:
    data = {"order": {"empty": None}, "items": [{}, {}, {}], "key": "total", "n": 7}
    outcome = Expression(text).test(data)
    assert (outcome.missing, outcome.problem) == (missing, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n.total", "n.total looks up a key in a value of type int; only dicts have keys"),
        ("s.total", "s.total looks up a key in a value of type str; only dicts have keys"),
        ("items.total", "items.total looks up a key in a value of type list; only dicts have keys"),
        ("s[0]", "s[0] looks up a part of a value of type str; only dicts and lists have parts"),
        ("items['a']", "items['a'] looks up a key in a value of type list; only dicts have keys"),
        ("items[s]", "items['text']: an index of a list is of type int, not str"),
        ("items[1.0]", "items[1.0]: an index of a list is of type int, not float"),
        ("items[True]", "items[True]: an index of a list is of type int, not bool"),
        ("order[0]", "order[0]: a key of a dict is of type str, not int"),
        ("order[None]", "order[None]: a key of a dict is of type str, not None"),
        ("empty[None]", "empty[None] looks up a part of"),
    ],
)
def test_what_has_no_parts_is_a_problem(text: str, problem: str) -> None:
    data = {"order": {}, "items": [1], "n": 1, "s": "text", "empty": None}
    assert (Expression(text).test(data).problem or "").startswith(problem)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (date(2026, 1, 1), "date"),
        (Colour.RED, "Colour"),
        (Size.LARGE, "Size"),
        (Record(), "Record"),
        ({1, 2}, "set"),
        (b"a", "bytes"),
        (type("Text", (str,), {})("a"), "Text"),
        (type("Dict", (dict,), {})(a=1), "Dict"),
        (type("List", (list,), {})([1]), "List"),
    ],
)
@pytest.mark.parametrize(
    "text", ["a.b == 1", "a.b.total", "[x for x in [a.b]]", "a['b']", "has(a.b)", "c[0]", "[x for x in c]"]
)
def test_only_the_types_of_json_are_read(value: object, kind: str, text: str) -> None:
    problem = Expression(text).test({"a": {"b": value}, "c": [value]}).problem or ""
    assert f"is of type {kind}, which is not JSON data" in problem


def test_integers_that_are_too_large_to_calculate_with_are_refused() -> None:
    assert Expression("n").test({"n": 2**1024}).problem == (
        "n is an integer of 1,025 bits; expressions work with up to 1,024"
    )
    assert Expression("n > 0").test({"n": 2**1024 - 1})


@pytest.mark.parametrize("key", [1, None, ("a", "b"), Colour.RED])
@pytest.mark.parametrize("text", ["d.a", "d == {}", "'a' in d", "[k for k in d]", "has(d.a)"])
def test_keys_that_are_not_text_are_refused(text: str, key: Any) -> None:
    assert "a dict has a key of type" in (Expression(text).test({"d": {key: 1}}).problem or "")

import pytest

from fastroai.expressions import Expression, Outcome

DATA: dict[str, object] = {
    "confidence": 0.72,
    "category": "billing",
    "items": [1, 2, 3],
    "order": {"total": 5, "customer": None},
    "essay": "so " * 100,
    "größe": "ü",
}


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("confidence >= 0.8", "confidence (0.72) >= 0.8 is false"),
        ("order.total > 4", "order.total (5) > 4 is true"),
        ("order.customer == None", "order.customer (None) == None is true"),
        ("len(items) < 2", "len(items (a list of 3)) < 2 is false"),
        ("len(order) == 2", "len(order (a dict of 2)) == 2 is true"),
        ("items[order.total - 4] == 2", "items[order.total (5) - 4] (2) == 2 is true"),
        ("any(x > 5 for x in items)", "any(x > 5 for x in items (a list of 3)) is false"),
        ("größe == 'ü' and confidence > 1", "größe ('ü') == 'ü' and confidence (0.72) > 1 is false"),
        (
            "(confidence > 0.5\n  and category == 'x')",
            "(confidence (0.72) > 0.5 and category ('billing') == 'x') is false",
        ),
        ("order.weight > 3", "order.weight > 3 is false: order.weight is missing"),
        (
            "category > 3",
            "category ('billing') > 3 is false: '>' compares two numbers or two texts, not str and int",
        ),
        ("True", "True is true"),
    ],
)
def test_an_outcome_explains_itself_with_the_values_that_were_read(text: str, explained: str) -> None:
    assert Expression(text).test(DATA).explain() == explained


def test_what_was_not_evaluated_has_no_value() -> None:
    assert Expression("confidence > 1 and category == 'x'").test(DATA).explain() == (
        "confidence (0.72) > 1 and category == 'x' is false"
    )


def test_long_values_are_shortened() -> None:
    explained = Expression("essay == 'so'").test(DATA).explain()
    assert "so so" in explained
    assert "…" in explained
    assert len(explained) < 100
    assert Expression("n > 1").test({"n": 2**1000}).explain() == "n (an integer of 1,001 bits) > 1 is true"


def test_an_outcome_keeps_nothing_of_the_data_alive_or_changeable() -> None:
    data = {"items": [1]}
    outcome = Expression("len(items) == 1").test(data)
    data["items"].append(2)
    assert outcome.explain() == "len(items (a list of 1)) == 1 is true"


def test_an_outcome_is_true_or_false_as_a_whole() -> None:
    assert Outcome("a", True)
    assert not Outcome("a", False)

import pytest

from fastroai.expressions import Expression


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[x for x in 'abc']", "'for' goes over a list or the keys of a dict; 'abc' is of type str"),
        ("[x for x in n]", "'for' goes over a list or the keys of a dict; n is of type int"),
        ("[x for x in nothing]", "'for' goes over a list or the keys of a dict; nothing is of type None"),
        ("[a for a, b in [1]]", "an item of [1] is of type int, not a list to unpack"),
        ("[a for a, b in ['ab']]", "an item of ['ab'] is of type str, not a list to unpack"),
        ("[a for a, b in xs]", "an item of xs is a list of 3, not of 2"),
        ("{x: 1 for x in [1]}", "a key of a dict is of type str, not int"),
        ("{n: 1}", "a key of a dict is of type str, not int"),
    ],
)
def test_what_cannot_be_gone_over_is_a_problem(text: str, told: str) -> None:
    data = {"n": 1, "nothing": None, "xs": [[1, 2, 3]]}
    assert Expression(text).test(data).problem == told


def test_parts_of_items_are_plain_too() -> None:
    assert Expression("[a for a, b in xs]").test({"xs": [[1, object()]]}).problem == (
        "a part of an item of xs is of type object, which is not JSON data; convert it before, a model with "
        "model_dump(mode='json')"
    )


def test_conditions_of_a_comprehension_are_evaluated_from_left_to_right() -> None:
    assert Expression("[x for x in [0, 2] if x if 1 / x < 1]").evaluate({}) == [2]
    assert Expression("[y for x in [0, 2] if x for y in [1 / x]]").evaluate({}) == [0.5]


def test_a_variable_is_known_in_its_comprehension_only() -> None:
    outcome = Expression("len([x for x in xs]) > 0 and x").test({"xs": [1]})
    assert outcome.missing == "x"


def test_variables_hide_data_of_the_same_name() -> None:
    assert Expression("[[x, [x for x in x]] for x in x]").evaluate({"x": [[1], [2]]}) == [
        [[1], [1]],
        [[2], [2]],
    ]

import sys
import threading
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import pytest

from fastroai.errors import ConfigurationError, ExpressionError
from fastroai.expressions import Expression, Outcome

ORDER: dict[str, object] = {"order": {"total": 12.5, "items": [{"sku": "a"}, {"sku": "b"}]}, "note": None}


def test_a_condition_holds_or_does_not_and_says_so_as_a_boolean() -> None:
    condition = Expression("order.total > 10")
    assert condition.test(ORDER)
    assert condition.test(ORDER).holds
    assert not condition.test({"order": {"total": 3}})


def test_text_is_kept_without_the_blanks_around_it() -> None:
    assert Expression(" a > 1\n").text == "a > 1"
    assert repr(Expression(" a > 1 ")) == "Expression('a > 1')"


def test_equal_texts_make_equal_expressions() -> None:
    assert Expression("a > 1") == Expression(" a > 1")
    assert len({Expression("a > 1"), Expression("a > 1"), Expression("a > 2")}) == 2
    assert Expression("a") != "a"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a + b.c[d] > len(e)", {"a", "b", "d", "e"}),
        ("[x.y + z for x in xs if x.y]", {"z", "xs"}),
        ("[x for x in x]", {"x"}),
        ("has(a.b) and not c", {"a", "c"}),
        ("len > 1 and len(items)", {"len", "items"}),
        ("{k: v for k, v in pairs}", {"pairs"}),
        ("1 < 2", set()),
    ],
)
def test_its_names_are_what_it_looks_up_in_its_data(text: str, names: set[str]) -> None:
    assert Expression(text).names == names


def test_a_value_is_a_copy_that_shares_nothing_with_the_data() -> None:
    data: dict[str, Any] = {"order": {"items": [{"sku": "a"}], "pair": (1, 2)}}
    value: Any = Expression("order").evaluate(data)
    assert value == {"items": [{"sku": "a"}], "pair": [1, 2]}
    value["items"][0]["sku"] = "changed"
    assert data["order"]["items"] == [{"sku": "a"}]


def test_constant_lists_are_new_for_each_evaluation() -> None:
    expression = Expression("[1, 2]")
    value: Any = expression.evaluate({})
    value.append(3)
    assert expression.evaluate({}) == [1, 2]


@pytest.mark.parametrize("text", ["order.weight > 3", "not order.weight", "order.weight == None or True"])
def test_a_missing_key_makes_the_whole_condition_false(text: str) -> None:
    outcome = Expression(text).test(ORDER)
    assert (outcome.holds, outcome.missing, outcome.problem) == (False, "order.weight", None)


def test_a_missing_key_that_is_not_evaluated_is_not_missing() -> None:
    assert Expression("order.total > 10 or order.weight > 3").test(ORDER)
    assert Expression("1 if True else weight").evaluate({}) == 1
    assert Expression("any(x > 1 for x in [2, nothing])").test({}).missing == "nothing"
    assert Expression("any(x.a for x in xs)").test({"xs": [{"a": 1}, {}]})


def test_evaluating_a_missing_key_raises_with_its_path() -> None:
    with pytest.raises(
        ExpressionError, match=r"order\.weight is missing; check has\(order\.weight\) first"
    ) as caught:
        Expression("order.weight * 2").evaluate(ORDER)
    assert caught.value.missing == "order.weight"
    assert caught.value.problems == ()


def test_what_cannot_be_evaluated_is_a_problem_of_the_outcome_and_an_error_of_evaluate() -> None:
    outcome = Expression("order.total < 'a'").test(ORDER)
    assert (outcome.holds, outcome.missing) == (False, None)
    assert outcome.problem == "'<' compares two numbers or two texts, not float and str"
    with pytest.raises(ExpressionError, match="two texts, not float and str") as caught:
        Expression("order.total < 'a'").evaluate(ORDER)
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [(0, 0)]


def test_a_problem_deep_inside_is_not_taken_for_false() -> None:
    assert Expression("not (1 < 'a')").test({}) == Outcome(
        "not (1 < 'a')", False, problem="'<' compares two numbers or two texts, not int and str"
    )


def test_mappings_other_than_dicts_are_copied_into_one() -> None:
    assert Expression("a + b").evaluate(ChainMap({"a": 1}, {"a": 5, "b": 2})) == 3


@pytest.mark.parametrize("text", [True, None, 3, ["a"]])
def test_what_is_not_text_is_no_expression(text: Any) -> None:
    with pytest.raises(ExpressionError, match="an expression is text"):
        Expression(text)


# --- functions of the caller ---


def test_functions_of_the_caller_are_called_with_copies() -> None:
    data = {"tags": ["a"]}

    def with_more(tags: Any) -> Any:
        tags.append("b")
        return tags

    assert Expression("len(with_more(tags)) == 2", functions={"with_more": with_more}).test(data)
    assert data == {"tags": ["a"]}
    assert Expression("now() > 3", functions={"now": lambda: 4}).test({})
    assert Expression("join(1, 'a')", functions={"join": lambda *parts: list(parts)}).evaluate({}) == [1, "a"]


def test_what_a_function_raises_is_a_problem_with_its_name() -> None:
    def look_up(name: str) -> str:
        raise LookupError(f"no {name}")

    expression = Expression("look_up('x') == 'y'", functions={"look_up": look_up})
    assert expression.test({}).problem == "look_up() raised LookupError: no x"
    with pytest.raises(ExpressionError, match="raised LookupError") as caught:
        expression.evaluate({})
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(
    ("call", "expected"),
    [("f(1)", "2 to 3 arguments"), ("f(1, 2, 3, 4)", "2 to 3 arguments"), ("g()", "at least 1 argument")],
)
def test_calls_of_a_function_have_as_many_arguments_as_it_takes(call: str, expected: str) -> None:
    functions = {"f": lambda x, y, z=0: x, "g": lambda x, *more: x}
    with pytest.raises(ExpressionError, match=f"takes {expected}"):
        Expression(call, functions=functions)
    assert Expression("f(1, 2) + f(3, 4, 5) + g(6, 7, 8)", functions=functions).evaluate({}) == 10


def test_a_function_that_does_not_say_what_it_takes_is_called_with_anything() -> None:
    assert Expression("most(1, 2) == 2", functions={"most": max}).test({}).holds


def test_an_expression_says_what_it_looks_up_and_where() -> None:
    text = "a.b['c'][0].d > e[f].g and [x.y for x in a.h] or has(i.j)"
    assert dict(Expression(text).paths) == {
        ("a", "b", "c", 0, "d"): (1, 1),
        ("e",): (1, 17),
        ("f",): (1, 19),
        ("a", "h"): (1, 42),
        ("i", "j"): (1, 54),
    }


def test_a_function_returns_json() -> None:
    def broken() -> Any:
        return {"at": object()}

    assert Expression("broken() == 1", functions={"broken": broken}).test({}).problem == (
        "what broken() returned is of type object, which is not JSON data; convert it before, a model with "
        "model_dump(mode='json')"
    )


def test_what_stops_the_program_passes_through() -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Expression("interrupted()", functions={"interrupted": interrupted}).test({})


async def _later() -> int:
    return 1


@pytest.mark.parametrize(
    ("name", "function", "expected"),
    [
        ("len", len, "another name"),
        ("has", len, "another name"),
        ("not a name", len, "a name that can be called"),
        ("__import__", len, "a name that can be called"),
        ("later", _later, "a plain function"),
        ("three", 3, "a plain function"),
    ],
)
def test_functions_that_cannot_be_called_are_refused(name: str, function: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        Expression("1", functions={name: function})


# --- where it is evaluated ---


def at_depth(depth: int, call: Callable[[], Outcome]) -> Outcome:
    return call() if depth == 0 else at_depth(depth - 1, call)


def test_a_full_stack_is_a_problem_and_not_a_crash() -> None:
    expression = Expression("1 + (" * 20 + "1" + ")" * 20 + " > 3")
    frame: Any = sys._getframe()
    used = 0
    while frame:
        frame, used = frame.f_back, used + 1
    outcome = at_depth(sys.getrecursionlimit() - used - 20, lambda: expression.test({}))
    assert "recursion" in (outcome.problem or "")
    assert expression.test({})


def test_one_expression_is_evaluated_in_many_threads_at_once() -> None:
    expression = Expression("sum([x * factor for x in numbers])")
    wrong: list[object] = []

    def evaluate(factor: int) -> None:
        for _ in range(50):
            if expression.evaluate({"numbers": list(range(50)), "factor": factor}) != 1225 * factor:
                wrong.append(factor)

    threads = [threading.Thread(target=evaluate, args=(factor,)) for factor in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

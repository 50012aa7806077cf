"""What a violation says of what is wrong."""

import pickle
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from fastroai.contracts.violation import violation_of
from fastroai.errors import ContractViolation


class Item(BaseModel):
    name: str
    price: float


def violation(of: Any, value: object) -> ContractViolation:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(of).validate_python(value)
    return violation_of("total", "input", caught.value, value)


def test_a_violation_is_a_line_that_names_field_and_value() -> None:
    assert str(violation(dict[str, list[Item]], {"items": [{"name": "tea", "price": "abc"}]})) == (
        "step 'total': its inputs do not fit its contract: items.0.price: "
        "Input should be a valid number, unable to parse string as a number (got 'abc')"
    )


def test_a_violation_shows_five_errors_and_says_how_many_more_there_are() -> None:
    wrong = violation(list[int], ["a", "b", "c", "d", "e", "f", "g"])
    assert len(wrong.details) == 7
    assert "4: Input should" in str(wrong)
    assert "5: Input should" not in str(wrong)
    assert str(wrong).endswith("(got 'e'); and 2 more")
    assert "more" not in str(violation(list[int], ["a", "b", "c", "d", "e"]))


def test_long_values_are_shortened_and_texts_stay_on_one_line() -> None:
    class Long:
        def __repr__(self) -> str:
            return "a line\n" * 1000

    for value in ("x" * 10_000, list(range(10_000)), {n: [[[n]]] for n in range(1000)}, Long(), "a\nb"):
        text = str(violation(int, value))
        assert len(text) < 300
        assert "\n" not in text


def test_details_are_plain_and_hold_no_large_value_again() -> None:
    large = [{"name": "x" * 1000} for _ in range(100)]
    details = violation(list[Item], large).details
    assert len(details) == 100
    assert details[0] == {"type": "missing", "loc": (0, "price"), "msg": "Field required"}
    assert len(repr(details)) < 100 * 100


def test_a_violation_pickles() -> None:
    wrong = violation(list[Item], [{"name": 3}])
    again = pickle.loads(pickle.dumps(wrong))
    assert (str(again), again.details, again.data) == (str(wrong), wrong.details, wrong.data)
    assert (again.step_id, again.direction) == ("total", "input")


def test_what_a_validator_raises_otherwise_is_the_cause() -> None:
    error = KeyError("rate")
    wrong = violation_of("total", "output", error, 3)
    assert wrong.__cause__ is error
    assert str(wrong) == "step 'total': its output does not fit its contract: KeyError: 'rate'"

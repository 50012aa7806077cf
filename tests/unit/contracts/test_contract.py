"""The values that say what is checked."""

from typing import Any

import pytest

from fastroai.contracts import Check, Contract, ContractRegistry
from fastroai.contracts.violation import violation_by
from fastroai.errors import ConfigurationError, ContractViolation
from fastroai.records import NOT_GIVEN


def is_positive(number: float) -> bool:
    return number > 0


class IsEven:
    def __call__(self, number: int) -> bool:
        return number % 2 == 0


def test_a_check_is_a_function_or_has_a_description() -> None:
    contract = Contract(
        ensure=[
            is_positive,
            ("it is small", lambda n: n < 9),
            Check("it is odd", lambda n: n % 2 == 1),
            IsEven(),
        ]
    )
    assert [check.description for check in contract.postconditions] == [
        "is_positive",
        "it is small",
        "it is odd",
        "IsEven",
    ]


def test_a_lambda_is_named_by_its_line() -> None:
    contract = Contract(require=[lambda ctx: True])
    line = test_a_lambda_is_named_by_its_line.__code__.co_firstlineno + 1
    assert contract.preconditions[0].description == f"the lambda in line {line}"


async def not_now(output: object) -> bool:
    return True


@pytest.mark.parametrize(
    "wrong",
    [
        {"accepts": 3},
        {"returns": "Order"},
        {"strict": 1},
        {"require": is_positive},
        {"require": "is_positive"},
        {"ensure": [3]},
        {"ensure": [("", is_positive)]},
        {"ensure": [("three", is_positive, 3)]},
        {"ensure": [("no function", 3)]},
        {"ensure": [not_now]},
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Contract(**wrong)


def test_none_as_a_type_is_the_type_of_none() -> None:
    assert Contract(returns=None).returns is type(None)


def test_each_field_of_the_more_specific_contract_wins_and_no_more() -> None:
    general = Contract(accepts={"a": int}, returns=int, ensure=[is_positive], strict=True)
    merged = Contract(returns=Any, ensure=[], require=[IsEven()]).over(general)
    assert (merged.accepts, merged.returns, merged.strict) == ({"a": int}, Any, True)
    assert (merged.postconditions, len(merged.preconditions)) == ((), 1)
    assert Contract().over(general) == general
    assert Contract().accepts is NOT_GIVEN


def test_a_registry_is_a_mapping_of_contracts() -> None:
    contract = Contract(returns=int)
    registry = ContractRegistry({"total": contract})
    assert (dict(registry), len(registry), registry["total"]) == ({"total": contract}, 1, contract)
    assert "'total': Contract(" in repr(registry)
    with pytest.raises(ConfigurationError, match=r"contracts\['total'\]"):
        ContractRegistry({"total": int})  # type: ignore[dict-item]  # that is what is tested


# --- what checks say ---


def violation_of_checks(*checks: Any, subject: object = 3) -> ContractViolation | None:
    return violation_by("total", "ensure", Contract(ensure=checks).postconditions, subject, subject)


def says_false(number: int) -> bool:
    return False


def asserts(number: int) -> None:
    assert number > 5, "it is not more\nthan five"


def asserts_without_a_text(number: int) -> None:
    raise AssertionError


def raises_value_error(number: int) -> None:
    raise ValueError("not a prime")


def breaks(number: Any) -> bool:
    return bool(number["total"])


def test_checks_that_hold_are_no_violation() -> None:
    assert violation_of_checks(is_positive, lambda number: None) is None


def test_every_check_that_does_not_hold_is_named() -> None:
    violation = violation_of_checks(
        says_false,
        is_positive,
        asserts,
        asserts_without_a_text,
        raises_value_error,
        ("it is\neven", IsEven()),
    )
    assert violation is not None
    first = "says_false; asserts: it is not more than five"
    assert str(violation).startswith(f"step 'total': what it ensures does not hold: {first}")
    assert str(violation).endswith("asserts_without_a_text; raises_value_error: not a prime; it is even")
    assert violation.data == 3
    assert violation.__cause__ is None


def test_what_a_check_raises_otherwise_is_the_cause() -> None:
    violation = violation_of_checks(says_false, breaks, breaks)
    assert violation is not None
    assert isinstance(violation.__cause__, TypeError)
    assert [detail["type"] for detail in violation.details] == ["check_failed", "check_error", "check_error"]
    assert "breaks: TypeError: 'int' object is not subscriptable" in str(violation)


@pytest.mark.parametrize("answer", [1, "yes", [], not_now(3)])
def test_a_check_says_true_false_or_nothing(answer: object) -> None:
    with pytest.raises(ConfigurationError, match="returns True, False or None"):
        violation_of_checks(("it matches", lambda number: answer))

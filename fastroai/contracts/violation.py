"""Violations of contracts, with their details as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Literal, NoReturn

from pydantic import ValidationError

from fastroai.contracts.brief import brief, one_line
from fastroai.contracts.contract import Check
from fastroai.errors import ConfigurationError, ContractViolation, Direction, ViolationDetail


def violation_of(
    step_id: str | None,
    direction: Direction,
    error: Exception,
    data: object,
    *,
    pipeline: str = "",
    kind: Literal["step", "function", "flow"] = "step",
) -> ContractViolation:
    """Return the violation for an error of pydantic, or for another error that a validator raised."""
    if isinstance(error, ValidationError):
        return ContractViolation(step_id, direction, details_of(error), data, pipeline, kind)
    details = (_detail("validator_error", _said_by(error)),)
    violation = ContractViolation(step_id, direction, details, data, pipeline, kind)
    violation.__cause__ = error
    return violation


def details_of(error: ValidationError) -> tuple[ViolationDetail, ...]:
    """Return every problem that pydantic found, as plain data."""
    details: list[ViolationDetail] = []
    for found in error.errors(include_url=False, include_context=False):
        detail = _detail(found["type"], found["msg"], loc=found["loc"])
        if found["type"] != "missing":  # the input of a missing field is the whole value around it
            detail["input"] = brief(found["input"])
        details.append(detail)
    return tuple(details)


def violation_by(
    step_id: str, direction: Direction, checks: Iterable[Check], subject: object, data: object
) -> ContractViolation | None:
    """Return the violation of the checks that fail for `subject`; `None` if all hold.

    Raises:
        ConfigurationError: a check returned a value other than True, False and None.
    """
    details: list[ViolationDetail] = []
    cause: Exception | None = None
    for check in checks:
        name = one_line(check.description)
        try:
            holds = check.function(subject)
        except (AssertionError, ValueError) as error:
            said = one_line(str(error))
            details.append(_detail("check_failed", f"{name}: {said}" if said else name))
        except Exception as error:
            details.append(_detail("check_error", f"{name}: {_said_by(error)}"))
            cause = cause or error
        else:
            if holds is False:
                details.append(_detail("check_failed", name))
            elif holds is not None and holds is not True:
                _refuse(check, holds)
    if not details:
        return None
    violation = ContractViolation(step_id, direction, tuple(details), data)
    violation.__cause__ = cause
    return violation


def _refuse(check: Check, answer: object) -> NoReturn:
    """Refuse other values, such as a match of a regular expression: no match is None, and would not fail."""
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigurationError(check.description, answer, "a check that returns True, False or None")


def _said_by(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")


def _detail(kind: str, said: str, loc: tuple[int | str, ...] = ()) -> ViolationDetail:
    return {"type": kind, "loc": loc, "msg": one_line(said)}

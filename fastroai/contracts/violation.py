"""What a contract finds wrong, as plain data that a `ContractViolation` carries."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import NoReturn

from pydantic import ValidationError

from fastroai.contracts.brief import brief, one_line
from fastroai.contracts.contract import Check
from fastroai.errors import ConfigurationError, ContractViolation, Direction, ViolationDetail


def violation_of(
    step_id: str | None, direction: Direction, error: Exception, data: object, *, pipeline: str = ""
) -> ContractViolation:
    """The violation that pydantic's error is, or that of what a validator raised instead, its cause."""
    if isinstance(error, ValidationError):
        return ContractViolation(step_id, direction, details_of(error), data, pipeline)
    details = (_detail("validator_error", _said_by(error)),)
    violation = ContractViolation(step_id, direction, details, data, pipeline)
    violation.__cause__ = error
    return violation


def details_of(error: ValidationError) -> tuple[ViolationDetail, ...]:
    """Everything that pydantic found wrong, as plain data."""
    details: list[ViolationDetail] = []
    for found in error.errors(include_url=False, include_context=False):
        detail = _detail(found["type"], found["msg"], loc=found["loc"])
        if found["type"] != "missing":  # whose input is all that is around it
            detail["input"] = brief(found["input"])
        details.append(detail)
    return tuple(details)


def violation_by(
    step_id: str, direction: Direction, checks: Iterable[Check], subject: object, data: object
) -> ContractViolation | None:
    """The violation by the checks that do not hold for `subject`; `None` where all hold.

    Raises:
        ConfigurationError: one returned what is neither True, False nor None.
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
    """Not taken for true: a check that returns the match of a regular expression would never fail."""
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigurationError(check.description, answer, "a check that returns True, False or None")


def _said_by(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")


def _detail(kind: str, said: str, loc: tuple[int | str, ...] = ()) -> ViolationDetail:
    return {"type": kind, "loc": loc, "msg": one_line(said)}

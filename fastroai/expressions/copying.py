"""Copies of JSON values, so that code outside of an evaluation cannot change or share its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from fastroai.expressions.evaluation import Evaluation, Problem
from fastroai.expressions.limits import MAX_DATA_DEPTH
from fastroai.expressions.lookup import plain

if TYPE_CHECKING:
    from pydantic import JsonValue


def copied(evaluation: Evaluation, value: object, what: str, depth: int = 0) -> JsonValue:
    """Return a copy of a value as plain JSON data, with lists for tuples. Each item in it costs a step.

    `what` names the value in problems.
    """
    if depth > MAX_DATA_DEPTH:
        raise Problem(f"{what} is nested more than {MAX_DATA_DEPTH} deep")
    if type(value) is dict:
        evaluation.check_keys(value)
        evaluation.take_items(len(value))
        return {key: copied(evaluation, item, what, depth + 1) for key, item in value.items()}
    if type(value) is list or type(value) is tuple:
        evaluation.take_items(len(value))
        return [copied(evaluation, item, what, depth + 1) for item in value]
    return cast("JsonValue", plain(value, what))

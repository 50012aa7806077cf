"""Functions of the caller, as expressions call them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastroai.expressions.copying import copied
from fastroai.expressions.evaluation import Evaluation, Problem
from fastroai.expressions.functions import Function
from fastroai.expressions.values import Value

if TYPE_CHECKING:
    from pydantic import JsonValue


def as_function(name: str, function: Callable[..., JsonValue]) -> Function:
    """What calls a function with copies, takes nothing but JSON back, and turns exceptions into problems."""

    def call(evaluation: Evaluation, *arguments: Value) -> Value:
        given = [copied(evaluation, argument, f"an argument of {name}()") for argument in arguments]
        try:
            result = function(*given)
        except Exception as error:
            told = traceback.format_exception_only(error)[-1].strip()
            raise Problem(f"{name}() raised {told}") from error
        return copied(evaluation, result, f"what {name}() returned")

    return Function(call, least=0, most=None)

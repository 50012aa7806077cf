"""The arguments of flows by name: their type, and the defaults of those that are missing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NotRequired

from fastroai.contracts.accepted import Accepted
from fastroai.functions.declaring.signature import Signature


def type_of_arguments(function: Callable[..., object], signature: Signature) -> type:
    """Return the arguments as a TypedDict, in which those with defaults may be missing."""
    parameters = inspect.signature(function).parameters
    may_be_missing = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    types: dict[str, Any] = {
        name: declared.annotation
        if parameters[name].default is Parameter.empty and parameters[name].kind not in may_be_missing
        else NotRequired[declared.annotation]
        for name, declared in signature.parameters.items()
    }
    declared = Accepted(types).declared
    assert declared is not None
    return declared


def with_defaults(
    name: str, function: Callable[..., object], inputs: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the arguments of the flow with this name, with defaults for missing ones. Raises `TypeError`."""
    known = dict(inputs or {})
    parameters = inspect.signature(function).parameters
    if unknown := known.keys() - parameters.keys():
        raise TypeError(f"{name}() got an unexpected keyword argument {min(unknown)!r}")
    for argument, parameter in parameters.items():
        if argument not in known:
            if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.VAR_KEYWORD:
                known[argument] = () if parameter.kind is parameter.VAR_POSITIONAL else {}
            elif parameter.default is parameter.empty:
                raise TypeError(f"{name}() missing a required argument: {argument!r}")
            else:
                known[argument] = parameter.default
    return known

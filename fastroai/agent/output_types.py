"""The type of an agent's outputs, read from PydanticAI's `output_type=`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union, get_origin

from pydantic_ai import NativeOutput, PromptedOutput, TextOutput, ToolOutput

from fastroai.contracts.annotations import Annotation, says_something
from fastroai.contracts.declared import returned_type


def type_of_outputs(spec: Any) -> Annotation | None:
    """Return a type, or a union of several; `None` if the spec names none, such as a bare function."""
    if isinstance(spec, ToolOutput):
        return type_of_outputs(spec.output)
    if isinstance(spec, NativeOutput | PromptedOutput):
        return type_of_outputs(spec.outputs)
    if isinstance(spec, TextOutput):
        return returned_type(spec.output_function)
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        types = [type_of_outputs(one) for one in spec]
        return None if not types or None in types else Union[tuple(types)]  # noqa: UP007  # of a list
    if isinstance(spec, type) or get_origin(spec) is not None:
        return spec if says_something(spec) else None
    return returned_type(spec) if callable(spec) else None

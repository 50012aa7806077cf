"""The type that an agent's outputs have, of what PydanticAI takes as `output_type=`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union, get_origin

from pydantic_ai import NativeOutput, PromptedOutput, TextOutput, ToolOutput

from fastroai.contracts.annotations import Annotation, says_something
from fastroai.contracts.declared import returned_type


def type_of_outputs(spec: Any) -> Annotation | None:
    """A type, or a union of several; `None` where the spec does not say one, as a function that has none."""
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

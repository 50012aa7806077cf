"""Inputs of a flow, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from fastroai.contracts.accepted import Accepted
from fastroai.errors import ValueNotStorable, nearest_hint
from fastroai.store.record.values import value_to_json
from fastroai.workflows.checks import oversize
from fastroai.workflows.spec.document import FieldSpec, FlowSpec
from fastroai.workflows.spec.fields import expected, fits


class FlowInputs(Accepted):
    """Checks the inputs of a flow that FastroAI runs itself, by the rules for flows that are driven."""

    def __init__(self, flow: FlowSpec) -> None:
        super().__init__(dict.fromkeys(flow.input, Any))
        self.declared = None
        self._flow = flow

    def read(self, inputs: Mapping[str, object]) -> Mapping[str, object]:
        """Return all inputs, as a flow takes no others than it declares."""
        return inputs

    def check(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the values, without defaults. Raises `ValueError` with every problem if they do not fit."""
        if problems := input_problems(self._flow, values):
            raise ValueError("; ".join(problems))
        return dict(values)


def input_problems(flow: FlowSpec, given: Mapping[str, object]) -> tuple[str, ...]:
    """Return the problems of the inputs of a flow; empty if there are none."""
    problems = [
        f"there is no input {name!r}.{nearest_hint(name, flow.input)}"
        for name in given
        if name not in flow.input
    ]
    for name, field in flow.input.items():
        if name in given:
            if (problem := _problem(given[name], field)) is not None:
                problems.append(f"input {name!r}: {problem}")
        elif field.required and not field.has_default:
            problems.append(f"input {name!r} is missing: {expected(field)}")
    return tuple(problems)


def _problem(value: object, field: FieldSpec) -> str | None:
    try:
        plain = value_to_json(value, None, "it")
    except ValueNotStorable as error:
        return f"expected {expected(field)}, as JSON data, and not {error.type_name}"
    if (why := oversize(plain)) is not None:
        return f"too large: {why}"
    is_left_out = plain is None and not field.required
    return None if is_left_out or fits(plain, field) else f"expected {expected(field)}"


def with_defaults(flow: FlowSpec, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the inputs of a flow, with defaults for inputs that are not given."""
    filled = {
        name: given.get(name, field.default)
        for name, field in flow.input.items()
        if name in given or field.has_default
    }
    return {**filled, **given}

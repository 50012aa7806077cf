"""Inputs of a flow, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from fastroai.errors import nearest_hint
from fastroai.workflows.spec.document import FlowSpec
from fastroai.workflows.spec.fields import expected, fits


def input_problems(flow: FlowSpec, given: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Return the problems of the inputs of a flow; empty if there are none."""
    problems = [
        f"there is no input {name!r}.{nearest_hint(name, flow.input)}"
        for name in given
        if name not in flow.input
    ]
    for name, field in flow.input.items():
        if name in given:
            if not fits(given[name], field):
                problems.append(f"input {name!r}: expected {expected(field)}")
        elif field.required and not field.has_default:
            problems.append(f"input {name!r} is missing: {expected(field)}")
    return tuple(problems)


def with_defaults(flow: FlowSpec, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the inputs of a flow, with defaults for inputs that are not given."""
    filled = {
        name: given.get(name, field.default)
        for name, field in flow.input.items()
        if name in given or field.has_default
    }
    return {**filled, **given}

"""What a flow is begun with: its inputs, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from fastroai.errors import nearest_hint
from fastroai.workflows.spec.document import FlowSpec
from fastroai.workflows.spec.fields import expected, fits


def input_problems(flow: FlowSpec, given: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Return what is wrong with the inputs of a flow."""
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
    """Return the inputs of a flow, with the defaults of those that are not given."""
    filled = {
        name: given.get(name, field.default)
        for name, field in flow.input.items()
        if name in given or field.has_default
    }
    return {**filled, **given}

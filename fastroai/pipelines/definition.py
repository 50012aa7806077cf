"""The shape of a pipeline as plain data, kept with its runs.

The shape has everything that decides which steps run after which others: ids, edges, the output, and what a
failure stops. It has no prompts, code, time limits, retries and budgets: these may change before a run is
resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from fastroai.runs.nesting import definition_inside
from fastroai.steps import BaseStep


def define(
    name: str,
    steps: Mapping[str, BaseStep[Any, Any]],
    dependencies: Mapping[str, Sequence[str]],
    output_step: str,
    on_error: Mapping[str, str],
    *,
    version: str | None,
) -> dict[str, JsonValue]:
    """Return the shape of a pipeline as plain data."""
    return {
        "name": name,
        "steps": {
            step_id: {
                "needs": list(dependencies[step_id]),
                "on_error": on_error[step_id],
                "runs": definition_inside(step),
            }
            for step_id, step in steps.items()
        },
        "output_step": output_step,
        **({} if version is None else {"version": version}),
    }

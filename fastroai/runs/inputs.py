"""Checks of the inputs of a run."""

from __future__ import annotations

from collections.abc import Mapping

from fastroai.contracts.accepted import Accepted
from fastroai.contracts.violation import violation_of
from fastroai.errors import ConfigurationError, ContractViolation
from fastroai.runtime import Scope
from fastroai.runtime.events import ContractViolated


def check_mapping(inputs: object) -> None:
    """Check that inputs are a mapping or `None`. Raises `ConfigurationError`."""
    if inputs is not None and type(inputs) is not dict and not isinstance(inputs, Mapping):
        of_model = ", as inputs.model_dump() gives" if hasattr(inputs, "model_dump") else ""
        raise ConfigurationError("inputs", inputs, f"a mapping of names to values{of_model}")


def checked_inputs(accepts: Accepted | None, inputs: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the inputs of a run, with the declared ones validated by pydantic. Raises `ContractViolation`.

    `name` is the name of the pipeline or graph.
    """
    if accepts is None:
        return inputs
    read = accepts.read(inputs)
    try:
        return {**inputs, **accepts.check(read)}
    except Exception as error:  # from pydantic, or any exception of a validator of the user
        raise violation_of(None, "input", error, read, pipeline=name) from error


async def check_inputs(
    accepts: Accepted | None, inputs: Mapping[str, object], scope: Scope
) -> Mapping[str, object]:
    """Check the inputs of the run of a scope, as `checked_inputs` does, and tell listeners of a violation."""
    try:
        return checked_inputs(accepts, inputs, scope.name)
    except ContractViolation as violation:
        await scope.emit(ContractViolated(part=scope.part, step_id=None, error=violation))
        raise

"""The inputs of a run, checked."""

from __future__ import annotations

from collections.abc import Mapping

from fastroai.contracts.accepted import Accepted
from fastroai.contracts.violation import violation_of
from fastroai.errors import ConfigurationError, ContractViolation
from fastroai.runtime import ContractViolated, Scope


def check_mapping(inputs: object) -> None:
    """Refuse what is no mapping. Raises `ConfigurationError`."""
    if inputs is not None and not isinstance(inputs, Mapping):
        raise ConfigurationError("inputs", inputs, "a mapping of names to values")


def checked_inputs(accepts: Accepted | None, inputs: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The inputs of a run, those that are accepted as pydantic makes them. Raises `ContractViolation`.

    `name` is that of the pipeline or graph.
    """
    if accepts is None:
        return inputs
    read = {name: inputs[name] for name in accepts.names if name in inputs}
    try:
        return {**inputs, **accepts.check(read)}
    except Exception as error:  # pydantic's, or whatever a validator of the user raises
        raise violation_of(None, "input", error, read, pipeline=name) from error


async def check_inputs(
    accepts: Accepted | None, inputs: Mapping[str, object], scope: Scope
) -> Mapping[str, object]:
    """`checked_inputs` of the run of a scope, whose listeners are told of a violation."""
    try:
        return checked_inputs(accepts, inputs, scope.name)
    except ContractViolation as violation:
        await scope.emit(ContractViolated(part=scope.part, step_id=None, error=violation))
        raise

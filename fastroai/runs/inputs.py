"""The inputs of a run, checked."""

from __future__ import annotations

from collections.abc import Mapping

from fastroai.contracts.accepted import Accepted
from fastroai.contracts.violation import violation_of
from fastroai.errors import ConfigurationError
from fastroai.runtime import ContractViolated, Scope


def check_mapping(inputs: object) -> None:
    """Refuse what is no mapping. Raises `ConfigurationError`."""
    if inputs is not None and not isinstance(inputs, Mapping):
        raise ConfigurationError("inputs", inputs, "a mapping of names to values")


async def check_inputs(
    accepts: Accepted | None, inputs: Mapping[str, object], scope: Scope
) -> Mapping[str, object]:
    """The inputs of a run, those that are accepted as pydantic makes them.

    Raises:
        ContractViolation: they do not fit. Listeners of `scope`, which is that of the run, are told.
    """
    if accepts is None:
        return inputs
    read = {name: inputs[name] for name in accepts.names if name in inputs}
    try:
        return {**inputs, **accepts.check(read)}
    except Exception as error:  # pydantic's, or whatever a validator of the user raises
        violation = violation_of(None, "input", error, read, pipeline=scope.name)
    await scope.emit(ContractViolated(part=scope.part, step_id=None, error=violation))
    raise violation

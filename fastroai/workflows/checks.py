"""Checks of a result, in this order: the schema of its step, its contract, the conditions of `ensure`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from pydantic import JsonValue

from fastroai.documents.parts import shown
from fastroai.expressions import Expression
from fastroai.workflows.spec.document import StepSpec, WorkflowSpec
from fastroai.workflows.spec.files import Workspace
from fastroai.workflows.spec.limits import (
    MAX_RESULT_CHARACTERS,
    MAX_RESULT_DEPTH,
    MAX_VIOLATION_CHARACTERS,
    MAX_VIOLATIONS,
)
from fastroai.workflows.spec.schemas import compiled, contract_schema, gathered_schema

if TYPE_CHECKING:
    import jsonschema_rs

CheckKind: TypeAlias = Literal["schema", "contract", "ensure"]
"""The kind of check that a result has failed."""

_ALL_ERRORS_UP_TO: Final = 20_000
"""Characters of a result up to which all violations of a schema are found. In a longer result, only the first
violation is found. The library finds all or one, and a list of a million wrong items would take it seconds.
"""


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """The check that a result has failed, and why. Later checks were not made."""

    kind: CheckKind
    violations: tuple[str, ...]
    """The violations: at most 50, each of at most 500 characters."""

    @property
    def status(self) -> Literal["ensure_failed", "schema_failed"]:
        """The status of the answer about this failure: `schema_failed` or `ensure_failed`."""
        return "ensure_failed" if self.kind == "ensure" else "schema_failed"

    @property
    def error_type(self) -> str:
        """The type of error in facts about this failure, such as `ContractFailed` or `EnsureFailed`."""
        return f"{self.kind.capitalize()}Failed"


@final
class Checks:
    """The checks of a spec. Schemas are compiled when they are first needed, and kept."""

    def __init__(self, spec: WorkflowSpec, workspace: Workspace | None = None) -> None:
        """Args: `workspace` has the files that conditions of `ensure` ask for; without it, they fail."""
        self._spec, self._workspace = spec, workspace
        self._contracts: dict[str, jsonschema_rs.Validator] = {}
        # By `id`: the spec keeps its schemas alive, so no other schema can get the same id.
        self._schemas: dict[int, jsonschema_rs.Validator] = {}

    def of_result(
        self, step: StepSpec, result: JsonValue, inputs: Mapping[str, JsonValue]
    ) -> CheckFailure | None:
        """Return the check that a result of a step fails; `None` if the result passes.

        Args:
            step: A step of the spec.
            result: JSON data, which `oversize` lets pass.
            inputs: The inputs of the step by name, which `ensure` reads as `input`.
        """
        if step.output_schema is not None:
            violations = _violations(self._schema(step, step.output_schema), result)
            if violations:
                return CheckFailure("schema", violations)
        if step.output_contract is not None:
            violations = self.fits(step.output_contract, result)
            if violations:
                return CheckFailure("contract", violations)
        data = {"result": result, "input": dict(inputs)}
        outcomes = [self._asked(one).test(data) for one in step.ensure]
        violations = _bounded(outcome.explain() for outcome in outcomes if not outcome.holds)
        return CheckFailure("ensure", violations) if violations else None

    def fits(self, name: str, value: JsonValue) -> tuple[str, ...]:
        """Return the violations of a contract of the spec by a value; empty if the value passes."""
        if name not in self._contracts:
            self._contracts[name] = compiled(contract_schema(self._spec.contracts[name]))
        return _violations(self._contracts[name], value)

    def _schema(self, step: StepSpec, schema: Mapping[str, JsonValue]) -> jsonschema_rs.Validator:
        validator = self._schemas.get(id(schema))
        if validator is None:
            gathers = step.iteration is not None and step.iteration.accumulate is not None
            validator = compiled(gathered_schema(schema) if gathers else schema)
            self._schemas[id(schema)] = validator
        return validator

    def _asked(self, expression: Expression) -> Expression:
        return expression if self._workspace is None else self._workspace.expression(expression.text)


def _violations(validator: jsonschema_rs.Validator, value: JsonValue) -> tuple[str, ...]:
    if validator.is_valid(value):
        return ()
    if len(json.dumps(value)) <= _ALL_ERRORS_UP_TO:
        return _bounded(map(_told, validator.iter_errors(value)))
    from jsonschema_rs import ValidationError

    try:
        validator.validate(value)
    except ValidationError as error:
        return _bounded([_told(error)])
    raise AssertionError("a value is valid, and is not")


def _told(error: jsonschema_rs.ValidationError) -> str:
    return f"{shown(('result', *error.instance_path))}: {error.message}"


def _bounded(violations: Iterable[str]) -> tuple[str, ...]:
    longest = MAX_VIOLATION_CHARACTERS
    return tuple(
        one if len(one) <= longest else f"{one[: longest - 1]}…" for one in islice(violations, MAX_VIOLATIONS)
    )


def oversize(value: JsonValue) -> str | None:
    """Return why a result is too large to be checked; `None` if its size is allowed."""
    waiting: list[tuple[JsonValue, int]] = [(value, 0)]
    characters = 0
    while waiting:
        part, depth = waiting.pop()
        if depth > MAX_RESULT_DEPTH:
            return f"it is nested too deeply; at most {MAX_RESULT_DEPTH} levels are allowed"
        if isinstance(part, dict):
            characters += sum(len(key) + 4 for key in part) + 2
            waiting.extend((one, depth + 1) for one in part.values())
        elif isinstance(part, list):
            characters += 2 * len(part) + 2
            waiting.extend((one, depth + 1) for one in part)
        else:
            characters += len(part) + 2 if isinstance(part, str) else 4
        if characters > MAX_RESULT_CHARACTERS:
            return f"it has more than {MAX_RESULT_CHARACTERS:,} characters of JSON"
    return None

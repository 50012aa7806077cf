"""The functions of a spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast, get_args

from fastroai.documents.yaml_text import Way
from fastroai.errors import ConfigurationError
from fastroai.expressions import Expression
from fastroai.runtime.options import LONGEST_SECONDS
from fastroai.usage import Budget
from fastroai.workflows.spec.conditions import Scope, read_ensure
from fastroai.workflows.spec.document import (
    ACCUMULATED_FIELDS,
    RETRIES_ARE_ATTEMPTS,
    ContractSpec,
    FieldSpec,
    FunctionSpec,
    Mode,
)
from fastroai.workflows.spec.fields import read_fields
from fastroai.workflows.spec.parts import BudgetPart, FlowPart, FunctionPart
from fastroai.workflows.spec.problems import Problems, cut
from fastroai.workflows.spec.references import Known
from fastroai.workflows.spec.schemas import known_fields

_MODES: Final[tuple[Mode, ...]] = get_args(Mode)
DEFAULT_ATTEMPTS: Final = 3
"""Attempts at a step whose function does not say how many."""
_NOT_OF_GATES: Final = ("ensure", "budget", "retries")
_IGNORED_OF_GATES: Final = ("context", "output", "model")
"""Keys that gates of the first versions may have, although nothing reads them."""


@dataclass(slots=True)
class Uses:
    """How the steps of a spec use a function."""

    fields: dict[str, FieldSpec | None] = field(default_factory=dict)
    """The fields that schemas of these steps add to the contract of the function."""
    inputs: set[str] = field(default_factory=set)
    """The inputs that these steps give to the function."""


def uses_of(flows: Iterable[FlowPart]) -> dict[str, Uses]:
    """Return how each function is used, by its name."""
    uses: dict[str, Uses] = {}
    for step in (step for flow in flows for step in flow.steps if step.function is not None):
        of_function = uses.setdefault(step.function or "", Uses())
        of_function.fields |= known_fields(None, step.output_schema).fields
        if step.accumulate is not None:
            of_function.fields |= ACCUMULATED_FIELDS
        of_function.inputs |= (step.inputs or {}).keys()
    return uses


def read_functions(
    parts: Mapping[str, FunctionPart],
    contracts: Mapping[str, ContractSpec],
    uses: Mapping[str, Uses],
    version: str,
    problems: Problems,
) -> dict[str, FunctionSpec]:
    """Return the functions of a spec, without those of an unknown mode."""
    functions = {}
    for name, part in parts.items():
        way: Way = ("functions", name)
        if problems.choice((*way, "mode"), part.mode, _MODES):
            functions[name] = _function(name, part, way, contracts, uses.get(name, Uses()), version, problems)
    return functions


def _function(
    name: str,
    part: FunctionPart,
    way: Way,
    contracts: Mapping[str, ContractSpec],
    uses: Uses,
    version: str,
    problems: Problems,
) -> FunctionSpec:
    is_gate = part.mode == "gate"
    if is_gate:
        is_early = version in RETRIES_ARE_ATTEMPTS
        for key in _NOT_OF_GATES if is_early else (*_NOT_OF_GATES, *_IGNORED_OF_GATES):
            if getattr(part, key) is not None:
                message = f"function {cut(name)!r} is a gate, which has no {key}: a person decides"
                problems.add(message, (*way, key), of_key=True)
    else:
        if part.timeout is not None:
            message = f"function {cut(name)!r} has a timeout, which only gates have; use budget: {{ms: ...}}"
            problems.add(message, (*way, "timeout"), of_key=True)
        for key in ("intent", "output"):
            if not getattr(part, key):
                message = f"function {cut(name)!r} has no {key}, which every {part.mode} function has"
                problems.add(message, (*way, key))
    output = known_contract(part.output, (*way, "output"), contracts, problems)
    takes = read_fields(part.input, (*way, "input"), problems)
    ensure: tuple[Expression, ...] = ()
    if not is_gate:
        contract = None if output is None else contracts[output]
        result = Known({**uses.fields, **({} if contract is None else contract.fields)}, contract is not None)
        given = Known({**dict.fromkeys(uses.inputs), **takes})
        scope = Scope({"result": result, "input": given})
        ensure = read_ensure(part.ensure, scope, (*way, "ensure"), problems)
    return FunctionSpec(
        name=name,
        mode=cast("Mode", part.mode),
        intent=part.intent or "",
        context=part.context or "",
        input=takes,
        output=None if is_gate else output,
        ensure=ensure,
        attempts=read_attempts(part.retries, version, (*way, "retries"), problems, DEFAULT_ATTEMPTS),
        budget=read_budget(part.budget, (*way, "budget"), problems),
        model=part.model,
        timeout=_timeout(part.timeout, (*way, "timeout"), problems),
    )


def _timeout(seconds: float | None, way: Way, problems: Problems) -> float | None:
    if seconds is not None and not 0 < seconds <= LONGEST_SECONDS:  # NaN fails this, too
        problems.add(f"timeout is {seconds:g}; expected seconds, more than 0 and at most 1,000 years", way)
        return None
    return seconds


def known_contract(
    name: str | None, way: Way, contracts: Mapping[str, ContractSpec], problems: Problems
) -> str | None:
    """Return the name of a contract that exists. Note a problem if it does not."""
    if not name or name in contracts:
        return name or None
    problems.unknown("contract", name, way, contracts)
    return None


def read_attempts(retries: int | None, version: str, way: Way, problems: Problems, default: int) -> int:
    """Return the total number of attempts that `retries` allows, or `default`. Note invalid numbers."""
    if version in RETRIES_ARE_ATTEMPTS:
        return at_least_one(retries, way, problems, default)
    if retries is not None and retries < 0:
        problems.add(f"retries is {_short(retries)}; expected extra attempts, at least 0", way)
        return default
    return default if retries is None else retries + 1


def at_least_one(said: int | None, way: Way, problems: Problems, default: int) -> int:
    """Return a count of at least 1, or else `default`. Note a problem if the count is less than 1."""
    if said is not None and said < 1:
        problems.add(f"{way[-1]} is {_short(said)}; expected a whole number of at least 1", way)
        return default
    return default if said is None else said


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**18 else "a very small number"


def read_budget(part: BudgetPart | None, way: Way, problems: Problems) -> Budget | None:
    """Return a budget. Note a problem if it is invalid."""
    if part is None:
        return None
    said: dict[str, Any] = {key: value for key, value in part if value is not None}
    try:
        return Budget(**said)
    except ConfigurationError as error:
        option = error.option if error.option in BudgetPart.model_fields else None
        problems.add(f"budget: {error}", way if option is None else (*way, option))
        return None

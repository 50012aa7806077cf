"""The contracts of a pipeline: their problems, found before anything runs, and the checks of each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastroai.contracts import Contract
from fastroai.contracts.accepted import Accepted
from fastroai.contracts.annotations import Annotation
from fastroai.errors import nearest_hint
from fastroai.records import NotGiven
from fastroai.steps import BaseStep
from fastroai.steps.contracts import BoundContract, bind, what_holds
from fastroai.steps.outputs import Outputs


def contract_problems(
    steps: Mapping[str, object],
    needs: Mapping[str, tuple[str, ...]],
    contracts: Mapping[str, object],
    inputs: Accepted | None,
) -> Iterator[str]:
    """Yield each problem that is known before a run: unknown steps, and values that nothing provides."""
    for step_id, contract in contracts.items():
        if step_id not in steps:
            yield f"contracts name {step_id!r}, which is not a step.{nearest_hint(str(step_id), steps)}"
        if not isinstance(contract, Contract):
            yield f"contracts[{step_id!r}] is a {type(contract).__name__}; expected a Contract"
    outputs = Outputs(needs)
    for step_id, step in steps.items():
        own = step.contract if isinstance(step, BaseStep) else None
        if own is None:
            continue
        if not isinstance(own, Contract):
            yield f"the contract of step {step_id!r} is a {type(own).__name__}; expected a Contract"
        elif inputs is not None:
            registered = contracts.get(step_id)
            contract = registered.over(own) if isinstance(registered, Contract) else own
            yield from _nobody_gives(step_id, contract, inputs.names, outputs)


def _nobody_gives(
    step_id: str, contract: Contract, inputs: tuple[str, ...], outputs: Outputs
) -> Iterator[str]:
    if isinstance(contract.accepts, NotGiven):
        return
    for name in sorted(Accepted(contract.accepts).required.difference(inputs)):
        if name not in outputs.dependencies:
            hint = nearest_hint(name, [*inputs, *outputs.dependencies])
            yield f"step {step_id!r} accepts {name!r}, which is no input of the pipeline and no step.{hint}"
        elif not outputs.is_ancestor(name, step_id):
            needs = [*outputs.dependencies[step_id], name]
            yield (
                f"step {step_id!r} accepts {name!r}, which need not have finished before it; "
                f"add to dependencies: {step_id!r}: {needs!r}"
            )


def bind_contracts(
    steps: Mapping[str, BaseStep[Any, Any]], contracts: Mapping[str, Contract]
) -> dict[str, BoundContract]:
    """Return the checks of each step that has a contract, by step id.

    Steps that have the same contract and the same type of output share their checks.

    Raises:
        ConfigurationError: a step accepts a type that pydantic cannot check.
    """
    # By identity, as types take long to hash and not all can be: the values keep what has the identity.
    holds: dict[int, tuple[Contract, Annotation | None]] = {}
    known: dict[tuple[int, int], tuple[Contract, Annotation | None, BoundContract | None]] = {}
    bound: dict[str, BoundContract] = {}
    for step_id, step in steps.items():
        if step_id in contracts:
            contract, returns = what_holds(step, contracts[step_id])
        elif id(step) in holds:
            contract, returns = holds[id(step)]
        else:
            contract, returns = holds[id(step)] = what_holds(step)
        key = id(contract), id(returns)
        if key not in known:
            known[key] = contract, returns, bind(contract, returns)
        if (checks := known[key][-1]) is not None:
            bound[step_id] = checks
    return bound

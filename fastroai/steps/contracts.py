"""The contract of a step, from the step and from its pipeline, and the checks around its attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from fastroai.contracts import Check, Contract
from fastroai.contracts.accepted import Accepted
from fastroai.contracts.annotations import Annotation, Checker, says_something
from fastroai.contracts.violation import violation_by, violation_of
from fastroai.errors import ContractViolation, Direction
from fastroai.records import NotGiven, first_given
from fastroai.runtime.events import ContractViolated
from fastroai.steps.base import BaseStep
from fastroai.steps.context import scope_of, show
from fastroai.steps.conversation import ConversationState

if TYPE_CHECKING:
    from fastroai.steps.context import StepContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BoundContract:
    """The checks of one step, ready to run."""

    accepts: Accepted | None
    require: tuple[Check, ...]
    returns: Checker | None
    ensure: tuple[Check, ...]
    strict: bool
    exact: type | None
    """Class of outputs that need no check. Subclasses do need one."""
    has_before: bool
    """Whether there is anything to check before an attempt."""

    async def check_before(self, context: StepContext[Any]) -> None:
        """Check the values that a step reads, and its preconditions. It then reads the validated values.

        Raises:
            ContractViolation: the contract does not hold.
        """
        if (accepts := self.accepts) is None:
            values = dict(context.inputs)
        else:
            read = context.read(accepts.names)
            values = await _valid(context, "input", read, lambda: accepts.check(read))
            show(context, values)
        await _check_all(context, "require", self.require, context, values)

    async def check_after(self, context: StepContext[Any], output: object) -> object:
        """Check an output and its postconditions, and return the output as pydantic validated it.

        The data of a conversation is not checked while the conversation is incomplete.

        Raises:
            ContractViolation: the output is not of its type, or a postcondition does not hold.
        """
        if isinstance(output, ConversationState) and output.is_incomplete:
            return output
        if (returns := self.returns) is not None:
            strict = self.strict or None
            made = await _valid(context, "output", output, lambda: returns.check(output, strict=strict))
            if isinstance(output, ConversationState) and isinstance(made, ConversationState):
                made = replace(output, data=made.data)  # a subclass stays one
            output = made
        await _check_all(context, "ensure", self.ensure, output, output)
        return output


def declared_output(step: BaseStep[Any, Any], contract: Contract | None = None) -> Annotation | None:
    """Return the declared type of a step's output; `None` if there is none, or one that says nothing.

    The first declaration holds: that of `contract`, which a pipeline has for the step; that of the step's own
    contract; and the type that the step infers, as from its annotations.
    """
    said = _contract_of(step, contract).returns
    if isinstance(said, NotGiven):
        return step.inferred_output()
    return said if says_something(said) else None


def bind_contract(step: BaseStep[Any, Any], contract: Contract | None = None) -> BoundContract | None:
    """Return the checks of a step, under a contract that a pipeline may have for it; `None` without checks.

    Raises:
        ConfigurationError: the contract has a type that pydantic cannot check.
    """
    return bind(*what_holds(step, contract))


def what_holds(
    step: BaseStep[Any, Any], contract: Contract | None = None
) -> tuple[Contract, Annotation | None]:
    """Return the whole contract of a step, and the type that its output is checked against, if any."""
    whole = _contract_of(step, contract)
    if isinstance(whole.returns, NotGiven):
        return whole, None if step.checks_output_itself else step.inferred_output()
    return whole, whole.returns if says_something(whole.returns) else None


def bind(whole: Contract, annotation: Annotation | None) -> BoundContract | None:
    """Return the checks of `what_holds`, which steps can share; `None` without checks.

    Raises:
        ConfigurationError: the contract has a type that pydantic cannot check.
    """
    strict = first_given(whole.strict, default=False)
    exact: type | None = None
    returns = None if annotation is None else Checker.of(annotation)
    if returns is not None and not whole.postconditions:
        exact = returns.exact
    accepts = None if isinstance(whole.accepts, NotGiven) else Accepted(whole.accepts, strict=strict)
    if accepts is None and returns is None and not whole.preconditions and not whole.postconditions:
        return None
    return BoundContract(
        accepts=accepts,
        require=whole.preconditions,
        returns=returns,
        ensure=whole.postconditions,
        strict=strict,
        exact=exact,
        has_before=accepts is not None or bool(whole.preconditions),
    )


def _contract_of(step: BaseStep[Any, Any], contract: Contract | None) -> Contract:
    return step.contract if contract is None else contract.over(step.contract)


async def _valid(
    context: StepContext[Any], direction: Direction, data: object, validate: Callable[[], T]
) -> T:
    try:
        return validate()
    except Exception as error:  # of pydantic, or any error of a user's validator
        violation = violation_of(context.step_id, direction, error, data)
    await _report(context, violation)
    raise violation


async def _check_all(
    context: StepContext[Any], direction: Direction, checks: tuple[Check, ...], subject: object, data: object
) -> None:
    violation = violation_by(context.step_id, direction, checks, subject, data)
    if violation is not None:
        await _report(context, violation)
        raise violation


async def _report(context: StepContext[Any], violation: ContractViolation) -> None:
    """Tell the listeners of the run that the contract of the step is violated."""
    scope = scope_of(context)
    await scope.emit(ContractViolated(part=scope.part, step_id=scope.name, error=violation))

"""`Contract`: types and conditions of a step; and `ContractRegistry`, contracts by step id."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, TypeVar, cast

from fastroai.contracts.accepted import Accepts, check_accepts
from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError
from fastroai.other_names import other_names
from fastroai.records import NOT_GIVEN, NotGiven, first_given

SubjectT = TypeVar("SubjectT")


@dataclass(frozen=True, slots=True)
class Check:
    """A condition, with a description that errors show if it does not hold.

    `function` returns True or False. Or it returns nothing, and raises AssertionError or ValueError with a
    text if the condition does not hold. Any other value raises `ConfigurationError`. A lambda in a typed
    function is different: its condition holds if the value is true, and so does not hold if that is `None`.
    Any other exception counts in a `Contract` as a condition that does not hold; in a typed function, it is
    raised. The function must not be `async`, and runs on the event loop.

    Raises:
        ConfigurationError: the description is empty, or the function is `async` or cannot be called.
    """

    description: str
    function: Callable[[Any], bool | None]

    def __post_init__(self) -> None:
        if not isinstance(self.description, str) or not self.description:
            raise ConfigurationError("description", self.description, "a text that names the condition")
        if not callable(self.function) or inspect.iscoroutinefunction(self.function):
            raise ConfigurationError(self.description, self.function, "a function that is not async")


Condition: TypeAlias = (
    Check | Callable[[SubjectT], bool | None] | tuple[str, Callable[[SubjectT], bool | None]]
)
"""A condition on a step's context or output, with a description or named by its function."""


@other_names(
    arguments={
        "input": "accepts=",
        "output": "returns=",
        "input_schema": "accepts=",
        "output_schema": "returns=",
        "node_id": "the id of the step, as in Pipeline(contracts={step_id: Contract(…)})",
    }
)
@dataclass(frozen=True, kw_only=True)
class Contract:
    """The checks at the boundary of a step: types and conditions of its inputs and its output.

    Before each attempt at the step, `accepts` checks the types of the values that the step reads, and
    `require` has conditions on its `StepContext`. After the attempt, `returns` checks the type of the output,
    and `ensure` has conditions on it. pydantic converts values to these types, unless `strict=True`. If a
    check fails, the step fails with `ContractViolation`. A field that is not given keeps the step's own
    value.

        Contract(
            accepts={"order": Order, "classify": Category},
            returns=Invoice,
            require=[("the order is open", lambda ctx: ctx.get_input("order").is_open)],
            ensure=[("the total is positive", lambda invoice: invoice.total > 0)],
        )

    Raises:
        ConfigurationError: an invalid value.
    """

    accepts: Accepts | NotGiven = NOT_GIVEN
    """Values that the step reads: types by name, or a TypedDict, model or dataclass with these names as
    fields. A name is that of a step that it depends on, or else of an input of the run. The step reads the
    value as pydantic has converted it."""
    returns: Annotation | NotGiven = NOT_GIVEN
    """Type of the output. The output is the returned value as pydantic has converted it. `Any` turns off the
    check of an annotated type."""
    require: Sequence[Condition[Any]] | NotGiven = NOT_GIVEN
    """Conditions on the `StepContext` that must hold before each attempt. The values that they read are
    checked too."""
    ensure: Sequence[Condition[Any]] | NotGiven = NOT_GIVEN
    """Conditions on the output, after it was converted to its type."""
    strict: bool | NotGiven = NOT_GIVEN
    """Whether pydantic checks the types in strict mode, without conversions. False by default."""

    def __post_init__(self) -> None:
        if not isinstance(self.accepts, NotGiven):
            check_accepts(self.accepts)
            if isinstance(self.accepts, Mapping):
                object.__setattr__(self, "accepts", dict(self.accepts))
        if self.returns is None:
            object.__setattr__(self, "returns", type(None))
        if isinstance(self.returns, str):
            raise ConfigurationError("returns", self.returns, "a type, not its name in quotes")
        if not isinstance(first_given(self.strict, default=False), bool):
            raise ConfigurationError("strict", self.strict, "True or False")
        for option in ("require", "ensure"):
            given = getattr(self, option)
            if not isinstance(given, NotGiven):
                object.__setattr__(self, option, as_checks(option, given))

    @property
    def preconditions(self) -> tuple[Check, ...]:
        """The conditions of `require` as `Check` objects; empty if `require` is not given."""
        return () if isinstance(self.require, NotGiven) else tuple(self.require)  # type: ignore[arg-type]  # they were made checks

    @property
    def postconditions(self) -> tuple[Check, ...]:
        """The conditions of `ensure` as `Check` objects; empty if `ensure` is not given."""
        return () if isinstance(self.ensure, NotGiven) else tuple(self.ensure)  # type: ignore[arg-type]  # as above

    def over(self, less_specific: Contract) -> Contract:
        """Return a new contract: the fields that this one sets, and the other fields of `less_specific`."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(
            less_specific,
            **{name: value for name, value in said.items() if not isinstance(value, NotGiven)},
        )


def as_checks(option: str, given: object) -> tuple[Check, ...]:
    """Return the checks for a list of conditions. Raises `ConfigurationError`."""
    expected = "a list of functions, or of (description, function) pairs"
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigurationError(option, given, expected)
    checks: list[Check] = []
    for one in given:
        if isinstance(one, Check):
            checks.append(one)
        elif isinstance(one, tuple) and len(one) == 2:
            checks.append(Check(*one))
        elif callable(one):
            checks.append(Check(name_of(one), cast("Callable[[Any], bool | None]", one)))
        else:
            raise ConfigurationError(option, given, expected)
    return tuple(checks)


def name_of(function: Callable[..., object]) -> str:
    """Return the name by which a condition without a description is known."""
    name: str = getattr(function, "__name__", "") or type(function).__name__
    if name == "<lambda>" and inspect.isfunction(function):
        return f"the lambda in line {function.__code__.co_firstlineno}"
    return name


@other_names(attributes={"register": "ContractRegistry({step_id: Contract(…)})"})
class ContractRegistry(Mapping[str, Contract]):
    """Contracts by step id, apart from the steps: `Pipeline(..., contracts=registry)`.

        contracts = ContractRegistry({
            "extract": Contract(returns=Order),
            "total": Contract(accepts={"extract": Order}, ensure=[is_positive]),
        })

    A contract here overrides that of the step, in the fields that it sets. The registry is a mapping that
    cannot be changed. A pipeline refuses the id of a step that it does not have.

    Raises:
        ConfigurationError: a value is not a Contract.
    """

    def __init__(self, contracts: Mapping[str, Contract]) -> None:
        for step_id, contract in contracts.items():
            if not isinstance(contract, Contract):
                raise ConfigurationError(f"contracts[{step_id!r}]", contract, "a Contract")
        self._contracts = dict(contracts)

    def __repr__(self) -> str:
        return f"ContractRegistry({self._contracts!r})"

    def __getitem__(self, step_id: str) -> Contract:
        """Return the contract of a step. Raises KeyError if it has none."""
        return self._contracts[step_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contracts)

    def __len__(self) -> int:
        return len(self._contracts)

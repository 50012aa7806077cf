"""Cases, and what evaluators are given and give back, by the names of pydantic_evals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, cast, runtime_checkable

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError

InputsT = TypeVar("InputsT", default=Any)
OutputT = TypeVar("OutputT", default=Any)
MetadataT = TypeVar("MetadataT", default=Any)

Scalar: TypeAlias = bool | int | float | str
"""A value of an evaluator: a `bool` is an assertion, a number is a score, and a text is a label."""


class Reasoned(Protocol):
    """A value with the reason for it, such as an `EvaluationReason` of pydantic_evals."""

    value: Scalar
    reason: str | None


EvaluatorOutput: TypeAlias = Scalar | Reasoned | Mapping[str, "Scalar | Reasoned"]
"""What an evaluator returns: one value, or several by name."""


@runtime_checkable
class PydanticEvaluator(Protocol):
    """An evaluator of pydantic_evals."""

    def get_default_evaluation_name(self) -> str:
        """Return the name of its value, unless it gives several by name."""
        ...

    async def evaluate_async(self, ctx: Any) -> Any:
        """Evaluate an output."""
        ...


Evaluator: TypeAlias = (
    PydanticEvaluator | Callable[["EvaluatorContext"], EvaluatorOutput | Awaitable[EvaluatorOutput]]
)
"""A function of an `EvaluatorContext`, sync or async, or an evaluator of pydantic_evals."""


@dataclass(frozen=True, kw_only=True)
class Case(Generic[InputsT, OutputT, MetadataT]):
    """One case of a dataset, with the fields of `pydantic_evals.Case`.

        Case(name="paid twice", inputs="I paid twice", expected_output="billing")

    `inputs` is a mapping of the inputs by name, or the only input. The default `name` is the position in the
    dataset, such as `Case 1`. `evaluators` evaluate only this case, beside those of the whole dataset. Cases
    of pydantic_evals can be given in its place.
    """

    name: str | None = None
    """The name by which results tell the case. By default, its position: `Case 1`."""
    inputs: InputsT
    """A mapping of the inputs by name, or the only input."""
    metadata: MetadataT | None = None
    expected_output: OutputT | None = None
    """The output that evaluators compare with; `None` for a case without one."""
    evaluators: Sequence[Evaluator] = ()
    """Evaluators of this case only."""


class CaseLike(Protocol):
    """A `Case`, of FastroAI or of pydantic_evals."""

    @property
    def name(self) -> str | None: ...  # noqa: D102
    @property
    def inputs(self) -> Any: ...  # noqa: D102
    @property
    def metadata(self) -> Any: ...  # noqa: D102
    @property
    def expected_output(self) -> Any: ...  # noqa: D102
    @property
    def evaluators(self) -> Sequence[Evaluator]: ...  # noqa: D102


class DatasetLike(Protocol):
    """A `Dataset` of pydantic_evals."""

    @property
    def cases(self) -> Sequence[CaseLike]: ...  # noqa: D102
    @property
    def evaluators(self) -> Sequence[Evaluator]: ...  # noqa: D102


Cases: TypeAlias = DatasetLike | Sequence[CaseLike]


@dataclass(kw_only=True)
class EvaluatorContext(Generic[InputsT, OutputT, MetadataT]):
    """The view of one case for an evaluator: the inputs, the output, and how it came about.

        def same_category(ctx: EvaluatorContext) -> bool:
            return ctx.output.category == ctx.expected_output

    It has the fields of the `EvaluatorContext` of pydantic_evals. `duration` is in seconds. `metrics` has
    `cost_usd`, `total_tokens`, `request_count` and `attempts`. `attributes` is always empty.
    """

    name: str
    """The name of the case."""
    inputs: InputsT
    metadata: MetadataT | None
    output: OutputT
    duration: float
    """Seconds that the task took."""
    metrics: Mapping[str, float]
    """`cost_usd`, `total_tokens`, `request_count` and `attempts` of the task."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Empty: attributes that a task sets are not on record."""
    reader: str = ""
    """The evaluator that needs an expected output, if it reads it; empty for those of pydantic_evals."""
    given: OutputT | None = field(default=None, repr=False)

    @property
    def expected_output(self) -> OutputT:
        """The expected output of the case.

        An evaluator of pydantic_evals gets `None` if there is none, as in pydantic_evals.

        Raises:
            ConfigurationError: the case has none, and an evaluator that is a function reads it.
        """
        if self.given is None and self.reader:
            expected = (
                f"a value, because the evaluator {self.reader!r} reads it: give the case one, or pass the "
                "evaluator in `evaluators=` of the cases that have one"
            )
            raise ConfigurationError(f"expected_output of case {self.name!r}", ..., expected)
        return cast("OutputT", self.given)

    @property
    def span_tree(self) -> Any:
        """Not available: reading it raises `ConfigurationError`, because `compare` does not record spans."""
        expected = "spans, which `compare` does not record; `Dataset.evaluate` of pydantic_evals does"
        raise ConfigurationError(f"span_tree of case {self.name!r}", ..., expected)


@dataclass(frozen=True)
class NamedCase:
    """A case with its name, and with all of its evaluators by name."""

    name: str
    case: CaseLike
    evaluators: Mapping[str, Evaluator]


def equals_expected(ctx: EvaluatorContext) -> bool:
    """Return whether the output is the expected one."""
    return bool(ctx.output == ctx.expected_output)


def named_cases(dataset: Cases, evaluators: Sequence[Evaluator]) -> Sequence[NamedCase]:
    """Return the cases of a dataset. Without any evaluator, outputs are compared with the expected ones.

    Raises:
        ConfigurationError: there is no case, two have one name, or an output cannot be compared.
    """
    cases: Sequence[CaseLike] = dataset if isinstance(dataset, Sequence) else getattr(dataset, "cases", ())
    if not cases or not all(hasattr(one, "inputs") for one in cases):
        raise ConfigurationError("dataset", dataset, "a list of Case, or a Dataset of pydantic_evals")
    shared = [*getattr(dataset, "evaluators", ()), *evaluators]
    found: dict[str, NamedCase] = {}
    for number, case in enumerate(cases, 1):
        name = case.name or f"Case {number}"
        if name in found:
            raise ConfigurationError("dataset", name, "cases whose names differ; two have this one")
        found[name] = NamedCase(name, case, _by_name([*case.evaluators, *shared]))
    if not any(one.evaluators for one in found.values()):
        return [_compared(one) for one in found.values()]
    return [*found.values()]


def _compared(one: NamedCase) -> NamedCase:
    if one.case.expected_output is None:
        expected = (
            "a value, because there are no evaluators, so outputs are compared with it: "
            "give the case one, or pass evaluators="
        )
        raise ConfigurationError(f"expected_output of case {one.name!r}", ..., expected)
    return NamedCase(one.name, one.case, {equals_expected.__name__: equals_expected})


def _by_name(evaluators: Sequence[Evaluator]) -> Mapping[str, Evaluator]:
    found: dict[str, Evaluator] = {}
    for one in evaluators:
        if isinstance(one, PydanticEvaluator):
            name = one.get_default_evaluation_name()
        elif callable(one):
            name = getattr(one, "__name__", type(one).__name__)
        else:
            expected = "functions of an EvaluatorContext, or evaluators of pydantic_evals"
            raise ConfigurationError("evaluators", one, expected)
        found[free_name(name, found)] = one
    return found


def free_name(name: str, taken: Mapping[str, object]) -> str:
    """Return the name, with a number if it is taken, as pydantic_evals does."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free

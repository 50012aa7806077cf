"""`@refine`: a function with `@infer` that improves its answers until one is good enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from fastroai.contracts.contract import Condition
from fastroai.functions.declaring.conditions import OutputConditions, Postcondition
from fastroai.functions.declaring.static_checks import call_problems, count_problems
from fastroai.functions.errors import CompileError
from fastroai.functions.function import without_options
from fastroai.functions.inferring import InferFunction
from fastroai.functions.refinement import DEFAULT_ITERATIONS, Refinement

P = ParamSpec("P")
T = TypeVar("T")


class _Refine(Protocol):
    """The decorator that `refine(...)` returns. The function keeps its types."""

    def __call__(self, function: InferFunction[P, T], /) -> InferFunction[P, T]: ...


@overload
def refine(
    *, until: Condition[Any], feedback: Callable[[Any], str] | None = ..., max_iterations: int = ...
) -> _Refine: ...
@overload
def refine(
    *, until: Sequence[Condition[Any]], feedback: Callable[[Any], str] | None = ..., max_iterations: int = ...
) -> _Refine: ...
def refine(
    _bare: object = None,
    /,
    *,
    until: OutputConditions = None,
    feedback: Callable[[Any], str] | None = None,
    max_iterations: int = DEFAULT_ITERATIONS,
) -> _Refine:
    """Ask for better answers until one is good enough. Put it above `@infer`.

        @refine(until=lambda r: r.score >= 8, feedback=lambda r: f"Score {r.score}. {r.weakness}")
        @infer(intent="Write a slogan, and judge it")
        async def slogan(product: str) -> Slogan:
            raise NotImplementedError

    Each iteration is an answer as from `infer`, with its attempts, members and cache. The model gets its last
    answer as data, with the feedback on that answer. All iterations are one call, under one budget. The call
    returns the first output that is good enough. If there is none, it raises `ConvergenceFailure`, whose
    `history` has all of them. If an iteration fails, as with `ParseFailure`, the call raises that error.

    Args:
        until: The condition under which an output is good enough, or a list of conditions, which must all
            hold: functions of the output, as for `ensure`.
        feedback: A function of an output that is not good enough, which returns a text for the model; by
            default, the feedback says why `until` does not hold. It must not be async.
        max_iterations: Maximum number of answers, with the first one; by default 5.

    Raises:
        CompileError: the decorated object is not a function with `@infer`, or has `stable=False`; or an
            option is invalid.
    """
    if _bare is not None:
        raise without_options("refine", _bare, "until=lambda r: ...")

    def decorate(function: InferFunction[P, T], /) -> InferFunction[P, T]:
        decorated: object = function
        if not isinstance(decorated, InferFunction):
            name = getattr(decorated, "__name__", repr(decorated))
            raise CompileError(f"function {name!r}", ("refine needs a function with @infer below it",))
        returns = function.signature.returns
        condition = Postcondition(until, returns, option="until")
        said = Postcondition(feedback if callable(feedback) else None, returns, option="feedback")
        problems = [*condition.problems, *said.problems]
        for option, one in (("until", condition), ("feedback", said)):
            for called in one.functions:
                problems += call_problems(option, called, InferFunction)
        if until is None or until == []:
            problems.append("until=: expected a function of the output, which says whether it is good enough")
        if feedback is not None and not callable(feedback):
            problems.append(f"feedback={feedback!r}: expected a function of the output that returns a text")
        problems += count_problems("max_iterations", max_iterations, required=True)
        if problems:
            raise CompileError(f"function {function.name!r}", tuple(problems))
        refinement = Refinement(until=condition, feedback=feedback, max_iterations=max_iterations)
        return function.refined(refinement)

    return decorate

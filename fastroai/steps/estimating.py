"""Tools for estimates of steps: a scope in which nothing is paid for, and outputs that are still to come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn, Protocol, runtime_checkable

from fastroai.runtime import Scope, current_scope
from fastroai.runtime.budgets.bounds import Bounds
from fastroai.steps.outputs import Outputs
from fastroai.usage import Budget, Quote
from fastroai.usage.limits import NO_LIMITS, Limits

if TYPE_CHECKING:
    from fastroai.calls.call import AgentCall


@runtime_checkable
class CallEstimator(Protocol):
    """An agent that can estimate the cost of a call: a `FastroAgent`."""

    async def estimate_call(self, call: AgentCall, *, unknown_prompt: str | None = None) -> Quote:
        """Estimate one attempt at a call.

        `unknown_prompt` says why the prompt is not known yet; then the estimate is for any prompt.
        """
        ...


class OutputNotKnown(BaseException):
    """Raised if the output of a step is read before that step has run.

    It is not an `Exception`, so that no `except Exception` of a prompt function catches it.
    """

    def __init__(self, step_id: str) -> None:
        super().__init__(step_id)
        self.step_id = step_id


class OutputsToCome(Outputs):
    """The outputs of a run that has not begun. Reading one raises `OutputNotKnown`."""

    __slots__ = ()

    def __init__(self, dependencies: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(dependencies)
        self.values = _ToCome()

    def get(self, reader: str, step_id: str) -> object:
        """Raise `OutputNotKnown`; or the error of a run, if the output would not be readable there."""
        if step_id in self.dependencies and self.is_ancestor(step_id, reader):
            raise OutputNotKnown(step_id)
        return super().get(reader, step_id)

    def may_have(self, reader: str, step_id: str) -> bool:
        """Return whether there may be an output of a step."""
        return step_id in self.dependencies


class _ToCome(dict[str, object]):
    def __missing__(self, step_id: str) -> NoReturn:
        raise OutputNotKnown(step_id)


class InputsToCome(Mapping[str, object]):
    """Inputs of a nested run, some or all of which are made of outputs that nobody knows yet."""

    def __init__(self, known: Mapping[str, object], to_come: Mapping[str, str], other: str | None) -> None:
        """Combine known inputs with the steps from which other inputs come.

        `known` has values by name. `to_come` has the steps of other names. Any further name may come from the
        step `other`.
        """
        self._known, self._to_come, self._other = known, to_come, other

    def __getitem__(self, name: str) -> object:
        step_id = self._to_come.get(name, None if name in self._known else self._other)
        if step_id is not None:
            raise OutputNotKnown(step_id)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        if self._other is not None:
            raise OutputNotKnown(self._other)
        return iter({**self._known, **self._to_come})

    def __len__(self) -> int:
        return len({**self._known, **self._to_come})


def budgets_around() -> tuple[Budget, ...]:
    """Return the budgets under which the estimated code will run, as far as they are known here."""
    scope = current_scope()
    if scope is None:
        return ()
    if scope.bounds.estimated is not None:
        return scope.bounds.estimated
    return tuple(account.budget for account in scope.bounds.accounts)


@asynccontextmanager
async def nothing_paid(limits: Limits | None = None) -> AsyncGenerator[Scope]:
    """Open a scope that charges nobody, and in which every request of an agent is refused.

    Estimates run functions of the user in it, such as prompts and instructions. `limits` are those of the
    estimated code.
    """
    scope = Scope("call", "estimate", parent=None)
    scope.bounds = Bounds(estimated=(*(limits or NO_LIMITS).budgets, *budgets_around()))
    async with scope:
        scope.close()
        yield scope

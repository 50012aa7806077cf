"""What the results of all runs have: their cost, their quality, and the log, which is read as a trace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

from fastroai.records import SumsOfUsage, dump
from fastroai.runs.running.units import BegunUnit
from fastroai.runs.usage import RunUsage
from fastroai.runtime import Scope
from fastroai.runtime.facts import CallChanged, CallLeftOver, Wait, first_until
from fastroai.store.reading.run_quality import Quality
from fastroai.store.reading.trace import RunTrace
from fastroai.store.record.log import RunLog

P = ParamSpec("P")
T = TypeVar("T")

_is_degraded: Final = attrgetter("degraded")


def filled(kind: Callable[P, T]) -> Callable[P, T]:
    """Return a function that makes results of a kind, as the class does, from all of their fields by name.

    The `__init__` of a frozen dataclass makes a call for each field, which takes 3 % of a short run. This
    function sets the fields at once.
    """

    def make(*_: P.args, **fields: P.kwargs) -> T:
        result = object.__new__(cast("type[T]", kind))
        vars(result).update(fields)
        return result

    return make


class _Ended(Protocol):
    """The fields that a result has."""

    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def output(self) -> object: ...
    @property
    def usage(self) -> RunUsage: ...
    @property
    def waits(self) -> tuple[Wait, ...]: ...
    @property
    def log(self) -> RunLog: ...


@dataclass(frozen=True)
class RunResult(SumsOfUsage):
    """The part that the results of pipelines, graphs and workflows share.

    Its cost is that of its `usage`: a result is an account, as a response is.
    """

    __slots__ = ()

    def _repr_mimebundle_(self: _Ended, include: object = None, exclude: object = None) -> dict[str, str]:
        from fastroai.store.reading.run_pages import result_page

        shown = self.log.trace.for_pages()
        return result_page(shown, self.status, self.output, self.reason, self.usage.total)

    @property
    def waits_until(self: _Ended) -> datetime | None:
        """Time from which `wake` takes a paused run up: the first end of its `waits`; `None` without one."""
        return first_until(self.waits)

    @property
    def trace(self: _Ended) -> RunTrace:
        """The trace of the run: every attempt at every step, with its cause, inputs, output and cost.

        That of a graph has every edge, too. A nested run has the trace of the outermost one.
        """
        return self.log.trace

    @property
    def was_resumed(self: _Ended) -> bool:
        """Whether the run was interrupted, paused or failed before, and was taken up again."""
        return self.log.trace.was_resumed

    @property
    def changed_calls(self: _Ended) -> tuple[CallChanged, ...]:
        """The calls that were declared differently than on record, and what became of their answers."""
        return self.log.trace.changed_calls

    @property
    def left_over_calls(self: _Ended) -> tuple[CallLeftOver, ...]:
        """The calls on record that were not made again, because an answer before them was asked anew."""
        return self.log.trace.left_over_calls

    def explain(self: _Ended) -> str:
        """Return why each step ran, and why each edge of a graph was taken or not, with a line for each."""
        return self.log.trace.explain()

    def model_dump(self) -> dict[str, Any]:
        """Return the result as values of JSON, without its log and plan."""
        return dump(self)


def quality_of(scope: Scope, errors: Collection[object], units: Iterable[BegunUnit]) -> Quality:
    """Return the quality of the run in `scope`, which went on after `errors` and has these units."""
    is_degraded = bool(errors) or any(map(_is_degraded, units))
    if not is_degraded and scope.has_spent:
        is_degraded = any(charge.record.is_doubtful for charge in scope.spending.charges)
    return "degraded" if is_degraded else "clean"

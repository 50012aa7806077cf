"""The overloads of `Graph.resume` for type checkers. It takes answers to pause nodes, too."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, overload

from typing_extensions import Unpack

from fastroai.runs.signatures import DepsT, GoesOn, ResultT, ResumeOptions, Resumes

D = TypeVar("D")
T = TypeVar("T")


class GraphResumeOptions(ResumeOptions, total=False):
    """Keyword arguments for resuming a run of a graph; `Graph.resume` documents them."""

    input: object
    node: str | None


class GraphResumes(Resumes[DepsT, ResultT], Protocol[DepsT, ResultT]):
    """A method that resumes a run of a graph."""

    @overload
    def __call__(
        self: GraphResumes[None, ResultT],
        run_id: str,
        *,
        deps: None = None,
        **options: Unpack[GraphResumeOptions],
    ) -> ResultT: ...
    @overload
    def __call__(self, run_id: str, *, deps: DepsT, **options: Unpack[GraphResumeOptions]) -> ResultT: ...  # pyright: ignore[reportIncompatibleMethodOverride]


def resuming(method: GoesOn[D, T]) -> GraphResumes[D, T]:
    """Give a method that resumes a run of a graph its overloads."""
    typed: Any = method
    return typed  # type: ignore[no-any-return]

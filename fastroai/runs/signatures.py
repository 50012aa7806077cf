"""Signatures of the methods of front doors for type checkers: `deps` is optional only if no step needs it.

A method that takes `deps` has overloads: one for doors that need no deps, and one or two for all others. They
are written here, once for each kind of method. Decorators give them to the methods; at run time these do
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, cast, overload

from typing_extensions import TypedDict, TypeVar, Unpack

from fastroai.records import Duration
from fastroai.runs.openings import OnExisting
from fastroai.runs.progress.progress import OnProgress
from fastroai.runs.progress.showing import ShowProgress
from fastroai.runs.quoting import Reserve
from fastroai.runs.running.turns import DO_NOT_WAIT, OnBusy
from fastroai.runtime import blocking
from fastroai.runtime.events import OnEvent
from fastroai.store.reading.history import RunSummary
from fastroai.store.record.declarations import OnChanged
from fastroai.store.run_store import RunStoreLike
from fastroai.tracing import Tracer
from fastroai.usage import BudgetLike

Inputs: TypeAlias = Mapping[str, Any]

DepsT = TypeVar("DepsT", default=Any, contravariant=True)
InputT = TypeVar("InputT", bound=Inputs, default=Inputs, contravariant=True)
ResultT = TypeVar("ResultT", default=Any, covariant=True)

D = TypeVar("D")
OptionalT = TypeVar("OptionalT", default=None)
"""The type of `deps` that a run can do without."""
I = TypeVar("I", bound=Inputs)  # noqa: E741
T = TypeVar("T")
P = ParamSpec("P")

DepsFor: TypeAlias = Callable[[RunSummary], D | Awaitable[D]]
"""Function that returns the `deps` of a run, which are not stored."""

OnError: TypeAlias = Callable[[RunSummary, BaseException], Awaitable[None] | None]
"""Function that is told of a run that a loop has not gone on with, and why. It may be async."""


class RunOptions(TypedDict, total=False):
    """The keyword arguments of all methods that begin or resume one run, described in `FrontDoor.execute`."""

    store: RunStoreLike | None
    context: MutableMapping[str, Any] | None
    budget: BudgetLike | None
    on_event: OnEvent | None
    progress: ShowProgress
    on_progress: OnProgress | None


class BusyOptions(RunOptions, total=False):
    """The keyword arguments for a run that another process may have, described in `FrontDoor.execute`."""

    on_busy: OnBusy
    busy_timeout: Duration
    reserve: Reserve | None


class OpenOptions(BusyOptions, total=False):
    """The keyword arguments of a new run, described in `FrontDoor.execute`."""

    run_id: str | None
    tags: Collection[str]
    tenant: str | None
    on_existing: OnExisting


class ResumeOptions(BusyOptions, total=False):
    """The keyword arguments for resuming a run, described in `FrontDoor.resume`."""

    inputs: Inputs | None
    answers: Inputs | None
    tracer: Tracer | None
    force: bool
    on_changed: OnChanged | None


class ForkOptions(RunOptions, total=False):
    """The keyword arguments of a fork, described in `FrontDoor.fork`."""

    at: str | None
    inputs: Inputs | None
    outputs: Inputs | None
    new_run_id: str | None
    tracer: Tracer | None


DEFAULTS: Final[Mapping[str, object]] = {
    "tags": (),
    "on_existing": "fail",
    "on_busy": DO_NOT_WAIT.do,
    "busy_timeout": DO_NOT_WAIT.seconds,
    "force": False,
    "progress": False,
}
"""The defaults of those of these arguments that are not `None` by default."""


class WakeOptions(TypedDict, total=False):
    """The keyword arguments of methods that resume many runs, described in `FrontDoor.recover`."""

    store: RunStoreLike | None
    tracer: Tracer | None
    context: MutableMapping[str, Any] | None
    on_changed: OnChanged | None
    on_event: OnEvent | None
    max_concurrency: int


class LookOptions(WakeOptions, total=False):
    """The keyword arguments of methods that look for runs again and again."""

    on_error: OnError | None


class ServeOptions(LookOptions, total=False):
    """The keyword arguments of a service, described in `FrontDoor.serve`."""

    every: Duration
    graceful_timeout: Duration


class OpensWithoutDeps(Protocol[DepsT, InputT, ResultT]):
    """A method that begins a run of steps that can do without `deps`.

    It has no overloads: for a call of an overloaded method, mypy does not say which argument is wrong.
    """

    def __call__(
        self,
        inputs: InputT | None = None,
        deps: DepsT | None = None,
        tracer: Tracer | None = None,
        **options: Unpack[OpenOptions],
    ) -> ResultT:
        """Begin a run."""
        ...


class OpensWithDeps(Protocol[DepsT, InputT, ResultT]):
    """A method that begins a run of steps that need `deps`."""

    @overload
    def __call__(
        self,
        inputs: InputT | None,
        deps: DepsT,
        tracer: Tracer | None = None,
        **options: Unpack[OpenOptions],
    ) -> ResultT: ...
    @overload
    def __call__(
        self, *, deps: DepsT, tracer: Tracer | None = None, **options: Unpack[OpenOptions]
    ) -> ResultT: ...


class Opens(Protocol[DepsT, InputT, ResultT]):
    """The definition of a method that begins a run, with `deps` or without."""

    @overload
    def __get__(
        self: Opens[OptionalT | None, InputT, ResultT], door: object, owner: object = None, /
    ) -> OpensWithoutDeps[OptionalT, InputT, ResultT]: ...
    @overload
    def __get__(
        self: Opens[None, InputT, ResultT], door: object, owner: object = None, /
    ) -> OpensWithoutDeps[None, InputT, ResultT]: ...
    @overload
    def __get__(self, door: object, owner: object = None, /) -> OpensWithDeps[DepsT, InputT, ResultT]: ...


class Estimates(Protocol[DepsT, InputT, ResultT]):
    """A method that estimates the cost of a run."""

    @overload
    def __call__(self: Estimates[None, InputT, ResultT], inputs: InputT | None = None) -> ResultT: ...
    @overload
    def __call__(self, inputs: InputT | None, deps: DepsT) -> ResultT: ...
    @overload
    def __call__(self, *, deps: DepsT) -> ResultT: ...


class Resumes(Protocol[DepsT, ResultT]):
    """A method that resumes a run."""

    @overload
    def __call__(
        self: Resumes[None, ResultT], run_id: str, *, deps: None = None, **options: Unpack[ResumeOptions]
    ) -> ResultT: ...
    @overload
    def __call__(self, run_id: str, *, deps: DepsT, **options: Unpack[ResumeOptions]) -> ResultT: ...


class Forks(Protocol[DepsT, ResultT]):
    """A method that forks a run: it begins a new run with the work of another one."""

    @overload
    def __call__(
        self: Forks[None, ResultT], run_id: str, *, deps: None = None, **options: Unpack[ForkOptions]
    ) -> ResultT: ...
    @overload
    def __call__(self, run_id: str, *, deps: DepsT, **options: Unpack[ForkOptions]) -> ResultT: ...


class GoesOn(Protocol[DepsT, ResultT]):
    """The definition of a method that resumes or forks a run."""

    def __call__(self, door: Any, /, run_id: str, *, deps: DepsT) -> ResultT:
        """Resume or fork the run."""
        ...


def opening(method: Callable[Concatenate[Any, I, D, P], T]) -> Opens[D, I, T]:
    """Return a method that begins a run, with its overloads."""
    return cast("Any", method)  # type: ignore[no-any-return]


def estimating(method: Callable[[Any, I, D], T]) -> Estimates[D, I, T]:
    """Return a method that estimates a run, with its overloads."""
    return cast("Any", method)  # type: ignore[no-any-return]


def resuming(method: GoesOn[D, T]) -> Resumes[D, T]:
    """Return a method that resumes a run, with its overloads."""
    return cast("Any", method)  # type: ignore[no-any-return]


def forking(method: GoesOn[D, T]) -> Forks[D, T]:
    """Return a method that forks a run, with its overloads."""
    return cast("Any", method)  # type: ignore[no-any-return]


def blocking_twin(method: object, *, of: str | Callable[[Any], str], name: str = "") -> Any:
    """Return the sync twin of a method with overloads, as `blocking` does. The caller annotates the twin."""
    asynchronous: Any = method
    return blocking(asynchronous, of=of, name=name)

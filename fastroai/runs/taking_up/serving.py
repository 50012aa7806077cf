"""`Service`, and the methods of front doors that take up runs which no process has."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Literal, Never, Self, TypeAlias, cast, overload

from typing_extensions import TypeVar, Unpack

from fastroai.errors import ConfigurationError
from fastroai.keyword_options import takes_options
from fastroai.records import Duration, in_seconds
from fastroai.runs.signatures import (
    DepsFor,
    DepsT,
    LookOptions,
    ResultT,
    ServeOptions,
    WakeOptions,
)
from fastroai.runs.taking_up.termination import catching_termination, end_by
from fastroai.runs.taking_up.waking import AT_ONCE, Lookout, TakeUp, Waking
from fastroai.runtime.options import check_seconds
from fastroai.store.run_store import RunStoreLike

D = TypeVar("D")

EVERY: Final = 5.0
"""Seconds between two looks of a service."""
GRACE: Final = 20.0
"""Seconds for which a service that ends lets steps finish: less than Kubernetes waits before it kills."""

_DEFAULTS: Final = {"every": EVERY, "graceful_timeout": GRACE, "max_concurrency": AT_ONCE}

Which: TypeAlias = Literal["interrupted", "due"]
"""The runs that are taken up: those whose processes died or let go of them, or those that can go on."""


class TakesUpRuns(ABC, Generic[DepsT, ResultT]):
    """The methods that take up runs which no process has. Their decorators are for type checkers."""

    @abstractmethod
    def _waking(self, which: Which, how: TakeUp[DepsT]) -> Waking[DepsT, ResultT]:
        """Return what finds these runs and opens them."""

    @abstractmethod
    async def interrupt(self, run_id: str | None = None, *, store: RunStoreLike | None = None) -> None:
        """Let the process of a run give it up, or of all runs in this process."""

    # --- runs whose processes died ---

    @overload
    async def recover(
        self: TakesUpRuns[None, ResultT], *, deps_for: None = None, **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]: ...
    @overload
    async def recover(
        self, *, deps_for: DepsFor[DepsT], **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]: ...
    @takes_options(WakeOptions, defaults=_DEFAULTS)
    async def recover(
        self, *, deps_for: DepsFor[DepsT] | None = None, **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]:
        """Resume the runs whose processes died or let go of them, wait for their ends, and return these.

        These runs have the status `interrupted`; no other run is taken up. For paused runs that can go on,
        use `wake`. A service uses `serve` or `recover_every`, which do not wait for a slow run before they
        look again.

            outcomes = await pipeline.recover(deps_for=lambda run: Deps(tenant=run.tenant))

        Several processes may call it at once: each run is resumed by one of them. If the call is cancelled,
        the runs that have not ended are `interrupted` again.

        Args:
            deps_for: Function that returns the `deps` of a run, which are not stored. It may be async.
            store: The store that has the runs; by default that of the config.
            tracer: As in `execute`.
            context: As in `execute`; all runs share it.
            on_changed: As in `resume`.
            on_event: Function that is called with all events of the runs, text included; `event.run_id` is
                the id of the run. It may be async.
            max_concurrency: The number of runs that go on at the same time. Other processes can take up those
                that wait for their turn.

        Returns:
            The result of each run by run id, or the exception that `resume` or `deps_for` raised.
        """
        return await self._waking("interrupted", TakeUp(deps_for=deps_for, **options)).once()

    @overload
    async def recover_every(
        self: TakesUpRuns[None, ResultT],
        seconds: Duration,
        *,
        deps_for: None = None,
        **options: Unpack[LookOptions],
    ) -> Never: ...
    @overload
    async def recover_every(
        self, seconds: Duration, *, deps_for: DepsFor[DepsT], **options: Unpack[LookOptions]
    ) -> Never: ...
    @takes_options(LookOptions, defaults=_DEFAULTS)
    async def recover_every(
        self,
        seconds: Duration,
        *,
        deps_for: DepsFor[DepsT] | None = None,
        **options: Unpack[LookOptions],
    ) -> Never:
        """Look every `seconds` for runs whose processes died, and resume them as `recover` does.

        It never returns, and looks again while runs still go on. Their results are on record. An error ends
        the run that raised it, is logged, and is passed to `on_error`. The loop goes on, also if the store
        cannot be read. If the task is cancelled, runs that have not ended are cut off, and `interrupted`, not
        cancelled: another process recovers them.

        `serve` does the same, wakes paused runs too, and lets running steps finish at the end.

        Args:
            seconds: Seconds between two looks. The next one finds the runs of a process that was killed on
                this machine, and those of other machines whose lease, `PipelineConfig(lease=...)`, has ended.
            deps_for: As in `recover`.
            store: As in `recover`.
            tracer: As in `recover`.
            context: As in `recover`.
            on_changed: As in `recover`.
            on_event: As in `recover`.
            on_error: Function that is called with a run, as a `RunSummary`, and the exception for which the
                run has not gone on. It is called once for each text of the exception. It may be async.
            max_concurrency: As in `recover`.
        """
        await self._look_every(seconds, "interrupted", TakeUp(deps_for=deps_for, **options))

    # --- paused runs that can go on ---

    @overload
    async def wake(
        self: TakesUpRuns[None, ResultT], *, deps_for: None = None, **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]: ...
    @overload
    async def wake(
        self, *, deps_for: DepsFor[DepsT], **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]: ...
    @takes_options(WakeOptions, defaults=_DEFAULTS)
    async def wake(
        self, *, deps_for: DepsFor[DepsT] | None = None, **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]:
        """Resume the paused runs that can go on, wait until they end or pause again, and return the outcomes.

        A run can go on if its sleep is over, if the answer or message that it waits for has come, or if the
        time to wait for that is over. A run that somebody has asked to pause, or whose conversation is
        incomplete, stays paused. The runs are found in an index by time. As with `recover`, several processes
        may call it at once, and runs that have not ended when it is cancelled are `interrupted`.

        Args:
            deps_for: As in `recover`.
            store: As in `recover`.
            tracer: As in `recover`.
            context: As in `recover`.
            on_changed: As in `recover`.
            on_event: As in `recover`.
            max_concurrency: As in `recover`.

        Returns:
            The result of each run by run id, or the exception that `resume` or `deps_for` raised.
        """
        return await self._waking("due", TakeUp(deps_for=deps_for, **options)).once()

    @overload
    async def wake_every(
        self: TakesUpRuns[None, ResultT],
        seconds: Duration,
        *,
        deps_for: None = None,
        **options: Unpack[LookOptions],
    ) -> Never: ...
    @overload
    async def wake_every(
        self, seconds: Duration, *, deps_for: DepsFor[DepsT], **options: Unpack[LookOptions]
    ) -> Never: ...
    @takes_options(LookOptions, defaults=_DEFAULTS)
    async def wake_every(
        self,
        seconds: Duration,
        *,
        deps_for: DepsFor[DepsT] | None = None,
        **options: Unpack[LookOptions],
    ) -> Never:
        """Look every `seconds` for paused runs that can go on, and resume them as `wake` does.

        It never returns. Errors, and the end, are as in `recover_every`: runs that it has taken up and that
        have not ended are `interrupted` if its task is cancelled. So use it beside `recover_every`, or use
        `serve`, which does both.

        Args:
            seconds: Seconds between two looks.
            deps_for: As in `recover`.
            store: As in `recover`.
            tracer: As in `recover`.
            context: As in `recover`.
            on_changed: As in `recover`.
            on_event: As in `recover`.
            on_error: As in `recover_every`.
            max_concurrency: As in `recover`.
        """
        await self._look_every(seconds, "due", TakeUp(deps_for=deps_for, **options))

    # --- both, until the process ends ---

    @overload
    async def serve(
        self: TakesUpRuns[None, ResultT], *, deps_for: None = None, **options: Unpack[ServeOptions]
    ) -> Never: ...
    @overload
    async def serve(self, *, deps_for: DepsFor[DepsT], **options: Unpack[ServeOptions]) -> Never: ...
    @takes_options(ServeOptions, defaults=_DEFAULTS)
    async def serve(
        self, *, deps_for: DepsFor[DepsT] | None = None, **options: Unpack[ServeOptions]
    ) -> Never:
        """Recover and wake runs, again and again, until the process ends, and hand them over then.

            asyncio.run(pipeline.serve(deps_for=lambda run: Deps(tenant=run.tenant)))

        It is the same as `Service(pipeline, ...).serve()`. `Service` also serves several pipelines and graphs
        at once, and web applications.

        Args:
            every: Seconds between two looks for runs.
            deps_for: As in `recover`.
            store: As in `recover`.
            tracer: As in `recover`.
            context: As in `recover`.
            on_changed: As in `recover`.
            on_event: As in `recover`.
            on_error: As in `recover_every`.
            max_concurrency: As in `recover`.
            graceful_timeout: Seconds for which steps that are running may finish at the end.
        """
        service = cast("Callable[..., Service]", Service)  # the overloads above ask for `deps_for`
        await service(self, deps_for=deps_for, **options).serve()

    async def _look_every(
        self,
        seconds: Duration,
        which: Which,
        how: TakeUp[DepsT],
    ) -> Never:
        check_seconds("seconds", seconds, zero=True)
        await Lookout([self._waking(which, how)], how).every(in_seconds(seconds))


class Service:
    """Continues the stored runs of pipelines, graphs, routers, flows and bound workflows in this process.

    A worker serves until its process ends:

        asyncio.run(Service(orders, letters, store=store).serve())

    A web application, or any other program, serves next to its other work:

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
            async with Service(orders, letters, store=store):
                yield

    Both look into the store every 5 seconds (`every`), and continue the interrupted runs, whose processes
    died or handed them over, and the paused runs that can continue: at most 10 at a time
    (`max_concurrency`). An error of a run is logged and passed to `on_error`; the service goes on. Any number
    of processes may serve the same store.

    At the end, they start no more runs, and call `interrupt` on each pipeline and graph. All its runs in this
    process then halt after their current steps, also runs that `execute` began. The service waits for the
    runs that it continues. It stops those that have not halted after 20 seconds (`graceful_timeout`), in the
    middle of their steps. If the task of the service is cancelled, it stops these runs at once, and does not
    call `interrupt`. Stopped and halted runs have the status `interrupted`: another process continues them.

    A store is needed. Entering a service that is serving already raises `ConfigurationError`.
    """

    @overload
    def __init__(
        self, *doors: TakesUpRuns[None, Any], deps_for: None = None, **options: Unpack[ServeOptions]
    ) -> None: ...
    @overload
    def __init__(
        self, *doors: TakesUpRuns[D, Any], deps_for: DepsFor[D], **options: Unpack[ServeOptions]
    ) -> None: ...
    @takes_options(LookOptions, defaults=_DEFAULTS)
    def __init__(
        self,
        *doors: TakesUpRuns[Any, Any],
        every: Duration = EVERY,
        deps_for: DepsFor[Any] | None = None,
        graceful_timeout: Duration = GRACE,
        **options: Unpack[LookOptions],
    ) -> None:
        """Make a service of pipelines and graphs, which `serve` or `async with` begins.

        Args:
            *doors: The pipelines, graphs, routers, flows and bound workflows whose runs it takes up.
            every: As in `serve` of a pipeline or graph.
            deps_for: As in `recover`. `run.pipeline` is the name of the pipeline or graph.
            store: The store that has the runs; by default that of the config of each pipeline or graph.
            tracer: As in `recover`.
            context: As in `recover`.
            on_changed: As in `recover`.
            on_event: As in `recover`.
            on_error: As in `recover_every`.
            max_concurrency: The number of runs of all kinds that go on at the same time.
            graceful_timeout: Seconds for which steps that are running may finish at the end.

        Raises:
            ConfigurationError: there is nothing to serve, or it is no pipeline or graph; no store is given;
                or an option is invalid.
        """
        check_seconds("every", every, zero=True)
        check_seconds("graceful_timeout", graceful_timeout, zero=True)
        how: TakeUp[Any] = TakeUp(deps_for=deps_for, **options)
        expected = "pipelines, graphs, routers, flows, and workflows with `bind`"
        if not doors:
            raise ConfigurationError("doors", doors, expected)
        for door in doors:
            if not isinstance(door, TakesUpRuns):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError("doors", door, expected)
        self._doors, self._every = doors, in_seconds(every)
        self._graceful_timeout = in_seconds(graceful_timeout)
        kinds: tuple[Which, ...] = ("interrupted", "due")
        wakings = [door._waking(kind, how) for kind in kinds for door in doors]
        self._lookout = partial(Lookout, wakings, how)
        self._serving: Lookout | None = None

    async def serve(self) -> Never:
        """Continue stored runs until the process is told to end, by SIGINT (Ctrl-C) or SIGTERM.

        Then no more runs are started, running steps may finish within `graceful_timeout` seconds, and other
        processes can continue the runs. A second signal stops the steps that are still running. This never
        returns: at the end, Ctrl-C raises `KeyboardInterrupt`, and SIGTERM `SystemExit`. If the task is
        cancelled, the steps are stopped at once, and other processes can continue the runs.

        Signals that the program or its web server handles itself are left alone, and so are all signals
        outside of the main thread: there, cancel the task, or use `async with`.

        Raises:
            ConfigurationError: this service is serving already.
        """
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def heed(number: int) -> None:
            if not told.done():
                told.set_result(number)
            elif self._serving is not None:
                self._serving.cancel()

        with catching_termination(heed):
            async with self:
                number = await told
        await end_by(number)

    async def __aenter__(self) -> Self:
        """Begin to serve, in a task beside that of the caller."""
        if self._serving is not None:
            raise ConfigurationError(
                "Service", "it is serving already", "another Service, or one call of this"
            )
        self._serving = self._lookout()
        self._serving.start(self._every)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Hand over the runs."""
        assert self._serving is not None
        try:
            if isinstance(error, asyncio.CancelledError):
                await self._serving.cut_off()
            else:
                await self._serving.close(self._interrupt, self._graceful_timeout)
        finally:
            self._serving = None

    async def _interrupt(self) -> None:
        for door in self._doors:
            await door.interrupt()

"""The runs that one process of a service carries out: those that clients start, and those it takes up."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from fastroai.errors import BudgetExceeded, ConfigurationError, FastroAIError, RunNotFound, RunStatusConflict
from fastroai.human import Inbox
from fastroai.records import NOT_GIVEN, Duration, in_seconds
from fastroai.runs.door import FrontDoor
from fastroai.runs.quoting import Reserve
from fastroai.runs.signatures import DepsFor, OnError
from fastroai.runs.taking_up.serving import Service
from fastroai.runtime.events import OnEvent, listener_of
from fastroai.runtime.fact_base import RunEvent
from fastroai.runtime.facts import RunResumed, RunStarted
from fastroai.runtime.options import check_count, check_seconds
from fastroai.runtime.scope import make_current
from fastroai.store import RunHistory, RunSummary
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.partial_text import PartialTextWriter, read_partial_text
from fastroai.store.record.headers import read_header
from fastroai.store.record.snapshot import RunSnapshot
from fastroai.store.run_store import RunStoreLike
from fastroai.web.caller import Caller, DepsT
from fastroai.web.problems import SOON, Problem

if TYPE_CHECKING:
    from fastroai.distributed import Distributed

logger: Final = logging.getLogger("fastroai.web")


class RunsHost(Generic[DepsT]):
    """Executes the runs of a pipeline, graph, router, flow or bound workflow in this process.

    Pass it to `runs_router`, `runs_routes` or `RunOperations`. A run is a task of the service, not of the
    request that started it: it continues when the client leaves. While `lifespan` is open, the host also
    resumes runs whose processes died or let go of them, and wakes paused runs that can go on, as `Service`
    does. At the end, running steps may finish, and the runs are left to other processes as `interrupted`.

    With `workers`, the host only puts runs on record, and the workers of that application execute them.
    """

    def __init__(
        self,
        door: FrontDoor[DepsT, Any, Any],
        *,
        store: RunStoreLike | None = None,
        workers: Distributed | None = None,
        deps_for: DepsFor[DepsT] | None = None,
        reserve: Reserve | None = None,
        on_event: OnEvent | None = None,
        on_error: OnError | None = None,
        max_concurrency: int = 100,
        every: Duration = 2.0,
        graceful_timeout: Duration = 20.0,
    ) -> None:
        """Prepare a host.

        Args:
            door: The pipeline, graph, router, flow or bound workflow.
            store: The store that keeps its runs; by default that of its config.
            workers: The application whose workers carry the runs. Then this process only starts them, answers
                and follows, and has no use for the other options.
            deps_for: Function that makes the `deps` of a run from its id, tags and tenant; it may be async.
            reserve: With `"quote"`, a run begins only if its budgets and limits can pay for it to its end.
            on_event: Function that is called with every event of the runs of this process.
            on_error: As in `Service`.
            max_concurrency: Runs that this process carries out at the same time. Beyond that, clients are
                told to try again soon.
            every: Seconds between two looks for runs to take up.
            graceful_timeout: Seconds for which steps that are running may finish at the end.

        Raises:
            ConfigurationError: there is no store, or an option is invalid.
        """
        if workers is not None:
            if store is not None or reserve is not None or deps_for is not None:
                expected = "no value with store=, reserve= and deps_for=, which workers do not use"
                raise ConfigurationError("workers", workers.app, expected)
            store = workers.store
        check_count("max_concurrency", max_concurrency, least=1, required=True)
        check_seconds("graceful_timeout", graceful_timeout, zero=True)
        found = store if store is not None else door.config.store
        if found is None:
            expected = "the store that keeps the runs, here or as PipelineConfig(store=...)"
            raise ConfigurationError("store", None, expected)
        self.door, self.store, self._workers = door, adapt_run_store(found), workers
        codec = door.config.codec
        self.history = RunHistory(self.store, codec=codec)
        self.inbox = Inbox(self.store, codec=codec)
        self._deps_for, self._reserve, self._listener = deps_for, reserve, listener_of(on_event)
        self._most, self._graceful_timeout = max_concurrency, in_seconds(graceful_timeout)
        self._running: set[asyncio.Task[None]] = set()
        self._texts: PartialTextWriter | None = None
        self._service: Callable[[], Service] = partial(
            cast("Callable[..., Service]", Service),  # its overloads ask for `deps_for`
            door,
            every=every,
            deps_for=deps_for,
            store=self.store,
            on_event=self._hear,
            on_error=on_error,
            max_concurrency=max_concurrency,
            graceful_timeout=graceful_timeout,
        )

    @property
    def is_open(self) -> bool:
        """Whether the `lifespan` of this host has begun and not ended, so that it can execute runs."""
        return self._texts is not None

    @property
    def is_ending(self) -> bool:
        """Whether the server uvicorn was told to end, so that responses that wait should end.

        Uvicorn ends the lifespan later, when all responses are complete. With other servers, this is `False`.
        """
        server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        return getattr(server, "should_exit", False) is True

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:
        """Serve the runs until the block ends: an async context manager, for the lifespan of an application.

            app = Starlette(routes=runs_routes(host), lifespan=host.lifespan)

        In the block, `start` and `resume` work, and runs that no process has are resumed. At its end, running
        steps have `graceful_timeout` seconds to finish; then they are cut off. Runs that have not ended are
        `interrupted`, so that another process resumes them. `app` is not used.
        """
        loop = asyncio.get_running_loop()
        self._texts = texts = PartialTextWriter(self.store, self.door.config.codec)
        writing = asyncio.create_task(texts.write())
        until = loop.time()
        try:
            async with self._service() if self._workers is None else nullcontext():
                yield
                until = loop.time() + self._graceful_timeout
            # The service has taken up its last run, and has told all runs of this process to halt.
        finally:
            self._texts = None
            await self._halt(until - loop.time())
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing

    async def _halt(self, seconds: float) -> None:
        """Wait for the runs that clients began, and cut off those that take longer."""
        if not self._running:
            return
        await self.door.interrupt()
        _, late = await asyncio.wait(self._running, timeout=max(0.0, seconds))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    # --- runs ---

    async def start(self, run_id: str, inputs: Mapping[str, object], caller: Caller[DepsT]) -> None:
        """Begin a run, and return nothing when the run is on record. It continues in a task of the host.

        `run_id` is the id in the store. Tags, tenant, budget and, if it has some, the `deps` are those of
        `caller`; otherwise, `deps_for` of the host makes the `deps`. What the caller may do is not checked.
        An error of the run after its beginning is logged, and on record. With `workers`, a worker executes
        the run.

        Raises:
            RunExists: there is one with this id.
            ContractViolation: the inputs do not fit.
            ValueNotStorable: an input cannot be stored.
            CostBudgetExceeded: with `reserve`, a budget or limit has too little left for the quote of the
                run.
            ConfigurationError: the lifespan is not open, and no workers carry the runs; or there are workers,
                and the caller has `deps`.
            Problem: this process executes as many runs as it may (`max_concurrency`); status 503.
        """
        if self._workers is not None:
            if caller.deps is not NOT_GIVEN:
                expected = "no value: deps_factory makes them in the worker"
                raise ConfigurationError("deps", caller.deps, expected)
            await self._workers.start(
                self.door, inputs, run_id=run_id, tags=caller.tags, tenant=caller.tenant, budget=caller.budget
            )
            return
        summary = RunSummary(
            run_id=run_id,
            pipeline=self.door.name,
            status="running",
            started_at=None,
            updated_at=None,
            tags=tuple(caller.tags),
            tenant=caller.tenant,
        )
        deps = caller.deps if caller.deps is not NOT_GIVEN else await self._deps(summary)
        execute = cast("Callable[..., Awaitable[object]]", self.door.execute)
        await self._carry_out(
            run_id,
            lambda hear: execute(
                inputs,
                deps,
                run_id=run_id,
                store=self.store,
                tags=caller.tags,
                tenant=caller.tenant,
                reserve=self._reserve,
                budget=caller.budget,
                on_event=hear,
            ),
        )

    async def resume(self, run: RunSummary) -> None:
        """Continue a run in a task of the host. Return when it has begun, or when a worker can take it.

        Without `workers`, `deps_for` of the host makes its `deps`, and nothing happens to a run that has
        finished.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process has it.
            RunStatusConflict: there are workers, and the run has finished.
            RunDefinitionChanged: there are no workers, and the pipeline or graph has changed in parts that
                the run has reached.
            CostBudgetExceeded: there are no workers, the host has `reserve="quote"`, and a budget or limit
                has too little left for the rest of the quote.
            ConfigurationError: the lifespan is not open, and no workers carry the runs; or there are no
                workers, and a graph is paused at a pause node whose question has no answer.
            Problem: this process executes as many runs as it may (`max_concurrency`); status 503.
        """
        if self._workers is not None:
            found = await read_header(self.store, run.run_id)
            handle = self._workers.handle(run.run_id)
            await (self._workers.go_on_soon(run.run_id) if found.is_due else handle.resume())
            return
        deps = await self._deps(run)
        resume = cast("Callable[..., Awaitable[object]]", self.door.resume)
        await self._carry_out(
            run.run_id,
            lambda hear: resume(
                run.run_id, deps=deps, store=self.store, reserve=self._reserve, on_event=hear
            ),
        )

    async def goes_on(self, run: RunSnapshot) -> bool:
        """Return whether a run is going on, in any process, or will as soon as a process takes it.

        That is so for runs that are `queued`, `running` or `interrupted` and, with `workers`, for `paused`
        runs that are due. It is `False` for other paused runs, and for runs that have ended or are set aside.
        """
        if run.status in ("queued", "running", "interrupted"):
            return True
        is_paused = self._workers is not None and run.status == "paused"
        return is_paused and (await read_header(self.store, run.run_id)).is_due

    def cancel_soon(self, run_id: str) -> None:
        """Begin to cancel a run, in whatever process it is, and return at once.

        `run_id` is the id in the store. Nothing happens if there is no such run, or it has ended. It starts a
        task, so it needs a running event loop.
        """

        async def cancel() -> None:
            with suppress(RunStatusConflict, RunNotFound):
                await self.door.cancel(run_id, store=self.store)

        task = asyncio.create_task(cancel(), name=f"cancel run {run_id}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def texts(self, run_id: str) -> Mapping[str, str]:
        """Return the text that each step of a run has written so far and is still writing, in any process.

        The keys are the places of the steps: the id, or a path such as `write@1/inner/check`. The result is
        empty if no step is writing text. `run_id` is the id in the store. Of a run in another process, the
        store is read, which has the text a fraction of a second later.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        here = None if self._texts is None else self._texts.texts(run_id)
        return await read_partial_text(self.store, run_id, self.door.config.codec) if here is None else here

    async def _deps(self, run: RunSummary) -> Any:
        if self._deps_for is None:
            return None
        deps = self._deps_for(run)
        return await deps if isawaitable(deps) else deps

    async def _carry_out(self, run_id: str, call: Callable[[OnEvent], Awaitable[object]]) -> None:
        """Carry out a run in a task of its own, and return when it is on record that it goes on."""
        if not self.is_open:
            expected = (
                "an application that was started with these routes. In FastAPI, include the router in the "
                "application that is served, not in one that is mounted in it. In Starlette, write "
                "Starlette(..., lifespan=host.lifespan), where host is the RunsHost of the routes. In tests, "
                "write `with TestClient(app) as client:`"
            )
            raise ConfigurationError("lifespan", "not open", expected)
        if len(self._running) >= self._most:
            detail = "this process carries out as many runs as it may"
            raise Problem(503, "too-busy", "Try again soon", detail, retry_after=SOON)
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun.add_done_callback(lambda done: done.cancelled() or done.exception())  # the client may be gone

        async def hear(event: RunEvent) -> None:
            if isinstance(event, RunStarted | RunResumed) and not event.part.place and not begun.done():
                begun.set_result(None)
            await self._hear(event)

        task = asyncio.create_task(self._run(run_id, call(hear), begun), name=f"run {run_id}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(begun)

    async def _run(self, run_id: str, run: Awaitable[object], begun: asyncio.Future[None]) -> None:
        make_current(None)  # the run goes on when the endpoint has ended, and a budget around it with it
        try:
            await run
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            elif isinstance(error, FastroAIError):
                # It is on record, too. What a budget stops is no mistake of the code.
                level = logging.WARNING if isinstance(error, BudgetExceeded) else logging.ERROR
                logger.log(level, "run %r has stopped: %s", run_id, error, exc_info=level == logging.ERROR)
            else:
                logger.exception("run %r has stopped", run_id)
        finally:
            if not begun.done():
                begun.set_result(None)

    async def _hear(self, event: RunEvent) -> None:
        if self._texts is not None:
            self._texts.add(event)
        if self._listener is not None:
            await self._listener(event)

"""The desk: the runs that this worker process carries out, and the stores that all workers share."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Literal, Self

from fastroai import Budget, Inbox, SpendLimit, SQLiteRunStore
from fastroai.errors import ConfigurationError, FastroAIError, RunInProgress
from fastroai.pipelines import PipelineStream
from fastroai.store import RunHistory, SQLiteSpendStore
from invoice_desk.invoices import Deps, invoice_pipeline
from invoice_desk.settings import Settings
from invoice_desk.texts import TextReader, TextWriter

logger = logging.getLogger(__name__)

OnBusy = Literal["reject", "enqueue"]


class TooBusy(Exception):
    """This worker carries out as many runs as it may."""


class InvoiceDesk:
    """What the endpoints work with."""

    def __init__(self, settings: Settings, tasks: asyncio.TaskGroup) -> None:
        self._settings, self._tasks = settings, tasks
        self._running: set[str] = set()
        self._closing = asyncio.Event()
        self._store = SQLiteRunStore(settings.folder / "runs.db")
        self._spending = SQLiteSpendStore(settings.folder / "spend.db")
        self.daily = SpendLimit(
            usd=settings.daily_usd, window="day", key=lambda deps: deps.customer, store=self._spending
        )
        self.pipeline = invoice_pipeline(self._store, Budget(usd=settings.invoice_usd), self.daily)
        self.inbox = Inbox(self._store)
        self.history = RunHistory(self._store)

    @property
    def invoice_usd(self) -> Decimal:
        """The most that an invoice may cost."""
        return self._settings.invoice_usd

    # --8<-- [start:life]

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Settings) -> AsyncGenerator[Self]:
        """Take up what others have left, all the time, and at the end hand over what is running."""
        async with asyncio.TaskGroup() as tasks:
            desk = cls(settings, tasks)
            tasks.create_task(desk._repeat(desk._recover))
            tasks.create_task(desk._repeat(desk._go_on_with_paused))
            yield desk
            desk._closing.set()
            await desk._pause_all()
            # Here the group waits until each run has halted: what is being paid for is finished. If that is
            # too long for the process manager, it kills the process, and another one recovers the runs.
        await desk._store.aclose()
        await desk._spending.aclose()

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self._closing.is_set():
            try:
                await work()
            except Exception:
                logger.exception("cannot look for runs; trying again")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._settings.look_every)

    async def _recover(self) -> None:
        """Go on with the runs of processes that have died."""
        outcomes = await self.pipeline.recover(deps_for=lambda run: Deps.of(run.run_id))
        for run_id, outcome in outcomes.items():
            self._text_file(run_id).unlink(missing_ok=True)
            if isinstance(outcome, Exception):
                logger.warning("run %s has stopped again: %s", run_id, outcome)

    async def _go_on_with_paused(self) -> None:
        """Go on with the paused runs that wait for no answer.

        Somebody has answered on the command line, or another worker has paused them at its end.
        """
        # In this order: a run that pauses in between is not in the first list.
        paused = await self.history.list(status="paused", pipeline=self.pipeline.name)
        asking = {asked.run_id for asked in await self.inbox.list(pipeline=self.pipeline.name)}
        for run in paused:
            if run.run_id not in asking:
                try:
                    with suppress(RunInProgress):  # another worker was faster
                        await self.go_on(run.run_id)
                except (FastroAIError, TooBusy) as error:
                    logger.warning("run %s cannot go on yet: %s", run.run_id, error)

    async def _pause_all(self) -> None:
        for run_id in tuple(self._running):
            with suppress(ConfigurationError):  # it has ended by itself
                await self.pipeline.pause(run_id)

    # --8<-- [end:life]
    # --8<-- [start:runs]

    async def begin(self, run_id: str, text: str) -> None:
        """Begin a run, which goes on whether or not anybody waits for it.

        Raises:
            RunExists: it was begun before.
            TooBusy: another worker, or this one later, may have room.
        """
        deps = Deps.of(run_id)
        stream = self.pipeline.stream({"text": text}, deps, run_id=run_id, tenant=deps.customer)
        await self._carry_out(run_id, stream)

    async def go_on(self, run_id: str, on_busy: OnBusy = "reject") -> None:
        """Go on with a run that is paused, has failed, or was cancelled.

        Followers know that a run has ended a moment before its process has let go of it: `"enqueue"` waits.

        Raises:
            RunInProgress: a process has it.
            TooBusy: another worker, or this one later, may have room.
        """
        stream = self.pipeline.resume_stream(
            run_id, deps=Deps.of(run_id), on_busy=on_busy, busy_timeout=self._settings.patience
        )
        await self._carry_out(run_id, stream)

    # --8<-- [end:runs]
    # --8<-- [start:text]
    def text_of(self, run_id: str) -> TextReader:
        """Return what reads the text that a run is writing, in whatever worker."""
        return TextReader(self._text_file(run_id))

    def _text_file(self, run_id: str) -> Path:
        return self._settings.folder / f"{run_id}.text"

    # --8<-- [end:text]
    # --8<-- [start:task]
    async def _carry_out(self, run_id: str, stream: PipelineStream[str]) -> None:
        """Return when the run is on record. Its task is one of the service, not of the request."""
        if len(self._running) >= self._settings.most_runs:
            raise TooBusy("this worker carries out as many runs as it may")
        begun = asyncio.get_running_loop().create_future()
        self._tasks.create_task(self._read(run_id, stream, begun))
        await asyncio.shield(begun)

    async def _read(self, run_id: str, stream: PipelineStream[str], begun: asyncio.Future[None]) -> None:
        try:
            async with stream:
                events = aiter(stream)
                await anext(events, None)  # the run is on record, or this raises why it is not
                self._running.add(run_id)
                begun.set_result(None)
                try:
                    with TextWriter(self._text_file(run_id)) as text:
                        async for event in events:
                            text.add(event)
                finally:
                    self._running.remove(run_id)
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            else:
                logger.warning("run %s has stopped: %s", run_id, error)  # which is on record, too

    # --8<-- [end:task]

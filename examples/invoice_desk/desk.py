"""The desk: the runs that this worker process carries out, and the stores that all workers share."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

from fastroai import Budget, Inbox, Service, SpendLimit, SQLiteRunStore
from fastroai.pipelines import BudgetWarning, PipelineStream, RunStarted
from fastroai.store import RunHistory, RunSummary, SQLiteSpendStore
from fastroai.usage import SpendBook
from invoice_desk.invoices import Deps, invoice_pipeline
from invoice_desk.settings import Settings
from invoice_desk.texts import TextReader, TextWriter

logger = logging.getLogger(__name__)


def deps_of(run: RunSummary) -> Deps:
    """Return the deps of a run that goes on."""
    return Deps.of(run.run_id)


# --8<-- [start:alert]
def alert(warning: BudgetWarning) -> None:
    """Tell the operators. Of all workers, one is called for each share, once a day for each customer."""
    share, limit_usd = warning.threshold * 100, warning.limit_usd
    logger.warning("customer %s has spent %.0f %% of $%s today", warning.key, share, limit_usd)


# --8<-- [end:alert]
class TooBusy(Exception):
    """This worker carries out as many runs as it may."""


class InvoiceDesk:
    """What the endpoints work with."""

    def __init__(self, settings: Settings, tasks: asyncio.TaskGroup) -> None:
        self._settings, self._tasks = settings, tasks
        self._running: set[str] = set()
        self._texts = TextWriter(settings.folder)
        self._store = SQLiteRunStore(settings.folder / "runs.db")
        self._spending = SQLiteSpendStore(settings.folder / "spend.db")
        self.daily = SpendLimit(
            usd=settings.daily_usd,
            window="day",
            key=lambda deps: deps.customer,
            store=self._spending,
            warn_at=(0.5, 0.8, 0.95),
            on_warning=alert,
        )
        self.book = SpendBook(self._spending)
        self.pipeline = invoice_pipeline(self._store, Budget(usd=settings.invoice_usd), self.daily)
        self.inbox = Inbox(self._store)
        self.history = RunHistory(self._store)

    # --8<-- [start:life]

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Settings) -> AsyncGenerator[Self]:
        """Take up what others have left, all the time, and at the end hand over what is running."""
        async with asyncio.TaskGroup() as tasks:
            desk = cls(settings, tasks)
            async with desk._service():
                yield desk
            # Here the group waits until each run that this worker began has halted: what is being paid for is
            # finished. If that is too long for the process manager, it kills the process. Either way, another
            # one goes on.
        await desk._store.aclose()
        await desk._spending.aclose()

    def _service(self) -> Service:
        """Return what goes on with the runs that others have let go of, or that need not wait any more."""
        return Service(
            self.pipeline, every=self._settings.look_every, deps_for=deps_of, on_event=self._texts.add
        )

    # --8<-- [end:life]
    # --8<-- [start:runs]

    async def begin(self, run_id: str, text: str) -> None:
        """Begin a run, which goes on whether or not anybody waits for it. It is paid for to its end.

        Raises:
            RunExists: it was begun before.
            SpendLimitExceeded: the customer's money of today may not suffice.
            TooBusy: another worker, or this one later, may have room.
        """
        deps = Deps.of(run_id)
        stream = self.pipeline.stream(
            {"text": text}, deps, run_id=run_id, tenant=deps.customer, reserve="quote"
        )
        await self._carry_out(run_id, stream)

    async def go_on(self, run_id: str) -> None:
        """Go on with a run that is paused, has failed, or was cancelled.

        Raises:
            RunInProgress: a process has it.
            SpendLimitExceeded: the customer's money of today may not suffice.
            TooBusy: another worker, or this one later, may have room.
        """
        stream = self.pipeline.resume_stream(run_id, deps=Deps.of(run_id), reserve="quote")
        await self._carry_out(run_id, stream)

    # --8<-- [end:runs]
    # --8<-- [start:text]
    def text_of(self, run_id: str) -> TextReader:
        """Return what reads the text that a run is writing, in whatever worker."""
        return TextReader(self._settings.folder, run_id)

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
                async for event in stream:  # this raises why the run is not on record, if it is not
                    self._texts.add(event)
                    if isinstance(event, RunStarted):
                        break
                self._running.add(run_id)
                begun.set_result(None)
                try:
                    async for event in stream:
                        self._texts.add(event)
                finally:
                    self._running.remove(run_id)
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            else:
                logger.warning("run %s has stopped: %s", run_id, error)  # which is on record, too

    # --8<-- [end:task]

"""The runner of rows: reads them, asks them, and puts their ends on record. It decides nothing itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import count
from time import perf_counter
from typing import Any, Final

import anyio

from fastroai.errors import BudgetExceeded, FastroAIError, RunNotFound, RunStoreUnavailable, RunTakenOver
from fastroai.human.halting import Halted, is_halt
from fastroai.records import Usage
from fastroai.rows.facts import RowEnded, RowGivenBack, RowStarted
from fastroai.rows.machine import (
    AskRow,
    Begun,
    CancelRows,
    Decision,
    GiveBack,
    RefuseRow,
    RowCut,
    RowMachine,
    RowsEnded,
    StopReading,
    Told,
    number_of_key,
    refused_key,
)
from fastroai.rows.options import RowOptions
from fastroai.rows.record import ROW, Lines, LinesInMemory, LinesInStore, RowsOnRecord, scope_key
from fastroai.rows.source import ReadRow, Rows, RowUnusable
from fastroai.rows.target import RowCall, RowTarget, RowWaits
from fastroai.runs.around import LAST_WORDS
from fastroai.runs.execution import OpenRun
from fastroai.runtime import Retry, Scope
from fastroai.runtime.concurrency.isolation import in_context
from fastroai.runtime.concurrency.tasks import end_tasks, to_its_end
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import PauseRequested, RunFinished, StopRequested, Wait
from fastroai.runtime.labels import current_row
from fastroai.runtime.retrying.failures import leaves
from fastroai.runtime.scope import ScopeKind
from fastroai.steps import PipelineConfig, StepConfig
from fastroai.steps.config import resolve
from fastroai.steps.durability import failure_facts, failure_of, restore_spending, step_place, step_retried
from fastroai.steps.retrying import retry_calls
from fastroai.store.record.declarations import digest
from fastroai.store.record.entries import RowCounts
from fastroai.store.record.halting import cancel_waiting_rows
from fastroai.store.record.headers import read_header
from fastroai.store.record.unsealing import seal_payloads
from fastroai.store.record.values import value_to_json

logger: Final = logging.getLogger("fastroai.rows")

_ANSWERS: Final = ("agent", "infer")
"""The kinds of targets whose row is a single answer, which may come from a cache or a record."""
_FORGET_AFTER: Final = 50
"""Rows after which a run on record forgets what it knows of single requests."""


@dataclass(slots=True)
class _Asked:
    """A row that is asked now."""

    row: ReadRow
    task: asyncio.Task[Any]
    is_cancelled: bool = False
    has_ended: bool = False
    """Whether its end is being put on record, which nothing but the end of the run may cancel."""
    is_in_batch: bool = False
    """Whether the answer to its request comes with a batch, which keeps its place among those at once."""


class RowRunner:
    """One run of rows, inside its scope. As many tasks as may run at once read a row and ask it, in turns."""

    def __init__(
        self,
        machine: RowMachine,
        target: RowTarget[Any],
        rows: Rows,
        opened: OpenRun,
        options: RowOptions,
        deps: object,
        lines: Lines,
        record: RowsOnRecord | None,
        write: Callable[[RowEnded], Awaitable[None]] | None,
    ) -> None:
        """`record` is that of a run that goes on. `write` gets each end as soon as it is kept."""
        self._machine, self._target, self._rows, self._opened = machine, target, rows, opened
        self.lines, self._record, self._write = lines, record, write
        self.scope, self._log = opened.scope, opened.log
        config = StepConfig() if options.retries is None else StepConfig(retries=options.retries)
        self._config = resolve(config, pipeline=PipelineConfig())
        self._at_once = min(options.at_once, max(rows.total or options.at_once, 1))
        run = self._run = opened.kept if self._log.scope is self.scope else None
        """The run on record, unless it is that of a run around."""
        if run is not None:
            run.journal.keeps_entries = False
            run.counts = self._counts
        self._how = RowCall(
            deps,
            self._config.request_retries,
            store=run.store if run is not None and target.makes_runs else None,
            parent=run.run_id if run is not None and self._log.is_carried else "",
            is_end_kept=run is not None,
            batching=options.batching,
        )
        self.is_told = False
        self.finish: RunFinished | None = None
        self.failed: tuple[RowEnded, Exception] | None = None
        """The end of the last row that failed, and its exception."""
        self.resume_at: tuple[str, ...] = ()
        self._asked: dict[int, _Asked] = {}
        self._turn = asyncio.Lock()
        self._reader: asyncio.Task[Any] | None = None
        self._is_reading, self._working = True, self._at_once
        self._since_forgotten = 0
        declared = (sorted(one.items()) for one in machine.declared_alike())
        hashed = (digest(*(f"{name}={known}" for name, known in one)) for one in declared)
        self._declared = tuple(dict.fromkeys(hashed))
        """Hashes of the declaration, and of those before it that ask the same, newest first."""
        self._loop = asyncio.get_running_loop()

    def _counts(self) -> dict[str, RowCounts]:
        assert isinstance(self.lines, LinesInStore)
        is_over = self.finish is not None and self.finish.reason_code != "rows_waiting"
        waiting = 0 if is_over else len(self._machine.waiting)
        done, failed = len(self.lines), self.lines.failed
        return {"rows": RowCounts(done=done, failed=failed, waiting=waiting, total=self._rows.total)}

    @property
    def milliseconds(self) -> float:
        """Milliseconds that the run has taken so far in this process."""
        return (perf_counter() - self._opened.began) * 1000

    async def run(self, decisions: Sequence[Decision]) -> None:
        """Ask the rows until the machine says that the run has ended. Failures of rows are not raised."""
        self._act(decisions)
        workers = {self._loop.create_task(self._work()) for _ in range(self._at_once)}
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            for worker in done:
                worker.result()
        except asyncio.CancelledError:
            self._heed(StopRequested(reason="the task that ran it was cancelled"))
            raise
        finally:
            self._is_reading = False
            await end_tasks(workers)
            await self._rows.aclose()

    def heed(self, request: PauseRequested | StopRequested) -> None:
        """Read no further rows; with a stop, cancel those that are asked. Works from any thread."""
        if running_loop() is self._loop:
            self._heed(request)
            return
        with suppress(RuntimeError):  # the loop is closed, so the run has ended
            self._loop.call_soon_threadsafe(self._heed, request)

    def _heed(self, request: PauseRequested | StopRequested) -> None:
        if self.finish is None:
            request.part = self.scope.part
            self._log.note(request)
            self._tell(request)

    async def cancel_waiting(self) -> None:
        """Cancel the runs of rows that wait, if this run was cancelled, so that nobody is asked for them."""
        run, task = self._run, asyncio.current_task()
        is_cancelled = self.finish is not None and self.finish.status == "cancelled"
        if run is None or not is_cancelled or not self._target.makes_runs:
            return
        work = cancel_waiting_rows(run.store, run.run_id, run.codec)
        try:
            if task is not None and task.cancelling():
                with anyio.CancelScope(shield=True):
                    await to_its_end(asyncio.wait_for(work, LAST_WORDS))
            else:
                await work
        except (FastroAIError, TimeoutError) as failure:
            why = f"{type(failure).__name__}: {failure}"
            logger.warning("run %r: not all of its rows that wait could be cancelled: %s", run.run_id, why)

    # --- decisions ---

    def _tell(self, told: Told) -> None:
        self._act(self._machine.handle(told))

    def _act(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case StopReading():
                    self._is_reading = False
                    if self._reader is not None:
                        self._reader.cancel()
                case CancelRows():
                    for asked in self._asked.values():
                        may_be = not (asked.is_cancelled or asked.has_ended)
                        if may_be and asked.task is not asyncio.current_task():
                            asked.is_cancelled = True
                            asked.task.cancel()
                case RunFinished():
                    decision.part = self.scope.part
                    self.finish = decision
                    self._keep_lines()

    def _keep_lines(self) -> None:
        """Keep the lines of rows on record to which this process did not come, as the run has stopped."""
        if self._record is None or not self._machine.leaves_lines:
            return
        assert isinstance(self.lines, LinesInStore)
        taken, free = set(self.lines.numbers()), 0
        for number, position, is_failed in self._record.left_over():
            if number in taken:  # rows have moved, and now it is that of another row
                number = free = next(each for each in count(max(number, free)) if each not in taken)
            taken.add(number)
            self.lines.add(number, position, is_failed=is_failed)

    # --- reading ---

    async def _work(self) -> None:
        while (row := await self._next()) is not None:
            task = asyncio.current_task()
            assert task is not None
            self._asked[row.number] = asked = _Asked(row, task)
            try:
                await in_context(self._ask(asked), copy_context())
            finally:
                del self._asked[row.number]
            if asked.is_in_batch:
                break
        self._working -= 1
        if self._is_reading and not self._working:  # a later stretch reads the other rows
            self._is_reading = False
            self._tell(RowsEnded(is_all=False))

    async def _next(self) -> ReadRow | None:
        """Return the next row to ask; `None` if there is none. One worker at a time reads."""
        async with self._turn:
            while self._is_reading:
                try:
                    row = await self._read()
                except Exception as error:  # the user's iterator can raise anything
                    self._end_for(error)
                    return None
                if row is None:
                    if self._is_reading:
                        self._is_reading = False
                        self._tell(RowsEnded())
                    return None
                match decision := self._machine.read(row, self._begun_before(row)):
                    case AskRow():
                        return row
                    case RefuseRow(why=why):
                        row.key, row.error = refused_key(row.number, row.key), ValueError(why)
                        return row
                    case GiveBack():
                        await self._given_back(row, decision)
            return None

    async def _read(self) -> ReadRow | None:
        """Read a row. Whoever stops the reading need not wait for a slow source."""
        self._reader = asyncio.current_task()
        try:
            return await self._rows.read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_reading or task is None:
                raise
            task.uncancel()
            return None
        finally:
            self._reader = None

    async def _given_back(self, row: ReadRow, decision: GiveBack) -> None:
        assert self._record is not None
        assert isinstance(self.lines, LinesInStore)
        self.lines.add(row.number, self._record.positions[number_of_key(row.key)])
        if self.scope.listener is not None:
            part = self.scope.part
            await self.scope.emit(RowGivenBack(part=part, number=row.number, key=row.key, why=decision.why))

    # --- asking ---

    async def _ask(self, asked: _Asked) -> None:
        row, began = asked.row, perf_counter()
        # In the record of a run around, calls have the places that they would have in its own code.
        kind: ScopeKind = "step" if self._log.scope is self.scope else "call"
        scope = Scope(kind, ROW, parent=self.scope, key=scope_key(row.key), ordinal=1)
        child = ""
        if self._log.run is None or self._target.makes_runs:
            scope.log = None  # no store keeps what is inside, or a run of its own does
        current_row.set(row.number)
        output: object = None
        error: Exception | None = None
        try:
            async with scope:
                child = await self._child_of(row)
                if (record := self._record) is not None:  # the run itself counts it already
                    scope.restore(*record.children.get(child, ((), ())))
                    restore_spending(scope)
                if child:  # that it begins is on record first, so that nothing that it spends is ever lost
                    part = self.scope.part
                    started = RowStarted(part=part, number=row.number, key=row.key, child=child)
                    await self._log.commit(started)
                output = await self._answer(row, scope, child)
        except asyncio.CancelledError:
            if not asked.is_cancelled:
                raise
            asked.task.uncancel()
            return self._tell(RowCut(row.number, row.key, "cancelled"))
        except (RunStoreUnavailable, RunTakenOver):
            raise
        except BaseException as raised:
            if isinstance(raised, RowWaits) or is_halt(raised):
                waits = self._log.waits_in(step_place(scope))
                due = raised.due_at.timestamp() if isinstance(raised, RowWaits) and raised.due_at else None
                halts = (one.due_at for one in leaves(raised) if isinstance(one, Halted))
                if in_batch := next(halts, None):
                    asked.is_in_batch, due = True, in_batch
                if due is not None:
                    waits = (Wait(what="row", id=scope.key, name=row.key, deadline=due),)
                return self._tell(RowCut(row.number, row.key, "waits", waits))
            if not isinstance(raised, Exception):
                raise
            if self._is_stopped_by(raised):
                facts = failure_of(scope, self._config, raised)
                return self._tell(RowCut(row.number, row.key, "budget", raised=raised, failure=facts))
            error = raised
        asked.has_ended = True
        await self._ended(self._end_of(row, scope, child, output, error, began), error)

    def _begun_before(self, row: ReadRow) -> Begun | None:
        """Return how an earlier process has left a row that it had begun."""
        record, key = self._record, scope_key(row.key)
        if record is None:
            return None
        if key not in record.open and record.children.keys().isdisjoint(self._children_of(row)):
            return None
        if key in record.in_batches:
            return "in batch"
        return "stopped" if key in record.stopped else "asked"

    def _children_of(self, row: ReadRow) -> Sequence[str]:
        """Return the ids that the run of a row can have, if the store keeps it: that of a new run is first.

        Another question is another run. The same question has several ids if its declaration had other names.
        """
        if self._run is None or not self._target.makes_runs or row.error is not None:
            return ()
        begins = f"{self._run.run_id[:160]}-row-{scope_key(row.key)}"
        return [f"{begins}-{digest(row.asked, declared)}" for declared in self._declared]

    async def _child_of(self, row: ReadRow) -> str:
        """Return the id of the run of a row, which may be on record; empty if the store does not keep it."""
        children = self._children_of(row)
        if self._run is not None and len(children) > 1:
            for child in children:
                with suppress(RunNotFound):
                    return (await read_header(self._run.store, child)).header.run_id
        return children[0] if children else ""

    async def _answer(self, row: ReadRow, scope: Scope, child: str) -> object:
        if row.error is not None:
            raise row.error

        async def attempt(number: int) -> object:
            scope.attempt = number
            is_new = number == 1 and self._record is None
            return await self._target.call(row.inputs, replace(self._how, child=child, is_new=is_new))

        async def retried(retry: Retry) -> None:
            await scope.emit(step_retried(scope, retry))

        if (rules := self._config.retry_rules) is None:
            output = await attempt(1)
        else:
            output = await retry_calls(attempt, rules=rules, scoped=scope, on_retry=retried)
        if self._run is not None:
            return value_to_json(output, self._target.returns, f"the output of row {row.number}")
        return output

    def _is_stopped_by(self, error: Exception) -> bool:
        """Return whether a budget of the run, or around it, has stopped a row, and not one of its own."""
        budgets = (leaf for leaf in leaves(error) if isinstance(leaf, BudgetExceeded))
        return any(self.scope.is_within(one.scope_path) for one in budgets)

    def _end_of(
        self, row: ReadRow, scope: Scope, child: str, output: object, error: Exception | None, began: float
    ) -> RowEnded:
        usage = scope.spent() if scope.has_spent else Usage()
        failure: FailureFacts | None = None
        if isinstance(error, RowUnusable):
            failure = replace(failure_facts(error.reason, "terminal"), message=str(error))
        elif error is not None:
            failure = failure_of(scope, self._config, error)
        return RowEnded(
            part=self.scope.part,
            number=row.number,
            key=row.key,
            asked=row.asked,
            inputs=dict(row.shown),
            output=output,
            failure=failure,
            attempts=scope.attempt,
            is_cached=error is None and self._target.kind in _ANSWERS and not usage.request_count,
            duration_ms=(perf_counter() - began) * 1000,
            usage=usage,
            child=child,
        )

    async def _ended(self, end: RowEnded, error: Exception | None) -> None:
        """Put the end of a row on record, then tell it: to the machine, the file, and listeners."""
        if error is not None:
            self.failed = end, error
        if self._record is not None:
            self._record.open.pop(scope_key(end.key), None)
        if self._run is not None and isinstance(self.lines, LinesInStore):
            journal = self._run.journal
            journal.note(seal_payloads(end, self._run.codec))
            self.lines.add(end.number, journal.position, is_failed=end.failure is not None)
            await journal.kept()
            self._forget()
        else:
            assert isinstance(self.lines, LinesInMemory)
            self.lines.add(end)
        await self._write_down(end)
        self._tell(end)
        if self.scope.listener is not None:
            await self.scope.emit(end)

    async def _write_down(self, end: RowEnded) -> None:
        """Write the end of a row to the file. If that fails, the rows that are asked still end."""
        if self._write is not None:
            try:
                await self._write(end)
            except Exception as error:
                self._end_for(error)

    def _end_for(self, error: Exception) -> None:
        """Read no further row, because none can be read or written. The exception is raised in the end."""
        self._tell(RowsEnded(failure=failure_facts(error, "terminal"), raised=error))

    def _forget(self) -> None:
        """Keep only the sums of what has ended, so that the memory of a run on record is bounded."""
        self._since_forgotten += 1
        if self._since_forgotten < _FORGET_AFTER or self._run is None:
            return
        self._since_forgotten = 0
        self._run.journal.spending.fold()
        if self._record is None or not self._record.open:
            self._run.recorded.forget_calls()
        with self.scope.tree.lock:
            self.scope.spending.forget()

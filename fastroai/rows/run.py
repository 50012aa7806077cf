"""One run of rows, from the request for it to its table."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from fastroai.errors import ConfigurationError, RunExists, RunNotFound
from fastroai.human.halting import Halted
from fastroai.rows.facts import RowEnded
from fastroai.rows.files import RowFile
from fastroai.rows.frames import backend_of
from fastroai.rows.keeper import OPTIONS, RowOpening, definition_of, keeper_of, name_of
from fastroai.rows.kept import keep_rows, total_of
from fastroai.rows.machine import RowMachine
from fastroai.rows.options import RowOptions
from fastroai.rows.record import Lines, LinesInMemory, LinesInStore, RowsOnRecord
from fastroai.rows.running import RowRunner
from fastroai.rows.source import Rows, RowSource
from fastroai.rows.table import Row, RowFailed, RowTable, reader_of, row_of
from fastroai.rows.target import RowTarget
from fastroai.runs.execution import Execution, OpenRun
from fastroai.runs.openings import Opening, RunKeeper, store_of
from fastroai.runs.request import RunRequest
from fastroai.runtime import current_scope
from fastroai.runtime.facts import RunFinished
from fastroai.steps import PipelineConfig
from fastroai.steps.hooks import RunHooks
from fastroai.store.record.headers import check_run_id
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.run_store import RunStoreLike
from fastroai.usage import Quote

T = TypeVar("T")


class RowRun(Generic[T]):
    """Runs the rows of one call of `map`."""

    def __init__(
        self,
        target: RowTarget[T],
        rows: RowSource | Rows,
        options: RowOptions,
        request: RunRequest[Any],
        store: RunStoreLike | None = None,
        *,
        record_rows: bool = False,
        execution: Execution | None = None,
    ) -> None:
        """Take what was given. Nothing is read or sent yet.

        With `record_rows`, rows are put on record before any is asked. `execution` is that of all runs of
        rows of the target in this process.
        """
        self._target, self._options, self._request = target, options, request
        self._given_store, self._record_rows = store, record_rows
        self._backend = backend_of(rows)
        if not isinstance(rows, Rows):
            rows = Rows(rows, target, options.inputs, options.key, options.only, as_json=record_rows)
        self._rows = rows
        self._definition = definition_of(target)
        self._name = name_of(target.name)
        self._execution = execution or execution_of(target)
        self._machine = RowMachine()

    async def table(self) -> RowTable[T]:
        """Carry out the run, and return its table.

        Raises:
            RowFailed: a row has failed, with `on_error="stop"`.
        """
        request = await self._opened()
        opening = request.opening if isinstance(request.opening, RowOpening) else None
        if opening is not None:
            self._machine = opening.record.machine
        machine, options = self._machine, self._options
        machine.on_error, machine.on_changed = options.on_error, options.on_changed
        machine.lets_go = options.batching is not None
        execution, target = self._execution, self._target
        scope = execution.scope(request)
        runner: RowRunner | None = None
        file = None if options.write_to is None else RowFile(options.write_to, target)
        try:
            async with AsyncExitStack() as stack:
                opened = await execution.open(stack, request, scope, self._definition)
                if opening is not None and opened.kept is not None:
                    machine.handle(opened.kept.recorded.resumptions[-1][1])
                    for counting in filter(None, (scope, options.around)):
                        counting.spending.usage.include(opening.record.usage)
                        for spent in opening.record.children.values():
                            counting.restore(*spent)
                    opened.kept.journal.spending = opening.record.spending
                else:
                    kept = None if request.opening is None else opened.kept
                    machine.handle(opened.started if kept is None else kept.recorded.opened)
                if opening is not None and opening.options is not None:
                    opened.log.is_carried = True  # any process can go on with it
                record = None if opening is None else opening.record
                runner = self._runner(opened, file, record)
                if file is not None and record is not None and machine.has_answers:
                    await file.begin(self._answers(record))
                finish = await execution.perform(opened, runner, ())
                if finish.status == "paused" and opened.log.scope is not opened.scope:
                    raise Halted  # the step or flow around this call waits with its rows
                table = self._table(runner, finish)
                if file is not None:
                    await file.put_in_order(table)
                self._raise_if_stopped(finish, runner, table)
        except BaseException as error:
            if runner is not None:
                await execution.tell_end(runner, error)
                if isinstance(runner.lines, LinesInMemory):
                    failed = RunFinished(status="failed", reason=str(error), reason_code="error")
                    self._table(runner, runner.finish or failed).attach(error)
            raise
        finally:
            if file is not None:
                file.close()
            if runner is not None:
                await runner.cancel_waiting()
        return table

    # --- beginning ---

    async def _opened(self) -> RunRequest[Any]:
        """Return the request for a new run, or for one that goes on."""
        request, config = self._request, self._target.config
        if request.opening is not None:
            return request
        if request.run_id is not None:
            check_run_id(request.run_id)
        store = store_of(self._given_store, config.store) if run_of(current_scope()) is None else None
        if store is None:
            if self._record_rows:
                expected = "a store that keeps the rows: map(..., store=..., record_rows=True)"
                raise ConfigurationError("store", None, expected)
            return replace(request, inputs=self._facts_about_rows())
        keeper = request.labelling(keeper_of(self._target, self._definition, store, config))
        run_id = request.run_id or uuid.uuid4().hex
        if self._record_rows:
            return request.opened_by(await self._on_record(keeper, run_id))
        try:
            opening = await keeper.take_up(run_id, self._facts_about_rows(), force=False)
            if isinstance(opening, RowOpening) and opening.options is not None:
                expected = f"True, because run {run_id!r} has its rows on record; other rows are another run"
                raise ConfigurationError("record_rows", False, expected)
        except RunNotFound as missing:
            if missing.run_id != run_id:
                raise
            opening = keeper.begin(run_id, self._facts_about_rows())
        return request.opened_by(opening)

    async def _on_record(self, keeper: RunKeeper, run_id: str) -> Opening:
        """Return the opening of a run whose rows are on record, and go on from there."""
        with suppress(RunExists):
            inputs = {OPTIONS: self._options.on_record()}
            first = partial(keep_rows, keeper.store, self._rows, keeper.codec)
            await keeper.put_on_record(run_id, inputs, first=first)
        opening = await keeper.take_up(run_id, {}, force=False)
        assert isinstance(opening, RowOpening)
        kept = total_of(opening.found.header)
        if opening.options is None or (self._rows.total or kept) != kept:
            expected = f"the {kept or 0:,} rows that this run has on record; other rows are another run"
            raise ConfigurationError("rows", ..., expected)
        self._options = replace(opening.options, write_to=self._options.write_to, around=self._options.around)
        self._rows = rows_of(opening, self._target)
        return opening

    def _facts_about_rows(self) -> dict[str, object]:
        return {} if self._rows.total is None else {"total": self._rows.total}

    # --- to its end ---

    def _runner(self, opened: OpenRun, file: RowFile | None, record: RowsOnRecord | None) -> RowRunner:
        options, target = self._options, self._target
        lines: Lines = LinesInMemory()
        read = None
        if opened.kept is not None and opened.log.scope is opened.scope:
            lines = LinesInStore(opened.kept.store, opened.kept.header, opened.kept.codec)
            read = reader_of(target.returns)

        async def write(end: RowEnded) -> None:
            assert file is not None
            await file.add(row_of(end, read))

        return RowRunner(
            self._machine,
            target,
            self._rows,
            opened,
            options,
            self._request.deps,
            lines,
            record,
            None if file is None else write,
        )

    async def _answers(self, record: RowsOnRecord) -> AsyncIterator[Row[T]]:
        read = reader_of(self._target.returns)
        async for end in record.answers():
            yield row_of(end, read)

    def _table(self, runner: RowRunner, finish: RunFinished) -> RowTable[T]:
        is_kept = isinstance(runner.lines, LinesInStore)
        return RowTable(
            name=self._target.name,
            run_id=runner.scope.run_id,
            lines=runner.lines,
            returns=self._target.returns,
            read=reader_of(self._target.returns) if is_kept else None,
            usage=runner.scope.spent(),
            status=finish.status,
            reason=finish.reason,
            reason_code=finish.reason_code,
            resumed=self._machine.resumption(),
            waiting=self._machine.waiting,
            backend=self._backend,
            duration_ms=runner.milliseconds,
        )

    def _raise_if_stopped(self, finish: RunFinished, runner: RowRunner, table: RowTable[T]) -> None:
        """Raise what has ended the run, unless the table tells it."""
        if finish.reason_code == "step_failed" and runner.failed is not None:
            row, why = runner.failed
            failed = RowFailed(self._target.name, row.number, row.key, str(row.failure))
            failed.table = table
            finish.raised = failed
            raise failed from why
        if finish.raised is None:
            return
        is_own = finish.reason_code == "budget_exceeded" and self._is_own_budget(finish.raised, runner)
        if not is_own or self._options.on_error == "stop":
            raise finish.raised

    def _is_own_budget(self, error: BaseException, runner: RowRunner) -> bool:
        path: object = getattr(error, "scope_path", None)
        around = self._options.around
        return path == runner.scope.path or (around is not None and path == around.path)


def execution_of(target: RowTarget[Any]) -> Execution:
    """Return what carries out runs of rows of a target."""
    return Execution("rows", name_of(target.name), PipelineConfig(), None, RunHooks(), None, _no_estimate)


def rows_of(opening: RowOpening, target: RowTarget[Any]) -> Rows:
    """Return the rows of a run that has them on record."""
    assert opening.options is not None
    rows = Rows(opening.source, target, opening.options.inputs, opening.options.key)
    rows.total = total_of(opening.found.header)
    return rows


async def _no_estimate(inputs: Any, deps: Any) -> Quote:
    return Quote.unknown("its rows are not read yet")

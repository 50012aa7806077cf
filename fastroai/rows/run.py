"""One run of rows, from the request for it to its table."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import JsonValue

from fastroai.errors import CallChangedError, RunExists, RunNotFound
from fastroai.rows.errors import RowFailed
from fastroai.rows.facts import RowStarted
from fastroai.rows.files import RowFile
from fastroai.rows.frames import backend_of
from fastroai.rows.machine import OnRowError, RowMachine
from fastroai.rows.record import LinesInMemory, LinesInStore, RowsOnRecord, facts_of
from fastroai.rows.running import Known, RowRunner
from fastroai.rows.source import RowInputs, RowKey, Rows, RowSource
from fastroai.rows.table import RowTable, reader_of
from fastroai.rows.target import RowTarget
from fastroai.runs.execution import Execution, OpenRun
from fastroai.runs.openings import Opening, RunKeeper, store_of
from fastroai.runs.request import RunRequest
from fastroai.runtime import Charge, Scope, current_scope
from fastroai.runtime.budgets.in_flight import AgentCharges
from fastroai.runtime.facts import Part, RunFinished, RunResumed, RunStarted
from fastroai.runtime.labels import Labels
from fastroai.steps import PipelineConfig, StepConfig
from fastroai.steps.config import resolve
from fastroai.steps.hooks import RunHooks
from fastroai.store.record.declarations import OnChanged, changed_parts
from fastroai.store.record.halting import read_to_go_on
from fastroai.store.record.headers import FoundHeader, check_run_id, read_header
from fastroai.store.record.log import run_of
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.record.runs import DurableRun
from fastroai.store.run_store import RunStore, RunStoreLike
from fastroai.store.signals import last_signal
from fastroai.usage import Quote

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """How rows are run."""

    inputs: RowInputs | None = None
    key: RowKey | None = None
    concurrency: int
    retries: int | None
    on_error: OnRowError
    on_changed: OnChanged
    only: frozenset[int] | None = None
    """The numbers of the rows that are asked; by default, all are."""
    write_to: str | None = None
    """The path of a file that gets each row when it ends."""
    around: Scope | None = None
    """The scope of several runs that are one to the caller: its budget counts as the own budget of each."""


class RowRun(Generic[T]):
    """Runs the rows of one call of `map`."""

    def __init__(
        self,
        target: RowTarget[T],
        rows: RowSource,
        options: RowOptions,
        request: RunRequest[Any],
        store: RunStoreLike | None,
    ) -> None:
        """Take what was given. Nothing is read or sent yet."""
        self._target, self._options, self._request = target, options, request
        self._given_store = store
        self._backend = backend_of(rows)
        self._rows = Rows(rows, target, options.inputs, options.key, options.only)
        self._machine = RowMachine(on_error=options.on_error, on_changed=options.on_changed)
        self._name = f"{target.name}.map"
        """The name of the run. It is not that of a pipeline, whose `recover` would take the run up."""
        self._definition: dict[str, JsonValue] = {
            "name": self._name,
            "kind": "rows",
            "of": target.kind,
            "declares": dict(target.declares()),
            "steps": {},
        }
        self._known = Known()

    async def table(self) -> RowTable[T]:
        """Carry out the run, and return its table.

        Raises:
            RowFailed: a row has failed, with `on_error="stop"`.
        """
        target = self._target
        request = await self._opened()
        execution = Execution("rows", self._name, PipelineConfig(), None, RunHooks(), None, self._no_estimate)
        scope = execution.scope(request)
        runner: RowRunner | None = None
        file = None if self._options.write_to is None else RowFile(self._options.write_to, target)
        try:
            async with execution.opened(request, scope, self._definition) as opened:
                if request.opening is None:
                    self._machine.handle(opened.started)
                elif opened.kept is not None and self._known.is_resumed:
                    self._machine.handle(opened.kept.recorded.resumptions[-1][1])
                    for counting in filter(None, (scope, self._options.around)):
                        counting.spending.usage.include(self._spent_before)
                        for spent in self._known.children.values():
                            counting.restore(*spent)
                    opened.kept.journal.spending = self._spending_before
                elif opened.kept is not None:
                    self._machine.handle(opened.kept.recorded.opened)
                runner = self._runner(opened, file)
                finish = await execution.perform(opened, runner, ())
                table = self._table(opened, runner, finish)
                if file is not None:
                    await file.put_in_order(table)
                self._raise_if_stopped(finish, runner, table)
        except BaseException as error:
            if runner is not None:
                await execution.tell_end(runner, error)
            raise
        finally:
            if file is not None:
                file.close()
        return table

    # --- beginning ---

    async def _opened(self) -> RunRequest[Any]:
        """Return the request for a new run, or for one that goes on."""
        request, config = self._request, self._target.config
        if request.run_id is not None:
            check_run_id(request.run_id)
        store = store_of(self._given_store, config.store) if run_of(current_scope()) is None else None
        if store is None:
            return replace(request, inputs=self._facts_about_rows())
        keeper = request.labelling(self._keeper(store, config))
        run_id = request.run_id or uuid.uuid4().hex
        try:
            found = await read_header(store, run_id)
        except RunNotFound:
            opening = keeper.begin(run_id, self._facts_about_rows())
        else:
            opening = await self._taken_up(keeper, found)
        return request.opened_by(opening)

    def _facts_about_rows(self) -> dict[str, object]:
        return {} if self._rows.total is None else {"total": self._rows.total}

    def _keeper(self, store: RunStore, config: PipelineConfig) -> RunKeeper:
        return RunKeeper(
            definition=self._definition,
            input_types={},
            output_types={},
            store=store,
            durability=config.durability,
            codec=config.codec,
            kind="rows",
        )

    async def _taken_up(self, keeper: RunKeeper, found: FoundHeader) -> Opening:
        """Return the opening of a run on record, of which only what has not ended stays in memory.

        Raises:
            RunInProgress: a process has the run.
            RunExists: the run is not one of rows of this name.
            CallChangedError: what is declared has changed, with `on_changed="fail"`.
        """
        found.check_not_running()
        store, header, codec = keeper.store, found.header, keeper.codec
        record = RowsOnRecord(self._machine)
        async for position, fact in facts_of(store, header, codec):
            if position == 1:
                self._check_is_same(fact, header.status)
            record.read(position, fact)
        memo = record.memo(header.run_id)
        changed = self._changed(memo.definition)
        if changed and record.positions and self._options.on_changed == "fail":
            raise CallChangedError(header.run_id, self._target.name, "the call of each row", changed)
        children = {child: await _spent_in(store, started, codec) for child, started in record.begun.items()}
        self._known = Known(True, record.positions, record.interrupted, children)
        self._spent_before, self._spending_before = record.usage, record.spending
        resumed = RunResumed(
            part=Part(header.run_id, self._name, (self._name,)),
            definition=self._definition if memo.definition != self._definition else None,
            inputs=keeper.stored(self._facts_about_rows()),
            budgets=keeper.budgets,
        )

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            return await DurableRun.take_up(
                store,
                memo,
                resumed,
                position=record.length,
                found=found,
                durability=keeper.durability,
                codec=codec,
                terms=keeper.terms,
                on_changed=self._options.on_changed,
            )

        signal = await last_signal(store, header)
        labels = Labels(header.tags, header.tenant)
        return Opening(
            header.run_id, self._facts_about_rows(), open_run, memo.seconds, signal, False, labels, memo
        )

    def _check_is_same(self, fact: object, status: str) -> None:
        definition = fact.definition if isinstance(fact, RunStarted) else None
        known = definition if isinstance(definition, dict) else {}
        if known.get("kind") != "rows" or known.get("name") != self._name:
            assert self._request.run_id is not None
            raise RunExists(self._request.run_id, status)

    def _changed(self, before: JsonValue) -> tuple[str, ...]:
        declared = before.get("declares") if isinstance(before, dict) else None
        known = declared if isinstance(declared, dict) else {}
        return changed_parts({name: str(one) for name, one in known.items()}, self._target.declares())

    # --- to its end ---

    def _runner(self, opened: OpenRun, file: RowFile | None) -> RowRunner:
        options, target = self._options, self._target
        lines: LinesInMemory | LinesInStore = LinesInMemory()
        read = None
        if opened.kept is not None and opened.log.scope is opened.scope:
            lines = LinesInStore(opened.kept.store, opened.kept.header, opened.kept.codec)
            read = reader_of(target.returns)
        config = StepConfig() if options.retries is None else StepConfig(retries=options.retries)
        return RowRunner(
            self._machine,
            target,
            self._rows,
            opened,
            concurrency=options.concurrency,
            config=resolve(config, pipeline=PipelineConfig()),
            lines=lines,
            deps=self._request.deps,
            known=self._known,
            write=None if file is None else partial(file.add, read),
        )

    def _table(self, opened: OpenRun, runner: RowRunner, finish: RunFinished) -> RowTable[T]:
        is_kept = isinstance(runner.lines, LinesInStore)
        return RowTable(
            name=self._target.name,
            run_id=opened.scope.run_id,
            lines=runner.lines,
            returns=self._target.returns,
            read=reader_of(self._target.returns) if is_kept else None,
            usage=opened.scope.spent(),
            status=finish.status,
            reason=finish.reason,
            reason_code=finish.reason_code,
            resumed=self._machine.resumption(runner.interrupted),
            waiting=self._machine.waiting,
            backend=self._backend,
            duration_ms=runner.milliseconds,
        )

    def _raise_if_stopped(self, finish: RunFinished, runner: RowRunner, table: RowTable[T]) -> None:
        """Raise what has ended the run, unless the table tells it."""
        if finish.reason_code == "step_failed" and runner.failed_row is not None:
            row = runner.failed_row
            failed = RowFailed(self._target.name, row.number, row.key, str(row.failure))
            failed.table = table
            finish.raised = failed
            raise failed from runner.raised
        if finish.raised is None:
            return
        is_own = finish.reason_code == "budget_exceeded" and self._is_own_budget(finish.raised, runner)
        if not is_own or self._options.on_error == "stop":
            raise finish.raised

    def _is_own_budget(self, error: BaseException, runner: RowRunner) -> bool:
        path: object = getattr(error, "scope_path", None)
        around = self._options.around
        return path == runner.scope.path or (around is not None and path == around.path)

    async def _no_estimate(self, inputs: Any, deps: Any) -> Quote:
        return Quote.unknown("its rows are not read yet")


async def _spent_in(
    store: RunStore, started: RowStarted, codec: PayloadCodec | None
) -> tuple[Sequence[Charge], Sequence[AgentCharges]]:
    """Return what the run of a row has spent since it was started last."""
    try:
        recorded, _ = await read_to_go_on(store, started.child, codec, running_too=True)
    except RunNotFound:  # the process died before the run had begun
        return (), ()
    charges = [one for one in recorded.charges() if one.begins.timestamp >= started.timestamp]
    return charges, recorded.agent_calls(charges)

"""`map`: the method that runs a function, an agent, a pipeline, a graph or a flow for each row of a table."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Generic, TypedDict

from typing_extensions import TypeVar

from fastroai.rows.target import DEFAULT_CONCURRENCY
from fastroai.runtime import blocking
from fastroai.runtime.events import OnEvent, listener_of
from fastroai.runtime.labels import labels_of
from fastroai.runtime.options import check_count
from fastroai.store.record.declarations import OnChanged
from fastroai.tracing import Tracer
from fastroai.usage import BudgetLike
from fastroai.usage.limits import limits_of

if TYPE_CHECKING:  # agents, pipelines and graphs have this method; few programs call it and load the others
    from pydantic_ai.capabilities import BatchModelRequests

    from fastroai.rows.machine import OnRowError
    from fastroai.rows.row_runs import RowRuns
    from fastroai.rows.source import RowInputs, RowKey, RowSource
    from fastroai.rows.table import RowTable
    from fastroai.rows.target import RowTarget
    from fastroai.runs.progress.progress import OnProgress
    from fastroai.runs.progress.showing import ShowProgress
    from fastroai.store.run_store import RunStoreLike
    from fastroai.usage import Quote

OutputT = TypeVar("OutputT", covariant=True, default=Any)


class EstimateOptions(TypedDict, total=False):
    """Options of `estimate` with `rows=`. `MapsRows.estimate_rows` explains them."""

    inputs: RowInputs | None
    key: RowKey | None
    concurrency: int
    budget: BudgetLike | None
    store: RunStoreLike | None
    run_id: str | None
    deps: object


class MapsRows(ABC, Generic[OutputT]):
    """Something that gives an output for each row of a table."""

    @abstractmethod
    def rows_target(self) -> RowTarget[OutputT]:
        """Return what rows are given to. `map` uses it."""

    @property
    def row_runs(self) -> RowRuns[OutputT]:
        """The runs of rows that are on record with these, which any process carries: `recover`, `serve`…"""
        from fastroai.rows.row_runs import RowRuns

        return RowRuns(self.rows_target())

    async def map(
        self,
        rows: RowSource,
        *,
        inputs: RowInputs | None = None,
        key: RowKey | None = None,
        concurrency: int | None = None,
        batch: bool | BatchModelRequests = False,
        retries: int | None = None,
        on_error: OnRowError = "record",
        budget: BudgetLike | None = None,
        store: RunStoreLike | None = None,
        run_id: str | None = None,
        on_changed: OnChanged = "ask",
        record_rows: bool = False,
        write_to: str | os.PathLike[str] | None = None,
        deps: object = None,
        tracer: Tracer | None = None,
        tags: Collection[str] = (),
        tenant: str | None = None,
        on_event: OnEvent | None = None,
        progress: ShowProgress = "auto",
        on_progress: OnProgress | None = None,
    ) -> RowTable[OutputT]:
        """Run this for each row, and return a table with one line for each row, in the order of the rows.

            table = await classify.map(tickets, budget=Budget(usd=2), store="runs.db", run_id="tickets")

        With a store, the same call with the same `run_id` goes on where the run was: rows that have their
        output are not asked again.

        Args:
            rows: A list, an iterator or an async iterator of any length, of mappings or of single values; or
                a frame of pandas, polars, DuckDB or Arrow, or one of its columns. A row is read when a task
                is free to ask it.
            inputs: The column of each input, by the name of the input, where these differ; or a function from
                a row to the inputs by name. A row that is no mapping is the only input that is required.
            key: The column that identifies a row, or a function from a row to its key; by default, a row is
                identified by its position and its inputs.
            concurrency: Rows that are asked at once; by default 16, and in batches as many as a batch holds.
            batch: Whether to send requests in batches, at the price of batches, which can take a day. With a
                store, the same call collects the batches that an earlier process has sent. A
                `BatchModelRequests` says how large they are, and how often they are asked about.
            retries: Extra attempts at a row that has failed, and at each request in it, as those of a step.
            on_error: `"record"`: a row that has failed is a line of the table, and the others go on.
                `"stop"`: the others are cancelled, and `RowFailed` is raised.
            budget: Limits on the spending of all rows together. When it is used up, no further row begins,
                and the table says so: `status="failed"`, `reason_code="budget_exceeded"`.
            store: Store that keeps the run on record.
            run_id: The id of the run; a new one unless given. Without a store, the id only names the run in
                events and traces, and nothing goes on from it.
            on_changed: What to do with rows on record if what is declared for them has changed since: their
                instructions, model, output type or settings. `"ask"` asks them anew, `"keep"` keeps their
                outputs, and `"fail"` raises `CallChangedError`.
            record_rows: Whether to put the rows on record before any is asked. Then the run does not need its
                caller: any process goes on with it by `row_runs`. Rows that JSON cannot hold, that cannot be
                asked or that have one key are refused before anything is sent.
            write_to: A file that is replaced, and gets each row when it ends: `.csv`, `.jsonl`, or
                `.parquet`, which is written at the end. The rows are in order once the run has ended.
            deps: As in `run` or `execute` of what is run, for all rows.
            tracer: As in `execute` of pipelines.
            tags: Names to sum the spending of this run by.
            tenant: The tenant whose spending it is.
            on_event: Function that is told `RowEnded` for each row, `RowGivenBack` for each that is not asked
                again, and all other events of the run.
            progress: Whether to show how far the run is. By default it is shown where somebody looks: in a
                terminal or a notebook. `True` also writes lines to a log.
            on_progress: Function that is called with a `Progress` whenever a row has ended.

        If reading the rows or writing the file raises, the rows that are asked end, and the exception is
        raised. Without a store, `RowTable.of(error)` has the rows of a run that any exception has ended.

        Raises:
            RowFailed: a row has failed, with `on_error="stop"`.
            ConfigurationError: an option is invalid, a frame lacks a column, the file cannot be written, or
                the model has no batches.
            RunInProgress: another process has the run with this id.
            CallChangedError: the declaration has changed, with `on_changed="fail"`.
            CostBudgetExceeded: a budget around this call is used up.
            MissingExtraError: `progress` is shown in a terminal, and rich is not installed (the extra `cli`).
        """
        from fastroai.rows.options import RowOptions, batching_of
        from fastroai.rows.run import RowRun
        from fastroai.rows.target import check_deps
        from fastroai.runs.progress.showing import Watching
        from fastroai.runs.request import RunRequest

        options = RowOptions(
            inputs=inputs,
            key=key,
            concurrency=concurrency,
            batching=batching_of(batch),
            retries=retries,
            on_error=on_error,
            on_changed=on_changed,
            write_to=None if write_to is None else os.fspath(write_to),
        )
        target = self.rows_target()
        check_deps(target, deps)
        if options.batching is not None:
            target.check_batches()
        request: RunRequest[Any] = RunRequest(
            deps=deps,
            tracer=tracer,
            listener=listener_of(on_event),
            watching=Watching.of(progress, on_progress),
            run_id=run_id,
            labels=labels_of(tags, tenant),
            limits=limits_of(budget),
            on_changed=on_changed,
        )
        return await RowRun(target, rows, options, request, store, record_rows=record_rows).table()

    map_sync = blocking(map, of=lambda self: self.rows_target().name)

    async def estimate_rows(
        self,
        rows: RowSource,
        *,
        sample: int = 20,
        inputs: RowInputs | None = None,
        key: RowKey | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        budget: BudgetLike | None = None,
        store: RunStoreLike | None = None,
        run_id: str | None = None,
        deps: object = None,
    ) -> Quote:
        """Estimate the cost of `map` with these rows.

            quote = await classify.estimate_rows(tickets, store="runs.db", run_id="tickets")
            table = await classify.map(tickets, store="runs.db", run_id="tickets")

        With a store, a sample of the rows is asked, and paid for. It is a part of the run with this `run_id`,
        so `map` does not ask these rows again. Without a store, nothing is sent, and the sample is quoted.

        Args:
            rows: A list or a frame. An iterator could not be read again.
            sample: Rows that are asked, evenly spread.
            inputs: As in `map`.
            key: As in `map`.
            concurrency: As in `map`.
            budget: Limits on the spending of the sample, and of the quote.
            store: As in `map`.
            run_id: The id of the run that `map` goes on with.
            deps: As in `map`.

        Raises:
            ConfigurationError: the rows are an iterator, or the store has no use without a `run_id`.
        """
        from fastroai.rows.estimating import estimate_rows
        from fastroai.rows.options import RowOptions
        from fastroai.runs.request import RunRequest

        check_count("sample", sample, least=1, required=True)
        options = RowOptions(inputs=inputs, key=key, concurrency=concurrency)
        request: RunRequest[Any] = RunRequest(deps=deps, run_id=run_id, limits=limits_of(budget))
        return await estimate_rows(self.rows_target(), rows, sample, options, request, store)

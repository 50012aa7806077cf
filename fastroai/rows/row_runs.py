"""`RowRuns`: the methods for runs of rows that are on record with their rows, as for runs of pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Generic, Never

from pydantic import JsonValue
from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError
from fastroai.records import Usage
from fastroai.rows.child_runs import RunRows
from fastroai.rows.keeper import RowKeeper, RowOpening, definition_of, keeper_of, name_of
from fastroai.rows.options import RowOptions
from fastroai.rows.record import RowMemo
from fastroai.rows.run import RowRun, execution_of, rows_of
from fastroai.rows.table import RowFailed, RowTable, reader_of
from fastroai.rows.target import RowTarget
from fastroai.runs.door import FrontDoor
from fastroai.runs.openings import needed_store
from fastroai.runs.request import RunRequest
from fastroai.steps import PipelineConfig
from fastroai.store.record.halting import charged_in_child
from fastroai.store.run_store import RunStore, RunStoreLike

OutputT = TypeVar("OutputT", default=Any)


class RowRuns(FrontDoor[Any, Any, RowTable[OutputT]], Generic[OutputT]):
    """The runs of rows of a function, agent, pipeline, graph, router or flow: `classify.row_runs`.

    Any process can go on with a run whose rows are on record: `map(..., record_rows=True)`.

        await classify.row_runs.serve(store="runs.db")
        await classify.row_runs.resume("monday", store="runs.db")
    """

    kind: ClassVar[str] = "rows"

    def __init__(self, target: RowTarget[OutputT], config: PipelineConfig | None = None) -> None:
        """Called by `row_runs`. Nothing but the store, the codec and the lease of `config` is used."""
        self.target, self.name = target, name_of(target.name)
        self.config = target.config if config is None else config
        self._execution = execution_of(target)

    def __repr__(self) -> str:
        return f"RowRuns({self.target.name!r})"

    @cached_property
    def definition(self) -> dict[str, JsonValue]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What is declared for each row, as plain data."""
        return definition_of(self.target)

    @property
    def input_type(self) -> type | None:
        """The type whose fields are the columns of a row; `None` if no type is declared."""
        return self.target.door.input_type if isinstance(self.target, RunRows) else None

    def checked_inputs(self, inputs: Mapping[str, object]) -> Never:
        """Refuse: a run of rows begins with rows. Raises `ConfigurationError`."""
        expected = f"the name of a pipeline or graph; rows are given to map({self.target.name!r}, rows)"
        raise ConfigurationError("pipeline", self.name, expected)

    async def table(self, run_id: str, *, store: RunStoreLike | None = None) -> RowTable[OutputT]:
        """Return the table of a run as it is on record, whether the run goes on or not.

        Raises:
            RunNotFound: the store has no such run.
            RowFailed: a row has failed, with `on_error="stop"`.
        """
        keeper = self._keeper(needed_store(store, self.config.store))
        recorded, found = await keeper.read(run_id, running_too=True)
        assert isinstance(recorded, RowMemo)
        record, ended = recorded.record, recorded.ended
        usage = record.spending.usage + record.in_children
        usage.agent_call_count = record.usage.agent_call_count
        for started in record.begun.values():
            charges, calls = await charged_in_child(keeper.store, started, keeper.codec)
            usage.include(Usage.of([charge.record for charge in charges]))
            usage.agent_call_count += len(calls)
        table: RowTable[OutputT] = RowTable(
            name=self.target.name,
            run_id=run_id,
            lines=record.lines,
            returns=self.target.returns,
            read=reader_of(self.target.returns),
            usage=usage,
            status=found.header.status if ended is None else ended.status,
            reason="" if ended is None else ended.reason,
            reason_code=None if ended is None else ended.reason_code,
            resumed=None,
            duration_ms=recorded.seconds * 1000,
        )
        if table.reason_code == "step_failed" and (row := record.failed) is not None:
            error = RowFailed(self.target.name, row.number, row.key, str(row.failure))
            error.table = table
            raise error
        return table

    # --- for front doors ---

    def _keeper(self, store: RunStore) -> RowKeeper:
        return keeper_of(self.target, self.definition, store, self.config)

    async def _execute(self, request: RunRequest[Any]) -> RowTable[OutputT]:
        opening = request.opening
        if not isinstance(opening, RowOpening) or opening.options is None:
            expected = (
                f"a run whose rows are on record; {self.target.name!r}.map(rows, ...) continues any other"
            )
            raise ConfigurationError("run_id", request.run_id, expected)
        options: RowOptions = opening.options
        if options.batching is not None:
            self.target.check_batches()
        rows = rows_of(opening, self.target)
        return await RowRun(self.target, rows, options, request, execution=self._execution).table()

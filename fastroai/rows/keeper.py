"""Puts runs of rows on record, and opens those on record, of which only what has not ended is in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Never

from pydantic import JsonValue

from fastroai.errors import CallChangedError, ConfigurationError, RunExists, RunNotFound
from fastroai.rows.kept import kept_rows, total_of
from fastroai.rows.machine import RowMachine, declared_in
from fastroai.rows.options import RowOptions, options_on_record
from fastroai.rows.record import LinesInStore, RowMemo, RowsOnRecord, facts_of
from fastroai.rows.target import RowTarget
from fastroai.runs.openings import AlsoOnRecord, Opening, RunKeeper
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import RunStarted
from fastroai.runtime.labels import Labels
from fastroai.steps import PipelineConfig
from fastroai.store.paging import read_page
from fastroai.store.record.declarations import changed_parts
from fastroai.store.record.entries import entry_in_store
from fastroai.store.record.halting import charged_in_child
from fastroai.store.record.headers import FoundHeader, log_key, read_header
from fastroai.store.record.memo import Memo
from fastroai.store.record.runs import DurableRun
from fastroai.store.run_store import RunStore
from fastroai.store.signals import last_signal

OPTIONS = "options"
"""Name of the input that has the options of a run whose rows are on record."""


def name_of(function: str) -> str:
    """Return the name of the runs of rows of a function or pipeline. A pipeline has another."""
    return f"{function}.map"


def definition_of(target: RowTarget[Any]) -> dict[str, JsonValue]:
    """Return the definition of runs of rows."""
    return {
        "name": name_of(target.name),
        "kind": "rows",
        "of": target.kind,
        "declares": dict(target.declares()),
        "steps": {},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOpening(Opening):
    """A run of rows on record that goes on."""

    record: RowsOnRecord
    found: FoundHeader
    options: RowOptions | None
    """The options of the run, if its rows are on record."""
    source: AsyncIterator[Sequence[Any]]
    """These rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKeeper(RunKeeper):
    """Puts runs of rows on record in a store, and reads them back a page at a time."""

    async def read(self, run_id: str, *, running_too: bool) -> tuple[Memo, FoundHeader]:
        """Return the record of a run, as far as it is needed to go on, and its header.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process has the run, and `running_too` is not set.
            RunExists: the run is not one of rows of this name.
        """
        found = await read_header(self.store, run_id)
        if not running_too:
            found.check_not_running()
        record = RowsOnRecord(RowMachine(), LinesInStore(self.store, found.header, self.codec))
        async for position, fact in facts_of(self.store, found.header, self.codec):
            if position == 1:
                self._check_is_same(fact, found)
            record.read(position, fact)
        return record.memo(run_id), found

    async def take_up_if(self, run_id: str, is_wanted: Callable[[FoundHeader], bool]) -> Opening | None:
        """Return the opening of a run whose rows are on record, if it is wanted and free, else `None`."""
        try:
            found = await read_header(self.store, run_id)
            first, _ = await read_page(self.store, log_key(found.header), after=0, limit=1)
        except RunNotFound:
            return None
        opened = entry_in_store(run_id, 1, first[0]) if first else None
        has_rows = isinstance(opened, RunStarted) and OPTIONS in opened.inputs
        return await RunKeeper.take_up_if(self, run_id, is_wanted) if has_rows else None

    def check_definition(self, recorded: Memo, past: Sequence[Fact] | None) -> None:
        """Accept any change: rows whose declaration has changed are asked anew, as `on_changed` says."""

    async def fork(self, run_id: str, **differently: object) -> Never:
        """Refuse. Raises `ConfigurationError`."""
        expected = "a run of a pipeline or graph. Map the rows again with another run_id"
        raise ConfigurationError("fork()", run_id, expected)

    async def _opening(
        self,
        recorded: Memo,
        found: FoundHeader,
        inputs: Mapping[str, object] | None,
        *,
        force: bool,
        also: AlsoOnRecord | None,
    ) -> Opening:
        """Return the opening of a run on record.

        Raises:
            CallChangedError: what is declared has changed, with `on_changed="fail"`.
        """
        assert isinstance(recorded, RowMemo)
        header, record, name = found.header, recorded.record, str(self.definition["name"])
        given = dict(inputs or {})
        stored: Any = self.restored(header.run_id, recorded.opened.inputs).get(OPTIONS)
        options = None if stored is None else options_on_record(stored)
        on_changed = self.on_changed if options is None else options.on_changed
        if options is not None:
            given |= {OPTIONS: stored, "total": total_of(header)}
        changed = changed_parts(declared_in(recorded.definition) or {}, declared_in(self.definition) or {})
        if changed and record.positions and on_changed == "fail":
            raise CallChangedError(
                header.run_id, name.removesuffix(name_of("")), "the call of each row", changed
            )
        for child, started in record.begun.items():
            record.children[child] = await charged_in_child(self.store, started, self.codec)
        added = () if also is None else also(recorded, given, found)

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            keeper = replace(self, on_changed=on_changed)
            return await keeper._take_up(recorded, found, inputs or {}, added)

        return RowOpening(
            header.run_id,
            given,
            open_run,
            await last_signal(self.store, header),
            force,
            Labels(header.tags, header.tenant),
            recorded,
            record=record,
            found=found,
            options=options,
            source=kept_rows(self.store, header, self.codec),
        )

    def _check_is_same(self, fact: Fact, found: FoundHeader) -> None:
        definition = fact.definition if isinstance(fact, RunStarted) else None
        known = definition if isinstance(definition, dict) else {}
        if known.get("kind") != "rows" or known.get("name") != self.definition["name"]:
            kind, name = known.get("kind", "something"), str(known.get("name", "else"))
            of = f"rows of {name.removesuffix(name_of(''))!r}" if kind == "rows" else f"{kind} {name!r}"
            raise RunExists(found.header.run_id, found.header.status, of)


def keeper_of(
    target: RowTarget[Any], definition: dict[str, JsonValue], store: RunStore, config: PipelineConfig
) -> RowKeeper:
    """Return the keeper of the runs of rows of a target."""
    return RowKeeper(
        definition=definition,
        input_types={},
        output_types={},
        store=store,
        durability=config.durability,
        codec=config.codec,
        kind="rows",
        terms=config.lease_terms,
    )

"""Openings of runs on record: a run begins, is taken up where it was, or is forked from another."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue

from fastroai.errors import (
    ConfigurationError,
    RunCorrupt,
    RunDefinitionChanged,
    RunExists,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    ValueNotStorable,
)
from fastroai.places import quoted
from fastroai.runs.decoding import needed_by_pipeline, output_on_record
from fastroai.runs.definition_changes import Progress, changes
from fastroai.runs.storing import checked_output, stored_finish
from fastroai.runs.taking_up.forking import check_step, kept_by_graph, kept_by_pipeline, unit_named
from fastroai.runtime.fact_base import Fact, Part
from fastroai.runtime.facts import RunResumed, RunStarted, StepFinished
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.steps import ConversationState
from fastroai.steps.durability import stored_value, why_unread
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.backends.run_memory import MemoryRunStore
from fastroai.store.reading.history import RunSummary
from fastroai.store.record.definitions import kind_of, pause_nodes_in, steps_in, version_of
from fastroai.store.record.entries import RunHeader, located
from fastroai.store.record.halting import read_to_go_on
from fastroai.store.record.headers import (
    FoundHeader,
    check_run_id,
    encode_header,
    header_key,
    log_key,
    read_header,
)
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import seal
from fastroai.store.record.runs import DurableRun, RecordOptions, begin_record, new_header
from fastroai.store.record.values import value_to_json
from fastroai.store.run_store import RunStore, RunStoreLike
from fastroai.store.signals import last_signal

PutOnRecord: TypeAlias = Callable[[Mapping[str, object]], Awaitable[DurableRun]]
"""Function that puts a run on record, with its inputs; called after all checks have passed."""

PutFirst: TypeAlias = Callable[[RunHeader], Awaitable[RunHeader]]
"""Function that puts values of a new run on record, by its header, and returns the header to write."""

AlsoOnRecord: TypeAlias = Callable[[Memo, Mapping[str, object], FoundHeader], Sequence[Fact]]
"""Function from the record of a run, its inputs so far and its header to further facts, which are put on
record together with the resume. In the header, the status of a run whose process died is `running`."""


OnExisting: TypeAlias = Literal["fail", "resume", "return", "replace"]
"""Behavior of `execute` if the store has a run of this id."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A checked run on record that can begin, or go on."""

    run_id: str
    inputs: Mapping[str, object]
    open: PutOnRecord
    last_signal: int = 0
    """The revision of the last signal to the run before this opening."""
    is_forced: bool = False
    """Whether the run goes on although its definition has changed."""
    labels: Labels = NO_LABELS
    """The tags and the tenant of the run."""
    recorded: Memo | None = None
    """The record of a run that goes on; `None` for a new run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKeeper(RecordOptions):
    """Puts runs of a pipeline or graph on record in a store, and reads them back."""

    definition: dict[str, JsonValue]
    """The shape of the pipeline or graph, which has its `name`, and its `steps` by id."""
    input_types: Mapping[str, Any]
    """Declared types by name, for the inputs that have one."""
    output_types: Mapping[str, Any]
    """Declared types by step id, for the outputs that have one."""
    check_output: Callable[[str, object], object] = lambda step_id, output: None
    """Function that raises `ContractViolation` for an output that a step cannot have, for reasons besides its
    type."""
    needed: Callable[[Memo, JsonValue], Iterable[StepFinished]] = needed_by_pipeline
    """Function that returns the outputs that a run of this definition is sure to read when it goes on."""
    kind: str = "pipeline"
    """Name of this kind of object in errors."""
    budgets: list[JsonValue] | None = None
    """The budgets that the caller gives the run, as plain data; `None` if the caller gives none."""

    async def put_on_record(
        self, run_id: str, inputs: Mapping[str, object], *, first: PutFirst | None = None
    ) -> FoundHeader:
        """Put a new run on record that no process has yet, and return its header.

        The inputs must be checked before. `first` puts other values of the run on record before anybody sees
        it, and returns the header to write.

        Raises:
            RunExists: the store has a run of this id.
            ValueNotStorable: an input cannot be stored.
        """
        opened = self.opened(run_id, inputs)
        header, now = await new_header(self, opened)
        if first is not None:
            header = await first(header)
        await begin_record(self, header, located([opened]))
        return FoundHeader(header=header, revision=1, now=now)

    def begin(
        self, run_id: str | None, inputs: Mapping[str, object], *, replacing: FoundHeader | None = None
    ) -> Opening:
        """Return the opening of a new run, which may replace another one of this id."""
        run_id = uuid.uuid4().hex if run_id is None else run_id
        check_run_id(run_id)

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            return await self._begin([self.opened(run_id, given)], replacing)

        return Opening(run_id, inputs, open_run, labels=self.labels)

    async def take_up(
        self,
        run_id: str,
        inputs: Mapping[str, object] | None,
        *,
        force: bool,
        also: AlsoOnRecord | None = None,
    ) -> Opening:
        """Return the opening of a run that was interrupted, has failed, was cancelled or is paused.

        `inputs` replace those of the same names. The facts that `also` returns are put on record together
        with the resume, or neither is.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process has the run.
            RunDefinitionChanged: the definition has changed since the run began, unless `force`.
            RunCorrupt: its record cannot be read, or has outputs of other types than the steps declare now,
                which the run is sure to read: steps that have not finished depend on them, or edges of a
                graph. Other outputs are read when they are asked for.
            RunFromNewerVersion: a later version of FastroAI has written the record.
            RunFromOlderVersion: an earlier version of FastroAI has written the record.
        """
        recorded, found = await self.read(run_id, running_too=False)
        return await self._opening(recorded, found, inputs, force=force, also=also)

    async def begin_or_go_on(
        self, on_existing: OnExisting, run_id: str, inputs: Mapping[str, object]
    ) -> Opening:
        """Return the opening of a new run, or of the run that has this id, by `on_existing` of `execute`.

        The inputs must be checked before. Raises the errors of `take_up`, too.

        Raises:
            RunExists: the run is to be returned, and has not finished.
            RunInProgress: a process has the run.
            RunStatusConflict: the run has finished, with other inputs.
        """
        try:
            found = await read_header(self.store, run_id)
        except RunNotFound:
            return self.begin(run_id, inputs)
        found.check_not_running()
        if on_existing == "replace":
            return self.begin(run_id, inputs, replacing=found)
        if on_existing == "return" and found.header.status != "finished":
            raise RunExists(run_id, RunSummary.of(found).status)
        keeper = self
        if found.header.status == "finished":
            keeper = replace(self, store=await _copy(self.store, found.header))
        recorded, found = await keeper.read(run_id, running_too=False)
        known, given = self._as_json(self.restored(run_id, recorded.inputs)), self._as_json(inputs)
        new = {name: inputs[name] for name in given if name not in known or known[name] != given[name]}
        return await keeper._opening(recorded, found, new, force=False, also=None)

    async def take_up_if(self, run_id: str, is_wanted: Callable[[FoundHeader], bool]) -> Opening | None:
        """Return the opening of a run if it is wanted and free, else `None`. Raises as `take_up` does."""
        try:
            recorded, found = await self.read(run_id, running_too=False)
            if not is_wanted(found):
                return None
            return await self._opening(recorded, found, None, force=False, also=None)
        except (RunInProgress, RunNotFound):
            return None  # another process has taken it up, or deleted it

    async def _opening(
        self,
        recorded: Memo,
        found: FoundHeader,
        inputs: Mapping[str, object] | None,
        *,
        force: bool,
        also: AlsoOnRecord | None,
    ) -> Opening:
        run_id = found.header.run_id
        if inputs and recorded.has_finished and not force:
            raise RunStatusConflict(
                run_id, "finished", "a run that can take other inputs. Fork this one, or start a new run"
            )
        if not force:  # for a finished run, any change is refused: it reaches no further step
            self.check_definition(recorded, None if recorded.has_finished else recorded.entries)
        before = self.restored(run_id, recorded.inputs)
        self._read_outputs(recorded, self.needed(recorded, self.definition))

        added = () if also is None else also(recorded, before, found)

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            anew = {name: given[name] for name in inputs or {}}
            return await self._take_up(recorded, found, anew, added)

        # Before the run is open: from then on, signals are for this process.
        signal = await last_signal(self.store, found.header)
        given = {**before, **(inputs or {})}
        labels = _labels(found.header)
        return Opening(run_id, given, open_run, signal, force, labels, recorded)

    async def _take_up(
        self,
        recorded: Memo,
        found: FoundHeader,
        inputs: Mapping[str, object],
        also: Sequence[Fact],
    ) -> DurableRun:
        """Take up a run with new values for some inputs."""
        resumed = RunResumed(
            inputs=self.stored(inputs),
            definition=self._stored_definition() if recorded.definition != self.definition else None,
            budgets=self.budgets,
        )
        return await DurableRun.take_up(self, recorded, resumed, found=found, also=also)

    async def fork(
        self,
        run_id: str,
        *,
        at: str | None,
        inputs: Mapping[str, object] | None,
        outputs: Mapping[str, object] | None,
        new_run_id: str | None,
    ) -> Opening:
        """Return the opening of a fork: a new run with the work of another before `at`, and other `outputs`.

        Raises:
            RunNotFound: the store has no such run.
            ConfigurationError: there is no such step, or the step cannot have this output.
            RunDefinitionChanged: the run is of a graph, which has changed.
            RunCorrupt: its record cannot be read, or has outputs of other types than the steps declare now.
        """
        recorded, found = await self.read(run_id, running_too=True)
        labelled = replace(self, labels=_labels(found.header))
        new_id = f"{run_id[:180]}-fork-{uuid.uuid4().hex[:8]}" if new_run_id is None else new_run_id
        check_run_id(new_id)
        replaced = self._checked_outputs(outputs or {})
        if kind_of(self.definition) == "graph":
            path = kept_by_graph(recorded, self.definition, at, replaced)
            return labelled._fork_path(recorded, path, inputs or {}, new_id)
        kept = kept_by_pipeline(recorded, self.definition, at, replaced)
        done = (one for one in kept if isinstance(one, StepFinished) and one.conversation != "incomplete")
        self._read_outputs(recorded, [one for one in done if one.place not in replaced])

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            return await labelled._begin([self.opened(new_id, given, forked_from=run_id), *kept])

        before = self.restored(run_id, recorded.inputs)
        return Opening(new_id, {**before, **(inputs or {})}, open_run, labels=labelled.labels)

    def _fork_path(
        self,
        recorded: Memo,
        path: Sequence[Fact],
        inputs: Mapping[str, object],
        new_id: str,
    ) -> Opening:
        """Return the opening of a fork of a graph, which goes on after a path as a resumed run does.

        `inputs` are written to its memory, over the values that nodes wrote there.
        """
        run_id = recorded.opened.run_id
        opened = replace(
            recorded.opened,
            part=self._part(new_id),
            definition=self._stored_definition(),
            forked_from=run_id,
            budgets=self.budgets,
            timestamp=time(),
        )
        begun = Memo(new_id, [opened, *path])
        self.check_definition(recorded, begun.entries)

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            anew = RunResumed(inputs=self.stored({name: given[name] for name in inputs}))
            return await self._begin([opened, *path, anew])

        given = {**self.restored(run_id, begun.inputs), **inputs}
        return Opening(new_id, given, open_run, labels=self.labels)

    def check_definition(self, recorded: Memo, past: Sequence[Fact] | None) -> None:
        """Check that the definition has not changed in steps that the run has reached in its `past`.

        Without a past, any change is refused.

        Raises:
            RunDefinitionChanged: the definition has changed.
        """
        if recorded.definition == self.definition:
            return
        changed = changes(recorded.definition, self.definition, Progress.of(past or ()))
        if (changed and past is None) or any(one.is_reached is not False for one in changed):
            texts = tuple(one.text if past is None else str(one) for one in changed)
            versions = version_of(recorded.definition), version_of(self.definition)
            raise RunDefinitionChanged(recorded.opened.run_id, texts, self.kind, versions)

    # --- parts ---

    def _part(self, run_id: str) -> Part:
        name = str(self.definition["name"])
        return Part(run_id, name, (name,))

    def _checked_outputs(self, outputs: Mapping[str, object]) -> dict[str, StepFinished]:
        """Return outputs for a fork as entries of a log, by place, or for a graph by visit, after checks."""
        stored: dict[str, StepFinished] = {}
        is_graph = kind_of(self.definition) == "graph"
        for name, output in outputs.items():
            step_id = unit_named(name, self.definition)[0] if is_graph else name
            check_step("outputs", step_id, self.definition)
            if is_graph and step_id in pause_nodes_in(self.definition):
                expected = (
                    f"a node that asks nothing; the output of {step_id!r} is an answer, so fork with "
                    f"at={name!r}, and answer the new run: resume(..., input=...)"
                )
                raise ConfigurationError("outputs", name, expected)
            declared = self.output_types.get(step_id)
            value = checked_output(step_id, output, declared)
            self.check_output(step_id, value)
            fact = StepFinished(step_id, value)
            if isinstance(value, ConversationState):
                fact.conversation = "incomplete" if value.is_incomplete else "complete"
            stored[name if is_graph else quoted(step_id)] = stored_finish(fact, declared, self.codec)
        return stored

    def _read_outputs(self, recorded: Memo, entries: Iterable[StepFinished]) -> None:
        """Decode the outputs of these steps. Outputs of nested steps are decoded where they are needed.

        Raises:
            RunCorrupt: an output cannot be read.
        """
        steps = steps_in(self.definition)
        for entry in entries:
            if not entry.part.place and entry.step_id in steps:
                output_on_record(recorded, entry, self.output_types.get(entry.step_id), self.codec)

    async def read(self, run_id: str, *, running_too: bool) -> tuple[Memo, FoundHeader]:
        """Return the record of a run, and its header, which was read before the record."""
        return await read_to_go_on(self.store, run_id, self.codec, running_too=running_too)

    async def _begin(self, entries: list[Fact], replacing: FoundHeader | None = None) -> DurableRun:
        return await DurableRun.begin(self, located(entries), replacing=replacing)

    def opened(self, run_id: str, inputs: Mapping[str, object], forked_from: str | None = None) -> RunStarted:
        """Return the first fact of a run. Raises `ValueNotStorable`."""
        return RunStarted(
            part=self._part(run_id),
            definition=self._stored_definition(),
            inputs=self.stored(inputs),
            forked_from=forked_from,
            budgets=self.budgets,
        )

    def _stored_definition(self) -> JsonValue:
        """Return the definition as JSON. Raises `ValueNotStorable` if it is nested too deeply to be read."""
        what = f"the definition of {self.kind} {self.definition['name']!r}"
        return value_to_json(self.definition, None, what)

    def stored(self, inputs: Mapping[str, object]) -> dict[str, JsonValue]:
        """Return inputs in the form that a store keeps. Raises `ValueNotStorable`."""
        return {name: seal(value, self.codec) for name, value in self._as_json(inputs).items()}

    def _as_json(self, inputs: Mapping[str, object]) -> dict[str, JsonValue]:
        """Return inputs as JSON, by their declared types. Raises `ValueNotStorable`."""
        found: dict[str, JsonValue] = {}
        for name, value in inputs.items():
            if not isinstance(name, str):
                raise ValueNotStorable(f"input {name!r}", "", type(name).__name__, "its name is not text")
            declared = self.input_types.get(name)
            found[name] = value_to_json(value, declared, f"input {name!r}", "the input (accepts=)")
        return found

    def restored(self, run_id: str, stored: Mapping[str, JsonValue]) -> dict[str, object]:
        """Return inputs from the form that a store keeps. Raises `RunCorrupt`."""
        try:
            return {
                name: stored_value(value, self.input_types.get(name), self.codec)
                for name, value in stored.items()
            }
        except ValueError as error:
            reason = f"the {self.kind} does not accept its inputs: {error}"
            raise RunCorrupt(run_id, 1, why_unread(error, reason)) from error


def _labels(header: RunHeader) -> Labels:
    return Labels(header.tags, header.tenant)


async def _copy(store: RunStore, header: RunHeader) -> RunStore:
    """Return a store with this run alone. A finished run resumed there writes nothing to the real store."""
    copy, log = MemoryRunStore(), await store.read(log_key(header))
    await copy.append(log_key(header), log.values, revision=0)
    await copy.compare_and_set(header_key(header.run_id), encode_header(header), revision=0)
    return copy


def store_of(given: RunStoreLike | None, configured: RunStoreLike | None) -> RunStore | None:
    """Return the run store to use: the given one, else the configured one, adapted; `None` without either."""
    store = configured if given is None else given
    return None if store is None else adapt_run_store(store)


def needed_store(given: RunStoreLike | None, configured: RunStoreLike | None) -> RunStore:
    """Return the run store to use, as `store_of` does. Raises `ConfigurationError` if there is none."""
    store = store_of(given, configured)
    if store is None:
        expected = "the store that has the run, here or in the configuration (store=...)"
        raise ConfigurationError("store", None, expected)
    return store

"""How a run gets on record: begun anew, taken up where it was, or forked from another."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import JsonValue, ValidationError

from fastroai.contracts import adapter_of
from fastroai.errors import (
    ConfigurationError,
    RunCorrupt,
    RunDefinitionChanged,
    RunNotFound,
    nearest_hint,
)
from fastroai.pipelines.definition import changes
from fastroai.store.adapter import adapt_run_store
from fastroai.store.entries import AnyEntry, RunOpened, RunResumed, StepOutput
from fastroai.store.headers import check_not_running, decode_header, header_key, read_log
from fastroai.store.journal import Durability
from fastroai.store.payloads import PayloadCodec, seal, unseal
from fastroai.store.places import quoted
from fastroai.store.recorded import RecordedRun
from fastroai.store.run_store import RunStore
from fastroai.store.runs import DurableRun, check_run_id
from fastroai.store.values import value_from_json, value_to_json

OpenRun: TypeAlias = Callable[[Mapping[str, object]], Awaitable[DurableRun]]
"""Puts a run on record, with its inputs; called when nothing stands against it any more."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A run that can begin."""

    run_id: str
    inputs: Mapping[str, object]
    open: OpenRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKeeper:
    """What a pipeline keeps of its runs, and how."""

    definition: dict[str, JsonValue]
    input_types: Mapping[str, Any]
    """Declared types of inputs, by name; of those that have any."""
    output_types: Mapping[str, Any]
    """Declared types of outputs, by step id; of those that have any."""
    dependents: Mapping[str, Collection[str]]
    """For each step, those that need it directly."""
    store: RunStore
    durability: Durability
    codec: PayloadCodec | None

    def begin(self, run_id: str | None, inputs: Mapping[str, object]) -> Opening:
        """A new run."""
        run_id = run_id or uuid.uuid4().hex
        check_run_id(run_id)

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            return await self._begin([self._opened(run_id, given)])

        return Opening(run_id, inputs, open_run)

    async def take_up(self, run_id: str, inputs: Mapping[str, object] | None, *, force: bool) -> Opening:
        """A run that was interrupted, has failed or waits; `inputs` replace those of the same names.

        Raises:
            RunNotFound: there is none.
            RunInProgress: a process has it.
            RunDefinitionChanged: it was started with another pipeline, unless `force`.
            RunCorrupt: its record cannot be read.
            RunFromNewerVersion: a later version of FastroAI has written it.
        """
        recorded, position = await self._read(run_id, running_too=False)
        changed = changes(recorded.definition, self.definition)
        if changed and not force:
            raise RunDefinitionChanged(run_id, changed)
        resumed = RunResumed(
            inputs=self._stored(inputs or {}), definition=self.definition if changed else None
        )
        before = self._restored(run_id, recorded.inputs)

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            return await DurableRun.take_up(
                self.store,
                recorded,
                resumed,
                position=position,
                durability=self.durability,
                codec=self.codec,
            )

        return Opening(run_id, {**before, **(inputs or {})}, open_run)

    async def fork(
        self,
        run_id: str,
        *,
        at: str | None,
        inputs: Mapping[str, object] | None,
        outputs: Mapping[str, object] | None,
        new_run_id: str | None,
    ) -> Opening:
        """A new run that has what the other one did before `at`, and `outputs` instead of its own.

        Raises:
            RunNotFound: there is no such run.
            ConfigurationError: there is no such step, or an output that its step cannot have.
            RunCorrupt: its record cannot be read.
        """
        recorded, _ = await self._read(run_id, running_too=True)
        replaced = self._checked_outputs(outputs or {})
        again = self._again(at, replaced)
        new_id = new_run_id or f"{run_id}-fork-{uuid.uuid4().hex[:8]}"
        check_run_id(new_id)
        known = {quoted(step_id) for step_id in self._steps()}
        known -= again | {quoted(step_id) for step_id in replaced}
        kept: list[AnyEntry] = [
            entry
            for place, entry in recorded.outputs.items()
            if place.partition("/")[0].partition("@")[0] in known
        ]
        kept += [
            StepOutput(place=quoted(step_id), attempt=1, output=value) for step_id, value in replaced.items()
        ]

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            return await self._begin([self._opened(new_id, given, forked_from=run_id), *kept])

        before = self._restored(run_id, recorded.inputs)
        return Opening(new_id, {**before, **(inputs or {})}, open_run)

    # --- parts ---

    def _steps(self) -> Mapping[str, JsonValue]:
        steps = self.definition["steps"]
        assert isinstance(steps, dict)
        return steps

    def _again(self, at: str | None, replaced: Mapping[str, JsonValue]) -> set[str]:
        """The steps, as places, that run again: `at`, and all that need it or a replaced output."""
        if at is None and not replaced:
            raise ConfigurationError("at", at, "the step from which the new run is another, or outputs=")
        if at is not None:
            self._check_step("at", at)
        waiting = [*replaced, *([] if at is None else [at])]
        again: set[str] = set() if at is None or at in replaced else {at}
        while waiting:
            for after in self.dependents[waiting.pop()]:
                if after not in again and after not in replaced:
                    again.add(after)
                    waiting.append(after)
        return {quoted(step_id) for step_id in again}

    def _check_step(self, option: str, step_id: str) -> None:
        if step_id not in self._steps():
            hint = nearest_hint(str(step_id), self._steps())
            raise ConfigurationError(option, step_id, f"the id of a step of this pipeline.{hint}")

    def _checked_outputs(self, outputs: Mapping[str, object]) -> dict[str, JsonValue]:
        stored: dict[str, JsonValue] = {}
        for step_id, output in outputs.items():
            self._check_step("outputs", step_id)
            declared = self.output_types.get(step_id)
            adapter = None if declared is None else adapter_of(declared)
            try:
                value = output if adapter is None else adapter.validate_python(output)
            except ValidationError as error:
                expected = f"what step {step_id!r} gives: {error}"
                raise ConfigurationError("outputs", output, expected) from error
            stored[step_id] = seal(
                value_to_json(value, declared, f"the output of step {step_id!r}"), self.codec
            )
        return stored

    async def _read(self, run_id: str, *, running_too: bool) -> tuple[RecordedRun, int]:
        """The record of a run, and the position of its last entry."""
        check_run_id(run_id)
        found = await self.store.read(header_key(run_id))
        if not found.values:
            raise RunNotFound(run_id, repr(self.store))
        header = decode_header(run_id, found.values[-1])
        if not running_too:
            check_not_running(header, found.now)
        entries = await read_log(self.store, run_id)
        if not entries:
            raise RunNotFound(run_id, repr(self.store))  # its process died before it began
        return RecordedRun(run_id, entries), len(entries)

    async def _begin(self, entries: list[AnyEntry]) -> DurableRun:
        return await DurableRun.begin(self.store, entries, durability=self.durability, codec=self.codec)

    def _opened(self, run_id: str, inputs: Mapping[str, object], forked_from: str | None = None) -> RunOpened:
        name = self.definition["name"]
        assert isinstance(name, str)
        return RunOpened(
            run_id=run_id,
            pipeline=name,
            definition=self.definition,
            inputs=self._stored(inputs),
            forked_from=forked_from,
        )

    def _stored(self, inputs: Mapping[str, object]) -> dict[str, JsonValue]:
        return {
            name: seal(value_to_json(value, self.input_types.get(name), f"input {name!r}"), self.codec)
            for name, value in inputs.items()
        }

    def _restored(self, run_id: str, stored: Mapping[str, JsonValue]) -> dict[str, object]:
        try:
            return {
                name: value_from_json(unseal(value, self.codec), self.input_types.get(name))
                for name, value in stored.items()
            }
        except ValidationError as error:
            raise RunCorrupt(run_id, 1, f"its inputs are not what the pipeline accepts: {error}") from error


def store_of(given: object, configured: object) -> RunStore | None:
    """The store to use, whatever it is written with; that of the call goes first."""
    store = configured if given is None else given
    return None if store is None else adapt_run_store(store)

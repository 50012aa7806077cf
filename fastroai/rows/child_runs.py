"""A pipeline, graph, router or flow as what rows are given to: each row is a run of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from fastroai.contracts.accepted import Accepted
from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError, FlowStopped, RunNotFound
from fastroai.rows.target import RowCall, RowWaits
from fastroai.runs.definition_changes import shape_of
from fastroai.runs.door import FrontDoor
from fastroai.steps import BaseStep, PipelineConfig
from fastroai.store.record.declarations import sort_sets
from fastroai.store.record.definitions import fingerprint
from fastroai.store.record.headers import read_header
from fastroai.store.record.runs import link_to_parent
from fastroai.store.run_store import RunStore
from fastroai.usage import Quote

T = TypeVar("T")


class _Result(Protocol):
    """The parts that results of pipelines and graphs share."""

    status: str
    reason: str
    output: Any
    errors: Mapping[str, BaseException]


@dataclass(frozen=True, kw_only=True)
class RunRows(Generic[T]):
    """Makes a run for each row."""

    door: FrontDoor[Any, Any, Any]
    returns: Annotation | None
    steps: Mapping[str, BaseStep[Any, Any]]
    """The steps, by id, as far as they say what they declare for the calls in them."""
    estimate: Callable[[Any, Any], Awaitable[Quote]]
    parameters: Mapping[str, bool] | None = None
    makes_runs: bool = True

    @property
    def name(self) -> str:
        """The name of the pipeline, graph, router or flow."""
        return self.door.name

    @property
    def kind(self) -> str:
        """What it is: a pipeline, graph, router or flow."""
        return self.door.kind

    @property
    def config(self) -> PipelineConfig:
        """The settings of its runs."""
        return self.door.config

    @property
    def takes_deps(self) -> bool:
        """Whether runs take `deps`: all but those of a flow, whose body has no context to read them from."""
        return self.kind != "flow"

    def check_batches(self) -> None:
        """Refuse. Raises `ConfigurationError`."""
        refuse_batches(self.name, self.kind)

    def bind(self, values: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the inputs of a run, checked."""
        return self.door.checked_inputs(values)

    def as_json(self, inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the inputs as JSON. The items of sets are in the order of their JSON."""
        shown: dict[str, JsonValue] = to_jsonable_python(dict(inputs), bytes_mode="base64", fallback=repr)
        sort_sets(inputs, shown)
        return shown

    def declares(self) -> Mapping[str, str]:
        """Return hashes of the shape, and of what each step declares for the calls in it."""
        declared = {"shape": fingerprint(shape_of(self.door.definition))}
        for step_id, step in self.steps.items():
            declared |= {f"{part} of {step_id}": known for part, known in step.declares().items()}
        return declared

    async def call(self, inputs: Mapping[str, Any], how: RowCall) -> T:
        """Run, or go on with the run of this row that is on record."""
        try:
            return await self._run(inputs, how)
        except RowWaits as waits:
            if how.parent and how.store is not None:
                found = await link_to_parent(how.store, how.child, how.parent)
                waits.due_at = found.header.due_at
            raise

    async def _run(self, inputs: Mapping[str, Any], how: RowCall) -> T:
        deps: Any = how.deps
        try:
            if how.store is None:
                result = await self.door.execute(inputs, deps)
            else:
                if how.parent and not how.is_new:
                    await _check_goes_on(how.store, how.child)
                result = await self.door.execute(
                    inputs,
                    deps,
                    run_id=how.child,
                    store=how.store,
                    on_existing="fail" if how.is_new else "resume",
                )
        except FlowStopped as stopped:
            if stopped.status == "paused":
                raise RowWaits from stopped
            raise
        return result if self.kind == "flow" else _output_of(result)  # type: ignore[no-any-return]

    async def quote(self, inputs: Mapping[str, Any], deps: object) -> Quote:
        """Estimate a run."""
        return await self.estimate(inputs, deps)


def refuse_batches(name: str, kind: str) -> NoReturn:
    """Refuse batches of rows that are runs: the steps of a run have agents of their own.

    Raises:
        ConfigurationError: always.
    """
    expected = (
        f"a typed function or an agent, and {name!r} is a {kind}. Give batches to the agents in it: "
        "FastroAgent(..., capabilities=[BatchModelRequests()])"
    )
    raise ConfigurationError("batch", True, expected)


def parameters_of(accepts: Accepted | None) -> Mapping[str, bool] | None:
    """Return the declared inputs, each with whether it is required; `None` if any name will do."""
    return None if accepts is None else {name: name in accepts.required for name in accepts.names}


class RunStopped(Exception):
    """The run of a row has ended without an output."""


async def _check_goes_on(store: RunStore, run_id: str) -> None:
    """Raise `RowWaits` if a run still waits, so that nothing in it is done in vain."""
    with suppress(RunNotFound):
        found = await read_header(store, run_id)
        header = found.header
        is_open = bool(header.questions or header.receives or header.due_at)
        if header.parent and header.status == "paused" and is_open and not found.is_due:
            raise RowWaits


def _output_of(result: _Result) -> Any:
    """Return the output of a run. Raises what it failed with."""
    if result.status == "paused":
        raise RowWaits
    error: BaseException | None = getattr(result, "error", None)
    if result.status == "finished" and (result.output is not None or not result.errors):
        return result.output
    if error is None:
        error = next(iter(result.errors.values()), None)
    raise error if error is not None else RunStopped(f"its run is {result.status}: {result.reason}")

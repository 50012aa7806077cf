"""What rows are given to: a typed function, an agent, or something that makes a run for each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError

if TYPE_CHECKING:  # every agent has this module, and few programs call `map`
    from pydantic import JsonValue
    from pydantic_ai.capabilities import BatchModelRequests

    from fastroai.contracts.annotations import Annotation
    from fastroai.steps import PipelineConfig
    from fastroai.store.run_store import RunStore
    from fastroai.usage import Quote

DEFAULT_CONCURRENCY: Final = 16
"""Rows that are asked at once, unless the caller says how many."""
OutputT_co = TypeVar("OutputT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class RowCall:
    """The arguments of the call for a row, besides its inputs."""

    deps: object
    retries: int | None = None
    """Extra attempts at each request that fails on its way, if the caller says how many."""
    child: str = ""
    """The id of the run of this row, if the target makes runs and the store keeps them."""
    store: RunStore | None = None
    is_new: bool = True
    """Whether no process can have begun that run before, so that it is not looked for."""
    parent: str = ""
    """The id of the run of rows, if any process can go on with that run when this row can."""
    is_end_kept: bool = False
    """Whether the caller puts the output or the failure on record."""
    batching: BatchModelRequests | None = None
    """The batches in which requests are sent; by default, each is sent by itself."""


class RowWaits(Exception):
    """The run of a row waits for a person or an event, and goes on when that comes."""

    due_at: datetime | None = None
    """Time at which it goes on without people, if there is one."""


class TakesRows(Protocol):
    """Something that takes the inputs of rows by name."""

    @property
    def name(self) -> str:
        """The name of the function, agent, pipeline, graph or flow."""
        ...

    @property
    def parameters(self) -> Mapping[str, bool] | None:
        """Names of the inputs, each with whether it is required; `None` if any name will do."""
        ...

    def bind(self, values: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the inputs as a call takes them, with defaults.

        Raises:
            ContractViolation: an input is not of its type.
            TypeError: an input is missing.
        """
        ...

    def as_json(self, inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return bound inputs as JSON."""
        ...


class RowTarget(TakesRows, Protocol[OutputT_co]):
    """Something that gives an output for the inputs of a row."""

    @property
    def kind(self) -> str:
        """The kind of thing that it is."""
        ...

    @property
    def returns(self) -> Annotation | None:
        """The type by which outputs are stored; `None` without a declared one."""
        ...

    @property
    def makes_runs(self) -> bool:
        """Whether each row is a run by itself."""
        ...

    @property
    def config(self) -> PipelineConfig:
        """Settings of runs: the store unless the caller names one, the codec, the durability."""
        ...

    @property
    def takes_deps(self) -> bool:
        """Whether calls take `deps`."""
        ...

    def check_batches(self) -> None:
        """Check that the requests of calls can be sent in batches. Raises `ConfigurationError`."""
        ...

    def declares(self) -> Mapping[str, str]:
        """Return hashes of what is declared for each call, by name."""
        ...

    async def call(self, inputs: Mapping[str, Any], how: RowCall) -> OutputT_co:
        """Return the output for the inputs of one row.

        Raises:
            RowWaits: the run of the row is paused.
        """
        ...

    async def quote(self, inputs: Mapping[str, Any], deps: object) -> Quote:
        """Estimate a row, without a request."""
        ...


def check_deps(target: RowTarget[Any], deps: object) -> None:
    """Check, before anything is sent, that rows of a target can have `deps`.

    Raises:
        ConfigurationError: there are some, and the target takes none.
    """
    if deps is not None and not target.takes_deps:
        kind = target.kind if target.kind == "flow" else "function"
        expected = f"none, because {target.name!r} is a {kind} and takes none"
        raise ConfigurationError("deps", deps, expected)

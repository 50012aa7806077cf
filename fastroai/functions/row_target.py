"""A typed function as what rows are given to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import JsonValue

from fastroai.agent.other_models.batched import current_batching
from fastroai.contracts.annotations import Annotation
from fastroai.functions.configuring import configuration
from fastroai.functions.declaring.signature import Signature
from fastroai.rows.target import RowCall
from fastroai.steps import PipelineConfig
from fastroai.usage import Quote

T = TypeVar("T")


@dataclass(frozen=True)
class FunctionRows(Generic[T]):
    """Calls a typed function for each row."""

    name: str
    kind: str
    signature: Signature
    returns: Annotation
    parameters: Mapping[str, bool]
    """The parameters, each with whether it has no default."""
    perform: Callable[[Mapping[str, Any], RowCall], Awaitable[T]]
    """Function that makes a call with bound arguments."""
    declares: Callable[[], Mapping[str, str]]
    estimate: Callable[[Mapping[str, Any]], Awaitable[Quote]]
    check_batches: Callable[[], None]

    @property
    def makes_runs(self) -> bool:
        """A call is no run by itself."""
        return False

    @property
    def takes_deps(self) -> bool:
        """Whether calls take `deps`: no, because a typed function takes nothing but its arguments."""
        return False

    @property
    def config(self) -> PipelineConfig:
        """The store of `configure`."""
        return PipelineConfig(store=configuration().store)

    def bind(self, values: Mapping[str, object]) -> Mapping[str, Any]:
        """Return arguments by parameter. Raises as `Signature.bind`."""
        return self.signature.bind((), values)

    def as_json(self, inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return arguments as JSON."""
        return self.signature.json_of(inputs)

    async def call(self, inputs: Mapping[str, Any], how: RowCall) -> T:
        """Call the function."""
        current_batching.set(how.batching)  # in the context of this row
        return await self.perform(inputs, how)

    async def quote(self, inputs: Mapping[str, Any], deps: object) -> Quote:
        """Estimate a call."""
        return await self.estimate(inputs)

"""The pipelines and graphs that an application has, and what makes the `deps` of their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import JsonValue, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from fastroai.distributed.roster import KnownDefinition
from fastroai.rows.row_runs import RowRuns
from fastroai.runs.door import FrontDoor
from fastroai.steps.config import limits_in
from fastroai.store.run_store import RunStore
from fastroai.usage.shared.spend_limit import BY_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRun:
    """A run that a worker is about to carry, for `deps_factory`."""

    run_id: str
    pipeline: str
    tenant: str | None
    tags: tuple[str, ...]
    inputs: Mapping[str, object]


DepsFactory: TypeAlias = Callable[[CarriedRun], Any]
"""Function that makes the `deps` of a run in the worker that carries it. It may be async."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A pipeline, graph, router, flow or bound workflow, as an application has it."""

    door: FrontDoor[Any, Any, Any]
    deps_factory: DepsFactory | None

    def known(self, store: RunStore) -> KnownDefinition:
        """Return what processes without the code have to know of it."""
        keeper = self.door.keeper_of(store)
        return KnownDefinition(
            name=self.door.name,
            kind=keeper.kind,
            definition=keeper.definition,
            input_schema=self._input_schema(),
            is_sealed=keeper.codec is not None,
        )

    def check_tenant(self, tenant: str | None) -> None:
        """Raise `ConfigurationError` if there is no tenant, and a spend limit counts by tenant."""
        limits = limits_in(self.door.config)
        for limit in () if limits is None else limits.spend_limits:
            if limit.key == BY_TENANT:
                limit.account_for(None, tenant)

    def _input_schema(self) -> dict[str, JsonValue] | None:
        """Return the JSON Schema of the inputs; `None` if nothing declares them, or they have no schema.

        That of rows for which no type is declared says only which columns they have.
        """
        if (declared := self.door.input_type) is not None:
            try:
                return TypeAdapter(declared).json_schema()
            except (PydanticInvalidForJsonSchema, PydanticUserError):
                return None
        parameters = self.door.target.parameters if isinstance(self.door, RowRuns) else None
        if parameters is None:
            return None
        required: list[JsonValue] = [name for name, is_required in parameters.items() if is_required]
        return {"type": "object", "properties": {name: {} for name in parameters}, "required": required}

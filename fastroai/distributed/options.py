"""The options of runs that workers carry, which `Client.start`, `map` and `Distributed.schedule` explain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from typing_extensions import TypedDict

from fastroai.records import Duration
from fastroai.rows.machine import OnRowError
from fastroai.rows.source import RowInputs, RowKey
from fastroai.store.record.declarations import OnChanged
from fastroai.usage import BudgetLike

if TYPE_CHECKING:
    from pydantic_ai.capabilities import BatchModelRequests

DEFAULT: Final = "default"
"""The name of the queue for runs that name none."""
DEFAULTS: Final[Mapping[str, object]] = {
    "queue": DEFAULT,
    "tags": (),
    "delay": 0.0,
    "batch": False,
    "on_error": "record",
    "on_changed": "ask",
}
"""The defaults of those options whose default is not `None`."""


class PlaceOptions(TypedDict, total=False):
    """Options of every run, also of those that a schedule starts."""

    queue: str
    priority: int | None
    partition: str | None
    tags: Collection[str]
    tenant: str | None


class StartOptions(PlaceOptions, total=False):
    """Options of `start`."""

    run_id: str | None
    delay: Duration
    budget: BudgetLike | None


class MapOptions(StartOptions, total=False):
    """Options of `map`."""

    inputs: RowInputs | None
    key: RowKey | None
    concurrency: int | None
    batch: bool | BatchModelRequests
    retries: int | None
    on_error: OnRowError
    on_changed: OnChanged

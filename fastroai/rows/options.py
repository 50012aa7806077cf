"""How rows are run: the options of `map`, also as a run of rows has them on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue

from fastroai.errors import ConfigurationError
from fastroai.rows.machine import OnRowError
from fastroai.rows.source import RowInputs, RowKey
from fastroai.rows.target import DEFAULT_CONCURRENCY
from fastroai.runtime import Scope
from fastroai.runtime.options import check_count
from fastroai.store.record.declarations import OnChanged, check_on_changed

if TYPE_CHECKING:
    from pydantic_ai.capabilities import BatchModelRequests

_BATCHES: Final = ("max_requests", "max_wait", "max_resubmissions", "poll_interval", "max_poll_interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """How rows are run. Raises `ConfigurationError` if an option is invalid."""

    inputs: RowInputs | None = None
    key: RowKey | None = None
    concurrency: int | None = None
    retries: int | None = None
    on_error: OnRowError = "record"
    on_changed: OnChanged = "ask"
    batching: BatchModelRequests | None = None
    """The batches in which requests are sent; by default, each is sent by itself."""
    only: frozenset[int] | None = None
    """The numbers of the rows that are asked; by default, all are."""
    write_to: str | None = None
    """The path of a file that gets each row when it ends."""
    around: Scope | None = None
    """The scope of several runs that are one to the caller: its budget counts as the own budget of each."""

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency, least=1)
        check_count("retries", self.retries)
        check_on_changed(self.on_changed)
        if self.on_error not in ("record", "stop"):
            raise ConfigurationError("on_error", self.on_error, "'record' or 'stop'")

    @property
    def at_once(self) -> int:
        """Rows that are asked at once: in batches, by default as many as a batch holds."""
        default = DEFAULT_CONCURRENCY if self.batching is None else self.batching.max_requests
        return self.concurrency or default

    def on_record(self) -> dict[str, JsonValue]:
        """Return the options that a process needs that carries a run whose rows are on record."""
        batching: JsonValue = None
        if (of := self.batching) is not None:
            batching = {name: _in_seconds(getattr(of, name)) for name in _BATCHES}
        return {
            "concurrency": self.at_once,
            "retries": self.retries,
            "on_error": self.on_error,
            "on_changed": self.on_changed,
            "batch": batching,
            "is_keyed": self.key is not None,
        }


def options_on_record(stored: Mapping[str, Any]) -> RowOptions:
    """Return the options that a run has on record."""
    options = dict(stored)
    is_keyed, batch = options.pop("is_keyed"), options.pop("batch")
    batching = None
    if batch is not None:
        from pydantic_ai.capabilities import BatchModelRequests  # slow to load, and few need it

        batching = BatchModelRequests.from_spec(**batch)
    key = itemgetter(0) if is_keyed else None
    return RowOptions(inputs=itemgetter(1), key=key, batching=batching, **options)


def batching_of(batch: object) -> BatchModelRequests | None:
    """Return the batches that a caller asks for. Raises `ConfigurationError`."""
    if batch is False:
        return None
    from pydantic_ai.capabilities import BatchModelRequests  # slow to load, and few need it

    if batch is True:
        return BatchModelRequests()
    if not isinstance(batch, BatchModelRequests):
        raise ConfigurationError("batch", batch, "True, False or a BatchModelRequests of PydanticAI")
    return batch


def _in_seconds(value: Any) -> JsonValue:
    seconds: JsonValue = value.total_seconds() if hasattr(value, "total_seconds") else value
    return seconds

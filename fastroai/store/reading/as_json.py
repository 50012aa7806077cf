"""Convert facts for people: live values become JSON, and references to the process are dropped."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from pydantic import JsonValue
from pydantic_core import from_json, to_json, to_jsonable_python

from fastroai.data_kinds import DataKind, changed
from fastroai.runtime.fact_base import Fact
from fastroai.store.record.entries import encode_entry

FactT = TypeVar("FactT", bound=Fact)


@runtime_checkable
class AsJson(Protocol):
    """An object that converts itself to JSON."""

    def to_json(self) -> JsonValue:
        """Return the object as plain data."""
        ...


def as_told(fact: FactT) -> FactT:
    """Return the fact in the form that traces have."""
    return changed(fact.detached(), {DataKind.PAYLOAD: _own_json if fact.makes_values else as_json})


def _own_json(value: object) -> JsonValue:
    return value.to_json() if isinstance(value, AsJson) else as_json(value)


def fact_to_json(fact: Fact) -> dict[str, JsonValue]:
    """Return a fact (an entry of the log of a run) as plain data, such as for a stream of server-sent events.

        async for position, fact in pipeline.follow(run_id):
            print(position, json.dumps(fact_to_json(fact)))

    `kind` says what happened, `run_id` in which run, and `timestamp` when, in seconds since 1970. `part` is
    the place of the nested pipeline or graph, such as `b@1/inner`; it is empty for the outermost one. Other
    fields that have their defaults are left out, except in `RunStarted`. A value that JSON cannot hold
    becomes its `repr`. Texts and values are not redacted.
    """
    plain: dict[str, JsonValue] = from_json(encode_entry(as_told(fact)))
    return plain | {"run_id": fact.part.run_id, "part": fact.part.place}


def as_json(value: object) -> JsonValue:
    """Return the value as JSON for people. A value that JSON cannot hold becomes its `repr`."""
    try:
        shown: JsonValue = to_jsonable_python(value, fallback=repr, inf_nan_mode="constants")
    except Exception:  # a cycle, bytes that are no text, a `repr` that fails
        return _safe_repr(value)
    return shown


def json_text(value: object) -> bytes:
    """Return the value as JSON text for people, as `as_json` does."""
    try:
        return to_json(value, fallback=repr, inf_nan_mode="constants")
    except Exception:
        return to_json(as_json(value), inf_nan_mode="constants")


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)

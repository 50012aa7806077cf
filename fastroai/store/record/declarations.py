"""What is declared for calls, as hashes: what has changed of it, and what a run is to do about that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import JsonValue
from pydantic_core import to_json

from fastroai.errors import ConfigurationError

OnChanged: TypeAlias = Literal["ask", "keep", "fail"]
"""What to do with an answer on record whose call is declared differently now."""

_BYTES: Final = 6


def check_on_changed(on_changed: object) -> None:
    """Refuse an invalid `on_changed`. Raises `ConfigurationError`."""
    if on_changed not in get_args(OnChanged):
        raise ConfigurationError("on_changed", on_changed, "'ask', 'keep' or 'fail'")


def digest(*parts: str | bytes) -> str:
    """Return a hash of texts, 12 hex digits. Their order matters."""
    # Python's own BLAKE2: OpenSSL, where SHA-256 comes from, takes longer to begin than to hash a prompt.
    hashed = hashlib.blake2b(digest_size=_BYTES)
    for part in parts:
        text = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        hashed.update(b"%d:" % len(text))
        hashed.update(text)
    return hashed.hexdigest()


def sort_sets(value: object, made: JsonValue) -> None:
    """Sort the lists that pydantic has made of sets, because sets are in another order in each process."""
    if isinstance(made, dict):
        values = value.values() if isinstance(value, Mapping) else (getattr(value, key, None) for key in made)
        for part, inside in zip(values, made.values(), strict=False):
            sort_sets(part, inside)
    elif isinstance(made, list) and isinstance(value, Iterable):
        for part, inside in zip(value, made, strict=False):
            sort_sets(part, inside)
        if isinstance(value, set | frozenset):
            made.sort(key=_order)


def with_sorted_defaults(schema: Any) -> Any:
    """Return a JSON Schema that is the same in every process.

    The defaults and examples of its sets are lists in any order, so all lists in these are sorted.
    """
    return _sorted_in(schema) if b'"uniqueItems":true' in to_json(schema) else schema


def _sorted_in(schema: Any, *, is_value: bool = False) -> Any:
    if isinstance(schema, dict):
        return {
            name: _sorted_in(part, is_value=is_value or name in ("default", "examples"))
            for name, part in schema.items()
        }
    if isinstance(schema, list):
        parts = [_sorted_in(part, is_value=is_value) for part in schema]
        return sorted(parts, key=_order) if is_value else parts
    return schema


def _order(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True)


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of what has changed. A part that either side does not know counts as unchanged."""
    return tuple([name for name, known in before.items() if now.get(name, known) != known])

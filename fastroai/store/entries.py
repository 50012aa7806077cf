"""Facts as entries of a log, and the header of a run: what is stored, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from fastroai.errors import RunCorrupt, RunFromNewerVersion
from fastroai.runtime.facts import FORMAT, AnyFact, Fact, Part, RunStarted, RunStatus

_KINDS: Final[dict[str, type[Fact]]] = {fact.kind: fact for fact in get_args(AnyFact)}


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_KINDS[kind])


def encode_entry(fact: AnyFact) -> bytes:
    """A fact as it is stored. Its values are JSON already."""
    fields = _adapter(fact.kind).dump_json(fact, exclude_defaults=not isinstance(fact, RunStarted))
    return b'{"kind":"%b",%b' % (fact.kind.encode(), fields[1:])


def check_format(run_id: str, position: int, format: object) -> None:
    """Refuse what another version of FastroAI has written; position 0 is the header.

    Raises:
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunCorrupt: an earlier one has, in a format that is read no more.
    """
    if not isinstance(format, int):
        return
    if format > FORMAT:
        raise RunFromNewerVersion(run_id, format, FORMAT)
    if format < FORMAT:
        reason = f"it is in format {format} of an earlier version of fastroai; this one reads {FORMAT}"
        raise RunCorrupt(run_id, position, reason)


def decode_entry(run_id: str, position: int, stored: bytes) -> AnyFact:
    """A fact as it was, but for the pipeline that it is of: see `decode_log`.

    Raises:
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunCorrupt: it cannot be read, or an earlier version has written it.
    """
    try:
        raw = from_json(stored)
    except ValueError:
        raise RunCorrupt(run_id, position, "it is not JSON") from None
    if not isinstance(raw, dict):
        raise RunCorrupt(run_id, position, "it is no JSON object")
    check_format(run_id, position, raw.get("format"))
    kind = raw.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise RunCorrupt(run_id, position, f"kind: there is no {kind!r}")
    try:
        fact: AnyFact = _adapter(kind).validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RunCorrupt(run_id, position, f"{where}: {first['msg']}") from error
    return fact


def decode_log(run_id: str, stored: Sequence[bytes]) -> list[AnyFact]:
    """All facts of a log. Raises as `decode_entry`."""
    facts = [decode_entry(run_id, number, value) for number, value in enumerate(stored, 1)]
    if facts and isinstance(facts[0], RunStarted):
        parts: dict[str, Part] = {"": facts[0].part}
        for fact in facts:
            place = fact.part.place
            if place not in parts:
                parts[place] = parts[""].inside(place)
            fact.part = parts[place]
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What is known of a run without reading its log."""

    format: int = FORMAT
    run_id: str
    pipeline: str
    status: RunStatus
    started_at: datetime
    updated_at: datetime
    owner: str | None = None
    """The process that runs it."""
    lease_until: datetime | None = None
    """When that process counts as dead, unless it renews this."""
    requests: int = 0
    cost_usd: Decimal = Decimal(0)
    """Known cost so far, in US dollars, as of `updated_at`."""
    error: str | None = None
    forked_from: str | None = None

"""Seal, unseal and redact users' data in the entries of a log: payloads, texts and names.

What the data in a field of a fact is, its annotation says: see `fastroai.data_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pydantic import JsonValue

from fastroai.data_kinds import Changes, DataKind, changed
from fastroai.errors import RunCorrupt, RunStoreUnavailable, UnknownFactKind
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Fact
from fastroai.store.record.definitions import steps_in
from fastroai.store.record.payloads import (
    OUTLINE,
    PayloadCodec,
    seal,
    seal_definition,
    seal_name,
    seal_text,
    unseal,
    unseal_definition,
    unseal_name,
    unseal_text,
)
from fastroai.tracing.redaction import redacted, redacted_json

FactT = TypeVar("FactT", bound=Fact)


def unseal_entry(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry of a log as it was before it was sealed. Raises as `unseal`."""
    return unseal_payloads(unseal_texts(entry, codec), codec)


def entries_to_go_on(
    run_id: str, entries: Iterable[Fact], codec: PayloadCodec | None, *, first: int = 1
) -> list[Fact]:
    """Return entries of a log, from position `first` on, for a run that goes on: their payloads stay sealed.

    Raises:
        UnknownFactKind: an entry is of a kind that no imported module declares.
        RunCorrupt: the codec cannot decode an entry.
    """
    known = []
    for position, entry in enumerate(entries, first):
        if isinstance(entry, facts.UnknownFact):
            raise UnknownFactKind(run_id, position, entry.kind)
        known.append(entry)
    unsealed = _unseals(codec)
    return unseal_log(run_id, known, lambda entry: changed(entry, unsealed), first=first)


def unseal_log(
    run_id: str, entries: Iterable[Fact], unseal: Callable[[Fact], Fact], *, first: int = 1
) -> list[Fact]:
    """Return the entries of a log from position `first` on, each unsealed by `unseal`.

    Raises:
        RunCorrupt: the codec cannot decode an entry.
    """
    return [unseal_one(run_id, position, entry, unseal) for position, entry in enumerate(entries, first)]


def unseal_one(run_id: str, position: int, entry: FactT, unseal: Callable[[FactT], FactT]) -> FactT:
    """Return the entry at this position of a log, unsealed by `unseal`; of an unknown position, 0.

    Raises:
        RunCorrupt: the codec cannot decode the entry.
    """
    try:
        return unseal(entry)
    except RunStoreUnavailable as error:
        reason = f"the codec cannot decode it: {error.reason}; {error.advice}"
        raise RunCorrupt(run_id, position, reason) from error


def redact_entry(entry: FactT) -> FactT:
    """Return an entry, which is not sealed, as traces show it in text. Ids of steps stay as they are."""
    return changed(
        entry,
        {
            DataKind.PAYLOAD: redacted_json,
            DataKind.TEXT: redacted,
            DataKind.NAME: redacted,
            DataKind.LABEL: redacted,
            DataKind.DEFINITION: _redact_definition,
        },
    )


def _redact_definition(definition: JsonValue) -> JsonValue:
    known = steps_in(definition).keys()

    def shown(value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return {key: one if key in OUTLINE else shown(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [shown(one) for one in value]
        return redacted(value) if isinstance(value, str) and value not in known else value

    return shown(definition)


# --- payloads ---


def seal_payloads(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry with its payloads as they are stored. Raises as `seal`."""
    return changed(entry, {DataKind.PAYLOAD: lambda value: seal(value, codec)})


def unseal_payloads(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry with its payloads as they were. Raises as `unseal`."""
    return changed(entry, {DataKind.PAYLOAD: lambda stored: unseal(stored, codec)})


# --- texts and names ---


def seal_texts(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry, whose payloads are sealed, as it is stored.

    Raises:
        RunStoreUnavailable: the codec fails on a name, or would decode it to another one.
    """
    if codec is None:
        return changed(entry, _SEALED_WITHOUT_CODEC)
    return changed(entry.detached(), _seals(codec))


def _seals(codec: PayloadCodec | None) -> Changes:
    return {
        DataKind.TEXT: lambda text: seal_text(text, codec),
        DataKind.NAME: lambda name: seal_name(name, codec),
        DataKind.DEFINITION: lambda definition: seal_definition(definition, codec),
    }


_SEALED_WITHOUT_CODEC: Final = _seals(None)


def unseal_texts(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry with its texts and names as they were. Without a codec, sealed ones stay sealed.

    Raises:
        RunStoreUnavailable: the codec fails on a name.
    """
    return changed(entry, _unseals(codec))


def _unseals(codec: PayloadCodec | None) -> Changes:
    return {
        DataKind.TEXT: lambda text: unseal_text(text, codec),
        DataKind.NAME: lambda name: unseal_name(name, codec),
        DataKind.DEFINITION: lambda definition: unseal_definition(definition, codec),
    }

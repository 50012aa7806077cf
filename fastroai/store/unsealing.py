"""Seal, unseal and redact users' data in the entries of a log: payloads, texts and names.

Each field of a fact is in one of the tables below, or holds no data of users: a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from pydantic import JsonValue

from fastroai.errors import RunCorrupt, RunStoreUnavailable
from fastroai.records import RequestRecord
from fastroai.runtime import facts
from fastroai.store.definitions import steps_in
from fastroai.store.payloads import (
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

PAYLOADS: Final[Mapping[type[facts.Fact], tuple[str, ...]]] = {
    facts.StepFinished: ("output",),
    facts.StepFailed: ("output",),
    facts.IterationReported: ("output",),
    facts.RequestEnded: ("response",),
    facts.ToolEnded: ("result", "retry"),
    facts.OnceDone: ("result",),
    facts.AnswerGiven: ("answer",),
    facts.WaitEnded: ("value",),
    facts.ValueWritten: ("value",),
    facts.MessagesAdded: ("messages",),
    facts.CallEnded: ("call", "output"),
}
"""The fields with values of users, except inputs, questions and schemas. They are unsealed when they are
needed."""

TEXTS: Final[Mapping[type, tuple[str, ...]]] = {
    facts.RunFinished: ("reason", "failure"),
    facts.StopRequested: ("reason",),
    facts.StepFailed: ("failure", "violations"),
    facts.StepCancelled: ("cause",),
    facts.StepRetried: ("failure",),
    facts.EdgesResolved: ("edges",),
    facts.BranchTimedOut: ("failure",),
    facts.SkipRequested: ("reason",),
    facts.IterationAborted: ("reason",),
    facts.CallEnded: ("failure",),
    facts.QuestionAsked: ("to",),
    facts.AnswerGiven: ("reviewer", "rationale"),
    facts.RequestSent: ("record",),
    facts.RequestEnded: ("record",),
    facts.SpendingRecorded: ("record",),
    facts.FailureFacts: ("message",),
    facts.EdgeFacts: ("why",),
    RequestRecord: ("error",),
}
"""The fields with texts for people, which can quote values and conditions, by fact or part of a fact."""

NAMES: Final[Mapping[type, tuple[str, ...]]] = {
    facts.RunFinished: ("agent_calls",),
    facts.FailedAgentCall: ("call",),
    facts.StepRetried: ("call",),
    facts.ValueWritten: ("key",),
    facts.RequestSent: ("request",),
    facts.RequestPlace: ("call", "fingerprint", "tools"),
    facts.ToolEnded: ("tool",),
    facts.OnceStarted: ("name",),
    facts.OnceDone: ("name",),
    facts.OnceFailed: ("name",),
    facts.ReplayDiverged: ("call",),
    facts.CheckpointSet: ("label",),
    facts.CheckpointRestored: ("label",),
}
"""The fields by which a run finds its own record again: names of users, and hashes of their data."""

LABELS: Final[Mapping[type, tuple[str, ...]]] = {
    facts.RequestSent: ("record",),
    facts.RequestEnded: ("record",),
    facts.SpendingRecorded: ("record",),
    RequestRecord: ("tags", "tenant"),
}
"""The fields by which spending is reported, so no codec changes them; texts for people are redacted."""

_SCHEMAS: Final = ("answer_schema", "value_schema")

FactT = TypeVar("FactT", bound=facts.Fact)


def unseal_entry(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry of a log as it was before it was sealed. Raises as `unseal`."""
    return unseal_payloads(unseal_texts(entry, codec), codec)


def unseal_log(
    run_id: str, entries: Iterable[facts.AnyFact], unseal: Callable[[facts.AnyFact], facts.AnyFact]
) -> list[facts.AnyFact]:
    """Return the entries of a log, each unsealed by `unseal`.

    Raises:
        RunCorrupt: the codec cannot decode an entry.
    """
    unsealed = []
    for position, entry in enumerate(entries, 1):
        try:
            unsealed.append(unseal(entry))
        except RunStoreUnavailable as error:
            raise RunCorrupt(run_id, position, f"the codec cannot decode it: {error.reason}") from error
    return unsealed


def redact_entry(entry: FactT) -> FactT:
    """Return an entry, which is not sealed, as traces show it in text. Ids of steps stay as they are."""
    entry = _with_texts(_with_payloads(entry, redacted_json), redacted, redacted, _redact_definition)
    shown: FactT = _changed(entry, LABELS, redacted)
    return shown


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
    return _with_payloads(entry, lambda value: seal(value, codec))


def unseal_payloads(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry with its payloads as they were. Raises as `unseal`."""
    return _with_payloads(entry, lambda stored: unseal(stored, codec))


def _with_payloads(entry: FactT, change: Callable[[JsonValue], JsonValue]) -> FactT:
    changed: dict[str, Any] = {name: change(getattr(entry, name)) for name in PAYLOADS.get(type(entry), ())}
    if isinstance(entry, facts.RunStarted | facts.RunResumed):
        changed["inputs"] = {name: change(value) for name, value in entry.inputs.items()}
    elif isinstance(entry, facts.QuestionAsked):
        changed["question"] = change(entry.question)
        changed["options"] = None if entry.options is None else tuple(map(change, entry.options))
    for name in _SCHEMAS:
        if (schema := getattr(entry, name, None)) is not None:
            changed[name] = change(schema)
    return replace(entry, **changed) if changed else entry


# --- texts and names ---


def seal_texts(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry, whose payloads are sealed, as it is stored.

    Raises:
        RunStoreUnavailable: the codec fails on a name, or would decode it to another one.
    """
    if isinstance(entry, facts.EdgesResolved):
        if codec is None:  # no condition looks like a text that is sealed
            return entry
        entry = replace(entry, edges=tuple(map(facts.EdgeFacts.of, entry.edges)))
    return _with_texts(
        entry,
        lambda text: seal_text(text, codec),
        lambda name: seal_name(name, codec),
        lambda definition: seal_definition(definition, codec),
    )


def unseal_texts(entry: FactT, codec: PayloadCodec | None) -> FactT:
    """Return an entry with its texts and names as they were. Without a codec, sealed ones stay sealed.

    Raises:
        RunStoreUnavailable: the codec fails on a name.
    """
    return _with_texts(
        entry,
        lambda text: unseal_text(text, codec),
        lambda name: unseal_name(name, codec),
        lambda definition: unseal_definition(definition, codec),
    )


_Change = Callable[[str], str]


def _with_texts(
    entry: FactT, text: _Change, name: _Change, definition: Callable[[JsonValue], JsonValue]
) -> FactT:
    if isinstance(entry, facts.RunStarted | facts.RunResumed):
        inputs = {text(key): value for key, value in entry.inputs.items()}
        entry = replace(entry, inputs=inputs, definition=definition(entry.definition))
    changed: FactT = _changed(_changed(entry, TEXTS, text), NAMES, name)
    return changed


def _changed(value: Any, table: Mapping[type, tuple[str, ...]], change: _Change) -> Any:
    if isinstance(value, str):
        return change(value) if value else value
    if isinstance(value, tuple | list):
        return tuple(_changed(one, table, change) for one in value)
    changed = {
        field: new
        for field in table.get(type(value), ())
        if (new := _changed(old := getattr(value, field), table, change)) is not old
    }
    return replace(value, **changed) if changed else value

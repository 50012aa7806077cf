"""Seal and unseal the payloads and the error messages of log entries with a codec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import JsonValue

from fastroai.runtime import facts
from fastroai.store.payloads import PayloadCodec, seal, seal_text, unseal, unseal_text

PAYLOADS: Final[Mapping[type[facts.Fact], tuple[str, ...]]] = {
    facts.StepFinished: ("output",),
    facts.RequestEnded: ("response",),
    facts.ToolEnded: ("result", "retry"),
    facts.OnceDone: ("result",),
    facts.AnswerGiven: ("answer",),
    facts.WaitEnded: ("value",),
    facts.ValueWritten: ("value",),
    facts.MessagesAdded: ("messages",),
    facts.CallEnded: ("call", "output"),
}
"""The fields with values of users, besides inputs and questions. A test compares them with the facts."""
MESSAGES: Final[Mapping[type[facts.Fact], str]] = {
    facts.StepCancelled: "cause",
    facts.StopRequested: "reason",
    facts.RunFinished: "reason",
    facts.AnswerGiven: "rationale",
}
"""The fields with text that can quote users, besides failures and the errors of requests."""


def unseal_entry(entry: facts.AnyFact, codec: PayloadCodec | None) -> facts.AnyFact:
    """Return an entry of a log with its payload and messages unsealed."""
    return unseal_payloads(unseal_messages(entry, codec), codec)


def unseal_payloads(entry: facts.AnyFact, codec: PayloadCodec | None) -> facts.AnyFact:
    """Return an entry with its payload unsealed, if it has one."""
    return _with_payloads(entry, lambda stored: unseal(stored, codec))


def unseal_question(asked: facts.QuestionAsked, codec: PayloadCodec | None) -> facts.QuestionAsked:
    """Return a question with its text and options unsealed."""
    return _with_question(asked, lambda stored: unseal(stored, codec))


def seal_question(asked: facts.QuestionAsked, codec: PayloadCodec | None) -> facts.QuestionAsked:
    """The other way round."""
    return _with_question(asked, lambda value: seal(value, codec))


def seal_payloads(entry: facts.AnyFact) -> facts.AnyFact:
    """Return an entry of a trace, whose payload is unsealed, in the form of a log without a codec."""
    return _with_payloads(entry, lambda value: seal(value, None))


def _with_payloads(entry: facts.AnyFact, change: Callable[[JsonValue], JsonValue]) -> facts.AnyFact:
    if isinstance(entry, facts.RunStarted | facts.RunResumed):
        return replace(entry, inputs={name: change(value) for name, value in entry.inputs.items()})
    if isinstance(entry, facts.QuestionAsked):
        return _with_question(entry, change)
    changed: dict[str, Any] = {name: change(getattr(entry, name)) for name in PAYLOADS.get(type(entry), ())}
    return replace(entry, **changed) if changed else entry


def _with_question(
    asked: facts.QuestionAsked, change: Callable[[JsonValue], JsonValue]
) -> facts.QuestionAsked:
    options = None if asked.options is None else tuple(map(change, asked.options))
    return replace(asked, question=change(asked.question), options=options)


def seal_messages(entry: facts.AnyFact, codec: PayloadCodec | None) -> facts.AnyFact:
    """An entry as it is stored: what is told of a failure can quote what users gave."""
    return _with_messages(entry, lambda text: seal_text(text, codec))


def unseal_messages(entry: facts.AnyFact, codec: PayloadCodec | None) -> facts.AnyFact:
    """The other way round."""
    return _with_messages(entry, lambda text: unseal_text(text, codec))


def _with_messages(entry: facts.AnyFact, change: Callable[[str], str]) -> facts.AnyFact:
    changed: dict[str, Any] = {}
    if (name := MESSAGES.get(type(entry))) is not None and (text := getattr(entry, name)):
        changed[name] = change(text)
    failure = getattr(entry, "failure", None)
    if failure is not None:
        changed["failure"] = replace(failure, message=change(failure.message))
    record = getattr(entry, "record", None)
    if record is not None and record.error is not None:
        changed["record"] = replace(record, error=change(record.error))
    return replace(entry, **changed) if changed else entry

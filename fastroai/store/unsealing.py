"""Entries of a log and a codec: their payloads as they were, and what they tell of failures both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    BranchTimedOut,
    FailureFacts,
    MessagesAdded,
    OnceDone,
    QuestionAsked,
    RequestEnded,
    RequestSent,
    RunFinished,
    RunResumed,
    RunStarted,
    SpendingRecorded,
    StepFailed,
    StepFinished,
    StepRetried,
    ToolEnded,
    ValueWritten,
)
from fastroai.store.payloads import PayloadCodec, seal_text, unseal, unseal_text


def unseal_entry(entry: AnyFact, codec: PayloadCodec) -> AnyFact:
    """An entry with its payload and messages decoded; as it is, if it has none."""
    entry = unseal_messages(entry, codec)
    match entry:
        case RunStarted() | RunResumed():
            return replace(entry, inputs={name: unseal(value, codec) for name, value in entry.inputs.items()})
        case StepFinished():
            return replace(entry, output=unseal(entry.output, codec))
        case RequestEnded():
            return replace(entry, response=unseal(entry.response, codec))
        case ToolEnded():
            return replace(entry, result=unseal(entry.result, codec), retry=unseal(entry.retry, codec))
        case OnceDone():
            return replace(entry, result=unseal(entry.result, codec))
        case QuestionAsked():
            return replace(entry, question=unseal(entry.question, codec))
        case AnswerGiven():
            return replace(entry, answer=unseal(entry.answer, codec))
        case ValueWritten():
            return replace(entry, value=unseal(entry.value, codec))
        case MessagesAdded():
            return replace(entry, messages=unseal(entry.messages, codec))
        case _:
            return entry


def seal_messages(entry: AnyFact, codec: PayloadCodec | None) -> AnyFact:
    """An entry as it is stored: what is told of a failure can quote what users gave."""
    return entry if codec is None else _with_messages(entry, lambda text: seal_text(text, codec))


def unseal_messages(entry: AnyFact, codec: PayloadCodec | None) -> AnyFact:
    """The other way round."""
    return entry if codec is None else _with_messages(entry, lambda text: unseal_text(text, codec))


def _with_messages(entry: AnyFact, change: Callable[[str], str]) -> AnyFact:
    match entry:
        case StepRetried() | StepFailed() | BranchTimedOut():
            return replace(entry, failure=replace(entry.failure, message=change(entry.failure.message)))
        case RunFinished(failure=FailureFacts() as failure):
            return replace(entry, failure=replace(failure, message=change(failure.message)))
        case RequestSent() | RequestEnded() | SpendingRecorded() if entry.record.error is not None:
            return replace(entry, record=replace(entry.record, error=change(entry.record.error)))
        case _:
            return entry

"""Entries of a log and a codec: their payloads as they were, and what they tell of failures both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fastroai.store.entries import (
    AnswerGiven,
    AnyEntry,
    BranchFailed,
    CallRetry,
    FailureFacts,
    MessagesAdded,
    OnceDone,
    QuestionAsked,
    RequestEnded,
    RequestSent,
    RunEnded,
    RunOpened,
    RunResumed,
    SpendingRecorded,
    StepFailure,
    StepOutput,
    StepRetry,
    ToolEnded,
    ValueWritten,
)
from fastroai.store.payloads import PayloadCodec, seal_text, unseal, unseal_text


def unseal_entry(entry: AnyEntry, codec: PayloadCodec) -> AnyEntry:
    """An entry with its payload and messages decoded; as it is, if it has none."""
    entry = unseal_messages(entry, codec)
    match entry:
        case RunOpened() | RunResumed():
            return replace(entry, inputs={name: unseal(value, codec) for name, value in entry.inputs.items()})
        case StepOutput():
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


def seal_messages(entry: AnyEntry, codec: PayloadCodec | None) -> AnyEntry:
    """An entry as it is stored: what is told of a failure can quote what users gave."""
    return entry if codec is None else _with_messages(entry, lambda text: seal_text(text, codec))


def unseal_messages(entry: AnyEntry, codec: PayloadCodec | None) -> AnyEntry:
    """The other way round."""
    return entry if codec is None else _with_messages(entry, lambda text: unseal_text(text, codec))


def _with_messages(entry: AnyEntry, change: Callable[[str], str]) -> AnyEntry:
    match entry:
        case StepRetry() | CallRetry() | StepFailure() | BranchFailed():
            return replace(entry, failure=replace(entry.failure, message=change(entry.failure.message)))
        case RunEnded(failure=FailureFacts() as failure):
            return replace(entry, failure=replace(failure, message=change(failure.message)))
        case RequestSent() | RequestEnded() | SpendingRecorded() if entry.record.error is not None:
            return replace(entry, record=replace(entry.record, error=change(entry.record.error)))
        case _:
            return entry

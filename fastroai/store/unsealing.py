"""What a codec does to entries of a log: to their payloads, and to what they tell of failures; both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pydantic import JsonValue

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
    StepCancelled,
    StepFailure,
    StepOutput,
    StepRetry,
    ToolEnded,
    ValueWritten,
)
from fastroai.store.payloads import PayloadCodec, seal, seal_text, unseal, unseal_text


def unseal_entry(entry: AnyEntry, codec: PayloadCodec | None) -> AnyEntry:
    """An entry of a log with its payload and messages as they were."""
    return unseal_payloads(unseal_messages(entry, codec), codec)


def unseal_payloads(entry: AnyEntry, codec: PayloadCodec | None) -> AnyEntry:
    """An entry with its payload as it was; as it is, if it has none."""
    return _with_payloads(entry, lambda stored: unseal(stored, codec))


def seal_payloads(entry: AnyEntry) -> AnyEntry:
    """An entry of a trace, whose payload is as it was, as a log without a codec has it."""
    return _with_payloads(entry, lambda value: seal(value, None))


def _with_payloads(entry: AnyEntry, change: Callable[[JsonValue], JsonValue]) -> AnyEntry:
    match entry:
        case RunOpened() | RunResumed():
            return replace(entry, inputs={name: change(value) for name, value in entry.inputs.items()})
        case StepOutput():
            return replace(entry, output=change(entry.output))
        case RequestEnded():
            return replace(entry, response=change(entry.response))
        case ToolEnded():
            return replace(entry, result=change(entry.result), retry=change(entry.retry))
        case OnceDone():
            return replace(entry, result=change(entry.result))
        case QuestionAsked():
            return replace(entry, question=change(entry.question))
        case AnswerGiven():
            return replace(entry, answer=change(entry.answer))
        case ValueWritten():
            return replace(entry, value=change(entry.value))
        case MessagesAdded():
            return replace(entry, messages=change(entry.messages))
        case _:
            return entry


def seal_messages(entry: AnyEntry, codec: PayloadCodec | None) -> AnyEntry:
    """An entry as it is stored: what is told of a failure can quote what users gave."""
    return _with_messages(entry, lambda text: seal_text(text, codec))


def unseal_messages(entry: AnyEntry, codec: PayloadCodec | None) -> AnyEntry:
    """The other way round."""
    return _with_messages(entry, lambda text: unseal_text(text, codec))


def _with_messages(entry: AnyEntry, change: Callable[[str], str]) -> AnyEntry:
    match entry:
        case StepRetry() | CallRetry() | StepFailure() | BranchFailed():
            return replace(entry, failure=replace(entry.failure, message=change(entry.failure.message)))
        case StepCancelled():
            return replace(entry, cause=change(entry.cause))
        case RunEnded(failure=FailureFacts() as failure):
            return replace(entry, failure=replace(failure, message=change(failure.message)))
        case RequestSent() | RequestEnded() | SpendingRecorded() if entry.record.error is not None:
            return replace(entry, record=replace(entry.record, error=change(entry.record.error)))
        case _:
            return entry

"""Seal and unseal the payloads and the error messages of log entries with a codec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from pydantic import JsonValue

from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    BranchTimedOut,
    EdgesResolved,
    FailureFacts,
    MessagesAdded,
    OnceDone,
    OnceFailed,
    OnceStarted,
    PauseRequested,
    QuestionAsked,
    ReplayDiverged,
    RequestEnded,
    RequestSent,
    RunFinished,
    RunResumed,
    RunStarted,
    SpendingRecorded,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepHalted,
    StepRetried,
    StepSkipped,
    StepStarted,
    StopRequested,
    ToolEnded,
    ValueWritten,
    WaitEnded,
    WaitStarted,
)
from fastroai.store.payloads import PayloadCodec, seal, seal_text, unseal, unseal_text


def unseal_entry(entry: AnyFact, codec: PayloadCodec | None) -> AnyFact:
    """Return an entry of a log with its payload and messages unsealed."""
    return unseal_payloads(unseal_messages(entry, codec), codec)


def unseal_payloads(entry: AnyFact, codec: PayloadCodec | None) -> AnyFact:
    """Return an entry with its payload unsealed, if it has one."""
    return _with_payloads(entry, lambda stored: unseal(stored, codec))


def unseal_question(asked: QuestionAsked, codec: PayloadCodec | None) -> QuestionAsked:
    """Return a question with what is asked and its options unsealed."""
    return _with_question(asked, lambda stored: unseal(stored, codec))


def seal_question(asked: QuestionAsked, codec: PayloadCodec | None) -> QuestionAsked:
    """The other way round."""
    return _with_question(asked, lambda value: seal(value, codec))


def seal_payloads(entry: AnyFact) -> AnyFact:
    """Return an entry of a trace, whose payload is unsealed, in the form of a log without a codec."""
    return _with_payloads(entry, lambda value: seal(value, None))


def _with_payloads(entry: AnyFact, change: Callable[[JsonValue], JsonValue]) -> AnyFact:
    match entry:
        case RunStarted() | RunResumed():
            return replace(entry, inputs={name: change(value) for name, value in entry.inputs.items()})
        case StepFinished():
            return replace(entry, output=change(entry.output))
        case RequestEnded():
            return replace(entry, response=change(entry.response))
        case ToolEnded():
            return replace(entry, result=change(entry.result), retry=change(entry.retry))
        case OnceDone():
            return replace(entry, result=change(entry.result))
        case QuestionAsked():
            return _with_question(entry, change)
        case AnswerGiven():
            return replace(entry, answer=change(entry.answer))
        case WaitEnded():
            return replace(entry, value=change(entry.value))
        case ValueWritten():
            return replace(entry, value=change(entry.value))
        case MessagesAdded():
            return replace(entry, messages=change(entry.messages))
        case RunFinished() | PauseRequested() | StopRequested() | StepStarted() | StepSkipped():
            pass
        case StepFailed() | StepCancelled() | StepHalted() | StepRetried() | EdgesResolved():
            pass
        case BranchTimedOut() | WaitStarted():
            pass
        case RequestSent() | SpendingRecorded() | OnceStarted() | OnceFailed() | ReplayDiverged():
            pass
        case _:
            assert_never(entry)
    return entry


def _with_question(asked: QuestionAsked, change: Callable[[JsonValue], JsonValue]) -> QuestionAsked:
    options = None if asked.options is None else tuple(map(change, asked.options))
    return replace(asked, question=change(asked.question), options=options)


def seal_messages(entry: AnyFact, codec: PayloadCodec | None) -> AnyFact:
    """An entry as it is stored: what is told of a failure can quote what users gave."""
    return _with_messages(entry, lambda text: seal_text(text, codec))


def unseal_messages(entry: AnyFact, codec: PayloadCodec | None) -> AnyFact:
    """The other way round."""
    return _with_messages(entry, lambda text: unseal_text(text, codec))


def _with_messages(entry: AnyFact, change: Callable[[str], str]) -> AnyFact:
    match entry:
        case StepRetried() | StepFailed() | BranchTimedOut():
            return replace(entry, failure=replace(entry.failure, message=change(entry.failure.message)))
        case StepCancelled():
            return replace(entry, cause=change(entry.cause))
        case StopRequested():
            return replace(entry, reason=change(entry.reason))
        case RunFinished(failure=FailureFacts() as failure):
            failure = replace(failure, message=change(failure.message))
            return replace(entry, failure=failure, reason=change(entry.reason))
        case RunFinished():
            return replace(entry, reason=change(entry.reason))
        case RequestSent() | RequestEnded() | SpendingRecorded() if entry.record.error is not None:
            return replace(entry, record=replace(entry.record, error=change(entry.record.error)))
        case RunStarted() | RunResumed() | PauseRequested() | StepStarted() | StepSkipped() | StepFinished():
            pass
        case AnswerGiven() if entry.rationale:
            return replace(entry, rationale=change(entry.rationale))
        case EdgesResolved() | StepHalted() | QuestionAsked() | AnswerGiven() | ValueWritten():
            pass
        case MessagesAdded() | WaitStarted() | WaitEnded():
            pass
        case RequestSent() | RequestEnded() | SpendingRecorded() | ToolEnded() | OnceStarted() | OnceDone():
            pass
        case OnceFailed() | ReplayDiverged():
            pass
        case _:
            assert_never(entry)
    return entry

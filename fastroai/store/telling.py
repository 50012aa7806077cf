"""Convert facts for people: live values become JSON, and references to the process are dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, assert_never, runtime_checkable

from pydantic import JsonValue
from pydantic_core import from_json, to_jsonable_python

from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    BranchTimedOut,
    EdgeFacts,
    EdgesResolved,
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
from fastroai.store.entries import encode_entry


@runtime_checkable
class AsJson(Protocol):
    """An object that converts itself to JSON."""

    def to_json(self) -> JsonValue:
        """Return the object as plain data."""
        ...


def as_told(fact: AnyFact) -> AnyFact:
    """Return the fact in the form that traces have."""
    match fact:
        case RunStarted() | RunResumed():
            return replace(fact, inputs={name: as_json(value) for name, value in fact.inputs.items()})
        case StepFinished():
            return replace(fact, output=as_json(fact.output), written={}, spent_in=None)
        case StepFailed():
            return replace(fact, raised=None, written={}, spent_in=None)
        case StepCancelled() | StepHalted():
            return replace(fact, written={})
        case RunFinished():
            return replace(fact, raised=None, spent_in=None)
        case StepRetried() | BranchTimedOut():
            return replace(fact, raised=None)
        case EdgesResolved():
            return replace(fact, edges=tuple(map(EdgeFacts.of, fact.edges)))
        case QuestionAsked():
            return replace(fact, question=as_json(fact.question), written={})
        case AnswerGiven():
            return replace(fact, answer=as_json(fact.answer), written={})
        case MessagesAdded(messages=AsJson() as messages):
            return replace(fact, messages=messages.to_json())
        case ValueWritten():
            return replace(fact, value=as_json(fact.value))
        case RequestSent(asked=asked) if asked is not None:
            return replace(fact, request=replace(fact.request, fingerprint=asked()), asked=None)
        case RequestEnded(response=AsJson() as response):
            return replace(fact, response=response.to_json())
        case ToolEnded(result=AsJson() as result):
            return replace(fact, result=result.to_json())
        case OnceDone():
            return replace(fact, result=as_json(fact.result))
        case PauseRequested() | StopRequested() | StepStarted() | StepSkipped() | MessagesAdded():
            pass
        case WaitStarted() | WaitEnded():
            pass  # a store keeps runs that receive messages, so that values are JSON already
        case RequestSent() | RequestEnded() | SpendingRecorded() | ToolEnded() | OnceStarted() | OnceFailed():
            pass
        case ReplayDiverged():
            pass
        case _:
            assert_never(fact)
    return fact


def fact_to_json(fact: AnyFact) -> dict[str, JsonValue]:
    """Return a fact as plain data, such as for a stream of server-sent events.

        async for position, fact in pipeline.follow(run_id):
            yield ServerSentEvent(id=str(position), event=fact.kind, data=fact_to_json(fact))

    The form is that of the entries in `RunTrace.to_json`, and of `fastroai runs trace --json`: `kind` says
    what happened, `part` is the place of the nested pipeline or graph in which it did, and fields that have
    their defaults are left out. A value that JSON cannot hold becomes its `repr`.
    """
    plain: dict[str, JsonValue] = from_json(encode_entry(as_told(fact)))
    return plain


def as_json(value: object) -> JsonValue:
    """Return the value as JSON for people. A value that JSON cannot hold becomes its `repr`."""
    try:
        shown: JsonValue = to_jsonable_python(value, fallback=repr, inf_nan_mode="constants")
    except Exception:  # a cycle, bytes that are no text, a `repr` that fails
        return _safe_repr(value)
    return shown


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)

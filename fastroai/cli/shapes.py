"""The JSON that `--json` prints. Its shapes are documented, and later versions only add to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.records import Usage
    from fastroai.store.open_questions import Question
    from fastroai.store.reading.history import RunSummary
    from fastroai.store.reading.step_summaries import StepSummary
    from fastroai.store.reading.trace_diff import Difference
    from fastroai.store.record.conversations import AgentConversation

_RUN: Final = (
    "run_id pipeline status started_at updated_at requests failed_requests cost_usd cost_complete error "
    "forked_from tags tenant owner lease_until due_at"
)
_QUESTION: Final = (
    "id run_id pipeline node visit question answer_schema options to asked_at deadline tags tenant"
)
_STEP: Final = "place step depth needs status cause attempts started_at ended_at"


def fields_of(names: Iterable[str], *sources: Any) -> dict[str, JsonValue]:
    """Return fields as JSON, each of the first source that has it. Amounts are text, as they are exact."""
    return {
        name: _plain(next(getattr(source, name) for source in sources if hasattr(source, name)))
        for name in names
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, tuple):
        return [*map(_plain, value)]  # pyright: ignore[reportUnknownArgumentType]
    return value


def run_shape(run: RunSummary, spent: Usage | None = None) -> dict[str, JsonValue]:
    """Return a run in brief, with what it has `spent` if more is known of that than its summary says."""
    rows: JsonValue = None if run.rows is None else asdict(run.rows)
    shape = {**fields_of(_RUN.split(), run), "rows": rows}
    if spent is not None:
        known = fields_of(("failed_requests", "cost_usd", "cost_complete"), spent)
        shape |= {"requests": spent.request_count, **known}
    return shape


def question_shape(question: Question) -> dict[str, JsonValue]:
    """Return a question, with its answer if it has one."""
    shape, answer = fields_of(_QUESTION.split(), question), question.answer
    shape["given"] = None
    if answer is not None:
        by = fields_of(("reviewer", "rationale"), answer)
        shape["given"] = {"answer": answer.value, **by, "at": _plain(answer.given_at)}
    return {**shape, "closed": question.closed}


def conversation_shape(conversation: AgentConversation) -> dict[str, JsonValue]:
    """Return what an agent and a model said to each other."""
    names = ("place", "call", "attempt", "tools", "agent", "history", "messages")
    return {**fields_of(names, conversation), "sealed": conversation.is_sealed}


def step_shape(step: StepSummary) -> dict[str, JsonValue]:
    """Return a step in brief."""
    failure = step.failure
    return {
        **fields_of(_STEP.split(), step),
        "requests": step.usage.request_count,
        **fields_of(("failed_requests", "cost_usd", "cost_complete"), step.usage),
        "output": step.output,
        "failure": None
        if failure is None
        else fields_of(("error_type", "message", "failure_class"), failure),
    }


def difference_shape(difference: Difference) -> dict[str, JsonValue]:
    """Return one difference between two runs."""
    ends = fields_of(("first", "second"), difference)
    return {**fields_of(("kind", "place"), difference), "text": str(difference), **ends}

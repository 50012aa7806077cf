"""The JSON that `--json` prints. Its shapes are documented, and later versions only add to them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import JsonValue

if TYPE_CHECKING:
    from fastroai.runtime.facts import FailureFacts
    from fastroai.store.open_questions import Question
    from fastroai.store.reading.history import RunSummary
    from fastroai.store.reading.step_summaries import StepSummary
    from fastroai.store.reading.trace_diff import Difference
    from fastroai.store.record.conversations import AgentConversation


def run_shape(run: RunSummary) -> dict[str, JsonValue]:
    """Return a run in brief. Costs are text, because they are exact."""
    return {
        "run_id": run.run_id,
        "pipeline": run.pipeline,
        "status": run.status,
        "started_at": _time(run.started_at),
        "updated_at": _time(run.updated_at),
        "requests": run.requests,
        "failed_requests": run.failed_requests,
        "cost_usd": str(run.cost_usd),
        "error": run.error,
        "forked_from": run.forked_from,
        "tags": list(run.tags),
        "tenant": run.tenant,
        "owner": run.owner,
        "lease_until": _time(run.lease_until),
        "due_at": _time(run.due_at),
        "rows": None if run.rows is None else asdict(run.rows),
    }


def question_shape(question: Question) -> dict[str, JsonValue]:
    """Return a question, with its answer if it has one."""
    given = question.answer
    return {
        "id": question.id,
        "run_id": question.run_id,
        "pipeline": question.pipeline,
        "node": question.node,
        "visit": question.visit,
        "question": question.question,
        "answer_schema": question.answer_schema,
        "options": None if question.options is None else list(question.options),
        "to": question.to,
        "asked_at": _time(question.asked_at),
        "deadline": _time(question.deadline),
        "tags": list(question.tags),
        "tenant": question.tenant,
        "given": None
        if given is None
        else {
            "answer": given.value,
            "reviewer": given.reviewer,
            "rationale": given.rationale,
            "at": _time(given.given_at),
        },
        "closed": question.closed,
    }


def conversation_shape(conversation: AgentConversation) -> dict[str, JsonValue]:
    """Return what an agent and a model said to each other."""
    return {
        "place": conversation.place,
        "call": conversation.call,
        "attempt": conversation.attempt,
        "tools": list(conversation.tools),
        "agent": conversation.agent,
        "history": conversation.history,
        "messages": list(conversation.messages),
        "sealed": conversation.is_sealed,
    }


def step_shape(step: StepSummary) -> dict[str, JsonValue]:
    """Return a step in brief."""
    failure = step.failure
    return {
        "place": step.place,
        "step": step.step,
        "depth": step.depth,
        "needs": list(step.needs),
        "status": step.status,
        "cause": step.cause,
        "attempts": step.attempts,
        "started_at": _time(step.started_at),
        "ended_at": _time(step.ended_at),
        "requests": step.usage.request_count,
        "failed_requests": step.usage.failed_requests,
        "cost_usd": str(step.usage.cost_usd),
        "cost_complete": step.usage.cost_complete,
        "output": step.output,
        "failure": None if failure is None else failure_shape(failure),
    }


def failure_shape(failure: FailureFacts) -> dict[str, JsonValue]:
    """Return a failure."""
    return {
        "error_type": failure.error_type,
        "message": failure.message,
        "failure_class": failure.failure_class,
    }


def difference_shape(difference: Difference) -> dict[str, JsonValue]:
    """Return one difference between two runs."""
    return {
        "kind": difference.kind,
        "place": difference.place,
        "text": str(difference),
        "first": difference.first,
        "second": difference.second,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()

"""The shapes of runs, questions and answers over HTTP. Clients rely on them: see `api_schema`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PlainSerializer, WithJsonSchema

from fastroai.store import RunSnapshot, RunSummary
from fastroai.store.open_questions import Question
from fastroai.store.record.entries import RunState as Status
from fastroai.web.caller import Caller

Usd = Annotated[
    Decimal,
    PlainSerializer(lambda usd: f"{usd:f}", return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}),
]
"""US dollars, exact: a decimal number as text."""


class RunLine(BaseModel):
    """A run in a list."""

    id: str
    status: Status
    cost_usd: Usd = Field(description="what is known of its cost, in US dollars")
    cost_complete: bool = Field(
        description="whether all of its cost is known; false while it runs and until it is taken up again"
    )
    requests: int = Field(description="requests that were sent and not refused")
    input_tokens: int
    output_tokens: int
    tags: list[str]
    started_at: datetime | None
    updated_at: datetime | None

    @classmethod
    def of(cls, run: RunSummary, caller: Caller[Any]) -> RunLine:
        """Return a run at a glance, as a caller sees it."""
        return cls(
            id=caller.shown_id(run.run_id),
            status=run.status,
            cost_usd=run.cost_usd,
            cost_complete=run.cost_complete,
            requests=run.requests,
            input_tokens=run.input_tokens,
            output_tokens=run.output_tokens,
            tags=list(run.tags),
            started_at=run.started_at,
            updated_at=run.updated_at,
        )


class OpenQuestion(BaseModel):
    """A question that waits for the answer of a person."""

    key: str = Field(description="identifies the question in its run")
    run: str = Field(description="the id of the run")
    step: str
    question: JsonValue
    answer_schema: dict[str, JsonValue] | None = Field(description="JSON Schema of the answer, if any")
    options: list[JsonValue] | None = Field(description="the answers that can be given, if they are limited")
    to: str = Field(description="the people to ask, as the step says")
    asked_at: datetime
    deadline: datetime | None

    @classmethod
    def of(cls, asked: Question, caller: Caller[Any]) -> OpenQuestion:
        """Return an open question, as a caller sees it."""
        return cls(
            key=asked.id.removeprefix(f"{asked.run_id}:"),
            run=caller.shown_id(asked.run_id),
            step=asked.node,
            question=asked.question,
            answer_schema=asked.answer_schema,
            options=None if asked.options is None else list(asked.options),
            to=asked.to,
            asked_at=asked.asked_at,
            deadline=asked.deadline,
        )


class RunState(BaseModel):
    """How far a run is."""

    id: str
    status: Status
    code: str | None = Field(description="why it ended or waits, such as `budget_exceeded` or `question`")
    step: str | None = Field(description="the step whose failure made it fail, if one did")
    output: JsonValue = Field(description="its output, when it has finished")
    cost_usd: Usd = Field(description="what is known of its cost, in US dollars")
    cost_complete: bool = Field(description="whether all of its cost is known")
    requests: int = Field(description="requests that were sent and not refused")
    waits_until: datetime | None
    questions: list[OpenQuestion]
    position: int = Field(description="the id of its last event")

    @classmethod
    def of(cls, run: RunSnapshot, caller: Caller[Any]) -> RunState:
        """Return the state of a run, as a caller sees it."""
        usage, ended = run.trace.usage, run.finish
        return cls(
            id=caller.shown_id(run.run_id),
            status=run.status,
            code=None if ended is None else ended.reason_code,
            step=(ended.step_id or None) if ended is not None and ended.status == "failed" else None,
            output=run.trace.output if run.status == "finished" else None,
            cost_usd=usage.cost_usd,
            cost_complete=usage.cost_complete,
            requests=usage.request_count,
            waits_until=run.waits_until,
            questions=[OpenQuestion.of(asked, caller) for asked in run.questions],
            position=run.position,
        )

    @property
    def has_ended(self) -> bool:
        """Whether nothing happens in the run any more, unless somebody resumes it."""
        return self.status in ("finished", "failed", "cancelled")


class ReportRow(BaseModel):
    """The usage and the cost of some requests of a run."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="the step, agent, model, …; `total` for all of them")
    request_count: int = Field(description="requests that were sent and not refused")
    failed_requests: int = Field(description="requests that ended unbilled")
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Usd = Field(description="what is known of the cost, in US dollars")
    cost_complete: bool = Field(description="whether that is all of it")
    unpriced_requests: int
    unpriced_units: str
    unmeasured_requests: int = Field(description="requests that were sent, and whose usage never came")
    uncertain_usd: Usd = Field(description="what unpriced and unmeasured requests can have cost at most")
    unbounded_requests: int
    committed_usd: Usd = Field(description="what budgets count")
    share: float | None = Field(description="its part of the total, from 0 to 1, for display")


class Report(BaseModel):
    """What a run has cost, by the origin of the cost: `UsageReport.to_json()`."""

    model_config = ConfigDict(extra="forbid")

    version: int
    currency: str
    cost_complete: bool
    stated_over_priced_usd: Usd
    total: ReportRow
    by_step: list[ReportRow]
    by_agent: list[ReportRow]
    by_model: list[ReportRow]
    by_tool: list[ReportRow]
    by_variant: list[ReportRow]
    by_tenant: list[ReportRow]
    by_tag: list[ReportRow]
    by_outcome: list[ReportRow]


class RunPage(BaseModel):
    """A page of runs."""

    runs: list[RunLine]
    next: str | None = Field(description="what `after` must be for the next page; null on the last one")


class QuestionPage(BaseModel):
    """A page of open questions."""

    questions: list[OpenQuestion]
    next: str | None = Field(description="what `after` must be for the next page; null on the last one")


class GivenAnswer(BaseModel):
    """The answer of a person."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(description="the key of the question", min_length=1, max_length=200)
    value: JsonValue
    reviewer: str = Field("", max_length=200, description="who answers, unless the service knows it")
    rationale: str = Field("", max_length=10_000, description="why")


class PartialText(BaseModel):
    """Text that a step is writing: an event without an id, because it is not on record."""

    step: str
    at: int = Field(description="the character at which `text` begins; replace all that you have after it")
    text: str


class ProblemDetails(BaseModel):
    """Why a request was refused: problem details of RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(description="the problem, for programs")

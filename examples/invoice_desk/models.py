"""What goes in and out over HTTP. Clients rely on these shapes, so they are not those of the library."""

from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, Field, JsonValue


class Invoice(BaseModel):
    """An uploaded invoice."""

    text: str = Field(min_length=1, max_length=50_000)


class InvoiceLine(BaseModel):
    """An invoice in a list."""

    number: str
    status: Literal["running", "interrupted", "paused", "finished", "failed", "cancelled", "unreadable"]
    cost_usd: Decimal


class InvoiceState(InvoiceLine):
    """How far an invoice is."""

    code: str | None = Field(description="why it ended or waits, such as `budget_exceeded` or `question`")
    draft: str | None


class StepNews(BaseModel):
    """A step has started or ended."""

    step: str
    status: Literal["started", "finished", "failed", "skipped"]
    output: JsonValue = None


class EndNews(BaseModel):
    """The run has ended, or waits for a person."""

    status: Literal["running", "paused", "finished", "failed", "cancelled"]
    code: str | None


class Question(BaseModel):
    """A question that waits for an answer."""

    id: str
    number: str = Field(description="that of the invoice")
    question: JsonValue
    answer_schema: dict[str, JsonValue] | None
    asked_at: datetime


class Answer(BaseModel):
    """The answer of a person."""

    value: JsonValue
    reviewer: str = Field(min_length=1, max_length=100)
    rationale: str = Field("", max_length=1_000)


class Spending(BaseModel):
    """What a customer has spent today, and may spend."""

    limit_usd: Decimal
    spent_usd: Decimal
    resets_at: datetime | None


class CustomerSpending(BaseModel):
    """What the invoices of a customer have cost, and what is left of today's limit."""

    customer: str
    requests: int
    cost_usd: Decimal
    left_today_usd: Decimal | None = Field(description="null if nothing was spent for a long time")

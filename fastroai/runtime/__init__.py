"""Scopes, the ledger, the clock, failures and retries, events: what every run stands on."""

from fastroai.runtime.admission import (
    RequestTerms,
    Reservation,
    admit,
    record_spending,
    step_down_if_due,
)
from fastroai.runtime.budget_scope import BudgetScope, BudgetView, Remaining, budget_scope
from fastroai.runtime.clock import Clock
from fastroai.runtime.events import (
    BudgetRefused,
    BudgetWarning,
    Listener,
    RunEvent,
    RunFinished,
    RunStarted,
    SpendRecorded,
    StepFailed,
    StepFinished,
    StepRetried,
    StepSkipped,
    StepStarted,
    TextChunk,
)
from fastroai.runtime.failures import (
    billing_of,
    is_exhausted,
    is_terminal,
    is_transport_failure,
    mark_exhausted,
    may_retry,
    retry_after,
)
from fastroai.runtime.pump import Pump, PumpedStream, Send
from fastroai.runtime.retry import backoff_delay
from fastroai.runtime.scope import Charge, Scope, current_scope
from fastroai.runtime.sync import run_blocking

__all__ = [
    "BudgetRefused",
    "BudgetScope",
    "BudgetView",
    "BudgetWarning",
    "Charge",
    "Clock",
    "Listener",
    "Pump",
    "PumpedStream",
    "Remaining",
    "RequestTerms",
    "Reservation",
    "RunEvent",
    "RunFinished",
    "RunStarted",
    "Scope",
    "Send",
    "SpendRecorded",
    "StepFailed",
    "StepFinished",
    "StepRetried",
    "StepSkipped",
    "StepStarted",
    "TextChunk",
    "admit",
    "backoff_delay",
    "budget_scope",
    "billing_of",
    "current_scope",
    "is_exhausted",
    "is_terminal",
    "is_transport_failure",
    "mark_exhausted",
    "may_retry",
    "record_spending",
    "retry_after",
    "run_blocking",
    "step_down_if_due",
]

"""Scopes, the ledger, the clock, failures and retries, events: what every run stands on."""

from fastroai.runtime.clock import Clock
from fastroai.runtime.events import (
    Listener,
    RunEvent,
    RunFinished,
    RunStarted,
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
from fastroai.runtime.ledger import RequestTerms, Reservation, admit
from fastroai.runtime.pump import Pump, PumpedStream, Send
from fastroai.runtime.retry import backoff_delay
from fastroai.runtime.scope import Scope, current_scope
from fastroai.runtime.sync import run_blocking

__all__ = [
    "Clock",
    "Listener",
    "Pump",
    "PumpedStream",
    "RequestTerms",
    "Reservation",
    "RunEvent",
    "RunFinished",
    "RunStarted",
    "Scope",
    "Send",
    "StepFailed",
    "StepFinished",
    "StepRetried",
    "StepSkipped",
    "StepStarted",
    "TextChunk",
    "admit",
    "backoff_delay",
    "billing_of",
    "current_scope",
    "is_exhausted",
    "is_terminal",
    "is_transport_failure",
    "mark_exhausted",
    "may_retry",
    "retry_after",
    "run_blocking",
]

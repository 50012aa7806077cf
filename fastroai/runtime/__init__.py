"""Scopes, the ledger, the clock, failures and retries, events: what every run stands on."""

from fastroai.runtime.admission import (
    RequestTerms,
    Reservation,
    admit,
    crossing,
    record_spending,
    step_down_if_due,
)
from fastroai.runtime.budget_scope import BudgetScope, BudgetView, Remaining, budget_scope
from fastroai.runtime.circuit import CircuitState
from fastroai.runtime.circuit_breaker import CircuitBreaker
from fastroai.runtime.classification import Classifier, FailureClass, FailureContext, classify
from fastroai.runtime.clock import Clock
from fastroai.runtime.events import (
    BudgetRefused,
    BudgetWarning,
    CircuitClosed,
    CircuitOpened,
    ContractViolated,
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
)
from fastroai.runtime.http_signals import retry_after
from fastroai.runtime.in_flight import Charge
from fastroai.runtime.provider_limits import (
    ProviderLimit,
    ProviderLimits,
    ProviderLimitStatus,
    check_provider_limits,
)
from fastroai.runtime.pump import Pump, PumpedStream, Send
from fastroai.runtime.retry import DEFAULT_RETRY, RetriesUsed, RetryPolicies, RetryPolicy, backoff_delay
from fastroai.runtime.retry_rules import Retry, RetryRules
from fastroai.runtime.scope import Scope, current_scope
from fastroai.runtime.sync import run_blocking

__all__ = [
    "DEFAULT_RETRY",
    "BudgetRefused",
    "BudgetScope",
    "BudgetView",
    "BudgetWarning",
    "Charge",
    "CircuitBreaker",
    "CircuitClosed",
    "CircuitOpened",
    "CircuitState",
    "Classifier",
    "Clock",
    "ContractViolated",
    "FailureClass",
    "FailureContext",
    "Listener",
    "ProviderLimit",
    "ProviderLimitStatus",
    "ProviderLimits",
    "Pump",
    "PumpedStream",
    "Remaining",
    "RequestTerms",
    "Reservation",
    "RetriesUsed",
    "Retry",
    "RetryPolicies",
    "RetryPolicy",
    "RetryRules",
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
    "billing_of",
    "budget_scope",
    "check_provider_limits",
    "classify",
    "crossing",
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

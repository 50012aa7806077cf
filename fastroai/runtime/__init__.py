"""Scopes, the ledger, the clock, failures and retries, events: what every run stands on.

Each name is loaded when it is first used: the command line asks whether a process is dead without PydanticAI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastroai.runtime.admission import (
        RequestTerms,
        Reservation,
        admit,
        crossing,
        record_spending,
        step_down_if_due,
    )
    from fastroai.runtime.budget_scopes import BudgetScope, BudgetView, Remaining, budget_scope
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
        SpendRecorded,
        TextChunk,
    )
    from fastroai.runtime.facts import (
        AnswerGiven,
        BranchTimedOut,
        EdgesResolved,
        Fact,
        QuestionAsked,
        RunEvent,
        RunFinished,
        RunResumed,
        RunStarted,
        StepCancelled,
        StepFailed,
        StepFinished,
        StepRetried,
        StepSkipped,
        StepStarted,
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
    from fastroai.runtime.retry import (
        DEFAULT_RETRY,
        NO_RETRIES_USED,
        RetriesUsed,
        RetryPolicies,
        RetryPolicy,
        backoff_delay,
    )
    from fastroai.runtime.retry_rules import Retry, RetryRules
    from fastroai.runtime.scope import Scope, current_scope
    from fastroai.runtime.sync import blocking, blocking_overloaded, loop_of_run, run_blocking

__all__ = [
    "AnswerGiven",
    "BranchTimedOut",
    "EdgesResolved",
    "Fact",
    "QuestionAsked",
    "RunResumed",
    "StepCancelled",
    "DEFAULT_RETRY",
    "NO_RETRIES_USED",
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
    "blocking",
    "blocking_overloaded",
    "budget_scope",
    "check_provider_limits",
    "classify",
    "crossing",
    "current_scope",
    "is_exhausted",
    "is_terminal",
    "is_transport_failure",
    "loop_of_run",
    "mark_exhausted",
    "may_retry",
    "record_spending",
    "retry_after",
    "run_blocking",
    "step_down_if_due",
]

_HOMES = {
    "fastroai.runtime.admission": (
        "RequestTerms",
        "Reservation",
        "admit",
        "crossing",
        "record_spending",
        "step_down_if_due",
    ),
    "fastroai.runtime.budget_scopes": (
        "BudgetScope",
        "BudgetView",
        "Remaining",
        "budget_scope",
    ),
    "fastroai.runtime.circuit": ("CircuitState",),
    "fastroai.runtime.circuit_breaker": ("CircuitBreaker",),
    "fastroai.runtime.classification": (
        "Classifier",
        "FailureClass",
        "FailureContext",
        "classify",
    ),
    "fastroai.runtime.clock": ("Clock",),
    "fastroai.runtime.events": (
        "BudgetRefused",
        "BudgetWarning",
        "CircuitClosed",
        "CircuitOpened",
        "ContractViolated",
        "Listener",
        "SpendRecorded",
        "TextChunk",
    ),
    "fastroai.runtime.facts": (
        "AnswerGiven",
        "BranchTimedOut",
        "EdgesResolved",
        "Fact",
        "QuestionAsked",
        "RunEvent",
        "RunFinished",
        "RunResumed",
        "RunStarted",
        "StepCancelled",
        "StepFailed",
        "StepFinished",
        "StepRetried",
        "StepSkipped",
        "StepStarted",
    ),
    "fastroai.runtime.failures": (
        "billing_of",
        "is_exhausted",
        "is_terminal",
        "is_transport_failure",
        "mark_exhausted",
        "may_retry",
    ),
    "fastroai.runtime.http_signals": ("retry_after",),
    "fastroai.runtime.in_flight": ("Charge",),
    "fastroai.runtime.provider_limits": (
        "ProviderLimit",
        "ProviderLimits",
        "ProviderLimitStatus",
        "check_provider_limits",
    ),
    "fastroai.runtime.pump": (
        "Pump",
        "PumpedStream",
        "Send",
    ),
    "fastroai.runtime.retry": (
        "DEFAULT_RETRY",
        "NO_RETRIES_USED",
        "RetriesUsed",
        "RetryPolicies",
        "RetryPolicy",
        "backoff_delay",
    ),
    "fastroai.runtime.retry_rules": (
        "Retry",
        "RetryRules",
    ),
    "fastroai.runtime.scope": (
        "Scope",
        "current_scope",
    ),
    "fastroai.runtime.sync": ("blocking", "blocking_overloaded", "loop_of_run", "run_blocking"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fastroai.runtime' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

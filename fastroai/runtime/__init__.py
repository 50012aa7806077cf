"""The base of every run: scopes, the ledger, clocks, failures and retries, facts and events.

Each name is loaded when it is first used. So the command line can ask whether a process is dead without
loading PydanticAI.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.runtime.budgets.admission import admit as admit
    from fastroai.runtime.budgets.admission import record_spending as record_spending
    from fastroai.runtime.budgets.budget_scopes import BudgetScope as BudgetScope
    from fastroai.runtime.budgets.budget_scopes import BudgetView as BudgetView
    from fastroai.runtime.budgets.budget_scopes import Remaining as Remaining
    from fastroai.runtime.budgets.budget_scopes import budget_scope as budget_scope
    from fastroai.runtime.budgets.in_flight import Charge as Charge
    from fastroai.runtime.budgets.reservation import Reservation as Reservation
    from fastroai.runtime.concurrency.clock import Clock as Clock
    from fastroai.runtime.concurrency.pump import PumpedStream as PumpedStream
    from fastroai.runtime.concurrency.pump import Send as Send
    from fastroai.runtime.concurrency.sync import blocking as blocking
    from fastroai.runtime.concurrency.sync import blocking_overloaded as blocking_overloaded
    from fastroai.runtime.concurrency.sync import run_blocking as run_blocking
    from fastroai.runtime.events import CircuitClosed as CircuitClosed
    from fastroai.runtime.events import CircuitOpened as CircuitOpened
    from fastroai.runtime.options import LongTimeoutWarning as LongTimeoutWarning
    from fastroai.runtime.providers.circuit import CircuitState as CircuitState
    from fastroai.runtime.providers.circuit_breaker import CircuitBreaker as CircuitBreaker
    from fastroai.runtime.providers.provider_limits import ProviderLimit as ProviderLimit
    from fastroai.runtime.providers.provider_limits import ProviderLimits as ProviderLimits
    from fastroai.runtime.providers.provider_line import ProviderLimitStatus as ProviderLimitStatus
    from fastroai.runtime.retrying.classification import Classifier as Classifier
    from fastroai.runtime.retrying.classification import FailureClass as FailureClass
    from fastroai.runtime.retrying.classification import FailureContext as FailureContext
    from fastroai.runtime.retrying.classification import classify as classify
    from fastroai.runtime.retrying.failures import billing_of as billing_of
    from fastroai.runtime.retrying.failures import is_transport_failure as is_transport_failure
    from fastroai.runtime.retrying.retry import DEFAULT_RETRY as DEFAULT_RETRY
    from fastroai.runtime.retrying.retry import NO_RETRIES_USED as NO_RETRIES_USED
    from fastroai.runtime.retrying.retry import RetriesUsed as RetriesUsed
    from fastroai.runtime.retrying.retry import RetryPolicies as RetryPolicies
    from fastroai.runtime.retrying.retry import RetryPolicy as RetryPolicy
    from fastroai.runtime.retrying.retry import backoff_delay as backoff_delay
    from fastroai.runtime.retrying.retry_rules import Retry as Retry
    from fastroai.runtime.retrying.retry_rules import RetryRules as RetryRules
    from fastroai.runtime.scope import Scope as Scope
    from fastroai.runtime.scope import current_scope as current_scope
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        unlisted=[
            "Charge",
            "CircuitState",
            "Clock",
            "NO_RETRIES_USED",
            "ProviderLimits",
            "PumpedStream",
            "Reservation",
            "Retry",
            "RetryPolicies",
            "RetryRules",
            "Scope",
            "Send",
            "admit",
            "backoff_delay",
            "billing_of",
            "blocking",
            "blocking_overloaded",
            "current_scope",
            "is_transport_failure",
            "record_spending",
            "run_blocking",
        ],
    )

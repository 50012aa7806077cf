"""The one decision of every level that retries: whether to retry a failure, and after which wait."""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.errors import error_chain
from fastroai.runtime.retrying.classification import Classifier, FailureClass, FailureContext, classify
from fastroai.runtime.retrying.failures import is_exhausted, mark_exhausted, note_class
from fastroai.runtime.retrying.http_signals import retry_after
from fastroai.runtime.retrying.retry import RetriesUsed, RetryPolicies, RetryPolicy
from fastroai.runtime.scope import Scope


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to try again."""

    error: Exception
    """The failure."""
    failure_class: FailureClass
    delay: float
    """Seconds to wait before the retry."""
    failed_attempt: int
    used: RetriesUsed
    """Retries used, including this one."""


@dataclass(frozen=True, slots=True)
class RetryRules:
    """The rules by which one level retries: an agent call, a step's own code, or a request."""

    policies: RetryPolicies
    classifiers: tuple[Classifier, ...] = ()
    shared: bool = False
    """Whether the classes of failures share one count, as with plain `retries`."""

    @classmethod
    def counted(cls, retries: int, backoff: float, classifiers: tuple[Classifier, ...] = ()) -> RetryRules:
        """Return the rules of plain `retries`: this many extra attempts, unless a failure is terminal."""
        return cls(RetryPolicies.of(RetryPolicy(retries, backoff)), classifiers, shared=True)

    def next(self, error: Exception, used: RetriesUsed, scope: Scope | None) -> Retry | None:
        """Return how to retry a failure; `None` if it is final.

        A failure is final if it is terminal, if the retries are used up, or if the wait would go past a
        deadline. In the last two cases it is marked, so that no outer level repeats the work; a deadline is
        also noted on the exception.
        """
        failure = classify_in(scope, error, used.attempt, self.classifiers)
        note_class(error, failure)
        if failure is FailureClass.TERMINAL or is_exhausted(error):
            return None
        count = used.recoverable + used.ambiguous if self.shared else used.of(failure)
        policy = self.policies.get(failure)
        if policy is None or count >= policy.max_retries:
            mark_exhausted(error)
            return None
        asked = retry_after(error) or 0.0
        delay = max(policy.delay(count + 1), asked)
        deadline = None if scope is None else scope.time.deadline
        if deadline is not None and deadline[0] <= delay:
            mark_exhausted(error)
            error.add_note(_why_not(delay, asked, *deadline))
            return None
        return Retry(error, failure, delay, used.attempt, used.after(failure))


def classify_in(
    scope: Scope | None, error: BaseException, attempt: int, classifiers: tuple[Classifier, ...]
) -> FailureClass:
    """Return the class of the failure of an attempt in a scope, or outside of any run."""
    context = FailureContext(
        step_id=None if scope is None else scope.step_id,
        attempt=attempt,
        run_id=None if scope is None else scope.run_id,
        chain=tuple(error_chain(error)),
    )
    return classify(error, context, classifiers)


def _why_not(delay: float, asked: float, left: float, what: str) -> str:
    wish = "the provider asked to wait" if asked and delay == asked else "the next attempt would wait"
    return f"not retried: {wish} {_shown(delay)} s, and {what} has {_shown(max(0.0, left))} s left"


def _shown(seconds: float) -> str:
    return f"{seconds:.1f}".removesuffix(".0")

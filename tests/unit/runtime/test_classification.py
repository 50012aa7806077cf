import asyncio
import errno
import logging
import socket
from typing import Any

import pytest
from pydantic_ai import exceptions
from pydantic_ai.exceptions import (
    ConcurrencyLimitExceeded,
    ContentFilterError,
    FallbackExceptionGroup,
    IncompleteToolCall,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunCancelled,
    RunTimedOut,
    SuspendedResponseExpired,
    UndrainedPendingMessagesError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from fastroai.errors import (
    AnswerCutError,
    ConfigurationError,
    CostBudgetExceeded,
    MissingInputError,
    SpendStoreUnavailable,
    StepExecutionError,
    TimeLimitExceeded,
)
from fastroai.runtime import Classifier, FailureClass, FailureContext, classify
from fastroai.runtime.retrying.failures import is_terminal

RECOVERABLE, TERMINAL, AMBIGUOUS = FailureClass.RECOVERABLE, FailureClass.TERMINAL, FailureClass.AMBIGUOUS


def http(status: int, **options: Any) -> ModelHTTPError:
    return ModelHTTPError(status, "gpt", **options)


def named(value: object) -> str | None:
    return type(value).__name__ if isinstance(value, BaseException) else None


def like_httpx(name: str, *bases: type) -> Exception:
    """An exception of an HTTP client that is not imported for this."""
    kind: type[Exception] = type(name, bases or (Exception,), {})
    return kind("x")


class SdkError(Exception):
    """As the providers' SDKs and HTTP clients raise them: the answer is on `response`."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(status)
        self.response = type("Response", (), {"status_code": status, "headers": headers})()


RULES: list[tuple[BaseException, FailureClass]] = [
    # what the provider said
    *[(http(status), RECOVERABLE) for status in (408, 409, 425, 429, 500, 502, 503, 504, 529)],
    *[(http(status), TERMINAL) for status in (400, 401, 402, 403, 404, 413, 422)],
    *[(http(status, in_stream=True), AMBIGUOUS) for status in (429, 500, 529)],
    (http(400, in_stream=True), TERMINAL),
    (http(503, headers={"X-Should-Retry": "false"}), TERMINAL),
    (http(400, headers={"x-should-retry": "true"}), RECOVERABLE),
    (http(503, headers={"x-should-retry": "perhaps"}), RECOVERABLE),
    (SdkError(429), RECOVERABLE),
    (SdkError(401), TERMINAL),
    (SdkError(503, **{"x-should-retry": "false"}), TERMINAL),
    (ModelQuotaExceededError("gpt", "pay first"), TERMINAL),
    (ModelHTTPError.for_category(ModelQuotaExceededError, status_code=429, model_name="m"), TERMINAL),
    (ContentFilterError("refused"), TERMINAL),
    # PydanticAI's errors of models
    (ModelRateLimitError("gpt", "slow down"), RECOVERABLE),
    (ModelRateLimitError("gpt", "slow down", in_stream=True), AMBIGUOUS),
    (ModelUnavailableError("gpt", "busy"), RECOVERABLE),
    (ModelHTTPError.for_category(ModelUnavailableError, status_code=403, model_name="m"), RECOVERABLE),
    (ModelOverloadedError("gpt", "busy"), RECOVERABLE),
    (ModelServerError("gpt", "oops"), RECOVERABLE),
    (ModelRequestRejectedError("gpt", "no"), TERMINAL),
    (ModelHTTPError.for_category(ModelRequestRejectedError, status_code=500, model_name="m"), TERMINAL),
    (ModelContextWindowExceededError("gpt", "too long"), TERMINAL),
    (ModelAuthenticationError("gpt", "who?"), TERMINAL),
    (ModelNotFoundError("gpt", "which?"), TERMINAL),
    (ModelConnectionError("gpt", "refused", phase="connect"), RECOVERABLE),
    (ModelConnectionError("gpt", "all in use", phase="pool"), RECOVERABLE),
    (ModelConnectionError("gpt", "reset", phase="write"), AMBIGUOUS),
    (ModelConnectionError("gpt", "cut", phase="read"), AMBIGUOUS),
    (ModelConnectionError("gpt", "who knows"), AMBIGUOUS),
    (ModelTimeoutError("gpt", "no connection in time", phase="connect"), RECOVERABLE),
    (ModelTimeoutError("gpt", "no answer in time", phase="read"), AMBIGUOUS),
    (ModelRequestTimeout("gpt", 5), AMBIGUOUS),
    (ModelAPIError("gpt", "something"), AMBIGUOUS),
    # answers that cannot be used
    (UnexpectedModelBehavior("nonsense"), AMBIGUOUS),
    (IncompleteToolCall("half of it"), AMBIGUOUS),
    (getattr(exceptions, "OutputTokenLimitExceeded", IncompleteToolCall)("too long"), AMBIGUOUS),
    (AnswerCutError("m", "p"), AMBIGUOUS),
    (SuspendedResponseExpired("gone"), AMBIGUOUS),
    # time
    (TimeoutError(), AMBIGUOUS),
    (RunTimedOut("10 s"), AMBIGUOUS),
    (TimeLimitExceeded("step", 1), AMBIGUOUS),
    # the connection, outside of models
    (ConnectionRefusedError(), RECOVERABLE),
    (OSError(errno.ECONNREFUSED, "refused"), RECOVERABLE),
    (OSError(errno.EHOSTUNREACH, "no route"), RECOVERABLE),
    (socket.gaierror(socket.EAI_AGAIN, "no name"), RECOVERABLE),
    (like_httpx("ConnectError"), RECOVERABLE),
    (like_httpx("ClientConnectorDNSError", type(like_httpx("ClientConnectorError", OSError))), RECOVERABLE),
    (ConnectionResetError(), AMBIGUOUS),
    (BrokenPipeError(), AMBIGUOUS),
    (ConnectionError("which?"), AMBIGUOUS),
    (like_httpx("ReadError"), AMBIGUOUS),
    (FileNotFoundError(errno.ENOENT, "no file"), AMBIGUOUS),
    # stops, mistakes, cancellation
    (asyncio.CancelledError(), TERMINAL),
    (KeyboardInterrupt(), TERMINAL),
    (RunCancelled("by a token"), TERMINAL),
    (CostBudgetExceeded(10, 10), TERMINAL),
    (UsageLimitExceeded("too many requests"), TERMINAL),
    (UserError("wrong"), TERMINAL),
    (UndrainedPendingMessagesError("wrong"), TERMINAL),
    (ConfigurationError("timeout", -1, "more"), TERMINAL),
    (MissingInputError("s", "text", ()), TERMINAL),
    (NameError("respones"), TERMINAL),
    (NotImplementedError(), TERMINAL),
    # nothing was sent
    (ConcurrencyLimitExceeded("too many wait"), RECOVERABLE),
    (SpendStoreUnavailable("redis", "no connection"), RECOVERABLE),
    # nobody knows
    (ValueError("x"), AMBIGUOUS),
    (RuntimeError("x"), AMBIGUOUS),
]


@pytest.mark.parametrize(("error", "expected"), RULES, ids=named)
def test_the_table_of_rules(error: BaseException, expected: FailureClass) -> None:
    assert classify(error) is expected
    assert is_terminal(error) == (expected is TERMINAL)


def test_every_error_of_models_and_runs_that_pydantic_ai_has_is_in_the_table() -> None:
    """A new one must be looked at, not fall through."""
    theirs = {
        kind
        for name, kind in vars(exceptions).items()
        if isinstance(kind, type)
        and issubclass(kind, exceptions.AgentRunError | UserError)
        and not name.startswith("_")
    }
    assert theirs - {exceptions.AgentRunError} <= {type(error) for error, _ in RULES}


def test_what_we_never_sent_is_recoverable_also_where_it_is_an_error_of_the_model_too() -> None:
    class NotSent(SpendStoreUnavailable, ModelAPIError):
        def __init__(self) -> None:
            Exception.__init__(self)

    assert classify(NotSent()) is RECOVERABLE


def test_a_failed_step_is_of_the_class_of_what_it_failed_with() -> None:
    assert classify(StepExecutionError("s", http(503))) is RECOVERABLE
    assert classify(StepExecutionError("outer", StepExecutionError("inner", UserError("no")))) is TERMINAL


@pytest.mark.parametrize(
    ("members", "expected", "one_after_the_other"),
    [
        ([http(503), http(429)], RECOVERABLE, RECOVERABLE),
        ([http(503), ValueError()], AMBIGUOUS, AMBIGUOUS),
        ([http(503), UserError("no")], TERMINAL, RECOVERABLE),
        ([ValueError(), UserError("no")], TERMINAL, AMBIGUOUS),
        ([UserError("no"), http(401)], TERMINAL, TERMINAL),
    ],
)
def test_a_group_is_as_bad_as_its_worst_member_and_a_fallback_as_its_worst_that_may_pass(
    members: list[Exception], expected: FailureClass, one_after_the_other: FailureClass
) -> None:
    assert classify(ExceptionGroup("side by side", members)) is expected
    assert classify(FallbackExceptionGroup("one after the other", members)) is one_after_the_other


def test_a_group_with_an_interrupt_is_terminal() -> None:
    assert classify(BaseExceptionGroup("g", [ValueError(), KeyboardInterrupt()])) is TERMINAL


# --- users' classifiers ---


def says(failure: FailureClass | None) -> Classifier:
    return lambda error, context: failure


def test_the_first_classifier_with_an_opinion_has_the_say_and_the_rules_if_none_has() -> None:
    assert classify(http(503), classifiers=[says(None), says(TERMINAL), says(AMBIGUOUS)]) is TERMINAL
    assert classify(UserError("no"), classifiers=[says(RECOVERABLE)]) is RECOVERABLE
    assert classify(http(503), classifiers=[says(None)]) is RECOVERABLE


def test_a_classifier_is_asked_about_what_is_inside_groups_and_failed_steps_too() -> None:
    def no_values(error: BaseException, context: FailureContext) -> FailureClass | None:
        return TERMINAL if isinstance(error, ValueError) else None

    assert classify(StepExecutionError("s", ValueError()), classifiers=[no_values]) is TERMINAL
    assert classify(ExceptionGroup("g", [http(503), ValueError()]), classifiers=[no_values]) is TERMINAL


def test_a_classifier_sees_where_it_happened_and_the_whole_chain() -> None:
    seen: list[FailureContext] = []
    error, cause = ValueError("x"), KeyError("y")
    error.__cause__ = cause

    def look(error: BaseException, context: FailureContext) -> None:
        seen.append(context)

    given = FailureContext(step_id="s", attempt=2, run_id="r", chain=(error,))
    classify(error, given, [look])
    classify(error, classifiers=[look])
    assert seen == [given, FailureContext(chain=(error, cause))]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt()], ids=named)
def test_no_classifier_makes_cancellation_a_failure(error: BaseException) -> None:
    assert classify(error, classifiers=[says(RECOVERABLE)]) is TERMINAL


def test_a_classifier_that_raises_is_reported_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    def broken(error: BaseException, context: FailureContext) -> FailureClass:
        raise LookupError("a bug in it")

    with caplog.at_level(logging.ERROR, "fastroai.runtime"):
        assert classify(http(503), classifiers=[broken, says(TERMINAL)]) is TERMINAL
    assert "LookupError: a bug in it" in caplog.text


def test_a_classifier_that_says_something_else_is_reported_and_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong: Any = lambda error, context: "terminal?"  # noqa: E731
    assert classify(http(503), classifiers=[wrong]) is RECOVERABLE
    assert "neither a FailureClass nor None" in caplog.text

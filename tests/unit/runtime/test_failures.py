import asyncio

import pytest
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRetry,
    ModelServerError,
    ModelUnavailableError,
    RunCancelled,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from fastroai.errors import (
    BudgetExceeded,
    ConfigurationError,
    CostBudgetExceeded,
    DispatchSkippedError,
    RunTakenOver,
    StepExecutionError,
    TimeLimitExceeded,
    UnpricedModelError,
)
from fastroai.runtime import Scope, billing_of, is_transport_failure
from fastroai.runtime.retrying.failures import (
    is_exhausted,
    is_terminal,
    leaves,
    mark_exhausted,
    may_retry,
    stops,
)
from fastroai.runtime.retrying.http_signals import retry_after


def http(status: int) -> ModelHTTPError:
    return ModelHTTPError(status, "gpt")


def named(error: BaseException) -> str:
    return f"{type(error).__name__}-{getattr(error, 'status_code', '')}"


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        ConfigurationError("timeout", -1, "more"),
        CostBudgetExceeded(10, 10),
        UnpricedModelError("m", "p"),
        DispatchSkippedError("no"),
        UsageLimitExceeded("too many requests"),
        UserError("wrong"),
        RunCancelled("by a token"),
        ModelRequestRejectedError("gpt", "bad request"),
        ModelAuthenticationError("gpt", "who are you?"),
        ModelQuotaExceededError("gpt", "pay first"),
        NameError("name 'respones' is not defined"),
        NotImplementedError(),
        StepExecutionError("s", CostBudgetExceeded(10, 10)),
        StepExecutionError("outer", StepExecutionError("inner", UserError("wrong"))),
        ExceptionGroup("side by side", [ValueError("x"), ExceptionGroup("more", [CostBudgetExceeded(1, 1)])]),
        FallbackExceptionGroup(
            "one after the other", [UserError("wrong"), ModelRequestRejectedError("m", "no")]
        ),
    ],
    ids=named,
)
def test_stops_mistakes_and_cancellation_are_terminal(error: BaseException) -> None:
    assert is_terminal(error)
    assert not may_retry(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        OSError("x"),
        http(503),
        UnexpectedModelBehavior("nonsense"),
        RunTimedOut("10 s"),
        TimeLimitExceeded("step", 1),
        StepExecutionError("s", ValueError("x")),
        ExceptionGroup("side by side", [ValueError("x"), http(503)]),
        FallbackExceptionGroup("one after the other", [http(503), ModelRequestRejectedError("m", "no")]),
    ],
    ids=named,
)
def test_other_failures_may_be_tried_again(error: BaseException) -> None:
    assert not is_terminal(error)
    assert may_retry(error)


def test_the_leaves_of_a_group_are_what_was_raised() -> None:
    one, two, three = ValueError("1"), LookupError("2"), asyncio.CancelledError()
    nested = BaseExceptionGroup("outer", [one, BaseExceptionGroup("inner", [two, three])])
    assert list(leaves(nested)) == [one, two, three]
    assert list(leaves(one)) == [one]


def test_what_an_inner_level_has_exhausted_no_outer_level_repeats() -> None:
    inner = ValueError("x")
    outer = StepExecutionError("s", inner)
    outer.__cause__ = inner
    assert may_retry(outer)
    mark_exhausted(inner)
    assert is_exhausted(inner)
    assert is_exhausted(outer)
    assert not may_retry(outer)
    assert not is_terminal(outer)


def test_a_failure_that_comes_while_handling_an_exhausted_one_is_exhausted_too() -> None:
    inner, group = ValueError("x"), ExceptionGroup("several", [KeyError("y")])
    mark_exhausted(group.exceptions[0])
    inner.__context__ = group
    assert is_exhausted(inner)


@pytest.mark.parametrize(
    "error",
    [
        *map(http, (408, 409, 425, 429, 500, 529, 599)),
        ModelConnectionError("gpt", "reset"),
        ModelRateLimitError("gpt", "slow down"),
        ModelServerError("gpt", "oops"),
        ModelUnavailableError("gpt", "busy"),
    ],
    ids=named,
)
def test_requests_that_failed_on_their_way_are_transport_failures(error: BaseException) -> None:
    assert is_transport_failure(error)


@pytest.mark.parametrize(
    "error",
    [
        http(400),
        http(401),
        http(404),
        http(422),
        ModelQuotaExceededError("gpt", "pay first"),
        ModelRequestRejectedError("gpt", "no"),
        ValueError("x"),
        TimeoutError(),
    ],
    ids=named,
)
def test_refusals_and_foreign_errors_are_not(error: BaseException) -> None:
    assert not is_transport_failure(error)


@pytest.mark.parametrize(
    ("status", "told", "expected"), [(400, "true", True), (503, "false", False), (503, "?", True)]
)
def test_the_provider_has_the_last_word_on_whether_to_try_again(
    status: int, told: str, expected: bool
) -> None:
    error = ModelHTTPError(status, "gpt", headers={"x-should-retry": told})
    assert is_transport_failure(error) == expected


def test_the_provider_may_say_how_long_to_wait() -> None:
    assert retry_after(ModelHTTPError(429, "gpt", headers={"retry-after": "7"})) == 7
    assert retry_after(http(429)) is None
    assert retry_after(ValueError("x")) is None


@pytest.mark.parametrize(
    "error",
    [
        http(400),
        http(429),
        http(503),
        UserError("never sent"),
        ModelConnectionError("gpt", "refused", phase="connect"),
        ModelConnectionError("gpt", "no free connection", phase="pool"),
        ModelRateLimitError("gpt", "slow down"),
        ModelQuotaExceededError("gpt", "pay first"),
        ModelUnavailableError("gpt", "busy"),
        ModelRequestRejectedError("gpt", "no"),
    ],
    ids=named,
)
def test_a_request_that_was_refused_or_never_sent_is_released(error: BaseException) -> None:
    assert billing_of(error) == "released"


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        TimeoutError(),
        ValueError("unreadable"),
        UnexpectedModelBehavior("malformed"),
        ModelConnectionError("gpt", "cut", phase="read"),
        ModelConnectionError("gpt", "who knows"),
        ModelAPIError("gpt", "something"),
        ModelServerError("gpt", "oops"),
    ],
    ids=named,
)
def test_a_request_that_may_have_been_answered_is_unmeasured(error: BaseException) -> None:
    assert billing_of(error) == "unmeasured"


def test_an_error_inside_an_open_stream_is_unmeasured_whatever_it_is() -> None:
    error = ModelRateLimitError("gpt", "slow down")
    error.in_stream = True
    assert billing_of(error) == "unmeasured"


def test_a_stop_above_a_scope_stops_it_also_in_a_group() -> None:
    graph = Scope("pipeline", "graph", parent=None)
    above = BudgetExceeded(1, 1, scope_path=("graph",))
    own = BudgetExceeded(1, 1, scope_path=("graph", "node"))
    assert stops(graph, ExceptionGroup("two", [ValueError(), above]))
    assert not stops(graph, ExceptionGroup("two", [ValueError(), own]))
    assert stops(graph, RunTakenOver("r"))
    assert not stops(graph, ModelRetry("no"))
    assert not stops(None, above)

import asyncio
import contextvars
import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Annotated, Any, assert_type

import anyio
import pytest
from pydantic import BaseModel, Field
from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunCancelled,
    RunTimedOut,
    SkipToolExecution,
    ToolFailed,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from support.patience import PATIENCE
from support.virtual_time import in_virtual_time

from fastroai.errors import (
    ConfigurationError,
    CostBudgetExceeded,
    DispatchSkippedError,
    StepExecutionError,
    TimeLimitExceeded,
    UnpricedModelError,
)
from fastroai.runtime import budget_scope
from fastroai.runtime.retrying.failures import mark_exhausted
from fastroai.steps import spend
from fastroai.tools import safe_tool
from fastroai.usage import Budget

SHORT = 0.01


class Place(BaseModel):
    """Where."""

    city: str
    country: str = "NL"


async def with_context(ctx: RunContext[int], city: str, days: int = 3) -> list[str]:
    """The forecast.

    Args:
        ctx: The run.
        city: Name of the city.
        days: How many days ahead.
    """
    return [city] * days


def plain(query: Annotated[str, Field(min_length=2)], places: "list[Place] | None" = None) -> "Place":
    """Find a place.

    Args:
        query: What to look for.
        places: Where to look.
    """
    raise NotImplementedError


def one_model(place: Place) -> str:
    """About a place."""
    raise NotImplementedError


def with_rest(city: str, *others: str, **options: int) -> None:
    raise NotImplementedError


class Toolbox:
    @safe_tool
    async def safe_method(self, city: str) -> str:
        """A method."""
        return f"{type(self).__name__} {city}"

    async def bare_method(self, city: str) -> str:
        """A method."""
        raise NotImplementedError


@pytest.mark.parametrize("function", [with_context, plain, one_model, with_rest])
def test_pydantic_ai_builds_the_same_schema_as_for_the_bare_function(function: Callable[..., Any]) -> None:
    assert Tool(safe_tool(function)).tool_def == Tool(function).tool_def
    assert Tool(safe_tool(timeout=None)(function)).takes_ctx == Tool(function).takes_ctx


def test_a_safe_method_has_the_schema_of_the_bare_method() -> None:
    safe, bare = (
        Tool(Toolbox().safe_method, name="method").tool_def,
        Tool(Toolbox().bare_method, name="method").tool_def,
    )
    assert safe == bare


async def test_a_safe_method_is_bound_to_its_object() -> None:
    assert await Toolbox().safe_method("Delft") == "Toolbox Delft"


async def test_the_result_of_a_tool_that_works_is_unchanged() -> None:
    @safe_tool
    async def found(city: str) -> list[str]:
        return [city]

    @safe_tool(timeout=None, retries=2)
    def counted(city: str) -> int:
        return len(city)

    assert_type(await found("Delft"), list[str] | str)
    assert_type(await counted("Delft"), int | str)
    assert await found(city="Delft") == ["Delft"]
    assert await counted("Delft") == 5


async def test_a_failure_becomes_a_message_with_tool_and_type_and_nothing_that_the_exception_says() -> None:
    @safe_tool
    async def search(query: str) -> str:
        raise LookupError(f"postgres://ada:secret@db has nothing for {query!r}")

    assert await search("x") == "Tool 'search' failed: LookupError"


async def test_a_failure_is_one_line_in_the_log_and_its_traceback_is_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "fastroai.tools")

    @safe_tool
    async def search() -> str:
        raise LookupError("nothing")

    await search()

    [line, traceback] = caplog.records
    assert (line.name, line.levelno, line.exc_info) == ("fastroai.tools", logging.WARNING, None)
    assert line.getMessage() == "tool 'search' failed, attempt 1 of 1: LookupError: nothing"
    assert traceback.levelno == logging.DEBUG
    assert traceback.exc_info is not None
    assert isinstance(traceback.exc_info[1], LookupError)


async def test_a_tool_that_takes_too_long_is_cancelled_and_says_so() -> None:
    cancelled = asyncio.Event()

    @safe_tool(timeout=SHORT)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    assert await slow() == "Tool 'slow' timed out after 0.01 s."
    assert cancelled.is_set()


async def test_without_a_limit_no_timeout_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    @safe_tool(timeout=None)
    async def patient() -> str:
        return "done"

    def unexpected(delay: float | None) -> asyncio.Timeout:
        raise AssertionError

    monkeypatch.setattr(asyncio, "timeout", unexpected)
    assert await patient() == "done"


async def test_a_timeout_of_the_tools_own_is_a_failure_and_not_our_timeout() -> None:
    @safe_tool(on_timeout="too slow")
    async def fetch() -> str:
        raise TimeoutError("connect timed out")

    assert await fetch() == "Tool 'fetch' failed: TimeoutError"


async def test_an_inner_safe_tool_times_out_by_itself() -> None:
    @safe_tool(timeout=SHORT)
    async def inner() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    @safe_tool(timeout=60)
    async def outer() -> str:
        return f"inner said: {await inner()}"

    assert await outer() == "inner said: Tool 'inner' timed out after 0.01 s."


async def test_a_sync_tool_runs_in_a_thread_with_the_callers_context() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    user.set("ada")

    @safe_tool
    def who() -> tuple[str, bool]:
        return user.get(), threading.current_thread() is threading.main_thread()

    assert await who() == ("ada", False)


async def test_a_sync_tool_that_takes_too_long_is_left_behind_and_the_loop_goes_on() -> None:
    release = threading.Event()

    @safe_tool(timeout=SHORT)
    def stuck() -> str:
        release.wait(PATIENCE)
        return "late"

    assert await stuck() == "Tool 'stuck' timed out after 0.01 s."
    release.set()


async def test_a_sync_tool_that_returns_an_awaitable_is_awaited() -> None:
    async def later() -> str:
        return "later"

    def start() -> Awaitable[str]:
        return later()

    assert await safe_tool(start)() == "later"


async def test_an_async_callable_object_and_a_partial_can_be_safe() -> None:
    class Search:
        async def __call__(self, query: str) -> str:
            return f"found {query}"

    async def fails(query: str) -> str:
        raise ValueError(query)

    assert await safe_tool(Search())("x") == "found x"
    assert "failed: ValueError" in str(await safe_tool(functools.partial(fails, "y"))())


@pytest.mark.parametrize(("retries", "calls"), [(0, 1), (2, 3)])
async def test_retries_are_extra_attempts_after_a_failure(retries: int, calls: int) -> None:
    called: list[int] = []

    @safe_tool(retries=retries)
    async def flaky() -> str:
        called.append(1)
        raise OSError("down")

    assert await flaky() == "Tool 'flaky' failed: OSError"
    assert len(called) == calls


async def test_a_retry_that_succeeds_gives_its_result() -> None:
    attempts: list[int] = []

    @safe_tool(retries=1)
    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("down")
        return "up"

    assert await flaky() == "up"


async def test_a_timeout_is_retried_with_a_limit_of_its_own() -> None:
    attempts: list[int] = []

    @safe_tool(timeout=SHORT, retries=1)
    async def slow_first() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            await asyncio.Event().wait()
        return "second"

    assert await slow_first() == "second"


@pytest.mark.parametrize("retried_inside", [False, True])
async def test_what_cannot_get_better_or_was_retried_inside_is_not_retried(retried_inside: bool) -> None:
    called: list[int] = []
    error = StepExecutionError("inner", OSError("down") if retried_inside else UserError("misused"))
    if retried_inside:
        mark_exhausted(error.original_error)

    @safe_tool(retries=5)
    async def nested() -> str:
        called.append(1)
        raise error from error.original_error

    assert await nested() == "Tool 'nested' failed: StepExecutionError"
    assert len(called) == 1


async def test_own_texts_are_used_as_they_are() -> None:
    @safe_tool(timeout=SHORT, on_timeout="Try {later}.", on_error="Search is down.")
    async def search(fail: bool) -> str:
        if fail:
            raise ValueError("secret")
        await asyncio.Event().wait()
        raise AssertionError

    assert await search(fail=True) == "Search is down."
    assert await search(fail=False) == "Try {later}."


async def test_a_text_may_have_the_error_in_it_and_other_braces() -> None:
    @safe_tool(on_error="Search is down ({error}). Try {later}.")
    async def search(query: str) -> str:
        raise ConnectionError("no {route}")

    assert await search("x") == "Search is down (ConnectionError: no {route}). Try {later}."


async def test_retries_may_be_called_max_retries() -> None:
    attempts: list[str] = []

    @safe_tool(max_retries=2)
    async def search(query: str) -> str:
        attempts.append(query)
        raise ConnectionError("down")

    await search("x")

    assert len(attempts) == 3
    with pytest.raises(ConfigurationError, match="max_retries=1"):
        safe_tool(retries=2, max_retries=1)


async def test_own_functions_write_the_texts_and_on_error_gets_the_exception() -> None:
    @safe_tool(timeout=SHORT, on_timeout=lambda: "slow today", on_error=lambda error: f"sorry: {error}")
    async def search(fail: bool) -> str:
        if fail:
            raise ValueError("secret")
        await asyncio.Event().wait()
        raise AssertionError

    assert await search(fail=True) == "sorry: secret"
    assert await search(fail=False) == "slow today"


async def test_a_builtin_can_write_the_text() -> None:
    @safe_tool(on_error=str)
    async def search() -> str:
        raise ValueError("as it is")

    assert await search() == "as it is"


async def test_a_fault_in_on_error_is_logged_and_the_default_text_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(error: Exception) -> str:
        raise KeyError("oops")

    def forgot(error: Exception) -> str:
        return None  # type: ignore[return-value]

    for on_error in (broken, forgot):

        @safe_tool(on_error=on_error)
        async def search() -> str:
            raise ValueError("bad")

        assert await search() == "Tool 'search' failed: ValueError"
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 2


async def test_on_error_may_ask_the_model_to_retry() -> None:
    def retry(error: Exception) -> str:
        raise ModelRetry("use another city")

    @safe_tool(on_error=retry)
    async def search() -> str:
        raise ValueError("bad")

    with pytest.raises(ModelRetry, match="use another city"):
        await search()


STOPS = [
    ModelRetry("again"),
    ToolFailed("no"),
    CallDeferred(),
    ApprovalRequired(),
    SkipToolExecution("result"),
    UsageLimitExceeded("enough"),
    UserError("misused"),
    RunCancelled("stopped"),
    CostBudgetExceeded(10, 10),
    UnpricedModelError("m", "p"),
    DispatchSkippedError("not now"),
    ExceptionGroup("parallel agents", [ValueError("x"), ExceptionGroup("", [CostBudgetExceeded(10, 10)])]),
]


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: type(stop).__name__)
async def test_control_flow_and_stops_pass_through_unchanged_and_at_once(stop: Exception) -> None:
    called: list[int] = []

    @safe_tool(retries=3)
    async def tool() -> str:
        called.append(1)
        raise stop

    with pytest.raises(type(stop)) as raised:
        await tool()
    assert raised.value is stop
    assert len(called) == 1


@pytest.mark.parametrize(
    "error",
    [
        StepExecutionError("s", ValueError("x")),
        TimeLimitExceeded("agent", 1.0),
        RunTimedOut("too slow"),
        UnexpectedModelBehavior("odd"),
        ExceptionGroup("both", [ValueError("x"), OSError("y")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_failures_of_agents_and_steps_inside_a_tool_are_ordinary_failures(error: Exception) -> None:
    @safe_tool(on_timeout="timed out", on_error=lambda error: f"failed: {type(error).__name__}")
    async def tool() -> str:
        raise error

    assert await tool() == f"failed: {type(error).__name__}"


async def cancelled_while_running(tool: Callable[[asyncio.Event], Awaitable[object]]) -> None:
    running = asyncio.Event()

    async def call() -> object:
        return await tool(running)

    task = asyncio.create_task(call())
    await running.wait()
    task.cancel()
    await task


async def test_cancellation_passes_through_and_is_not_retried() -> None:
    called: list[int] = []

    @safe_tool(retries=3)
    async def tool(running: asyncio.Event) -> None:
        called.append(1)
        running.set()
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await cancelled_while_running(tool)
    assert len(called) == 1


async def test_cancellation_stays_one_when_the_tool_answers_it_with_an_error() -> None:
    called: list[int] = []

    @safe_tool(retries=3)
    async def tool(running: asyncio.Event) -> None:
        called.append(1)
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("connection closed while cancelled") from None

    with pytest.raises(asyncio.CancelledError):
        await cancelled_while_running(tool)
    assert len(called) == 1


async def test_a_cancellation_at_the_moment_of_the_timeout_stays_a_cancellation() -> None:
    @safe_tool(timeout=SHORT)
    async def tool() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            # The limit has run out and cancelled this; now the world outside does too.
            task.cancel()

    async def call() -> object:
        return await tool()

    task = asyncio.create_task(call())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_outer_timeout_ends_a_sync_tool_without_waiting_for_its_thread() -> None:
    release = threading.Event()

    @safe_tool(timeout=None)
    def stuck() -> str:
        release.wait(PATIENCE)
        return "late"

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT):
            await stuck()
    with anyio.move_on_after(SHORT) as scope:
        await stuck()
    release.set()
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": -1}, "timeout=-1: expected seconds, more than zero and finite, or None"),
        ({"timeout": 0}, "timeout=0: expected seconds, more than zero"),
        ({"timeout": float("nan")}, "timeout=nan: expected seconds, more than zero"),
        ({"timeout": float("inf")}, "timeout=inf: expected seconds, more than zero"),
        ({"timeout": "5"}, "timeout='5': expected seconds, more than zero"),
        ({"timeout": True}, "timeout=True: expected seconds, more than zero"),
        ({"retries": -1}, "retries=-1: expected a whole number, 0 or more"),
        ({"retries": 1.5}, "retries=1.5: expected a whole number"),
        ({"retries": None}, "retries=None: expected a whole number"),
        ({"retries": True}, "retries=True: expected a whole number"),
        ({"on_timeout": 5}, r"on_timeout=5: expected a text, or a function \(\) -> str"),
        ({"on_timeout": lambda error: ""}, r"on_timeout=.*: expected a text, or a function \(\) -> str"),
        ({"on_error": 5}, r"on_error=5: expected a text, or a function \(exception\) -> str"),
        ({"on_error": lambda: ""}, r"on_error=.*: expected a text, or a function \(exception\) -> str"),
        ({"on_error": with_context}, r"on_error=.*: expected a text, or a function \(exception\) -> str"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_where_the_tool_is_defined(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        safe_tool(**options)


def test_an_option_given_by_position_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"options go by name: safe_tool\(timeout=30\)"):
        safe_tool(30)  # type: ignore[call-overload]


# --- what tools cost ---


async def test_each_attempt_of_a_tool_spends_what_it_costs() -> None:
    failures = [ValueError("down")]

    @safe_tool(cost="0.005", retries=1)
    async def search(query: str) -> str:
        if failures:
            raise failures.pop()
        return query

    async with budget_scope(Budget(usd=1)) as scope:
        assert await search("a") == "a"
        assert await search("b") == "b"
    first, *others = scope.records
    assert (first.outcome, first.bound_usd, first.kind) == ("unmeasured", Decimal("0.005"), "spend")
    assert [(record.model, record.cost_usd) for record in others] == [("search", Decimal("0.005"))] * 2
    assert scope.usage.committed_usd == Decimal("0.015")


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (
            lambda: "0.01",
            r"tool 'search': cost=<.*: expected a function that takes the arguments of the tool",
        ),
        (lambda query: None, r"tool 'search': cost=None: expected a finite number of US dollars"),
    ],
    ids=["signature", "nothing"],
)
async def test_a_function_that_says_no_cost_is_an_error_that_names_the_tool(cost: Any, message: str) -> None:
    @safe_tool(cost=cost)
    async def search(query: str) -> str:
        raise AssertionError

    with pytest.raises(ConfigurationError, match=message):
        await search("shoes")


async def test_the_account_of_a_tool_that_failed_says_how() -> None:
    @safe_tool(cost="0.01")
    async def search(query: str) -> str:
        raise RuntimeError("the index is gone")

    async with budget_scope(Budget(usd=1)) as scope:
        assert await search("shoes") == "Tool 'search' failed: RuntimeError"
    [record] = scope.records
    assert (record.outcome, record.error) == ("unmeasured", "RuntimeError: the index is gone")


async def test_the_cost_of_a_tool_can_depend_on_its_arguments() -> None:
    @safe_tool(cost=lambda query, pages=1: Decimal("0.01") * pages)
    def search(query: str, pages: int = 1) -> str:
        return query * pages

    async with budget_scope(Budget(usd=1)) as scope:
        await search("a")
        await search("a", pages=3)
    assert scope.usage.cost_usd == Decimal("0.04")


async def test_a_tool_that_the_budget_cannot_pay_for_is_not_called() -> None:
    called: list[str] = []

    @safe_tool(cost="0.6")
    async def search(query: str) -> str:
        called.append(query)
        return query

    with pytest.raises(CostBudgetExceeded):
        async with budget_scope(Budget(usd=1)):
            await search("a")
            await search("b")
    assert called == ["a"]


@in_virtual_time
async def test_the_wait_for_money_does_not_use_up_the_time_of_a_tool() -> None:
    @safe_tool(cost="0.6", timeout=2)
    async def search(query: str) -> str:
        await asyncio.sleep(1)
        return query

    async with budget_scope(Budget(usd="1.2")) as scope:
        answers = await asyncio.gather(bought_nothing(5), search("a"), search("b"))
    assert answers[1:] == ["a", "b"]
    assert scope.usage.cost_usd == Decimal("1.2")


async def bought_nothing(seconds: float) -> None:
    """Hold some of the money for so long."""
    async with spend("0.6") as purchase:
        await asyncio.sleep(seconds)
        purchase.release()


async def test_a_tool_that_times_out_may_have_been_billed() -> None:
    @safe_tool(cost="0.1", timeout=SHORT)
    async def search(query: str) -> str:
        await asyncio.Event().wait()
        return query

    async with budget_scope(Budget(usd=1)) as scope:
        assert "timed out" in await search("a")
    assert (scope.usage.committed_usd, scope.usage.cost_complete) == (Decimal("0.1"), False)


@pytest.mark.parametrize("cost", [-1, "much", True, float("nan")])
def test_a_cost_that_is_none_is_refused(cost: Any) -> None:
    with pytest.raises(ConfigurationError, match="^cost="):
        safe_tool(cost=cost)

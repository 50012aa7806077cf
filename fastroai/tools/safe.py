"""`safe_tool`: a tool whose failures become messages for the model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from decimal import Decimal
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

from fastroai.errors import ConfigurationError
from fastroai.other_names import other_names
from fastroai.records import Duration, in_seconds
from fastroai.runtime.concurrency.threads import run_in_thread
from fastroai.steps.reserving import spend
from fastroai.tools.guard import DEFAULT_TIMEOUT, Guard, OnError, OnTimeout
from fastroai.usage.money import Amount, exact_dollars

P = ParamSpec("P")
R = TypeVar("R")

Cost: TypeAlias = Amount | Callable[..., Amount]
"""US dollars that one attempt of a tool costs, or a function of the call's arguments that returns them."""

_SAFE_ATTRIBUTE = "__fastroai_safe_tool__"


class SafeToolDecorator(Protocol):
    """The decorator that `safe_tool(...)` with options returns."""

    @overload
    def __call__(
        self, function: Callable[P, Awaitable[R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | str]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, Coroutine[Any, Any, R | str]]: ...


@overload
def safe_tool(function: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R | str]]: ...


@overload
def safe_tool(function: Callable[P, R], /) -> Callable[P, Coroutine[Any, Any, R | str]]: ...


@overload
def safe_tool(
    *,
    timeout: Duration | None = DEFAULT_TIMEOUT,
    retries: int = 0,
    max_retries: int = 0,
    on_timeout: OnTimeout | None = None,
    on_error: OnError | None = None,
    cost: Cost | None = None,
) -> SafeToolDecorator: ...


@other_names()
def safe_tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    timeout: Duration | None = DEFAULT_TIMEOUT,
    retries: int = 0,
    max_retries: int = 0,
    on_timeout: OnTimeout | None = None,
    on_error: OnError | None = None,
    cost: Cost | None = None,
) -> object:
    """Make a function a tool that returns a message for the model when it fails or takes too long.

    The result is an async function with the name, signature and docstring of the original, so PydanticAI
    builds the same schema from it. A sync function runs in a worker thread, with the caller's context
    variables; after a timeout the thread keeps running, because Python cannot stop it.

        @safe_tool(timeout=5, retries=1, on_error=lambda error: f"search is down: {error}")
        async def search(ctx: RunContext[Deps], query: str) -> list[str]: ...

    Args:
        function: The tool, where the decorator is used without options.
        timeout: Seconds for each attempt, 30 by default; `None` for no limit.
        retries: Extra attempts after a failure or a timeout, at once: for tools that may run twice. A failure
            that cannot get better, or was already retried inside, is not tried again.
        max_retries: The same as `retries`, as earlier versions call it. Give one of the two.
        on_timeout: The message to the model after a timeout: a text, or a function that returns it. The
            default names the tool and the time.
        on_error: The message to the model after a failure: a text, in which `{error}` stands for the type and
            the message of the exception, or a function of the exception. The default names the tool and the
            type of the exception. The exception's message goes to the log and not to the provider, as it may
            have private data.
        cost: US dollars that each attempt costs, or a function of the call's arguments that returns them.
            The money is set aside in all budgets and spend limits around before the tool runs, and charged
            under the tool's name. An attempt that fails may have been billed, so budgets count it at this
            cost, and its record has the outcome `unmeasured`. For a price that is known only afterwards, use
            `fastroai.spend` in the tool.

    Cancellation, PydanticAI's control exceptions (`ModelRetry`, `ToolFailed`, `CallDeferred`,
    `ApprovalRequired`, ...) and FastroAI's own stops, such as a used-up budget, pass through: they are raised
    and not retried.

    Raises:
        ConfigurationError: an option has an invalid value. A call raises it too, if the function `cost`
            returns no valid amount.
    """
    if retries and max_retries:
        raise ConfigurationError(
            "max_retries", max_retries, "no value, because retries= is the same and is given too"
        )
    guard = Guard(
        timeout=in_seconds(timeout), retries=max_retries or retries, on_timeout=on_timeout, on_error=on_error
    )
    if cost is not None and not callable(cost):
        exact_dollars("cost", cost)
    return functools.partial(_guarded, guard, cost) if function is None else _guarded(guard, cost, function)


def is_safe_tool(function: object) -> bool:
    """Return whether `safe_tool` made this function."""
    return getattr(function, _SAFE_ATTRIBUTE, False) is True


def _guarded(
    guard: Guard, cost: Cost | None, function: Callable[P, object]
) -> Callable[P, Coroutine[Any, Any, object]]:
    if not callable(function):
        raise ConfigurationError(
            "safe_tool", function, "a function; options go by name: safe_tool(timeout=30)"
        )
    name = getattr(function, "__name__", repr(function))

    @functools.wraps(function)
    async def safe(*args: P.args, **kwargs: P.kwargs) -> object:
        call = functools.partial(function, *args, **kwargs)
        run = functools.partial(_run, call, f"tool {name!r}")
        if cost is None:
            return await guard.call(name, run)
        usd = _cost_of(name, cost, args, kwargs) if callable(cost) else cost
        return await guard.call(name, run, lambda: spend(usd, model=name))

    safe.__dict__[_SAFE_ATTRIBUTE] = True
    return safe


def _cost_of(
    tool: str, cost: Callable[..., Amount], args: tuple[object, ...], kwargs: dict[str, object]
) -> Decimal:
    """Return the cost of a call by the caller's function. Raises `ConfigurationError` for an invalid cost."""
    option = f"tool {tool!r}: cost"
    try:
        inspect.signature(cost).bind(*args, **kwargs)
    except TypeError as error:
        expected = f"a function that takes the arguments of the tool ({error})"
        raise ConfigurationError(option, cost, expected) from None
    except ValueError:  # some callables written in C have no signature
        pass
    return exact_dollars(option, cost(*args, **kwargs))


async def _run(call: functools.partial[object], what: str) -> object:
    if inspect.iscoroutinefunction(call.func) or inspect.iscoroutinefunction(type(call.func).__call__):
        return await cast("Awaitable[object]", call())
    result = await run_in_thread(call, what=what)
    return await result if inspect.isawaitable(result) else result

"""Every option of a call of an agent in a step makes a difference."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import RunContext, UsageLimits
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.agents import request_costs
from support.virtual_time import in_virtual_time, now

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.errors import StepExecutionError
from fastroai.pipelines import StepRetried
from fastroai.runtime import RetryPolicy
from fastroai.usage import Budget

METHODS = ("run", "run_sync", "run_stream")
SUBJECTS = {"self", "agent", "message"}
EARLIER = [ModelRequest.user_text_prompt("before"), ModelResponse(parts=[TextPart("ok")])]


@dataclass
class Asked:
    """What becomes of one call, and what its model has seen."""

    failures: int = 0
    """How many requests fail before one is answered. The agent itself makes two extra attempts."""
    failure: Exception = field(default_factory=lambda: ModelHTTPError(503, "paid"))
    thinks: float = 0.0
    """Seconds that the model takes."""
    deps: list[object] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    settings: list[object] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """The calls that were repeated."""
    ending: str = ""
    seconds: float = 0.0

    async def chunks(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self.messages.append(len(messages))
        self.settings.append(info.model_settings)
        await asyncio.sleep(self.thinks)
        if self.failures:
            self.failures -= 1
            raise self.failure
        yield "mine"

    async def respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(text) async for text in self.chunks(messages, info)])

    def instructions(self, ctx: RunContext[Any]) -> str:
        self.deps.append(ctx.deps)
        return ""

    def again(self, event: StepRetried) -> None:
        self.calls.append(event.call)

    async def made(self, method: str, **options: Any) -> Asked:
        """Make the call in a step."""
        model = FunctionModel(self.respond, stream_function=self.chunks, model_name="paid")
        agent = FastroAgent[Any, str](
            model, instructions=self.instructions, cost_calculator=request_costs(100)
        )
        call: Callable[[StepContext[Any]], Any] = lambda ctx: getattr(ctx, method)(agent, "hello", **options)  # noqa: E731

        @step(on_retry=self.again)
        async def asks(ctx: StepContext[Any]) -> str:
            if method == "run_stream":
                return "".join([chunk.content async for chunk in call(ctx)])
            return str((await call(ctx)).output)

        @step(on_retry=self.again)
        def asks_in_a_thread(ctx: StepContext[Any]) -> str:
            return str(call(ctx).output)

        began = now()
        works = asks_in_a_thread if method == "run_sync" else asks
        try:
            self.ending = str((await Pipeline[Any, Any, Any]("p", {"asks": works}).execute()).output)
        except StepExecutionError as error:
            self.ending = type(error.original_error).__name__
        self.seconds = now() - began
        return self


Observe = Callable[[str], Awaitable[list[object]]]


def differs(
    look: str, begin: Callable[[], Asked] = Asked, *, without: dict[str, Any] | None = None, **options: Any
) -> Observe:
    """What is seen of a call without some options, and of another one with them."""

    async def observe(method: str) -> list[object]:
        return [getattr(await begin().made(method, **one), look) for one in (without or {}, options)]

    return observe


def ill() -> Asked:
    """The provider refuses more requests than the agent makes by itself."""
    return Asked(failures=3)


def refused() -> Asked:
    """A failure after which the agent does not repeat its request."""
    return Asked(failures=1, failure=ConnectionRefusedError("not yet"))


AT_ONCE: dict[str, Any] = {"retries": 5, "retry_delay": 0}
OFTEN = RetryPolicy(max_retries=5, backoff=0)
OBSERVED: dict[str, Observe] = {
    "deps": differs("deps", deps="Ada"),
    "message_history": differs("messages", message_history=EARLIER),
    "model": differs("ending", model="test"),
    "model_settings": differs("settings", model_settings={"temperature": 0.5}),
    "usage_limits": differs("ending", usage_limits=UsageLimits(request_limit=0)),
    "timeout": differs("ending", lambda: Asked(thinks=100.0), timeout=1),
    "retries": differs("ending", ill, **AT_ONCE),
    "retry_delay": differs("seconds", ill, without=AT_ONCE, retries=5, retry_delay=1_000),
    "retry": differs("ending", ill, retry=OFTEN),
    "cost_budget": differs("ending", cost_budget=1),
    "budget": differs("ending", budget=Budget(microcents=1)),
    "name": differs("calls", refused, without=AT_ONCE, **AT_ONCE, name="greeting"),
}


def cases() -> list[Any]:
    found: list[Any] = []
    for method in METHODS:
        names = inspect.signature(getattr(StepContext, method)).parameters
        found += [pytest.param(method, one, id=f"{one} of {method}") for one in names if one not in SUBJECTS]
    return found


@pytest.mark.parametrize(("method", "option"), cases())
@in_virtual_time
async def test_every_option_of_a_call_makes_a_difference(method: str, option: str) -> None:
    one, other = await OBSERVED[option](method)
    assert one != other


def test_an_option_of_a_call_that_is_gone_leaves_no_row() -> None:
    assert inspect.signature(StepContext.run).parameters.keys() - SUBJECTS == OBSERVED.keys()

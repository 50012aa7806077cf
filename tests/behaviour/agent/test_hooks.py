"""What runs around each attempt at a call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from support.accounting import Account
from support.passing_time import time_passes

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.agent import ChatStream, Dispatch
from fastroai.errors import DispatchSkippedError, StepExecutionError, usage_of
from fastroai.testing import Fault, ModelServer, Reply


class Hooks:
    """Keeps what it is told, as it was at that time."""

    def __init__(self) -> None:
        self.before: list[Dispatch] = []
        self.after: list[tuple[int, str | None, str | None]] = []

    def on_before(self, dispatch: Dispatch) -> None:
        assert dispatch.response is None
        assert dispatch.error is None
        self.before.append(dispatch)

    async def on_after(self, dispatch: Dispatch) -> None:
        await asyncio.sleep(0)
        self.after.append(
            (
                dispatch.attempt,
                dispatch.response.output if dispatch.response else None,
                type(dispatch.error).__name__ if dispatch.error else None,
            )
        )

    def agent(self, model: Model, **options: object) -> FastroAgent[object, str]:
        return FastroAgent(
            model,
            name="hooked",
            on_before_dispatch=self.on_before,
            on_after_dispatch=self.on_after,
            **options,  # type: ignore[arg-type]
        )


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


async def one_step(run: Callable[[StepContext[object]], object], **config: object) -> object:
    """A pipeline of one step, `ask`, in which `run` is awaited."""

    async def ask(context: StepContext[object]) -> object:
        return await run(context)  # type: ignore[misc]

    pipeline = Pipeline("p", {"ask": step(**config)(ask)})  # type: ignore[call-overload]
    return (await pipeline.execute({}, deps="the deps")).output


async def test_hooks_see_the_call_and_its_response(hooks: Hooks, model: Model, reference: str) -> None:
    response = await hooks.agent(model).run("hello", deps=7)
    [dispatch] = hooks.before
    assert (dispatch.agent_name, dispatch.model) == ("hooked", reference.partition(":")[2])
    assert (dispatch.prompt, dispatch.deps, dispatch.attempt) == ("hello", 7, 1)
    assert dispatch.step_id is None
    assert dispatch.response is response
    assert hooks.after == [(1, "echo: hello", None)]


async def test_hooks_run_around_each_attempt_at_a_call(server: ModelServer, hooks: Hooks) -> None:
    lost = Reply(fault=Fault.malformed())
    server.script(lost, lost, Reply("found"))
    agent = hooks.agent(server.model("openai:gpt-5-mini"))

    async def ask(context: StepContext[object]) -> str:
        return (await context.run(agent, "hello", retries=2, retry_delay=0)).output

    assert await one_step(ask) == "found"
    assert [dispatch.attempt for dispatch in hooks.before] == [1, 2, 3]
    assert {(dispatch.step_id, dispatch.deps) for dispatch in hooks.before} == {("ask", "the deps")}
    assert len({dispatch.run_id for dispatch in hooks.before}) == 1
    assert hooks.after == [(1, None, "ModelAPIError"), (2, None, "ModelAPIError"), (3, "found", None)]


async def test_attempts_at_a_request_are_no_attempts_at_the_call(server: ModelServer, hooks: Hooks) -> None:
    server.fail_next(2, Fault.status(503))
    await hooks.agent(server.model("openai:gpt-5-mini")).run("hello")
    assert len(server.ledger.entries) == 3
    assert [dispatch.attempt for dispatch in hooks.before] == [1]


@pytest.mark.parametrize("events", [False, True])
async def test_hooks_run_around_streams_too(model: Model, hooks: Hooks, events: bool) -> None:
    agent = hooks.agent(model)
    async for _ in agent.run_stream_events("hello") if events else agent.run_stream("hello"):
        pass
    assert len(hooks.before) == 1
    assert hooks.after == [(1, "echo: hello", None)]


async def test_nothing_runs_after_a_call_that_was_cancelled(server: ModelServer, hooks: Hooks) -> None:
    server.script(Reply("late", fault=Fault.hang()))
    task = asyncio.create_task(hooks.agent(server.model("openai:gpt-5-mini")).run("hello"))
    await server.ledger.wait_for(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(hooks.before) == 1
    assert hooks.after == []


async def test_a_timeout_is_the_error_that_the_hook_is_told(server: ModelServer, hooks: Hooks) -> None:
    server.script(Reply("late", fault=Fault.hang()))
    running = asyncio.create_task(hooks.agent(server.model("openai:gpt-5-mini"), timeout=60).run("hello"))
    await server.ledger.wait_for(1)
    time_passes(60)
    with pytest.raises(TimeoutError):
        await running
    assert hooks.after == [(1, None, "TimeLimitExceeded")]


# --- skipping ---


def skip(dispatch: Dispatch) -> None:
    raise DispatchSkippedError(f"not {dispatch.prompt!r}")


async def skip_later(dispatch: Dispatch) -> None:
    await asyncio.sleep(0)
    skip(dispatch)


@pytest.mark.parametrize("hook", [skip, skip_later])
async def test_a_skipped_call_fails_at_once_and_sends_nothing(
    server: ModelServer, model: Model, account: Account, hook: Callable[[Dispatch], None]
) -> None:
    agent = FastroAgent(model, on_before_dispatch=hook)
    with pytest.raises(DispatchSkippedError, match="agent call skipped: not 'hello'") as caught:
        await agent.run("hello")
    with pytest.raises(DispatchSkippedError):
        async for _ in agent.run_stream("hello"):
            pass
    assert server.ledger.entries == ()
    assert account.usage.agent_call_count == 0
    assert caught.value.usage == usage_of(caught.value) is not None


@pytest.mark.parametrize("where", ["call", "step"])
async def test_a_skipped_call_is_not_tried_again(server: ModelServer, where: str) -> None:
    attempts: list[int] = []

    def refuse(dispatch: Dispatch) -> None:
        attempts.append(dispatch.attempt)
        raise DispatchSkippedError("closed for the night")

    agent = FastroAgent(server.model("openai:gpt-5-mini"), on_before_dispatch=refuse)

    async def ask(context: StepContext[object]) -> str:
        if where == "step":
            return (await agent.run("hello")).output
        return (await context.run(agent, "hello", retries=5, retry_delay=0)).output

    with pytest.raises(StepExecutionError, match="closed for the night") as caught:
        await one_step(ask, retries=5, retry_delay=0)
    assert isinstance(caught.value.original_error, DispatchSkippedError)
    assert attempts == [1]


async def test_any_other_failure_of_the_hook_before_is_a_failed_attempt(server: ModelServer) -> None:
    attempts: list[int] = []

    def flaky(dispatch: Dispatch) -> None:
        attempts.append(dispatch.attempt)
        if dispatch.attempt == 1:
            raise OSError("the quota service is down")

    agent = FastroAgent(server.model("openai:gpt-5-mini"), on_before_dispatch=flaky)

    async def ask(context: StepContext[object]) -> str:
        return (await context.run(agent, "hello", retries=1, retry_delay=0)).output

    assert await one_step(ask) == "echo: hello"
    assert attempts == [1, 2]
    assert len(server.ledger.entries) == 1


# --- failing afterwards ---


async def test_a_failure_of_the_hook_after_is_logged_and_changes_nothing(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(dispatch: Dispatch) -> None:
        raise OSError("the log is full")

    agent = FastroAgent(server.model("openai:gpt-5-mini"), name="mine", on_after_dispatch=broken)
    with caplog.at_level(logging.ERROR, logger="fastroai.agent"):
        assert (await agent.run("hello")).output == "echo: hello"
        server.fail_next(1, Fault.status(400))
        with pytest.raises(ModelHTTPError):
            await agent.run("hello")
    assert [record.message for record in caplog.records] == [
        "on_after_dispatch of agent 'mine' failed; the call is not affected"
    ] * 2
    assert "the log is full" in caplog.text


async def test_hooks_can_come_from_the_config() -> None:
    from fastroai import AgentConfig

    hooks = Hooks()
    config = AgentConfig(on_before_dispatch=hooks.on_before, on_after_dispatch=hooks.on_after)
    await FastroAgent(TestModel(custom_output_text="hi"), config=config).run("hello")
    assert len(hooks.before) == 1
    assert hooks.after == [(1, "hi", None)]


async def test_retries_of_a_step_also_hold_for_each_request_of_its_agents(
    server: ModelServer, hooks: Hooks
) -> None:
    server.fail_next(10, Fault.status(500))
    agent = hooks.agent(server.model("openai:gpt-5-mini"))

    async def ask(context: StepContext[object]) -> str:
        return (await context.run(agent, "hello")).output

    with pytest.raises(StepExecutionError) as caught:
        await one_step(ask, retries=1, retry_delay=0)
    assert isinstance(caught.value.original_error, ModelHTTPError)
    # The request owns transport failures: tried twice there, and then by nobody else.
    assert len(server.ledger.entries) == 2
    assert len(hooks.before) == 1


async def test_a_stream_in_a_step_is_tried_again_at_its_request_only(
    server: ModelServer, hooks: Hooks
) -> None:
    server.fail_next(1, Fault.status(500))
    agent = hooks.agent(server.model("openai:gpt-5-mini"), request_retries=0)

    async def ask(context: StepContext[object]) -> str:
        stream: ChatStream[str] = context.run_stream(agent, "hello", retries=1)
        async for _ in stream:
            pass
        assert stream.response is not None
        return stream.response.output

    assert await one_step(ask) == "echo: hello"
    assert [dispatch.attempt for dispatch in hooks.before] == [1]
    assert len(server.ledger.entries) == 2


async def test_a_stream_that_breaks_tells_the_hook_why(server: ModelServer, hooks: Hooks) -> None:
    server.script(Reply("Once upon a time " * 10, fault=Fault.cut(after=2)))
    with pytest.raises(ModelAPIError):
        async for _ in hooks.agent(server.model("openai:gpt-5-mini"), request_retries=0).run_stream("?"):
            pass
    assert hooks.after == [(1, None, "ModelConnectionError")]

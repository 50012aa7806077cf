"""Warnings name the line of the user's code that led to them."""

import asyncio
import linecache
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.callers import names_around, warn_caller
from fastroai.testing import ModelServer
from fastroai.usage import UnpricedModelWarning


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def agent(server: ModelServer) -> FastroAgent:
    return FastroAgent(server.model("openai:my-own-model"))


def line_of(warned: pytest.WarningsRecorder) -> str:
    """The line that a warning is about, of this file."""
    (warning,) = warned
    assert Path(warning.filename) == Path(__file__)
    return linecache.getline(warning.filename, warning.lineno).strip()


def warns() -> pytest.WarningsRecorder:
    return pytest.warns(UnpricedModelWarning)


async def test_an_agent_that_is_awaited(agent: FastroAgent) -> None:
    with warns() as warned:
        await agent.run("1")
    assert line_of(warned) == 'await agent.run("1")'


def test_an_agent_in_a_sync_call(agent: FastroAgent) -> None:
    with warns() as warned:
        agent.run_sync("2")
    assert line_of(warned) == 'agent.run_sync("2")'


def test_an_agent_in_a_sync_call_of_a_thread(agent: FastroAgent) -> None:
    def call() -> None:
        agent.run_sync("3")

    with warns() as warned:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert line_of(warned) == 'agent.run_sync("3")'


async def test_an_agent_in_a_function_of_a_task(agent: FastroAgent) -> None:
    async def ask() -> None:
        await agent.run("4")

    with warns() as warned:
        await asyncio.gather(ask())
    assert line_of(warned) == 'await agent.run("4")'


async def test_an_agent_in_a_step(agent: FastroAgent) -> None:
    @step
    async def ask(ctx: StepContext) -> str:
        return (await ctx.run(agent, "5")).output

    with warns() as warned:
        await Pipeline("asking", steps={"ask": ask}).execute({})
    assert line_of(warned) == 'return (await ctx.run(agent, "5")).output'


def test_a_step_in_a_sync_call(agent: FastroAgent) -> None:
    with warns() as warned:
        Pipeline("asking", steps={"ask": agent.as_step("6")}).execute_sync({})
    assert line_of(warned) == 'Pipeline("asking", steps={"ask": agent.as_step("6")}).execute_sync({})'


def test_the_names_around_are_those_of_the_code_that_calls() -> None:
    local = object()
    assert names_around()["local"] is local


def test_what_nobody_is_found_for_is_at_the_line_that_warns() -> None:
    """Here that is one of `threading`, which calls the function itself."""
    with pytest.warns(UserWarning, match="hello") as warned:
        thread = threading.Thread(target=warn_caller, args=["hello", UserWarning])
        thread.start()
        thread.join()
    assert Path(warned[0].filename) == Path(threading.__file__)


def test_a_warning_is_shown_once_for_a_line() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(3):
            warn_caller("once", UserWarning)
    assert len(shown) == 1

"""What is opened around an agent run is closed again, whatever fails."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from fastroai.agent import Dispatch, FastroAgent
from fastroai.errors import TimeLimitExceeded, usage_of
from fastroai.runtime import current_scope
from fastroai.tracing import AttributeValue


class Broken(Exception):
    pass


def broken(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise Broken


async def silent(messages: list[ModelMessage], info: AgentInfo) -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


class Spans:
    """A tracer that notes what leaves its spans, and may fail itself."""

    def __init__(self, *, fails: str = "") -> None:
        self.fails, self.left = fails, list[BaseException | None]()

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        return self._span(name)

    @asynccontextmanager
    async def _span(self, name: str) -> AsyncGenerator[str]:
        if self.fails == "to open":
            raise Broken
        try:
            yield ""
        except BaseException as error:
            self.left.append(error)
            raise
        else:
            self.left.append(None)
        if self.fails == "to close" and "agent" in name:
            raise Broken

    def log_metric(self, trace_id: str, name: str, value: AttributeValue) -> None: ...

    def log_error(
        self, trace_id: str, error: BaseException, context: Mapping[str, AttributeValue] | None = None
    ) -> None: ...


def refuse(dispatch: Dispatch) -> None:
    raise Broken


def test_run_says_that_it_is_to_be_awaited() -> None:
    assert inspect.iscoroutinefunction(FastroAgent(TestModel()).run)


@pytest.mark.parametrize(
    ("agent", "tracer"),
    [
        pytest.param(FastroAgent(FunctionModel(broken)), None, id="the model"),
        pytest.param(FastroAgent(TestModel(), on_before_dispatch=refuse), None, id="the hook before"),
        pytest.param(FastroAgent(TestModel()), Spans(fails="to open"), id="the span when it opens"),
        pytest.param(FastroAgent(TestModel()), Spans(fails="to close"), id="the span when it closes"),
    ],
)
async def test_after_a_failure_nothing_is_left_open(
    agent: FastroAgent[None, str], tracer: Spans | None
) -> None:
    with pytest.raises(Broken) as caught:
        await agent.run("Hi", tracer=tracer)
    assert usage_of(caught.value) is not None
    assert current_scope() is None


async def test_hook_and_span_see_the_time_limit_and_not_the_cancellation_that_keeps_it() -> None:
    spans, heard = Spans(), list[BaseException | None]()
    agent = FastroAgent(
        FunctionModel(silent),
        timeout=0.01,
        on_after_dispatch=lambda dispatch: heard.append(dispatch.error),
    )
    with pytest.raises(TimeLimitExceeded) as caught:
        await agent.run("Hi", tracer=spans)
    assert heard == [caught.value]
    assert spans.left[-1] is caught.value
    assert current_scope() is None

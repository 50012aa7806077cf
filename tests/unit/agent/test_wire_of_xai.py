"""xAI speaks gRPC: its requests are checked, and its bills read, where its SDK sends and receives them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import grpc
import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.xai import XaiModel
from pydantic_ai.providers.xai import XaiProvider
from xai_sdk import AsyncClient
from xai_sdk.proto import chat_pb2, chat_pb2_grpc, usage_pb2

from fastroai import Budget, CostBudgetExceeded, FastroAgent, budget_scope
from fastroai.usage import CostCalculator, request_bound

BILL = Decimal("0.000447")


class Grok(chat_pb2_grpc.ChatServicer):
    """xAI's service for chats on this machine, which says what it bills."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def _usage(self) -> usage_pb2.SamplingUsage:
        ticks = int(BILL * 10**10)
        return usage_pb2.SamplingUsage(
            prompt_tokens=20, completion_tokens=10, total_tokens=30, cost_in_usd_ticks=ticks
        )

    async def GetCompletion(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        message = chat_pb2.CompletionMessage(content="Hi", role=chat_pb2.ROLE_ASSISTANT)
        output = chat_pb2.CompletionOutput(message=message, finish_reason="REASON_STOP")
        return chat_pb2.GetChatCompletionResponse(
            id="r", model="grok-4", outputs=[output], usage=self._usage()
        )

    async def GetCompletionChunk(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        for text in ("H", "i"):
            delta = chat_pb2.Delta(content=text, role=chat_pb2.ROLE_ASSISTANT)
            yield chat_pb2.GetChatCompletionChunk(
                id="r", model="grok-4", outputs=[chat_pb2.CompletionOutputChunk(delta=delta)]
            )
        last = chat_pb2.CompletionOutputChunk(delta=chat_pb2.Delta(), finish_reason="REASON_STOP")
        yield chat_pb2.GetChatCompletionChunk(id="r", model="grok-4", outputs=[last], usage=self._usage())


@asynccontextmanager
async def grok(kind: type[XaiModel] = XaiModel) -> AsyncIterator[tuple[XaiModel, Grok]]:
    server, service = grpc.aio.server(), Grok()
    chat_pb2_grpc.add_ChatServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = AsyncClient(api_key="k", api_host=f"127.0.0.1:{port}", use_insecure_channel=True)
    try:
        yield kind("grok-4", provider=XaiProvider(xai_client=client)), service
    finally:
        await client.close()
        await server.stop(None)


class Adding(XaiModel):
    """A model that adds text after the request was counted."""

    async def request(self, messages: list[ModelMessage], *rest: Any) -> Any:
        return await super().request(
            [ModelRequest(parts=[SystemPromptPart("Be kind. " * 500)]), *messages], *rest
        )


async def test_the_stated_bill_is_in_the_account() -> None:
    async with grok() as (model, service), budget_scope(Budget(usd=5)) as scope:
        await FastroAgent(model, max_tokens=50).run("Hello")
    assert len(service.asked) == 1
    assert scope.usage.cost_usd == BILL
    assert scope.usage.cost_complete


async def test_the_stated_bill_of_a_stream_is_in_the_account() -> None:
    async with grok() as (model, _), budget_scope(Budget(usd=5)) as scope:
        stream = FastroAgent(model, max_tokens=50).run_stream("Hello")
        assert "".join([str(chunk.content) async for chunk in stream if not chunk.is_final]) == "Hi"
    assert scope.usage.cost_usd == BILL
    assert scope.usage.cost_complete


async def test_a_request_that_leaves_as_it_was_counted_stays_within_its_bound() -> None:
    async with grok() as (model, service), budget_scope(Budget(usd=bound_usd(model))):
        await FastroAgent(model, max_tokens=50).run("Hello")
    assert len(service.asked) == 1


async def test_added_text_is_refused_before_it_leaves() -> None:
    async with grok(Adding) as (model, service), budget_scope(Budget(usd=bound_usd(model))):
        with pytest.raises(CostBudgetExceeded):
            await FastroAgent(model, max_tokens=50).run("Hello")
    assert service.asked == []


def bound_usd(model: XaiModel) -> Decimal:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Hello")])]
    settings: Any = {"max_tokens": 50}
    bound = request_bound(CostCalculator(), model, messages, settings, ModelRequestParameters()).cost_usd
    assert bound is not None
    return bound

"""A provider that bills what it answers, and models of a PydanticAI that nobody here knows yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import httpx2
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

INPUT_USD: Final = Decimal("0.0000004")
OUTPUT_USD: Final = Decimal("0.0000016")
"""The list prices of a token of gpt-4.1-mini."""


@dataclass
class Provider:
    """An OpenAI that keeps a ledger of what it bills."""

    input_tokens: int = 20
    output_tokens: int = 5
    surcharge_usd: Decimal = Decimal(0)
    """What each answer costs besides its tokens."""
    ledger: list[Decimal] = field(default_factory=list)

    @property
    def billed_usd(self) -> Decimal:
        return sum(self.ledger, Decimal(0))

    def model(self, cls: type[OpenAIChatModel] = OpenAIChatModel) -> OpenAIChatModel:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))
        return cls("gpt-4.1-mini", provider=OpenAIProvider(api_key="none", http_client=client))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        tokens_usd = self.input_tokens * INPUT_USD + self.output_tokens * OUTPUT_USD
        self.ledger.append(tokens_usd + self.surcharge_usd)
        usage = {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
        }
        is_stream = bool(json.loads(request.content).get("stream"))
        content = {"role": "assistant", "content": "hi"}
        choice = {"index": 0, "finish_reason": "stop", "delta" if is_stream else "message": content}
        body = {
            "id": "x",
            "object": "chat.completion.chunk" if is_stream else "chat.completion",
            "created": 1,
            "model": "gpt-4.1-mini",
            "service_tier": "default",
            "choices": [choice],
            "usage": usage,
        }
        if not is_stream:
            return httpx2.Response(200, json=body)
        events = f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n"
        return httpx2.Response(200, content=events, headers={"content-type": "text/event-stream"})


def with_method(module: str) -> type[OpenAIChatModel]:
    """A model with a method `research` that asks its provider, in a class of a module of this name."""

    async def research(self: OpenAIChatModel, question: str) -> Any:
        messages: Any = [{"role": "user", "content": question}]
        return await self.client.chat.completions.create(model=self.model_name, messages=messages)

    return type("LaterModel", (OpenAIChatModel,), {"__module__": module, "research": research})


def changing(change: Callable[[ModelResponse], None]) -> type[OpenAIChatModel]:
    """A model whose responses have something that no PydanticAI of today gives them."""

    class LaterModel(OpenAIChatModel):
        async def request(self, *args: Any) -> ModelResponse:
            response = await super().request(*args)
            change(response)
            return response

    return LaterModel

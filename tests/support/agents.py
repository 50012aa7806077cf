"""Agents without a provider, whose answers have an exact price: a token is a microcent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from fastroai.agent import FastroAgent
from fastroai.usage import CostCalculator

TOKEN_IS_MICROCENT = CostCalculator(
    pricing_overrides={"function:paid": {"input_per_mtok": 1, "output_per_mtok": 1}}
)


def prompt_of(messages: list[ModelMessage]) -> str:
    """The text that the user sent last."""
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            for part in reversed(message.parts):
                if isinstance(part, UserPromptPart):
                    return str(part.content)
    raise AssertionError(f"no prompt in {messages}")


def paid_agent(
    microcents: int = 100,
    *,
    answer: Callable[[str], str] = lambda prompt: f"answer to {prompt}",
    before: Callable[[str], Awaitable[object]] | None = None,
    model_name: str = "paid",
    **options: Any,
) -> FastroAgent[Any, str]:
    """An agent each of whose requests costs `microcents`; `before(prompt)` runs while the model "thinks"."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = prompt_of(messages)
        if before is not None:
            await before(prompt)
        return ModelResponse(
            parts=[TextPart(answer(prompt))], usage=RequestUsage(input_tokens=microcents, output_tokens=0)
        )

    options.setdefault("cost_calculator", request_costs(microcents, model_name))
    return FastroAgent(FunctionModel(respond, model_name=model_name), **options)


def request_costs(microcents: int, model_name: str = "paid") -> CostCalculator:
    """Prices at which each request costs so much, however long it is: its bound is what it costs."""
    price = {"input_per_mtok": 0, "output_per_mtok": 0, "per_request": Decimal(microcents) / 1_000_000}
    return CostCalculator(pricing_overrides={f"function:{model_name}": price})


def streaming_agent(
    chunks: Callable[[str], AsyncIterator[str]], *, model_name: str = "paid", **options: Any
) -> FastroAgent[Any, str]:
    """An agent that streams what `chunks(prompt)` yields."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        async for chunk in chunks(prompt_of(messages)):
            yield chunk

    options.setdefault("cost_calculator", TOKEN_IS_MICROCENT)
    return FastroAgent(FunctionModel(stream_function=respond, model_name=model_name), **options)

"""How much is set aside for requests, beside what they then cost: over traffic as applications have it."""

from collections.abc import Sequence
from decimal import Decimal
from functools import cache

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage
from support.bodies import chat_model, claude_model, responses_model
from support.traffic import Exchange, openai_input_tokens, traffic

from fastroai.usage import CostCalculator, RequestBound, request_bound
from fastroai.usage.bounding import tokenizers
from fastroai.usage.bounding.bounds import prepare_bound

CALCULATOR = CostCalculator()


@cache
def exchanges() -> list[Exchange]:
    """Made when a test needs them: their sizes take a tokenizer, which takes a second to load."""
    return traffic(runs=6)


def bound(model: Model, exchange: Exchange) -> RequestBound:
    settings = {"max_tokens": exchange.max_tokens, "service_tier": "default"}
    messages = model.prepare_messages(exchange.messages, exchange.parameters)
    return request_bound(CALCULATOR, model, messages, settings, exchange.parameters)  # type: ignore[arg-type]


def reserved(model: Model) -> Decimal:
    return sum((bound(model, exchange).cost_usd or Decimal("NaN") for exchange in exchanges()), Decimal(0))


def spent(model: Model, input_tokens: Sequence[int]) -> Decimal:
    return sum(
        (
            price(model, size, each.output_tokens)
            for size, each in zip(input_tokens, exchanges(), strict=True)
        ),
        Decimal(0),
    )


def price(model: Model, input_tokens: int, output_tokens: int) -> Decimal:
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    named = {"model_name": model.model_name, "provider_name": model.system, "provider_url": model.base_url}
    cost = CALCULATOR.price(ModelResponse(parts=[], usage=usage, **named))  # type: ignore[arg-type]
    assert cost is not None
    return cost


@pytest.mark.parametrize("model", [chat_model("gpt-4.1-mini"), responses_model("gpt-5-mini")])
async def test_for_models_of_openai_little_more_is_reserved_than_spent(model: Model) -> None:
    for exchange in exchanges():
        await prepare_bound(CALCULATOR, model, exchange.messages, exchange.parameters)
    sizes = [await openai_input_tokens(model, exchange) for exchange in exchanges()]
    for size, exchange in zip(sizes, exchanges(), strict=True):
        assert (bound(model, exchange).input_tokens or 0) >= size
    assert 1 < reserved(model) / spent(model, sizes) < Decimal("1.75")


async def test_a_tokenizer_saves_much(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chat_model("gpt-4.1-mini")
    exact = reserved(model)
    monkeypatch.setattr(tokenizers, "_load", lambda name: None)
    assert reserved(model) > Decimal("1.5") * exact


async def test_so_it_would_for_others() -> None:
    """No offline tokenizer is published for them, so their bytes count."""
    gpt, claude = chat_model("gpt-4.1-mini"), claude_model()
    sizes = [await openai_input_tokens(gpt, exchange) for exchange in exchanges()]
    assert 2 < reserved(claude) / spent(claude, sizes) < 3

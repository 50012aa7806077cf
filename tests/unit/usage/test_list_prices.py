import pytest
from genai_prices.data import providers
from genai_prices.types import PriceCalculation
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from fastroai.usage.list_prices import is_local, list_price


@pytest.mark.parametrize(
    ("model", "provider", "local"),
    [
        ("test", "test", True),
        ("anything", "function", True),
        ("function:reply:", None, True),
        ("function:reply:", "openai", False),
        ("gpt-5-mini", None, False),
        (None, None, False),
    ],
)
def test_test_and_function_models_are_local(model: str | None, provider: str | None, local: bool) -> None:
    assert is_local(model, provider) is local


@pytest.mark.parametrize("model", ["gpt-5-mini", "claude-sonnet-4-5", "gemini-2.5-pro"])
def test_models_of_the_large_providers_are_listed(model: str) -> None:
    price = list_price(ModelResponse(parts=[], model_name=model, usage=RequestUsage(input_tokens=100)))
    assert price is not None
    assert price.total_price > 0


def test_every_price_by_the_token_that_genai_prices_ships_is_taken_as_it_is() -> None:
    usage = RequestUsage(input_tokens=1000, output_tokens=1000)
    compared = 0
    for provider in providers:
        for model in provider.models:
            response = ModelResponse(parts=[], model_name=model.id, provider_name=provider.id, usage=usage)
            price = _by_the_token(response)
            if price is not None:
                found = list_price(response)
                assert found is not None, (provider.id, model.id)
                assert found.total_price == price.total_price
                compared += 1
    assert compared > 1000


def _by_the_token(response: ModelResponse) -> PriceCalculation | None:
    try:
        price = response.cost()
    except LookupError:
        return None
    return price if any(key.endswith("_mtok") for key in vars(price.model_price)) else None

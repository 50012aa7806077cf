from pathlib import Path

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai.records import Tokens
from fastroai.usage import CostCalculator, Endpoint, NearMissWarning, PricingOverride

CHEAP: PricingOverride = {"input_per_mtok": 1, "output_per_mtok": 1}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("opnai:gpt-4o", "openai:gpt-4o"),
        ("OpenAI:gpt-4o", "openai:gpt-4o"),
        ("openaii:*", "openai:*"),
        ("anthropc:claude-*", "anthropic:claude-*"),
        ("gogle:gemini-3-pro", "google:gemini-3-pro"),
        ("azur:gpt-4o", "azure:gpt-4o"),
        ("gateway/opnai:gpt-4o", "openai:gpt-4o"),
    ],
)
def test_a_provider_that_is_misspelt_is_warned_of(key: str, meant: str) -> None:
    with pytest.warns(
        NearMissWarning, match=rf"^pricing_overrides\['{key.replace('*', '.')}'\]: .*"
    ) as warned:
        CostCalculator(pricing_overrides={key: CHEAP})
    assert len(warned) == 1
    assert f"Did you mean {meant!r}?" in str(warned[0].message)
    assert Path(warned[0].filename) == Path(__file__)


def test_every_way_to_give_a_price_warns() -> None:
    with pytest.warns(NearMissWarning):
        CostCalculator().add_pricing_override("opnai:gpt-4o", **CHEAP)
    described = Endpoint(prices={"opnai:gpt-4o": CHEAP})
    with pytest.warns(
        NearMissWarning, match=r"^endpoints\['http://gateway'\].prices\['opnai:gpt-4o'\]"
    ) as warned:
        CostCalculator(endpoints={"http://gateway": described})
    assert len(warned) == 1


@pytest.mark.parametrize(
    "key",
    [
        "openai:gpt-4o", "openai-chat:gpt-4o", "gateway/openai:gpt-4o", "bedrock:*", "x-ai:grok-4", "test:m",
        "function:m", "gpt-4o", "*", "open*:gpt-4o", "opnai", "our-model", "acme:writer", "openai-eu:gpt-4o",
        "openai2:gpt-4o", "my-azure:gpt-4o", "eu.openai:gpt-4o", "mixtral:8x7b", "llama3:8b", "qwen:7b",
        "x-ai/grok-4:free", "anthropic/claude-sonnet-4-5:online", "search:pages",
    ],
)  # fmt: skip
def test_a_key_that_can_be_meant_is_taken_in_silence(key: str) -> None:
    """Warnings are errors here."""
    CostCalculator(pricing_overrides={key: CHEAP})


# --- endpoints ---

TOKENS = Tokens(input_tokens=10, output_tokens=10)


def price(calculator: CostCalculator, url: str) -> None:
    calculator.price(TOKENS, model="openai:gpt-4o", provider_url=url)


@pytest.mark.parametrize(
    ("described", "asked", "differs"),
    [
        ("http://litellm.internal", "http://litellm.internal:4000/v1", "port"),
        ("http://litellm.internal:4000", "http://litellm.internal/v1", "port"),
        ("http://litellm.internal", "https://litellm.internal/v1", "scheme"),
        ("https://gateway.example/v1/chat/completions", "https://gateway.example/v1/", "path"),
    ],
)
def test_an_endpoint_that_requests_nearly_go_to_is_told_once(
    described: str, asked: str, differs: str
) -> None:
    calculator = CostCalculator(endpoints={described: Endpoint(prices={"*": CHEAP})})
    with pytest.warns(NearMissWarning, match=f"'{described}'.*'{asked}'.*: the {differs} differs") as warned:
        price(calculator, asked)
        price(calculator, asked)
    assert len(warned) == 1
    assert Path(warned[0].filename) == Path(__file__)


@pytest.mark.parametrize(
    ("described", "asked"),
    [
        ("http://localhost:11434", "http://localhost:8000/v1"),
        ("https://gateway.example/openai", "https://gateway.example/anthropic"),
        ("https://gateway.example", "https://elsewhere.example"),
        ("https://gateway.example/v1", "https://gateway.example:443/v1/"),
    ],
)
def test_another_server_is_asked_in_silence(described: str, asked: str) -> None:
    price(CostCalculator(endpoints={described: Endpoint()}), asked)


def test_an_endpoint_that_fits_wins_over_one_that_nearly_does() -> None:
    endpoints = {"http://gateway": Endpoint(), "http://gateway:4000": Endpoint(prices={"*": CHEAP})}
    calculator = CostCalculator(endpoints=endpoints)
    price(calculator, "http://gateway:4000/v1")


def test_a_model_at_a_near_miss_is_told_of_before_a_request_is_sent() -> None:
    model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url="http://gateway:4000", api_key="k"))
    with pytest.warns(NearMissWarning):
        CostCalculator(endpoints={"http://gateway": Endpoint()}).host(model)

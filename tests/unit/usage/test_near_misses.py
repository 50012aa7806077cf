from pathlib import Path

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

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


def ask(calculator: CostCalculator, url: str) -> None:
    """Ask for what is known of the host of a model, as every request does under a budget."""
    calculator.host(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=url, api_key="k")))


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
    with pytest.warns(
        NearMissWarning, match=f"'{described}'.*'{asked.rstrip('/')}/'.*: the {differs} differs"
    ) as warned:
        ask(calculator, asked)
        ask(calculator, asked)
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
    ask(CostCalculator(endpoints={described: Endpoint()}), asked)


def test_an_endpoint_that_fits_wins_over_one_that_nearly_does() -> None:
    endpoints = {"http://gateway": Endpoint(), "http://gateway:4000": Endpoint(prices={"*": CHEAP})}
    calculator = CostCalculator(endpoints=endpoints)
    ask(calculator, "http://gateway:4000/v1")


def test_prices_are_looked_up_in_silence() -> None:
    """In the middle of a settlement, a warning that is an error would lose the charge."""
    calculator = CostCalculator(endpoints={"http://gateway": Endpoint()})
    usage = RequestUsage(input_tokens=10)
    assert calculator.price(usage, model="openai:gpt-4o", provider_url="http://gateway:4000/v1")

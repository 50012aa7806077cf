from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.azure import AzureProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai.usage.facts.allowances import GATEWAY, OTHER, Allowances
from fastroai.usage.facts.documented import all_facts
from fastroai.usage.prices.hosts import Host, base_url_of, is_first_party

ANTHROPIC = all_facts()["anthropic"].allowances
OPENAI = all_facts()["openai"].allowances
OPENAI_AT_GATEWAY = replace(GATEWAY, tools=OPENAI.tools, sources=OPENAI.sources)

OWN = "https://api.openai.com/v1"
ELSEWHERE = "http://litellm.internal/v1"


def openai(model: str, url: str = OWN) -> Model:
    return OpenAIChatModel(model, provider=OpenAIProvider(api_key="none", base_url=url))


def claude(model: str, url: str = "https://api.anthropic.com") -> Model:
    return AnthropicModel(model, provider=AnthropicProvider(api_key="none", base_url=url))


def azure(model: str) -> Model:
    provider = AzureProvider(
        api_key="none", azure_endpoint="https://acme.openai.azure.com", api_version="2025-01-01"
    )
    return OpenAIChatModel(model, provider=provider)


def ollama(model: str) -> Model:
    return OpenAIChatModel(model, provider=OllamaProvider(base_url="http://localhost:11434/v1"))


@pytest.mark.parametrize(
    ("provider", "url", "own"),
    [
        ("openai", "https://api.openai.com/v1/", True),
        ("openai", "https://eu.api.openai.com/v1", True),
        ("openai", "https://api.openai.com.evil.example/v1", False),
        ("openai", "https://notapi.openai.com/v1", False),
        ("openai", "http://localhost:4000/v1", False),
        ("openai", None, False),
        ("azure", "https://acme.openai.azure.com/openai/v1/", True),
        ("azure", "https://acme.services.ai.azure.com/models", True),
        ("azure", "https://acme.example.com", False),
        ("anthropic", "https://api.anthropic.com", True),
        ("anthropic", "https://bedrock-runtime.us-east-1.amazonaws.com", False),
        ("google", "https://generativelanguage.googleapis.com/", True),
        ("google-cloud", "https://europe-west1-aiplatform.googleapis.com/", True),
        ("groq", "https://api.groq.com", False),
    ],
)
def test_the_providers_own_address_is_known(provider: str, url: str | None, own: bool) -> None:
    assert is_first_party(provider, url) is own


def test_a_model_without_an_address_has_none() -> None:
    class Homeless(OpenAIResponsesModel):
        @property
        def base_url(self) -> str:
            raise AttributeError("no address")

    assert base_url_of(Homeless("gpt-5-mini", provider=OpenAIProvider(api_key="none"))) is None


@pytest.mark.parametrize(
    ("model", "said", "maker"),
    [
        (openai("gpt-4o"), {}, "openai"),
        (openai("my-tuned-model"), {}, "openai"),
        (openai("gpt-4o", ELSEWHERE), {}, None),
        (openai("gpt-4o", ELSEWHERE), {"like": "openai"}, "openai"),
        (openai("my-alias", ELSEWHERE), {"like": "openai"}, "openai"),
        (openai("claude-sonnet-4-5", ELSEWHERE), {"like": "openai"}, None),
        (openai("anthropic/claude-sonnet-4-5", ELSEWHERE), {"like": "openai"}, None),
        (openai("claude-sonnet-4-5", ELSEWHERE), {"like": "anthropic"}, "anthropic"),
        (openai("gpt-4o", ELSEWHERE), {"like": "azure"}, "azure"),
        (openai("claude-sonnet-4-5", ELSEWHERE), {"like": "google-cloud"}, "google-cloud"),
        (openai("gpt-4o"), {"service_tier": "default"}, "openai"),
        (openai("gpt-4o"), {"like": "anthropic"}, "openai"),
        (azure("gpt-4o"), {}, "azure"),
        (azure("my-deployment"), {}, "azure"),
        (azure("claude-sonnet-4-5"), {}, None),
        (claude("claude-sonnet-4-5"), {}, "anthropic"),
        (claude("claude-sonnet-4-5", "http://proxy.internal"), {}, None),
        (ollama("llama3:8b"), {}, None),
    ],
)
def test_whose_rules_hold_is_told_by_the_url_the_owner_and_the_name_of_the_model(
    model: Model, said: dict[str, Any], maker: str | None
) -> None:
    assert Host.of(model, **said).maker == maker


def test_a_model_has_the_name_that_its_maker_gives_it_where_rules_of_the_maker_hold() -> None:
    model = openai("openai/gpt-4o", ELSEWHERE)
    described, unknown = Host.of(model, like="openai"), Host.of(model)
    assert (described.model, described.encoded_model) == ("gpt-4o", "gpt-4o")
    assert (unknown.model, unknown.encoded_model) == ("openai/gpt-4o", None)
    assert described.facts is not None
    assert unknown.facts is None


@pytest.mark.parametrize(
    ("model", "said", "allowances", "request_tokens"),
    [
        (openai("gpt-4o"), {}, OPENAI, 16),
        (azure("gpt-4o"), {}, OPENAI, 16),
        (claude("claude-sonnet-4-5"), {}, ANTHROPIC, 64),
        (openai("gpt-4o", ELSEWHERE), {}, OPENAI_AT_GATEWAY, 1_024),
        (openai("openai/gpt-4o", ELSEWHERE), {}, OPENAI_AT_GATEWAY, 1_024),
        (openai("anthropic/claude-sonnet-4-5", ELSEWHERE), {}, GATEWAY, 1_024),
        (claude("claude-sonnet-4-5", "http://proxy.internal"), {}, GATEWAY, 1_024),
        (ollama("llama3:8b"), {}, OTHER, 4_096),
        (openai("gpt-4o", ELSEWHERE), {"like": "openai"}, OPENAI, 16),
        (openai("gpt-4o", ELSEWHERE), {"like": "openai", "allowance": 100}, OPENAI, 116),
        (openai("gpt-4o", ELSEWHERE), {"allowance": 100}, OPENAI_AT_GATEWAY, 100),
        (ollama("llama3:8b"), {"allowance": 0}, OTHER, 0),
        (openai("claude-sonnet-4-5", ELSEWHERE), {"like": "openai"}, GATEWAY, 1_024),
    ],
)
def test_who_is_not_known_may_add_more(
    model: Model, said: dict[str, Any], allowances: Allowances, request_tokens: int
) -> None:
    found = Host.of(model, **said).allowances
    assert (found.message, found.tools) == (allowances.message, allowances.tools)
    assert found.request == request_tokens


@pytest.mark.parametrize(
    ("model", "most"),
    [
        (openai("gpt-4o"), 16_384),
        (openai("gpt-4o", ELSEWHERE), 16_384),
        (openai("openai/gpt-4o-2024-08-06", ELSEWHERE), 16_384),
        (ollama("llama3:8b"), None),
    ],
)
def test_the_longest_answer_is_known_by_name_whoever_serves_the_model(model: Model, most: int | None) -> None:
    assert Host.of(model).longest_answer_by_name == most

import pytest
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai.usage.endpoints import allowances_of, base_url_of, is_first_party
from fastroai.usage.facts import ANTHROPIC, GATEWAY, OPENAI, OTHER, Allowances


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


@pytest.mark.parametrize(
    ("provider", "url", "allowances"),
    [
        ("openai", "https://api.openai.com/v1/", OPENAI),
        ("azure", "https://acme.openai.azure.com/", OPENAI),
        ("anthropic", "https://api.anthropic.com", ANTHROPIC),
        ("openai", "http://localhost:4000/v1", GATEWAY),
        ("anthropic", None, GATEWAY),
        ("google", "https://generativelanguage.googleapis.com/", GATEWAY),
        ("groq", "https://api.groq.com", OTHER),
    ],
)
def test_who_is_not_known_may_add_more(provider: str, url: str | None, allowances: Allowances) -> None:
    assert allowances_of(provider, url) is allowances


def test_a_model_without_an_address_has_none() -> None:
    class Homeless(OpenAIResponsesModel):
        @property
        def base_url(self) -> str:
            raise AttributeError("no address")

    assert base_url_of(Homeless("gpt-5-mini", provider=OpenAIProvider(api_key="none"))) is None

from decimal import Decimal

import pytest

from fastroai.usage.facts.documented import all_facts
from fastroai.usage.facts.regions import regional_factor

OPENAI_EU = "https://eu.api.openai.com/v1/"
VERTEX_EU = "https://europe-west1-aiplatform.googleapis.com/"
BEDROCK = "https://bedrock-runtime.eu-central-1.amazonaws.com"


@pytest.mark.parametrize(
    ("provider", "url", "model", "factor"),
    [
        ("openai", "https://api.openai.com/v1/", "gpt-5.4", "1"),
        ("openai", OPENAI_EU, "gpt-5.4", "1.1"),
        ("openai", OPENAI_EU, "gpt-5.4-pro", "1.1"),
        ("openai", OPENAI_EU, "gpt-6-astra", "1.1"),
        ("openai", OPENAI_EU, "gpt-5.2", "1"),
        ("openai", OPENAI_EU, "gpt-4o-mini", "1"),
        ("openai", OPENAI_EU, "o3", "1"),
        ("openai", OPENAI_EU, "model-of-tomorrow", None),
        ("anthropic", "https://api.anthropic.com", "claude-opus-4-8", "1"),
        ("anthropic", "https://aiplatform.googleapis.com/v1", "claude-sonnet-4-5@20250929", "1"),
        ("anthropic", "https://us-east5-aiplatform.googleapis.com/v1", "claude-sonnet-4-5@20250929", "1.1"),
        ("anthropic", "https://aiplatform.eu.rep.googleapis.com/v1", "claude-opus-4-8", "1.1"),
        ("anthropic", "https://us-east5-aiplatform.googleapis.com/v1", "claude-sonnet-4@20250514", "1"),
        ("google-cloud", VERTEX_EU, "gemini-2.5-flash", "1"),
        ("google-cloud", VERTEX_EU, "gemini-3-flash-preview", "1.1"),
        ("google-cloud", "https://aiplatform.googleapis.com/", "gemini-3-flash-preview", "1"),
        ("google-cloud", VERTEX_EU, "llama-4", None),
        ("google", "https://generativelanguage.googleapis.com/", "gemini-3-flash-preview", "1"),
        ("azure", "https://mine.openai.azure.com/openai/v1/", "gpt-5.4", None),
        ("bedrock", BEDROCK, "eu.anthropic.claude-sonnet-4-6", "1"),
        ("bedrock", BEDROCK, "meta.llama3-1-8b-instruct-v1:0", None),
        ("bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com", "meta.llama3-1-8b-instruct-v1:0", "1"),
        ("xai", "https://us.api.x.ai/v1", "grok-4.6", "1.1"),
        ("xai", "https://api.x.ai/v1", "grok-4.6", "1"),
        ("together", "https://us-api.together.ai/v1", "zai-org/GLM-5.3", "1.25"),
        ("groq", "https://api.groq.com", "llama-3.3-70b-versatile", "1"),
        ("test", None, "test", "1"),
    ],
)
def test_a_region_multiplies_prices_where_its_provider_says_so(
    provider: str, url: str | None, model: str, factor: str | None
) -> None:
    assert regional_factor(provider, url, model).known == (None if factor is None else Decimal(factor))


@pytest.mark.parametrize(
    ("model", "geography", "factor", "most"),
    [
        ("claude-opus-4-8", None, "1", "1.1"),  # a workspace can have another default
        ("claude-opus-4-8", "global", "1", "1"),
        ("claude-opus-4-8", "us", "1.1", "1.1"),
        ("claude-opus-4-8", "eu", None, None),
        ("claude-opus-4-5", None, "1", "1"),
        ("claude-sonnet-4-5-20250929", None, "1", "1"),
        ("claude-sonnet-4-20250514", None, "1", "1"),
        ("claude-opus-4-20250514", None, "1", "1"),
        ("claude-haiku-4-5", None, "1", "1"),
        ("claude-haiku-5-5", None, "1", "1.1"),
        ("claude-sonnet-4-6", None, "1", "1.1"),
        ("claude-sonnet-5", None, "1", "1.1"),
    ],
)
def test_claude_costs_more_where_inference_stays_in_the_us(
    model: str, geography: str | None, factor: str | None, most: str | None
) -> None:
    found = regional_factor("anthropic", "https://api.anthropic.com", model, geography)
    assert found == tuple(None if one is None else Decimal(one) for one in (factor, most))


def test_no_factor_is_above_the_most_that_it_can_be() -> None:
    for price in (price for facts in all_facts().values() for price in facts.regional_prices):
        assert price.factor is None or price.most is None or price.factor <= price.most


def test_a_premium_that_may_apply_is_bounded_where_its_size_is_documented() -> None:
    assert regional_factor("openai", OPENAI_EU, "model-of-tomorrow").most == Decimal("1.1")
    azure = "https://mine.openai.azure.com/openai/v1/"
    assert regional_factor("azure", azure, "gpt-5.4").most == Decimal("1.2")
    assert regional_factor("google-cloud", VERTEX_EU, "llama-4").most is None

"""Whether the table has a line for everything that it should have one for."""

import pkgutil
from datetime import date

import pydantic_ai.providers
import pytest
from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.models import known_model_names

from fastroai.usage.facts import (
    FINISH_REASONS,
    MODELS,
    PROVIDERS,
    PROVIDERS_OF_MANY,
    REGIONAL_PRICES,
    SEARCHES_UNASKED,
    SETTINGS,
    THINKS_BESIDES,
    TIERS_BY_PROVIDER,
    Source,
    model_facts,
)
from fastroai.usage.facts.models import _MAKERS

PRICED_AS = {
    "anthropic": "anthropic",
    "aws": "bedrock",
    "azure": "azure",
    "cerebras": "cerebras",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "elevenlabs": "elevenlabs",
    "fireworks": "fireworks",
    "github-copilot": "github-copilot",
    "google": "google-cloud",
    "groq": "groq",
    "meta": "meta",
    "mistral": "mistral",
    "moonshotai": "moonshotai",
    "openai": "openai",
    "openai-decisions": "openai-decisions",
    "openrouter": "openrouter",
    "ovhcloud": "ovhcloud",
    "together": "together",
    "typesafe": "typesafe",
    "voyageai": "voyageai",
    "x-ai": "xai",
    "zai": "zai",
    "zhipuai": "zai",
}
"""Providers of genai-prices that PydanticAI can talk to, and how it names them."""
OTHERS = {
    "arcee", "avian", "baseten", "cloudflare", "cursor", "databricks", "doubleword", "minimax", "modal",
    "novita", "perplexity", "quicksilverpro",
}  # fmt: skip
"""Those that PydanticAI has no class for."""
NOT_OPENAIS = ("mai-", "phi-", "wizardlm-")
"""Models that Azure serves, and OpenAI does not make."""


def described(provider: str, model: str) -> bool:
    return provider in PROVIDERS_OF_MANY or model_facts(provider, model) is not None


def test_every_provider_of_genai_prices_is_sorted() -> None:
    known = PRICED_AS.keys() | OTHERS
    assert {each.id for each in get_snapshot().providers if not each.id.startswith("huggingface_")} == known


@pytest.mark.parametrize("priced", PRICED_AS)
def test_every_model_with_a_price_has_a_line(priced: str) -> None:
    (provider,) = [each for each in get_snapshot().providers if each.id == priced]
    names = [
        model.id
        for model in provider.models
        if not model.id.startswith(NOT_OPENAIS) and not model.id.endswith("-")  # how a fine-tuned one begins
    ]
    missing = [name for name in names if not described(PRICED_AS[priced], name)]
    assert not missing, f"add lines to fastroai/usage/facts/models.py for {missing}"


def test_every_model_that_pydantic_ai_names_has_a_line() -> None:
    missing = []
    for reference in known_model_names():
        provider, colon, model = reference.partition(":")
        if colon and not provider.startswith("gateway/") and not described(provider, model):
            missing.append(reference)
    assert not missing, f"add lines to fastroai/usage/facts/models.py for {missing}"


def test_every_provider_of_pydantic_ai_is_sorted() -> None:
    modules = {module.name for module in pkgutil.iter_modules(pydantic_ai.providers.__path__)}
    providers = {name.replace("_", "-") for name in modules if not name.startswith("_")} - {"gateway"}
    assert providers <= PROVIDERS_OF_MANY.keys() | _MAKERS.keys()


def test_no_model_has_two_lines() -> None:
    names = {model.id for provider in get_snapshot().providers for model in provider.models}
    names |= {reference.partition(":")[2] for reference in known_model_names()}
    for name in names:
        for maker in {line.maker for line in MODELS}:
            lines = [line for line in MODELS if line.maker == maker and line.names.fullmatch(name)]
            assert len(lines) <= 1, (name, [line.names.pattern for line in lines])


def test_a_line_says_something_or_why_it_does_not() -> None:
    silent = {line.names.pattern for line in MODELS if line.unknown is None and line.maker != "xai"}
    for line in MODELS:
        if line.unknown is not None:
            assert (line.window, line.output_tokens, line.images, line.pdf) == (None,) * 4
            assert line.names.pattern not in silent


def sources() -> list[Source]:
    found = [line.source for line in MODELS]
    found += [line.images.source for line in MODELS if line.images is not None]
    found += [line.pdf.source for line in MODELS if line.pdf is not None]
    found += [price.source for price in REGIONAL_PRICES]
    for provider in PROVIDERS.values():
        found += provider.allowances.sources
        named = (provider.search_source, provider.same_prefix)
        found += [source for source in named if source is not None]
    found += [api.source for apis in FINISH_REASONS.values() for api in apis]
    found += [tiers.source for tiers in TIERS_BY_PROVIDER.values()]
    found += [settings.source for settings in SETTINGS]
    return [*found, *SEARCHES_UNASKED.sources, *THINKS_BESIDES.sources]


def test_every_fact_has_a_page_and_a_day() -> None:
    for source in sources():
        assert source.url.startswith("https://")
        assert date(2026, 11, 1) <= source.checked <= date.today()


def test_rounds_have_their_sources() -> None:
    for provider in PROVIDERS.values():
        assert (provider.search_rounds is None) == (provider.search_source is None)


@pytest.mark.parametrize(
    ("provider", "model", "window", "output"),
    [
        ("openai", "gpt-4o-mini-2024-07-18", None, 16_384),
        ("openai", "gpt-4.1-nano", 1_047_576, 32_768),
        ("openai", "gpt-5-pro-2025-10-06", None, 272_000),
        ("azure", "gpt-5.4", None, 128_000),
        ("google", "gemini-2.5-pro", 1_048_576, 65_536),
        ("google", "gemini-2.5-flash-preview-09-2025", 1_048_576, 65_536),
        ("google", "gemini-2.0-flash-001", 1_048_576, 8_192),
        ("google", "gemini-3-pro-preview", 1_048_576, 65_536),
        ("google-cloud", "gemini-3.5-flash", 1_048_576, 65_536),
    ],
)
def test_a_snapshot_has_the_limits_of_its_model(
    provider: str, model: str, window: int | None, output: int
) -> None:
    facts = model_facts(provider, model)
    assert facts is not None
    assert (facts.window, facts.output_tokens) == (window, output)

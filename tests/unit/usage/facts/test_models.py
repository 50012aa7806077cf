"""Whether the table has a line for everything that it should have one for."""

import pkgutil
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

import pydantic_ai.providers
import pytest
from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.models import known_model_names

from fastroai.usage.facts.models import MAKERS, MODELS, model_facts

UNKNOWN_MODELS = Path(__file__).with_name("unknown_models.toml")
UNKNOWN = {
    provider: [model for models in by_reason.values() for model in models]
    for provider, by_reason in tomllib.loads(UNKNOWN_MODELS.read_text()).items()
}
NAMED = {"google": "google-cloud", "x-ai": "xai"}
"""Providers of genai-prices with lines in the table under another name, which is PydanticAI's."""


def known_models() -> dict[str, set[str]]:
    """The models of each provider that genai-prices has a price for, or PydanticAI knows by name."""
    known = {provider.id: {model.id for model in provider.models} for provider in get_snapshot().providers}
    for reference in known_model_names():
        provider, colon, model = reference.partition(":")
        if colon and not provider.startswith("gateway/"):
            known.setdefault(provider, set()).add(model)
    return known


def has_a_line(provider: str, model: str) -> bool:
    return model_facts(NAMED.get(provider, provider), model) is not None


def unsorted(known: Mapping[str, Collection[str]]) -> list[str]:
    """The models that neither the table nor the list of unknown ones has."""
    return [
        f"{provider}:{model}"
        for provider, models in known.items()
        for model in sorted(models)
        if model not in UNKNOWN.get(provider, ()) and not has_a_line(provider, model)
    ]


def test_every_model_that_has_a_price_or_a_name_has_a_line_or_is_unknown() -> None:
    missing = unsorted(known_models())
    assert not missing, (
        f"{len(missing)} models are new: {', '.join(missing)}. For each, look at the page of its provider. "
        "If it documents limits, add a line to fastroai/usage/facts/models.py; if it documents none, add the "
        f"model to {UNKNOWN_MODELS.name}, with the reason"
    )


@pytest.mark.parametrize("provider", [*known_models(), "a-new-provider"])
def test_a_new_model_of_any_provider_is_noticed(provider: str) -> None:
    assert unsorted({provider: ["brand-new-1"]}) == [f"{provider}:brand-new-1"]


def test_no_unknown_model_is_gone_or_has_a_line_meanwhile() -> None:
    known = known_models()
    outdated = [
        f"{provider}:{model}"
        for provider, models in UNKNOWN.items()
        for model in models
        if model not in known.get(provider, ()) or has_a_line(provider, model)
    ]
    assert not outdated, f"take these out of {UNKNOWN_MODELS.name}: {', '.join(outdated)}"


def test_every_provider_of_pydantic_ai_is_sorted() -> None:
    modules = {module.name for module in pkgutil.iter_modules(pydantic_ai.providers.__path__)}
    providers = {name.replace("_", "-") for name in modules if not name.startswith("_")} - {"gateway"}
    assert providers <= UNKNOWN.keys() | MAKERS.keys()


def test_no_model_has_two_lines() -> None:
    names = {model.id for provider in get_snapshot().providers for model in provider.models}
    names |= {reference.partition(":")[2] for reference in known_model_names()}
    for name in names:
        for maker in {line.maker for line in MODELS}:
            lines = [line for line in MODELS if line.maker == maker and line.names.fullmatch(name)]
            assert len(lines) <= 1, (name, [line.names.pattern for line in lines])


def test_a_line_says_something_or_why_it_does_not() -> None:
    for line in MODELS:
        says = any(fact is not None for fact in (line.window, line.output_tokens, line.images, line.pdf))
        assert says != bool(line.unknown), line.names.pattern


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

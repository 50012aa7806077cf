"""Whether every model with a price or a name has a line in the table of facts, or is known to have none."""

import pkgutil
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

import pydantic_ai.providers
import pytest
from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.models import known_model_names

from fastroai.usage.facts.models import MAKERS, model_facts

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
        "If it documents limits, add a line to its file in fastroai/usage/facts/data; if it documents none, "
        f"add the model to tests/versions/{UNKNOWN_MODELS.name}, with the reason"
    )


@pytest.mark.parametrize("provider", [*known_models(), "a-new-provider"])
def test_a_new_model_of_any_provider_is_noticed(provider: str) -> None:
    assert unsorted({provider: ["brand-new-1"]}) == [f"{provider}:brand-new-1"]


def test_no_unknown_model_has_a_line_meanwhile() -> None:
    # A model that the newest PydanticAI does not name any more stays in the list: older ones name it.
    lines = [
        f"{name}:{model}" for name, models in UNKNOWN.items() for model in models if has_a_line(name, model)
    ]
    assert not lines, f"take these out of {UNKNOWN_MODELS.name}: {', '.join(lines)}"


def test_every_provider_of_pydantic_ai_is_sorted() -> None:
    modules = {module.name for module in pkgutil.iter_modules(pydantic_ai.providers.__path__)}
    providers = {name.replace("_", "-") for name in modules if not name.startswith("_")} - {"gateway"}
    missing = providers - UNKNOWN.keys() - MAKERS.keys()
    assert not missing, (
        f"new providers: {sorted(missing)}. Add to MAKERS in fastroai/usage/facts/models.py those that serve "
        f"models by the documented rules of their maker, and to {UNKNOWN_MODELS.name} the others"
    )

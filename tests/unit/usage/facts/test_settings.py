import ast
import importlib.util
from pathlib import Path

import pytest

from fastroai.usage.facts.settings import HARMLESS_SETTINGS, SERVER_SIDE_INPUT_SETTINGS

SORTED = HARMLESS_SETTINGS | SERVER_SIDE_INPUT_SETTINGS
PROVIDERS = (
    "anthropic",
    "bedrock",
    "cerebras",
    "google",
    "groq",
    "mistral",
    "openai",
    "openrouter",
    "xai",
    "zai",
)


def settings_in(module: str) -> set[str]:
    """The names in a module's classes of settings, read without importing it: it may need an SDK."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    classes = [
        node for node in ast.parse(Path(spec.origin).read_text()).body if isinstance(node, ast.ClassDef)
    ]
    return {
        field.target.id
        for settings in classes
        if settings.name.endswith("ModelSettings")
        for field in settings.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def test_no_setting_is_in_two_groups() -> None:
    assert not HARMLESS_SETTINGS & SERVER_SIDE_INPUT_SETTINGS


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_setting_of_a_provider_that_is_sorted_exists(provider: str) -> None:
    of_provider = {setting for setting in SORTED if setting.startswith(f"{provider}_")}
    assert of_provider
    assert of_provider <= settings_in(f"pydantic_ai.models.{provider}")


def test_every_setting_of_all_models_that_is_sorted_exists() -> None:
    prefixes = tuple(f"{provider}_" for provider in PROVIDERS)
    of_all = {setting for setting in SORTED if not setting.startswith(prefixes)}
    assert "max_tokens" in of_all
    assert of_all <= settings_in("pydantic_ai.settings")

from __future__ import annotations

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel

from fastroai.agent.models import ModelCache, build_model
from fastroai.errors import UnknownModelError


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


@pytest.mark.parametrize(
    ("reference", "kind", "name"),
    [
        ("gpt-5-mini", OpenAIResponsesModel, "gpt-5-mini"),
        ("openai:gpt-5-mini", OpenAIResponsesModel, "gpt-5-mini"),
        ("openai-chat:gpt-5-mini", OpenAIChatModel, "gpt-5-mini"),
        ("claude-haiku-4-5", AnthropicModel, "claude-haiku-4-5"),
        ("test", TestModel, "test"),
        ("test:test", TestModel, "test"),
    ],
)
def test_a_reference_is_built_as_pydantic_ai_builds_it(reference: str, kind: type, name: str) -> None:
    model = build_model(reference)
    assert type(model) is kind
    assert model.model_name == name


@pytest.mark.parametrize("reference", ["openai:gpt-5-mini", "openai-chat:gpt-5-mini", "claude-haiku-4-5"])
def test_the_sdk_does_not_retry_by_itself(reference: str) -> None:
    provider = build_model(reference).provider
    assert provider is not None
    assert provider.client.max_retries == 0


def test_a_reference_without_a_provider_is_refused() -> None:
    with pytest.raises(UnknownModelError):
        build_model("mistral-large-latest-and-greatest")


def test_a_provider_that_does_not_exist_is_pydantic_ais_error() -> None:
    with pytest.raises((UserError, ValueError), match="nobody"):
        build_model("nobody:knows")


def test_each_model_is_built_once() -> None:
    cache = ModelCache()
    assert cache.get("gpt-5-mini") is cache.get("gpt-5-mini")
    assert cache.get("gpt-5-mini") is not cache.get("claude-haiku-4-5")
    assert ModelCache().get("gpt-5-mini") is not cache.get("gpt-5-mini")

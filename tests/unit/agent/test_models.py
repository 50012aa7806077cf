from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel

from fastroai.agent.models import ModelCache, build_model, loop_of, note_loop, providers_of
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


@pytest.mark.parametrize(
    ("reference", "needed"),
    [("openai:gpt-5-mini", {"chat", "responses"}), ("claude-haiku-4-5", {"messages", "beta"})],
)
def test_what_requests_need_of_an_sdk_is_imported_as_the_model_is_built_and_nothing_else(
    reference: str, needed: set[str]
) -> None:
    provider = build_model(reference).provider
    assert provider is not None
    imported = {"chat", "responses", "messages", "beta", "batches", "files"} & vars(provider.client).keys()
    assert imported == needed


def test_a_reference_without_a_provider_is_refused() -> None:
    with pytest.raises(UnknownModelError):
        build_model("mistral-large-latest-and-greatest")


def test_a_provider_that_does_not_exist_is_pydantic_ais_error() -> None:
    with pytest.raises((UserError, ValueError), match="nobody"):
        build_model("nobody:knows")


async def on_this_loop(cache: ModelCache, reference: str) -> Model:
    return cache.get(reference)


def test_a_model_is_built_for_each_loop_that_is_in_use() -> None:
    cache = ModelCache()
    first = cache.get("gpt-5-mini")
    with asyncio.Runner() as one, asyncio.Runner() as other:
        assert one.run(on_this_loop(cache, "gpt-5-mini")) is first
        another = other.run(on_this_loop(cache, "gpt-5-mini"))
        assert another is not first
        assert another.provider is not first.provider
        assert other.run(on_this_loop(cache, "gpt-5-mini")) is another
        # PydanticAI gives the client of the first to whichever loop a run is on.
        own = one.run(on_this_loop(cache, "gpt-5-mini"))
        assert own not in (first, another)
        assert one.run(on_this_loop(cache, "gpt-5-mini")) is own


def test_the_model_of_a_loop_that_has_ended_is_forgotten() -> None:
    cache = ModelCache()
    built = [asyncio.run(on_this_loop(cache, "gpt-5-mini")) for _ in range(5)]
    assert len({id(model) for model in built}) == 5
    assert [cache.has_built(model) for model in built] == [True, False, False, False, True]


def test_a_model_without_a_client_is_for_all_loops() -> None:
    cache = ModelCache()
    assert len({id(asyncio.run(on_this_loop(cache, "test"))) for _ in range(2)}) == 1


async def test_any_model_that_was_built_is_answered_with_that_of_the_loop() -> None:
    cache = ModelCache()
    first = cache.get("gpt-5-mini")
    given = build_model("gpt-5-mini")
    assert cache.here(given) is given

    async def here() -> Model:
        return cache.here(first)

    assert await here() is first
    assert await asyncio.to_thread(asyncio.run, here()) is not first


async def test_the_loop_of_a_model_is_the_last_one_that_used_it_while_that_runs() -> None:
    used, unused = build_model("gpt-5-mini"), build_model("claude-haiku-4-5")
    note_loop(providers_of(used), asyncio.get_running_loop())
    assert loop_of(FallbackModel(unused, used)) is asyncio.get_running_loop()
    assert loop_of(unused) is None
    assert loop_of(TestModel()) is None

    async def use() -> None:
        note_loop(providers_of(used), asyncio.get_running_loop())

    await asyncio.to_thread(asyncio.run, use())
    assert loop_of(used) is None


def test_each_model_is_built_once() -> None:
    cache = ModelCache()
    assert cache.get("gpt-5-mini") is cache.get("gpt-5-mini")
    assert cache.get("gpt-5-mini") is not cache.get("claude-haiku-4-5")
    assert ModelCache().get("gpt-5-mini") is not cache.get("gpt-5-mini")

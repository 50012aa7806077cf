"""Each private name of PydanticAI: that it is still there, and what happens without it."""

import sys
from typing import Any

import httpx2
import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import Thinking
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers import Provider
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai.pydantic_ai_private import (
    batch_job_error,
    change_http_clients,
    declared_by,
    is_of_every_agent,
    refresh_http_client,
    sent_instructions,
    stop_reading,
    template_of,
)

HELLO: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Hi")])]
INSTRUCTED = ModelRequestParameters(instruction_parts=[InstructionPart(content="Be kind.", dynamic=False)])


class TestHttpClients:
    def test_those_of_pydantic_ai_are_changed_and_so_are_their_replacements(self) -> None:
        changed: list[Any] = []
        provider = OpenAIProvider(api_key="k")
        assert change_http_clients(provider, changed.append)
        assert len(changed) == 1
        assert provider._http_client_factory is not None
        assert provider._http_client_factory() is changed[1]

    def test_the_users_own_are_left_alone(self) -> None:
        provider = OpenAIProvider(api_key="k", http_client=httpx2.AsyncClient())
        assert not change_http_clients(provider, pytest.fail)

    @pytest.mark.parametrize("name", ["_own_http_client", "_http_client_factory"])
    def test_without_a_name_they_are_as_if_they_were_the_users_own(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        provider = OpenAIProvider(api_key="k")
        provider.__dict__.pop(name, None)
        monkeypatch.delattr(Provider, name)
        assert not change_http_clients(provider, pytest.fail)


class TestRefresh:
    def test_a_model_gets_a_new_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        called: list[Model] = []
        monkeypatch.setattr(Model, "_refresh_http_client", lambda model: called.append(model))
        model = TestModel()
        refresh_http_client(model)
        assert called == [model]

    def test_without_the_name_it_keeps_its_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(Model, "_refresh_http_client")
        refresh_http_client(OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(api_key="k")))


class TestReading:
    async def test_it_ends_where_it_is(self) -> None:
        async with Agent(TestModel(custom_output_text="Once upon a time")).run_stream("hi") as stream:
            await stop_reading(stream)
            assert [text async for text in stream.stream_text(debounce_by=None)] == []

    async def test_without_the_names_it_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with Agent(TestModel(custom_output_text="Once upon a time")).run_stream("hi") as stream:
            agent_stream = stream._stream_response
            monkeypatch.setattr(stream, "_stream_response", object())
            await stop_reading(stream)
            monkeypatch.setattr(stream, "_stream_response", agent_stream)
            assert await stream.get_output() == "Once upon a time"


class TestBatchJobError:
    def test_it_is_that_of_pydantic_ai(self) -> None:
        assert batch_job_error().__module__.startswith("pydantic_ai.")

    def test_without_the_name_nothing_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pydantic_ai.models._batch_codec", None)
        assert not issubclass(RuntimeError, batch_job_error())
        assert batch_job_error().__module__.startswith("fastroai.")


class TestOfEveryAgent:
    def test_capabilities_of_private_modules_are_told_from_others(self) -> None:
        from pydantic_ai.capabilities import _pending_messages

        own = [each for each in vars(_pending_messages).values() if isinstance(each, type)]
        assert any(map(is_of_every_agent, own))
        assert not is_of_every_agent(Thinking)
        assert not is_of_every_agent(TestRefresh)


class TestInstructions:
    def test_they_are_those_that_are_sent(self) -> None:
        found = sent_instructions(TestModel(), HELLO, INSTRUCTED)
        assert found is not None
        assert found[-1].content == "Be kind."

    def test_what_pydantic_ai_adds_is_among_them(self) -> None:
        model = AnthropicModel("claude-sonnet-4-6", provider=AnthropicProvider(api_key="k"))
        if not hasattr(model, "_framing_announcement"):
            pytest.skip("this PydanticAI adds nothing")
        _, parameters = model.prepare_request(None, INSTRUCTED)
        found = sent_instructions(model, HELLO, parameters)
        assert found is not None
        assert len(found) == 2
        assert "<system" in found[0].content

    def test_without_the_name_nobody_knows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(Model, "_get_instruction_parts")
        assert sent_instructions(TestModel(), HELLO, INSTRUCTED) is None

    def test_with_other_arguments_nobody_knows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Model, "_get_instruction_parts", lambda self: [])
        assert sent_instructions(TestModel(), HELLO, INSTRUCTED) is None


def here() -> str:
    return "Rome"


class TestWhatAnAgentDeclares:
    def test_its_instructions_prompts_settings_and_overrides_are_found(self) -> None:
        agent = Agent(TestModel(), instructions="a", system_prompt="b", model_settings={"seed": 1})
        agent.instructions(here)
        other = TestModel()
        with agent.override(model=other, model_settings={"seed": 2}):
            assert declared_by(agent) == (["a", here], ["b"], other, {"seed": 2})
        assert declared_by(agent) == (["a", here], ["b"], None, {"seed": 1})

    def test_without_the_names_only_what_is_public_is_found(self) -> None:
        class Later:
            model_settings = {"seed": 1}

        assert declared_by(Later()) == ([], [], None, {"seed": 1})

    def test_a_template_is_known_by_its_source(self) -> None:
        class Template:
            _source = "Hello {{name}}"

        assert template_of(Template()) == "Hello {{name}}"
        assert template_of(str) is None

"""What PydanticAI's models would send, without sending it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings


class _Sent(Exception):
    """Carries the body of the request that was about to be sent."""


async def _keep(**body: object) -> None:
    left_out = ("NotGiven", "Omit")  # each SDK has its own
    raise _Sent({name: value for name, value in body.items() if type(value).__name__ not in left_out})


def chat_model(name: str = "gpt-4.1-mini") -> OpenAIChatModel:
    """A model of OpenAI, through Chat Completions, that sends nothing."""
    client = AsyncOpenAI(api_key="none", base_url="https://api.openai.com/v1", max_retries=0)
    client.chat.completions.create = _keep  # type: ignore[method-assign, assignment]
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))


def responses_model(name: str = "gpt-5-mini") -> OpenAIResponsesModel:
    """A model of OpenAI, through Responses, that sends nothing."""
    client = AsyncOpenAI(api_key="none", base_url="https://api.openai.com/v1", max_retries=0)
    client.responses.create = _keep  # type: ignore[method-assign, assignment]
    return OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client))


def claude_model(name: str = "claude-sonnet-4-5") -> AnthropicModel:
    """A model of Anthropic that sends nothing."""
    client = AsyncAnthropic(api_key="none", base_url="https://api.anthropic.com", max_retries=0)
    client.beta.messages.create = _keep  # type: ignore[method-assign, assignment]
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


async def body_of(
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None = None,
    parameters: ModelRequestParameters | None = None,
) -> dict[str, Any]:
    """The body that one of these models would send, by the names of its fields."""
    parameters = parameters or ModelRequestParameters()
    try:
        await model.request(model.prepare_messages(messages, parameters), settings, parameters)
    except _Sent as sent:
        body: dict[str, Any] = sent.args[0]
        return body
    raise AssertionError("nothing was sent")


def strings_in(value: object) -> Iterator[str]:
    """Every text in a body, names of fields included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from strings_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from strings_in(each)

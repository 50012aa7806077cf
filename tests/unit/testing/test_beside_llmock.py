"""The same client code against this server and against llmock, an independent reading of the protocols.

What llmock 0.2.2 does not do: a JSON schema as the output format of Anthropic, and cached or reasoning
tokens. It counts "hi" as 0 input tokens, so only output tokens are asked of it.
"""

import json
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
from llmock.testing import LLMockServer
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai.testing import ModelServer, Reply, ToolCall

PROTOCOLS = ("responses", "chat", "messages")


class City(BaseModel):
    name: str
    people: int


@pytest.fixture(scope="module")
def llmock_server() -> Iterator[LLMockServer]:
    with LLMockServer() as server:
        yield server


@pytest.fixture(params=["fastroai", "llmock"])
def urls(
    request: pytest.FixtureRequest, model_server: ModelServer, llmock_server: LLMockServer
) -> tuple[str, str]:
    """The base URLs of one of the two servers, for OpenAI and Anthropic."""
    if request.param == "llmock":
        return llmock_server.base_url("openai"), llmock_server.base_url("anthropic")
    # llmock calls an offered tool once without being told.
    model_server.rule(
        lambda request: any(tool.name == "weather" for tool in request.tools) and not request.tool_results,
        Reply(tool_calls=[ToolCall("weather", {"city": "Rome"})]),
    )
    return model_server.openai_url, model_server.anthropic_url


@pytest.fixture(params=PROTOCOLS)
async def model(request: pytest.FixtureRequest, urls: tuple[str, str]) -> AsyncIterator[Model]:
    openai, anthropic = urls
    made: Model
    match request.param:
        case "responses":
            made = OpenAIResponsesModel("gpt-5-mini", provider=OpenAIProvider(base_url=openai, api_key="k"))
        case "chat":
            made = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(base_url=openai, api_key="k"))
        case _:
            made = AnthropicModel(
                "claude-haiku-4-5", provider=AnthropicProvider(base_url=anthropic, api_key="k")
            )
    async with made:  # llmock keeps connections open
        yield made


async def test_a_plain_run_gets_an_answer_with_usage(model: Model) -> None:
    result = await Agent(model).run("hi")

    assert "hi" in result.output.lower()
    assert result.usage.output_tokens > 0
    assert result.response.finish_reason == "stop"


async def test_a_stream_gets_the_answer_in_pieces_with_usage(model: Model) -> None:
    async with Agent(model).run_stream("hi, how are you today?") as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]

    assert len(pieces) > 1
    assert stream.usage.output_tokens > 0
    assert stream.response.finish_reason == "stop"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_is_called_and_its_result_answered(model: Model, streamed: bool) -> None:
    agent = Agent(model)
    cities: list[str] = []

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return "sunny"

    if streamed:
        async with agent.run_stream("weather?") as stream:
            output = await stream.get_output()
            requests = stream.usage.requests
    else:
        result = await agent.run("weather?")
        output, requests = result.output, result.usage.requests

    assert (len(cities), requests) == (1, 2)
    assert output


@pytest.mark.parametrize("streamed", [False, True])
async def test_structured_output_fits_its_model(model: Model, streamed: bool) -> None:
    agent = Agent(model, output_type=City)

    if streamed:
        async with agent.run_stream("a city") as stream:
            output = await stream.get_output()
    else:
        output = (await agent.run("a city")).output

    assert isinstance(output, City)


async def test_native_output_fits_its_model(model: Model) -> None:
    agent = Agent(model, output_type=NativeOutput(City))

    if isinstance(model, AnthropicModel) and "/anthropic" in (model.base_url or ""):
        # llmock does not read the output format of Anthropic, and answers with text.
        with pytest.raises(UnexpectedModelBehavior, match="output retries"):
            await agent.run("a city")
    else:
        assert isinstance((await agent.run("a city")).output, City)


REQUESTS: dict[str, tuple[str, dict[str, object]]] = {
    "responses": ("/responses", {"input": "hi"}),
    "chat": (
        "/chat/completions",
        {"messages": [{"role": "user", "content": "hi"}], "stream_options": {"include_usage": True}},
    ),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 99}),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_both_servers_stream_the_same_kinds_of_events(
    model_server: ModelServer, llmock_server: LLMockServer, protocol: str
) -> None:
    ours = events(model_server.anthropic_url if protocol == "messages" else model_server.openai_url, protocol)
    theirs = events(llmock_server.base_url("anthropic" if protocol == "messages" else "openai"), protocol)

    assert ours == theirs


def events(base_url: str, protocol: str) -> list[str]:
    """The kinds of the events of a stream, each repetition once, without keep-alives."""
    path, body = REQUESTS[protocol]
    answer = httpx2.post(base_url + path, json={"model": "m", "stream": True} | body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    kinds: list[str] = []
    for line in answer.text.splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        data = json.loads(line.removeprefix("data: "))
        kind = data.get("type") or ",".join(
            sorted(data["choices"][0]["delta"]) if data["choices"] else ["usage"]
        )
        if kind != "ping" and kind not in kinds[-1:]:
            kinds.append(kind)
    return kinds

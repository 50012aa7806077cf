"""What a refusal names as its cause."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from openai._models import FinalRequestOptions
from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import (
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from fastroai import Budget, FastroAgent
from fastroai.errors import CostBudgetExceeded, TokenBudgetExceeded

COUNTS = "/v1/responses/input_tokens"
ANSWER = {
    "id": "resp_1",
    "created_at": 1,
    "model": "gpt-5-mini",
    "object": "response",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "A plum.", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "status": "completed",
    "usage": {
        "input_tokens": 1_255,
        "output_tokens": 20,
        "total_tokens": 1_275,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}


class OpenAI:
    """OpenAI's API, with or without the endpoint that counts."""

    def __init__(self, counted: int | None = None) -> None:
        self.counted = counted
        self.asked: list[str] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.path)
        if request.url.path != COUNTS:
            return httpx2.Response(200, json=ANSWER)
        if self.counted is None:
            return httpx2.Response(404, json={"error": {"message": "unknown"}})
        return httpx2.Response(200, json={"input_tokens": self.counted, "object": "response.input_tokens"})

    def agent(self, **options: Any) -> FastroAgent[Any, Any]:
        http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer))
        client = AsyncOpenAI(api_key="none", http_client=http_client, max_retries=0)
        model = OpenAIResponsesModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))
        return FastroAgent(model, model_settings={"service_tier": "default"}, **options)


IMAGE = ["What is it?", ImageUrl("https://example.com/a.png")]


async def refusal(
    agent: FastroAgent[Any, Any], prompt: str | Sequence[UserContent], **more: Any
) -> CostBudgetExceeded:
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run(prompt, budget=Budget(usd="0.0005"), **more)
    return caught.value


async def test_a_request_is_counted_by_its_provider_where_its_bound_alone_would_refuse_it() -> None:
    provider = OpenAI(counted=1_255)
    response = await provider.agent().run(IMAGE, budget=Budget(usd="0.0005"))
    assert provider.asked == [COUNTS, "/v1/responses"]
    assert response.usage.request_count == 1, "the count is no request"


async def test_nobody_is_asked_to_count_where_the_bound_fits() -> None:
    provider = OpenAI(counted=1_255)
    await provider.agent().run(IMAGE, budget=Budget(usd="0.02"))
    assert provider.asked == ["/v1/responses"]


async def test_a_count_that_does_not_fit_either_refuses_the_request() -> None:
    provider = OpenAI(counted=5_000)
    stop = await refusal(provider.agent(), IMAGE)
    assert provider.asked == [COUNTS]
    assert stop.at_least == 1_411, "5,500 and 16 tokens, and an answer of 16: microcents"


async def test_a_file_behind_a_url_is_named_and_what_to_do_about_it() -> None:
    stop = await refusal(OpenAI().agent(), IMAGE)
    assert stop.causes[0].kind == "image"
    assert stop.causes[0].share > 0.9
    told = str(stop)
    assert "is too small" in told
    assert "for the image, whose size is not known behind its URL, so it was not sent" in told
    assert told.endswith("Pass the file itself, as BinaryContent, or raise the budget")
    assert "max_tokens" not in told


async def test_a_pdf_of_unknown_size_is_the_whole_window_and_named() -> None:
    url = DocumentUrl("https://example.com/a.pdf")
    stop = await refusal(OpenAI().agent(), ["Summarise.", url])
    assert stop.causes[0].kind == "pdf"
    assert "Pass the file itself, as BinaryContent" in str(stop)
    assert stop.why is not None, "why it counts as the whole window"


async def test_tools_history_instructions_and_the_prompt_are_named() -> None:
    def look_up(query: str) -> str:
        return ""

    text = "Something rather long to say. " * 500
    tool = Tool(look_up, description=text)
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(text)]),
        ModelResponse(parts=[TextPart("yes")]),
    ]
    named = {
        "tools": await refusal(OpenAI().agent(tools=[tool]), "Hi"),
        "history": await refusal(OpenAI().agent(), "Hi", message_history=history),
        "instructions": await refusal(OpenAI().agent(system_prompt=text), "Hi"),
        "prompt": await refusal(OpenAI().agent(), text),
    }
    for kind, stop in named.items():
        assert stop.causes[0].kind == kind
        assert str(stop).endswith(f"{stop.causes[0].advice[1:]}, or raise the budget")


@pytest.mark.skipif("framing_announcement" not in ModelSettings.__annotations__, reason="nothing is added")
@pytest.mark.parametrize("how", ["instructions", "system_prompt"])
async def test_what_pydantic_ai_adds_is_named(how: str) -> None:
    model = AnthropicModel("claude-sonnet-4-6", provider=AnthropicProvider(api_key="k"))
    plain: Any = Agent(model, model_settings={"max_tokens": 9}, **{how: "Be kind."})
    stop = await refusal(FastroAgent(agent=plain), "Hi")
    assert (stop.causes[0].kind, stop.causes[0].what) == ("added", "what PydanticAI adds to it")
    assert "Have it add less (framing_announcement='never' in the model's settings), or raise" in str(stop)


async def test_text_that_only_the_body_shows_is_named_with_its_place() -> None:
    class Preferring(AsyncOpenAI):
        """A client that adds text to each request."""

        async def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
            body: Any = options.json_data
            changed = {**body, "instructions": "Be kind. " * 200}
            return options.model_copy(update={"json_data": changed})

    http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(OpenAI().answer))
    client = Preferring(api_key="none", http_client=http_client, max_retries=0)
    model = OpenAIResponsesModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))
    agent = FastroAgent(model, model_settings={"service_tier": "default", "max_tokens": 20})
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run("Hi", budget=Budget(usd="0.0001"))
    assert caught.value.causes[0].what == "what PydanticAI or the SDK adds to it (in instructions)"
    assert str(caught.value).endswith("so it was not sent. Raise the budget")


@pytest.mark.parametrize(
    ("url", "what", "advice"),
    [
        (None, "what the provider adds to it", "Raise the budget"),
        (
            "https://gateway.example.com/v1",
            "what its host may add to it",
            "Say what the host is (CostCalculator(endpoints=...)), or raise the budget",
        ),
    ],
)
async def test_what_a_host_may_add_is_told_from_what_a_provider_adds(
    url: str | None, what: str, advice: str
) -> None:
    http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(OpenAI().answer))
    client = AsyncOpenAI(api_key="none", base_url=url, http_client=http_client, max_retries=0)
    model = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))
    with pytest.raises(CostBudgetExceeded) as caught:
        await FastroAgent(model).run("Hi", budget=Budget(usd="0.000001"))
    assert caught.value.causes[0].what == what
    assert str(caught.value).endswith(advice)


async def test_what_searches_may_find_is_named() -> None:
    search = NativeTool(WebSearchTool(max_uses=2))
    model = AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(api_key="k"))
    stop = await refusal(FastroAgent(model, capabilities=[search]), "Hi")
    assert stop.causes[0].kind == "searches"
    assert "Search with a tool of your own, or raise the budget" in str(stop)


async def test_the_shares_add_up_and_a_refusal_survives_pickling() -> None:
    stop = await refusal(OpenAI().agent(), IMAGE)
    assert sum(cause.share for cause in stop.causes) == pytest.approx(1)
    again = pickle.loads(pickle.dumps(stop))
    assert (str(again), again.causes, again.at_least) == (str(stop), stop.causes, stop.at_least)


async def test_a_budget_of_tokens_names_the_cause_as_well() -> None:
    with pytest.raises(TokenBudgetExceeded, match="its limit is 500 tokens, .* for the image"):
        await OpenAI().agent().run(IMAGE, budget=Budget(tokens=500))


async def test_a_budget_may_limit_answers_alone() -> None:
    provider = OpenAI()
    await provider.agent().run("Hi", budget=Budget(max_tokens_per_request=100))
    assert provider.asked == ["/v1/responses"]


def test_where_no_part_is_the_cause_a_shorter_answer_is_advised_by_its_own_name() -> None:
    stop = CostBudgetExceeded(limit=10, committed=5, requested=20)
    stop.answer_limit = "Budget(max_tokens_per_request=...)"
    assert str(stop).endswith("Set a lower Budget(max_tokens_per_request=...) or raise the budget")

"""Budgets at the providers' own addresses: what they pay for, and what they refuse with which words."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from pydantic_ai.messages import BinaryContent, DocumentUrl
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openrouter import OpenRouterProvider
from support.documents import pdf
from support.pictures import jpeg, png

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.errors import BudgetExceeded, CostBudgetExceeded

Body = dict[str, Any]
ANSWER = {"input_tokens": 5_000, "output_tokens": 150}


@dataclass
class Wire:
    """What stands in for the network: it answers as a provider does, and counts."""

    answer: Callable[[Body], Body]
    bodies: list[Body] = field(default_factory=list)

    def client(self) -> httpx2.AsyncClient:
        async def handle(request: httpx2.Request) -> httpx2.Response:
            if request.url.path.endswith(("count_tokens", "countTokens", "input_tokens")):
                return httpx2.Response(404, json={"error": {"message": "nothing is counted here"}})
            self.bodies.append(json.loads(await request.aread()))
            await asyncio.sleep(0)
            return httpx2.Response(200, json=self.answer(self.bodies[-1]))

        return httpx2.AsyncClient(transport=httpx2.MockTransport(handle), timeout=60)


def of_anthropic(body: Body) -> Body:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": "fine"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": ANSWER,
    }


def of_openai(body: Body) -> Body:
    content = [{"type": "output_text", "text": "fine", "annotations": []}]
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "completed",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 1_300, "output_tokens": 20, "total_tokens": 1_320, **details},
    }


def of_openrouter(body: Body) -> Body:
    return {
        "id": "gen-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "provider": "Anthropic",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "native_finish_reason": "stop",
                "message": {"role": "assistant", "content": "fine"},
            }
        ],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25, "cost": 0.000135},
    }


def of_google(body: Body) -> Body:
    return {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": "fine"}]}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {"promptTokenCount": 1_300, "candidatesTokenCount": 20, "totalTokenCount": 1_320},
        "modelVersion": "gemini-2.5-flash",
    }


def claude(wire: Wire, name: str = "claude-sonnet-4-6") -> AnthropicModel:
    return AnthropicModel(name, provider=AnthropicProvider(api_key="k", http_client=wire.client()))


LONG = "The customer writes that the parcel has not arrived and asks for a refund. " * 330
"""25 kB, which are 5,000 tokens, and nothing tells so before a provider has counted them."""
ONE = Decimal("0.01725")
"""What such a request to Claude Sonnet 4.6 costs."""


async def test_what_the_first_answers_report_lets_the_budget_pay_for_all_that_it_can() -> None:
    wire = Wire(of_anthropic)
    agent = FastroAgent(claude(wire), max_tokens=300)
    async with budget_scope(Budget(usd=10 * ONE)) as budget:
        results = await asyncio.gather(*(agent.run(LONG) for _ in range(40)), return_exceptions=True)
    assert len(wire.bodies) == 10
    assert sum(isinstance(result, CostBudgetExceeded) for result in results) == 30
    assert budget.usage.cost_usd == 10 * ONE


async def test_a_conversation_is_counted_in_bytes_once() -> None:
    wire = Wire(of_anthropic)
    agent = FastroAgent(claude(wire), max_tokens=300)
    async with budget_scope(Budget(usd="0.11")) as budget:
        first = await agent.run(LONG)  # up to $0.08
        second = await agent.run("and now?", message_history=first.all_messages())  # $0.02, no longer $0.09
        await agent.run("and then?", message_history=second.all_messages())
    assert budget.usage.cost_usd == 3 * ONE


async def test_another_prompt_of_the_same_agent_is_counted_with_what_they_share() -> None:
    wire = Wire(of_anthropic)
    agent = FastroAgent(claude(wire), max_tokens=300, system_prompt=LONG)
    async with budget_scope(Budget(usd="0.11")) as budget:
        for question in ("Where is it?", "Who has it?", "When does it come?"):
            await agent.run(question)
    assert budget.usage.cost_usd == 3 * ONE


async def test_openrouter_is_paid_for() -> None:
    wire = Wire(of_openrouter)
    provider = OpenRouterProvider(api_key="k", http_client=wire.client())
    agent = FastroAgent(OpenRouterModel("anthropic/claude-sonnet-4.6", provider=provider), max_tokens=100)
    await agent.run("Hi", budget=Budget(usd="0.05"))
    assert len(wire.bodies) == 1


@pytest.mark.parametrize(
    ("data", "media_type"), [(jpeg(1_024, 768), "image/jpeg"), (png(1_024, 768), "image/png")]
)
async def test_a_picture_is_paid_for_by_its_size(data: bytes, media_type: str) -> None:
    picture = BinaryContent(data, media_type=media_type)
    openai = Wire(of_openai)
    gpt = OpenAIResponsesModel("gpt-5.2", provider=OpenAIProvider(api_key="k", http_client=openai.client()))
    google = Wire(of_google)
    gemini = GoogleModel(
        "gemini-2.5-flash", provider=GoogleProvider(api_key="k", http_client=google.client())
    )
    for model, usd in ((gpt, "0.012"), (gemini, "0.003")):
        await FastroAgent(model, max_tokens=100).run(["What is it?", picture], budget=Budget(usd=usd))
    assert (len(openai.bodies), len(google.bodies)) == (1, 1)


@pytest.mark.parametrize(
    ("given", "how"),
    [
        (
            BinaryContent(b"%PDF-1.4", media_type="application/pdf"),
            "it is encrypted, damaged, or too large",
        ),
        (
            DocumentUrl("https://example.com/x.pdf"),
            "it is behind a URL: pass the file itself, as BinaryContent",
        ),
    ],
)
async def test_a_refusal_says_what_makes_a_request_so_dear(
    given: BinaryContent | DocumentUrl, how: str
) -> None:
    wire = Wire(of_anthropic)
    with pytest.raises(BudgetExceeded) as refused:
        agent = FastroAgent(claude(wire, "claude-opus-4-8"), max_tokens=300)
        await agent.run(["Read this", given], budget=Budget(usd=1))
    assert refused.value.why == (
        f"the pages of a PDF could not be counted ({how}), so the input of the request counts as a whole "
        "context window, of 1,000,000 tokens"
    )
    assert refused.value.why in str(refused.value)
    assert not wire.bodies


async def test_without_pypdf_a_refusal_says_how_to_have_pages_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    given = BinaryContent(pdf("only here"), media_type="application/pdf")
    agent = FastroAgent(claude(Wire(of_anthropic), "claude-opus-4-8"), max_tokens=300)
    with pytest.raises(BudgetExceeded, match=r"takes pypdf: pip install 'fastroai-runs\[pdf\]'"):
        await agent.run(["Read this", given], budget=Budget(usd=1))


async def test_a_page_of_a_pdf_is_sent_on_a_small_budget() -> None:
    page = BinaryContent(pdf("The invoice is due on Friday."), media_type="application/pdf")
    for name, usd in (
        ("claude-opus-4-8", "0.06"),
        ("claude-haiku-4-5", "0.01"),
    ):
        wire = Wire(of_anthropic)
        agent = FastroAgent(claude(wire, name), max_tokens=300)
        await agent.run(["Read this", page], budget=Budget(usd=usd))
        assert len(wire.bodies) == 1
    openai = Wire(of_openai)
    gpt = FastroAgent(
        OpenAIResponsesModel("gpt-5.2", provider=OpenAIProvider(api_key="k", http_client=openai.client())),
        max_tokens=100,
    )
    await gpt.run(["Read this", page], budget=Budget(usd="0.05"))
    google = Wire(of_google)
    for name in ("gemini-2.5-flash", "gemini-3.5-flash"):
        gemini = GoogleModel(name, provider=GoogleProvider(api_key="k", http_client=google.client()))
        await FastroAgent(gemini, max_tokens=100).run(["Read", page], budget=Budget(usd="0.005"))
    assert (len(openai.bodies), len(google.bodies)) == (1, 2)

"""What PydanticAI may add: it is named, bounds become whole windows, and costs incomplete."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic_ai.messages import (
    CachePoint,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.tools import ToolDefinition
from support.later import Provider, changing

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.usage import CostCalculator, UnpricedModelWarning, request_bound
from fastroai.usage.bounding.surface import sends, unlisted


@dataclass
class StoredFilePart:
    file_id: str = "file_1"
    part_kind: Literal["stored-file"] = "stored-file"


@dataclass
class LaterPrompt(UserPromptPart):
    attachments: list[str] = field(default_factory=list)


@dataclass
class LaterPoint(CachePoint):
    region: str = "here"


@dataclass(kw_only=True)
class LaterParameters(ModelRequestParameters):
    search_depth: int = 0


@dataclass(kw_only=True)
class LaterTool(ToolDefinition):
    examples: tuple[str, ...] = ()


WINDOW = 1_047_576


def bound(*parts: Any, parameters: ModelRequestParameters | None = None) -> Any:
    messages: list[ModelMessage] = [ModelRequest(parts=list(parts))]
    model = Provider().model()
    return request_bound(
        CostCalculator(), model, messages, {"max_tokens": 50}, parameters or ModelRequestParameters()
    )


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (StoredFilePart(), "stored-file"),
        (LaterPrompt("x", attachments=["a"]), "user-prompt.attachments"),
        (UserPromptPart(["x", LaterPoint(region="there")]), "cache-point.region"),
    ],
)
def test_an_unlisted_part_or_field_counts_as_the_whole_window_and_is_named(part: Any, named: str) -> None:
    found = bound(UserPromptPart("Hi"), part)
    assert found.input_tokens == WINDOW
    assert f"does not know {named}, so the input of the request counts as a whole context window" in found.why


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        (LaterParameters(search_depth=3), "ModelRequestParameters.search_depth"),
        (
            ModelRequestParameters(function_tools=[LaterTool(name="a", examples=("b",))]),
            "ToolDefinition.examples",
        ),
    ],
)
def test_a_new_field_of_parameters_is_named_when_it_is_set(
    parameters: ModelRequestParameters, named: str
) -> None:
    found = bound(UserPromptPart("Hi"), parameters=parameters)
    assert found.input_tokens == WINDOW
    assert named in found.why


@pytest.mark.parametrize(
    "part", [LaterPrompt("x"), UserPromptPart(["x", LaterPoint()])], ids=["a part", "a content"]
)
def test_a_new_field_at_its_default_changes_nothing(part: Any) -> None:
    found = bound(part, parameters=LaterParameters(function_tools=[LaterTool(name="a")]))
    assert found.input_tokens < 1_000


def test_with_an_unknown_part_claude_may_write_a_cache_of_any_lifetime_and_hear_sound() -> None:
    model = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(api_key="none"))
    messages: list[Any] = [ModelRequest(parts=[UserPromptPart("x"), StoredFilePart()])]
    found = request_bound(CostCalculator(), model, messages, {"max_tokens": 1}, ModelRequestParameters())
    assert found.prices is not None
    assert found.prices.input_per_mtok >= Decimal(6), "an hour in the cache costs twice the input"


async def account_of(change: Callable[[ModelResponse], None]) -> Any:
    provider = Provider()
    async with budget_scope(Budget(usd="0.01")) as scope:
        await FastroAgent(provider.model(changing(change)), max_tokens=50).run("Hi")
    assert scope.usage.cost_usd == provider.billed_usd
    return scope.usage


def add_detail(response: ModelResponse) -> None:
    response.usage.details["deep_research_tokens"] = 90_000


def add_field(response: ModelResponse) -> None:
    response.usage.video_output_tokens = 90_000  # type: ignore[attr-defined]


def add_object(response: ModelResponse) -> None:
    response.usage.fees = {"usd": 3}  # type: ignore[attr-defined]


def add_native_call(response: ModelResponse) -> None:
    response.parts = [NativeToolCallPart("hologram", {}, tool_call_id="x"), *response.parts]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (add_detail, "deep_research_tokens"),
        (add_field, "video_output_tokens"),
        (add_object, "fees"),
        (add_native_call, "hologram"),
    ],
)
async def test_what_an_answer_reports_besides_is_named_and_makes_the_cost_incomplete(
    change: Callable[[ModelResponse], None], named: str
) -> None:
    with pytest.warns(UnpricedModelWarning, match=named):
        usage = await account_of(change)
    assert usage.unpriced_units == (named,)
    assert not usage.cost_complete
    assert usage.committed_usd > usage.cost_usd


async def test_known_details_are_no_news() -> None:
    def change(response: ModelResponse) -> None:
        response.usage.details.update(reasoning_tokens=1, accepted_prediction_tokens=2, text_prompt_tokens=3)

    assert (await account_of(change)).cost_complete


def test_a_part_of_an_answer_that_is_not_listed_is_named() -> None:
    @dataclass
    class Hologram:
        part_kind: str = "hologram"

    answer = ModelResponse(parts=[TextPart("x"), Hologram()], model_name="gpt-4.1-mini")  # type: ignore[list-item]
    answer.usage.input_tokens, answer.usage.output_tokens = 20, 5
    cost = CostCalculator().cost_of(answer, model="gpt-4.1-mini", provider="openai")
    assert (cost.unpriced_units, cost.complete) == (("hologram",), False)


@pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning")
async def test_without_a_budget_a_request_with_an_unknown_field_runs_and_is_told() -> None:
    provider = Provider()
    history: list[Any] = [ModelRequest(parts=[LaterPrompt("x", attachments=["a"])])]
    answer = await FastroAgent(provider.model(), max_tokens=50).run("Hi", message_history=history)
    assert answer.cost_usd == provider.billed_usd
    assert answer.usage.unpriced_units == ("user-prompt.attachments",)


def test_an_unlisted_native_tool_is_named_by_its_kind() -> None:
    @dataclass(kw_only=True)
    class Oracle(AbstractNativeTool):
        kind: str = "oracle"

    assert unlisted(Oracle(), "native tool") == ("oracle",)


@pytest.mark.parametrize(("name", "expected"), [("research", True), ("request", False), ("_private", False)])
def test_a_method_that_is_awaited_may_send_unless_it_is_listed(name: str, expected: bool) -> None:
    async def method() -> None: ...

    assert sends(method, name) is expected


def test_the_tables_need_no_sdk_of_a_provider() -> None:
    script = (
        "import sys, fastroai.usage.bounding.pieces, fastroai.usage.bounding.surface;"
        "assert not {'openai', 'anthropic', 'boto3', 'groq', 'mistralai', 'xai_sdk'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)

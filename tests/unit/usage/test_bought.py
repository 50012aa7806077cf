"""What a response says was used, by provider: counts, details, and calls of the provider's own tools."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import ModelResponse, NativeToolCallPart, TextPart
from pydantic_ai.usage import RequestUsage

from fastroai.usage.prices.bought import cached_tokens, used_units

COUNTS = {"input_tokens": 100, "output_tokens": 10}


def answer(
    provider: str,
    *tools: str,
    model: str = "m",
    url: str | None = None,
    details: dict[str, int] | None = None,
    provider_details: dict[str, object] | None = None,
    **usage: int,
) -> ModelResponse:
    return ModelResponse(
        parts=[TextPart("x"), *(NativeToolCallPart(tool_name=tool, args={}) for tool in tools)],
        usage=RequestUsage(details=details, **(COUNTS | usage)),
        model_name=model,
        provider_name=provider,
        provider_url=url,
        provider_details=provider_details,
    )


def besides(response: ModelResponse) -> dict[str, int | float]:
    return {name: count for name, count in used_units(response).items() if name not in COUNTS}


def test_plain_tokens_are_all_that_a_plain_answer_used() -> None:
    assert used_units(answer("openai")) == COUNTS


@pytest.mark.parametrize(
    ("provider", "tool", "expected"),
    [
        ("openai", "web_search", {}),  # PydanticAI counts the billed ones: the next test
        ("anthropic", "web_search", {}),
        ("groq", "web_search", {"web_searches": 2}),
        ("openai", "file_search", {"storage_searches": 2}),
        ("openai", "code_execution", {"code_executions": 2}),
        ("anthropic", "code_execution", {"code_executions": 2}),
        ("google", "code_execution", {}),
        ("openai", "image_generation", {"image_generation": 2}),
        ("anthropic", "web_fetch", {}),
        ("openai", "mcp_server:deepwiki", {}),
        ("openai", "a_tool_of_tomorrow", {"a_tool_of_tomorrow": 2}),
    ],
)
def test_calls_of_the_providers_own_tools_are_used_unless_tokens_are_all_that_they_cost(
    provider: str, tool: str, expected: dict[str, int]
) -> None:
    assert besides(answer(provider, tool, tool)) == expected


def test_searches_that_pydantic_ai_counts_are_counted_once() -> None:
    assert besides(answer("openai", "web_search", "web_search", web_searches=1)) == {"web_searches": 1}


def test_claudes_advisor_is_named_once_with_or_without_its_call() -> None:
    details = {"advisor_iterations": 1, "advisor_input_tokens": 9, "thinking_tokens": 4}
    assert besides(answer("anthropic", details=details)) == {"advisor tokens": 1}
    assert besides(answer("anthropic", "advisor", details=details)) == {"advisor tokens": 1}


def test_server_side_tools_of_xai_are_counted_by_its_usage_and_not_again_by_their_calls() -> None:
    details = {
        "server_side_tools_web_search": 3,
        "server_side_tools_x_search": 1,
        "server_side_tools_view_image": 2,
    }
    response = answer("xai", "web_search", "x_search", details=details)
    assert besides(response) == {"web_searches": 3, "social_searches": 1}


def test_cohere_bills_its_billed_units() -> None:
    response = answer(
        "cohere",
        details={"input_tokens": 3, "output_tokens": 9, "search_units": 1},
        cache_read_tokens=64,
    )
    assert used_units(response) == {"input_tokens": 3, "output_tokens": 9, "search_units": 1}
    assert used_units(answer("cohere")) == COUNTS, "where it does not say, the tokens count"


def test_mistrals_cached_tokens_are_in_the_details() -> None:
    response = answer("mistral", details={"num_cached_tokens": 40})
    assert cached_tokens(response) == 40
    assert besides(response) == {"cache_read_tokens": 40}


@pytest.mark.parametrize(
    ("provider", "model", "searches"),
    [
        ("openai", "gpt-4o-search-preview-2025-03-11", True),
        ("openai", "gpt-5-search-api", True),
        ("openai", "gpt-5-mini", False),
        ("openrouter", "gpt-4o-search-preview", False),  # its bill is stated
    ],
)
def test_models_that_search_unasked_cost_a_search(provider: str, model: str, searches: bool) -> None:
    assert besides(answer(provider, model=model)) == ({"web_searches": 1} if searches else {})


def test_googles_endpoint_in_the_format_of_openai_hides_what_was_thought() -> None:
    url = "https://generativelanguage.googleapis.com/v1beta/openai/"
    assert besides(answer("openai", url=url)) == {"thinking tokens": 1}
    told = answer("openai", url=url, output_reasoning_tokens=4)
    assert besides(told) == {"output_reasoning_tokens": 4}


def test_a_bill_that_pydantic_ai_drops_is_missed() -> None:
    assert besides(answer("openrouter", details={"is_byok": 0})) == {"bill of OpenRouter": 1}
    left_out = {"is_byok": False}
    assert besides(answer("openrouter", details={"is_byok": 0}, provider_details=left_out)) == {
        "bill of OpenRouter": 1
    }
    stated = {"is_byok": False, "cost": 0.01}
    assert besides(answer("openrouter", details={"is_byok": 0}, provider_details=stated)) == {}

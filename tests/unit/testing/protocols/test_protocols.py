"""What each protocol module reads from a request, and refuses."""

import json
from typing import Any

import pytest

from fastroai.testing.protocols import WIRES, BadRequestError, Wire
from fastroai.testing.replies import ToolCall
from fastroai.testing.requests import Message, ServedRequest, ToolResult

RESPONSES, CHAT, MESSAGES = WIRES
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}

# The same conversation, as each protocol tells it.
TALKS: dict[Wire, dict[str, Any]] = {
    RESPONSES: {
        "instructions": "Be brief.",
        "input": [
            {"role": "developer", "content": "Be kind."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Rome"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "And"},
                    {"type": "input_image", "image_url": "https://example.com/a.png"},
                    {"type": "input_text", "text": "tomorrow?"},
                ],
            },
        ],
        "tools": [
            {"type": "function", "name": "weather", "description": "Of a city.", "parameters": SCHEMA},
            {"type": "web_search"},
        ],
        "max_output_tokens": 99,
    },
    CHAT: {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            {"role": "assistant", "content": "Sunny."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "tomorrow?"}],
            },
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "description": "Of a city.", "parameters": SCHEMA},
            }
        ],
        "max_completion_tokens": 99,
    },
    MESSAGES: {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "tomorrow?"}],
            },
        ],
        "tools": [
            {"name": "weather", "description": "Of a city.", "input_schema": SCHEMA},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "max_tokens": 99,
    },
}


def parse(wire: Wire, **more: object) -> ServedRequest:
    return wire.parse({"x-test": "yes"}, json.dumps({"model": "m"} | TALKS[wire] | more).encode())


@pytest.mark.parametrize("wire", WIRES)
def test_a_conversation_reads_the_same_in_every_protocol(wire: Wire) -> None:
    request = parse(wire, stream=True, service_tier="flex")

    assert request.protocol == wire.name
    assert request.model == "m"
    assert request.system == "Be brief.\n\nBe kind."
    assert request.messages == (
        Message("user", "Weather?"),
        Message("assistant", "Sunny."),
        Message("user", "And\ntomorrow?"),
    )
    assert request.prompt == "And\ntomorrow?"
    assert request.tool_results == (ToolResult("weather", "c1", "sunny"),)
    (call,) = request.tool_calls
    arguments = call.arguments if isinstance(call.arguments, dict) else json.loads(str(call.arguments))
    assert ToolCall(call.name, arguments, call.id) == ToolCall("weather", {"city": "Rome"}, "c1")
    assert [(tool.name, tool.description, tool.schema) for tool in request.tools] == [
        ("weather", "Of a city.", SCHEMA)
    ]
    assert (request.max_tokens, request.service_tier, request.stream) == (99, "flex", True)
    assert (request.tool_choice, request.allowed_tools, request.output_tool) == ("auto", None, None)
    assert request.output_schema is None
    assert request.headers == {"x-test": "yes"}
    assert json.loads(request.raw_body) == request.body


def test_a_bare_text_is_input_too() -> None:
    request = RESPONSES.parse({}, b'{"model": "m", "input": "hi"}')

    assert (request.prompt, request.system, request.tools) == ("hi", "", ())


@pytest.mark.parametrize(
    ("wire", "choice", "expected"),
    [
        (RESPONSES, "required", ("required", None)),
        (RESPONSES, "none", ("none", None)),
        (RESPONSES, {"type": "function", "name": "a"}, ("required", {"a"})),
        (
            RESPONSES,
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]},
            ("auto", {"a"}),
        ),
        (CHAT, "auto", ("auto", None)),
        (CHAT, {"type": "function", "function": {"name": "a"}}, ("required", {"a"})),
        (
            CHAT,
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "a"}}],
                },
            },
            ("required", {"a"}),
        ),
        (MESSAGES, {"type": "any"}, ("required", None)),
        (MESSAGES, {"type": "tool", "name": "a"}, ("required", {"a"})),
        (MESSAGES, {"type": "none"}, ("none", None)),
        (MESSAGES, {"type": "auto"}, ("auto", None)),
    ],
)
def test_tool_choices_are_understood(
    wire: Wire, choice: object, expected: tuple[str, set[str] | None]
) -> None:
    request = parse(wire, tool_choice=choice)

    assert (request.tool_choice, request.allowed_tools) == expected


@pytest.mark.parametrize(
    ("wire", "more"),
    [
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
    ],
)
def test_demanded_schemas_are_understood(wire: Wire, more: dict[str, Any]) -> None:
    assert parse(wire, **more).output_schema == SCHEMA


@pytest.mark.parametrize(
    ("wire", "more"),
    [
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}),
        (CHAT, {"response_format": {"type": "json_object"}}),
    ],
)
def test_a_demand_for_any_json_object_is_understood(wire: Wire, more: dict[str, Any]) -> None:
    assert parse(wire, **more).output_schema == {"type": "object"}


@pytest.mark.parametrize(
    ("names", "choice", "output_tool"),
    [
        (["weather"], "auto", None),
        (["weather", "final_result"], "auto", "final_result"),
        (["weather", "final_result_City", "final_result_Country"], "required", "final_result_City"),
        (["weather", "city"], "required", "city"),
        (["weather", "city"], {"type": "function", "function": {"name": "weather"}}, "weather"),
        (["weather", "final_result"], "none", None),
        ([], "required", None),
    ],
)
def test_the_output_tool_is_recognized(names: list[str], choice: object, output_tool: str | None) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in names]

    found = parse(CHAT, tools=tools, tool_choice=choice).output_tool

    assert (found.name if found else None) == output_tool


def test_only_chat_completions_has_to_be_asked_for_the_usage_of_a_stream() -> None:
    assert [parse(wire).include_usage for wire in WIRES] == [True, False, True]
    assert parse(CHAT, stream_options={"include_usage": True}).include_usage


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("raw_body", "problem"),
    [
        (b"not json", "the body is not JSON"),
        (b"\xff\xfe\xfa", "the body is not JSON"),
        (b"[]", "expected a JSON object with 'model'"),
        (b'{"model": 5}', "expected a JSON object with 'model'"),
        (b'{"model": "m"}', "the body is not a request of"),
        (b'{"model": "m", "input": 5, "messages": 5}', "the body is not a request of"),
        (
            b'{"model": "m", "max_tokens": 5, "input": [{"role": "judge", "content": "x"}],'
            b' "messages": [{"role": "judge", "content": "x"}]}',
            "unknown role 'judge'",
        ),
    ],
)
def test_a_body_that_is_no_request_is_refused(wire: Wire, raw_body: bytes, problem: str) -> None:
    with pytest.raises(BadRequestError, match=problem):
        wire.parse({}, raw_body)


def test_anthropic_wants_a_limit_for_the_answer() -> None:
    with pytest.raises(BadRequestError, match="max_tokens"):
        MESSAGES.parse({}, b'{"model": "m", "messages": []}')

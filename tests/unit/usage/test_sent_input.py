"""Input that is sent, compared with input that was counted."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from support.bodies import body_of, claude_model

from fastroai.usage import CostCalculator, request_bound
from fastroai.usage.bounding.bounds import AskedRequest
from fastroai.usage.bounding.sent_input import Unseen, unseen_input
from fastroai.usage.facts.documented import all_facts

ANTHROPIC = all_facts()["anthropic"].allowances

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def unseen(body: Any, counted: list[str], *, rendered: list[str] | None = None, files: Any = ()) -> Unseen:
    return unseen_input(body, counted, rendered or [], files, lambda text: len(text.encode()), 8)


def chat(*contents: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content} for content in contents]}


@given(st.lists(texts, max_size=8))
def test_what_was_counted_is_seen_however_it_is_escaped(contents: list[str]) -> None:
    assert unseen(json.loads(json.dumps(chat(*contents))), contents) == Unseen(0)


@given(st.lists(texts, max_size=8), texts)
def test_a_text_more_is_unseen(contents: list[str], more: str) -> None:
    found = unseen(chat(*contents, more), contents)
    assert found.tokens >= len(more.encode())
    assert found.places == ("messages.content",)


@given(st.lists(texts, min_size=2, max_size=8, unique=True))
def test_joined_texts_are_no_more_than_their_parts_and_what_joins_them(contents: list[str]) -> None:
    assert unseen(chat("\n\n".join(contents)), contents).tokens <= 2 * (len(contents) - 1)


@given(st.dictionaries(texts, texts, max_size=5))
def test_arguments_may_be_an_object_or_its_json(arguments: dict[str, str]) -> None:
    body = {"messages": [{"content": [{"type": "tool_use", "id": "c", "input": arguments}]}]}
    assert unseen(body, [json.dumps(arguments)]) == Unseen(0)


def test_a_definition_may_be_rearranged() -> None:
    schema = {"type": "object", "properties": {"town": {"type": "string", "description": "Its name"}}}
    counted = [json.dumps({"name": "look", "description": "Look it up", "parameters": schema})]
    body = {"tools": [{"function": {"parameters": schema, "description": "Look it up", "name": "look"}}]}
    assert unseen(body, counted) == Unseen(0)
    schema["properties"]["a property that was added"] = {"type": "string"}  # type: ignore[index]
    assert unseen(body, counted).tokens >= 25


def test_parameters_words_of_the_api_and_encrypted_thoughts_are_no_input() -> None:
    body = chat() | {"stop": ["a stop sequence"], "user": "somebody", "reasoning": {"effort": "high"}}
    body["messages"] = [{"role": "assistant", "content": [{"type": "thinking", "signature": "x" * 900}]}]
    assert unseen(body, []) == Unseen(0)


def test_an_unknown_key_is_input() -> None:
    assert unseen({"preamble": "Be kind."}, []).places == ("preamble",)


def test_only_files_that_were_counted_are_left_out() -> None:
    content = base64.b64encode(b"x" * 1000).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}
    assert unseen(chat([image]), [], files=[1000]) == Unseen(0)
    assert unseen(chat([image]), [], files=[None]) == Unseen(0)
    assert unseen(chat([image, image]), [], files=[1000]).tokens > 1000
    assert unseen(chat([image]), [], files=[900]).tokens > 1000


def test_a_text_that_was_counted_by_its_bytes_leaves_room_for_its_rendering() -> None:
    assert unseen(chat("<file>text</file>"), ["text"], rendered=[" " * 64]) == Unseen(0)


async def test_what_pydantic_ai_says_of_its_tags_is_counted_once() -> None:
    """PydanticAI adds it for this model: 2.68 to the instructions, 2.64 to the messages."""
    model = claude_model("claude-sonnet-4-6")
    prompt: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Hi")])]
    parameters = ModelRequestParameters(instruction_parts=[InstructionPart("Be kind.")])
    messages = model.prepare_messages(prompt, parameters)
    body = await body_of(model, prompt, None, parameters)
    body.pop("extra_headers", None)
    asked = AskedRequest(CostCalculator(), model, messages, None, parameters)
    assert asked.input_besides(body) == Unseen(0)
    bound = request_bound(CostCalculator(), model, messages, None, parameters)
    assert bound.input_tokens is not None
    system = body["system"]
    told = [system] if isinstance(system, str) else [each["text"] for each in system]
    allowances = ANTHROPIC.request + ANTHROPIC.message * (len(told) + 1)
    once = len("".join(told).encode()) + len(b"Hi") + allowances
    assert bound.input_tokens in (once, once + len("\n\n"))  # instructions have an empty line between them

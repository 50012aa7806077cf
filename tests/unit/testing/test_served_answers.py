"""The server's own count, and replies in their final place."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastroai.testing import Fault, Reply, ToolCall, Usage
from fastroai.testing.protocols import WIRES, Wire
from fastroai.testing.requests import JsonObject, ServedRequest
from fastroai.testing.rules import NoReplyError
from fastroai.testing.served_answers import Answer, make_answer

RESPONSES, CHAT, MESSAGES = WIRES

TOOL = {"name": "final_result", "description": "d", "parameters": {"type": "object"}}


def ask(wire: Wire, text: str, **more: object) -> ServedRequest:
    """A request of one message."""
    said: JsonObject = (
        {"input": text} if wire is RESPONSES else {"messages": [{"role": "user", "content": text}]}
    )
    limit = {"max_tokens": 10_000} if wire is MESSAGES else {}
    return wire.parse({}, json.dumps({"model": "m"} | said | limit | more).encode())


def body_of(wire: Wire, answer: Answer) -> bytes:
    return json.dumps(wire.body(answer)).encode()


@given(prompt=st.text(), text=st.text(), arguments=st.dictionaries(st.text(), st.text()))
@settings(deadline=None)
@pytest.mark.parametrize("wire", WIRES)
def test_the_own_count_never_exceeds_the_bytes_that_went_over_the_wire(
    wire: Wire, prompt: str, text: str, arguments: dict[str, str]
) -> None:
    request = ask(wire, prompt)

    answer = make_answer(request, Reply(text, tool_calls=[ToolCall("tool", arguments)]))

    assert 1 <= answer.usage.input_tokens <= len(request.raw_body)
    assert 0 <= answer.usage.output_tokens <= len(body_of(wire, answer))


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("four", 1), ("fives", 2), ("ééé", 2)])
def test_a_token_of_the_own_count_is_four_bytes_rounded_up(text: str, tokens: int) -> None:
    answer = make_answer(ask(CHAT, text), Reply(text))

    assert answer.usage == Usage(max(1, tokens), tokens)


def test_tools_calls_results_and_schemas_are_counted_as_input() -> None:
    bare = make_answer(ask(CHAT, "hello"), Reply("x")).usage.input_tokens
    format_ = {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object", "title": "t" * 40}},
    }
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "a" * 40}}
    talk = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r" * 40},
    ]
    tool = {"type": "function", "function": TOOL | {"description": "d" * 40}}

    for more in ({"tools": [tool]}, {"messages": talk[:2]}, {"messages": talk}, {"response_format": format_}):
        counted = make_answer(ask(CHAT, "hello", **more), Reply("x")).usage.input_tokens
        assert counted >= bare + 10
    assert make_answer(ask(CHAT, "hello", messages=talk), Reply("x")).usage.input_tokens >= bare + 20


@given(text=st.text(max_size=60), arguments=st.text(max_size=60), limit=st.integers(1, 20))
@settings(deadline=None)
def test_max_tokens_end_an_answer_that_is_longer(text: str, arguments: str, limit: int) -> None:
    reply = Reply(text, tool_calls=[ToolCall("tool", arguments), ToolCall("tool", arguments)])
    whole = make_answer(ask(CHAT, "x"), reply)

    answer = make_answer(ask(CHAT, "x", max_completion_tokens=limit), reply)

    assert answer.usage.output_tokens <= limit
    assert text.startswith(answer.text)
    if whole.usage.output_tokens <= limit:
        assert (answer.text, answer.finish_reason) == (text, "tool_calls")
        assert len(answer.calls) == 2
    else:
        assert answer.finish_reason == "length"


def test_a_reply_that_brings_its_usage_is_sent_whole() -> None:
    answer = make_answer(ask(CHAT, "x", max_tokens=1), Reply("long " * 10, usage=Usage(5, 50)))

    assert (answer.text, answer.usage, answer.finish_reason) == ("long " * 10, Usage(5, 50), "stop")


@pytest.mark.parametrize("wire", [RESPONSES, MESSAGES])
def test_audio_tokens_that_a_protocol_cannot_report_are_refused(wire: Wire) -> None:
    with pytest.raises(NoReplyError, match=r"audio tokens, which .* cannot report"):
        make_answer(ask(wire, "x"), Reply("y", usage=Usage(5, 5, output_audio_tokens=1)))


def test_data_goes_where_the_request_wants_it() -> None:
    tool = {"type": "function", "function": TOOL}
    format_ = {"type": "json_object"}

    as_call = make_answer(ask(CHAT, "x", tools=[tool]), Reply(data={"a": 1}))
    as_text = make_answer(ask(CHAT, "x", response_format=format_), Reply(data={"a": 1}))
    undemanded = make_answer(ask(CHAT, "x"), Reply(data={"a": 1}))

    assert [(call.name, call.arguments) for call in as_call.calls] == [("final_result", '{"a":1}')]
    assert as_call.text == ""
    assert (as_text.text, as_text.calls) == ('{"a":1}', ())
    assert undemanded.text == '{"a":1}'


def test_data_that_is_no_object_is_wrapped_as_pydantic_ai_demands_it() -> None:
    schema = {"type": "object", "properties": {"response": {"type": "array"}}}
    tool = {"type": "function", "function": TOOL | {"parameters": schema}}
    request = ask(CHAT, "x", tools=[tool])

    assert make_answer(request, Reply(data=[1, 2])).calls[0].arguments == '{"response":[1,2]}'
    assert make_answer(request, Reply(data={"response": [1]})).calls[0].arguments == '{"response":[1]}'


def test_a_wrong_schema_needs_a_schema() -> None:
    with pytest.raises(NoReplyError, match="needs a request that demands structured output"):
        make_answer(ask(CHAT, "x"), Reply("text", fault=Fault.wrong_schema()))

    tool = {"type": "function", "function": TOOL | {"parameters": {"type": "object"}}}
    with pytest.raises(NoReplyError, match="every object fits the schema"):
        make_answer(ask(CHAT, "x", tools=[tool]), Reply(fault=Fault.wrong_schema()))


def test_every_call_has_an_id_of_its_own() -> None:
    answer = make_answer(
        ask(CHAT, "x"), Reply(tool_calls=[ToolCall("a", {}), ToolCall("a", {}), ToolCall("a", {}, id="mine")])
    )

    ids = [call.id for call in answer.calls]
    assert len(set(ids)) == 3
    assert ids[2] == "mine"

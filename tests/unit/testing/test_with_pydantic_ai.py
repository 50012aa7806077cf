"""PydanticAI's own clients against the server: what they see is what the ledger says, one by one."""

from collections.abc import Sequence

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelMessage, ModelResponse, ModelSettings, NativeOutput
from pydantic_ai.models import Model

from fastroai.testing import LedgerEntry, ModelServer, Reply, ToolCall, Usage

CACHED = Usage(1000, 200, cache_read_tokens=600, cache_write_tokens=100, reasoning_tokens=50)
SMALL = Usage(17, 3)

# PydanticAI streams what it asks of Anthropic, unless the answer is bound to be short.
WHOLE = ModelSettings(max_tokens=1000)


class City(BaseModel):
    name: str
    people: int


def assert_equal_one_by_one(messages: Sequence[ModelMessage], entries: Sequence[LedgerEntry]) -> None:
    """Every response that the client has is the one that the ledger has, to the last token."""
    responses = [message for message in messages if isinstance(message, ModelResponse)]
    assert len(responses) == len(entries)
    for response, entry in zip(responses, entries, strict=True):
        seen = response.usage
        assert (
            Usage(
                seen.input_tokens,
                seen.output_tokens,
                cache_read_tokens=seen.cache_read_tokens,
                cache_write_tokens=seen.cache_write_tokens,
                reasoning_tokens=seen.output_reasoning_tokens,
            )
            == entry.usage
        )
        assert response.provider_response_id == entry.response_id
        assert response.model_name == entry.model
        assert (entry.status, entry.billed, entry.fault) == (200, True, None)


async def test_a_plain_run_sees_the_usage_of_the_ledger(model: Model, model_server: ModelServer) -> None:
    model_server.script(Reply("Hello!", usage=CACHED), Reply("Hello again!"))
    agent = Agent(model, instructions="Be brief.")

    first = await agent.run("hi", model_settings=WHOLE)
    second = await agent.run("hi again", message_history=first.all_messages(), model_settings=WHOLE)

    assert (first.output, second.output) == ("Hello!", "Hello again!")
    assert_equal_one_by_one(second.all_messages(), model_server.ledger.entries)
    entries = await model_server.ledger.wait_for(2, state="finished")
    assert [entry.streamed for entry in entries] == [False, False]
    assert all(entry.completed and not entry.client_disconnected for entry in entries)
    assert model_server.ledger.totals().usage == CACHED + entries[1].usage


async def test_a_stream_that_is_read_to_its_end_sees_the_usage_of_the_ledger(
    model: Model, model_server: ModelServer
) -> None:
    text = "A long answer, in several pieces, with ümläuts and 漢字."
    model_server.script(Reply(text, usage=CACHED, chunk_size=5))

    async with Agent(model).run_stream("hi") as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]

    assert len(pieces) == 11
    assert "".join(pieces) == text
    assert_equal_one_by_one(stream.all_messages(), model_server.ledger.entries)
    (entry,) = await model_server.ledger.wait_for(1, state="finished")
    assert entry.streamed
    assert entry.completed


async def test_a_stream_that_is_left_early_is_billed_whole(model: Model, model_server: ModelServer) -> None:
    model_server.script(Reply("one two three", usage=CACHED, chunk_size=4, chunk_delay=30))

    async with Agent(model).run_stream("hi"):
        pass

    (entry,) = await model_server.ledger.wait_for(1, state="finished")
    assert entry.usage == CACHED
    assert entry.billed
    assert entry.client_disconnected
    assert not entry.completed


@pytest.mark.parametrize("streamed", [False, True])
async def test_function_tools_are_called_one_by_one_and_in_parallel(
    model: Model, model_server: ModelServer, streamed: bool
) -> None:
    model_server.script(
        Reply(tool_calls=[ToolCall("weather", {"city": "Rome"})], usage=SMALL),
        Reply(
            "Let me see.",
            tool_calls=[ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Lima"})],
            usage=CACHED,
        ),
        Reply("Sunny everywhere."),
    )
    agent = Agent(model)
    cities: list[str] = []

    @agent.tool_plain
    def weather(city: str) -> str:
        cities.append(city)
        return f"sunny in {city}"

    if streamed:
        async with agent.run_stream("weather?") as stream:
            output = await stream.get_output()
            messages = stream.all_messages()
        # PydanticAI takes text beside calls for the final answer of a stream.
        assert output == "Let me see."
        assert sorted(cities) == ["Lima", "Oslo", "Rome"]
    else:
        result = await agent.run("weather?", model_settings=WHOLE)
        messages = result.all_messages()
        assert result.output == "Sunny everywhere."
        assert sorted(cities) == ["Lima", "Oslo", "Rome"]
    assert_equal_one_by_one(messages, model_server.ledger.entries)


async def test_a_rule_sees_what_tools_returned(model: Model, model_server: ModelServer) -> None:
    model_server.rule(
        lambda request: not request.tool_results,
        Reply(tool_calls=[ToolCall("weather", {"city": "Rome"}), ToolCall("weather", {"city": "Oslo"})]),
    )
    model_server.rule(
        None,
        lambda request: Reply("; ".join(f"{result.name}: {result.text}" for result in request.tool_results)),
    )
    agent = Agent(model)

    @agent.tool_plain
    def weather(city: str) -> str:
        return f"sunny in {city}"

    assert (await agent.run("weather?")).output == "weather: sunny in Rome; weather: sunny in Oslo"


@pytest.mark.parametrize("native", [False, True])
async def test_structured_output_arrives_by_tool_and_by_schema(
    model: Model, model_server: ModelServer, native: bool
) -> None:
    model_server.script(
        Reply(data={"name": "Rome", "people": 3}, usage=CACHED), Reply(data=City(name="Oslo", people=1))
    )
    agent: Agent[None, City] = Agent(model, output_type=NativeOutput(City) if native else City)

    result = await agent.run("a city", model_settings=WHOLE)
    async with agent.run_stream("another", message_history=result.all_messages()) as stream:
        streamed = [city async for city in stream.stream_output(debounce_by=None)][-1]

    assert (result.output, streamed) == (City(name="Rome", people=3), City(name="Oslo", people=1))
    assert_equal_one_by_one(stream.all_messages(), model_server.ledger.entries)


async def test_an_output_that_does_not_fit_is_asked_for_again(
    model: Model, model_server: ModelServer
) -> None:
    model_server.script(Reply(data={"name": "Rome"}, usage=SMALL), Reply(data={"name": "Rome", "people": 3}))

    result = await Agent(model, output_type=City).run("a city")

    assert result.output.people == 3
    assert_equal_one_by_one(result.all_messages(), model_server.ledger.entries)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_call"),
        ("content_filter", "content_filter"),
    ],
)
async def test_finish_reasons_arrive(
    model: Model, reference: str, model_server: ModelServer, streamed: bool, said: str, expected: str
) -> None:
    if reference.startswith("openai:") and said == "tool_calls":
        expected = "stop"  # Responses has no such reason: a response with calls is completed, too
    model_server.script(Reply("text", finish_reason=said))  # type: ignore[arg-type]
    agent = Agent(model)

    if streamed:
        async with agent.run_stream("hi") as stream:
            await stream.get_output()
        response = stream.response
    else:
        response = (await agent.run("hi", model_settings=WHOLE)).response

    assert response.finish_reason == expected


async def test_a_reply_can_name_its_model_and_its_service_tier(model_server: ModelServer) -> None:
    model_server.rule(None, Reply("hi", model="gpt-5-mini-2025-08-07", service_tier="priority"))

    for reference in ("openai:gpt-5-mini", "openai-chat:gpt-5-mini"):
        response = (await Agent(model_server.model(reference)).run("hi")).response
        assert response.model_name == "gpt-5-mini-2025-08-07"
        assert (response.provider_details or {})["service_tier"] == "priority"
    assert {entry.model for entry in model_server.ledger.entries} == {"gpt-5-mini-2025-08-07"}


@pytest.mark.parametrize("reference", ["openai:gpt-5-mini", "openai-chat:gpt-5-mini"])
async def test_the_demanded_service_tier_is_echoed(model_server: ModelServer, reference: str) -> None:
    agent = Agent(model_server.model(reference))

    asked = await agent.run("hi", model_settings=ModelSettings(service_tier="flex"))
    unasked = await agent.run("hi")

    assert (asked.response.provider_details or {})["service_tier"] == "flex"
    assert (unasked.response.provider_details or {})["service_tier"] == "default"


async def test_audio_tokens_arrive_where_the_protocol_has_them(model_server: ModelServer) -> None:
    usage = Usage(50, 20, input_audio_tokens=30, output_audio_tokens=10)
    model_server.script(Reply("la la la", usage=usage))

    seen = (await Agent(model_server.model("openai-chat:gpt-4o-audio-preview")).run("sing")).usage

    assert (seen.input_tokens, seen.output_tokens) == (50, 20)
    assert (seen.input_audio_tokens, seen.output_audio_tokens) == (30, 10)

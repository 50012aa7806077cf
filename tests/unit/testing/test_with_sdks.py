"""The SDKs of OpenAI and Anthropic against the server, and plain HTTP where they show too little."""

import json

import httpx2
import pytest
from anthropic import APIStatusError as AnthropicStatusError
from anthropic import AsyncAnthropic
from anthropic.types.messages import MessageBatch
from openai import APIConnectionError, AsyncOpenAI, BadRequestError, RateLimitError
from openai.types import Batch
from openai.types.chat import ChatCompletionMessageParam

from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage

USAGE = Usage(100, 20, cache_read_tokens=60, cache_write_tokens=10, reasoning_tokens=5)
HI = [{"role": "user", "content": "hi"}]
CALLS = [ToolCall("weather", {"city": "Rome"}), ToolCall("weather", {"city": "Oslo"}, id="mine")]


def openai(server: ModelServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.openai_url, api_key="k", max_retries=0)


def anthropic(server: ModelServer) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=server.anthropic_url, api_key="k", max_retries=0)


async def test_responses_whole_and_streamed(model_server: ModelServer) -> None:
    model_server.script(*[Reply("Hello!", tool_calls=CALLS, usage=USAGE, chunk_size=4)] * 2)

    async with openai(model_server) as client:
        whole = await client.responses.create(model="gpt-5-mini", input="hi")
        async with client.responses.stream(model="gpt-5-mini", input="hi") as stream:
            numbers = [event.sequence_number async for event in stream]
            streamed = await stream.get_final_response()

    assert numbers == list(range(len(numbers)))
    for response in (whole, streamed):
        assert (response.output_text, response.status) == ("Hello!", "completed")
        calls = [item for item in response.output if item.type == "function_call"]
        assert [json.loads(call.arguments) for call in calls] == [{"city": "Rome"}, {"city": "Oslo"}]
        assert calls[1].call_id == "mine"
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.output_tokens) == (100, 20)
        assert response.usage.total_tokens == 120
        assert response.usage.input_tokens_details.cached_tokens == 60
        assert response.usage.input_tokens_details.cache_write_tokens == 10
        assert response.usage.output_tokens_details.reasoning_tokens == 5
    entries = model_server.ledger.entries
    assert [entry.response_id for entry in entries] == [whole.id, streamed.id]
    assert entries[0].request_id == whole._request_id
    assert [entry.usage for entry in entries] == [USAGE, USAGE]


async def test_chat_completions_whole_and_streamed(model_server: ModelServer) -> None:
    usage = Usage(100, 20, cache_read_tokens=60, reasoning_tokens=5, input_audio_tokens=7)
    model_server.script(*[Reply("Hello!", tool_calls=CALLS, usage=usage, chunk_size=4)] * 2)

    async with openai(model_server) as client:
        whole = await client.chat.completions.create(model="gpt-5-mini", messages=HI)  # type: ignore[arg-type]
        options = {"include_usage": True}
        async with client.chat.completions.stream(
            model="gpt-5-mini",
            messages=HI,  # type: ignore[arg-type]
            stream_options=options,  # type: ignore[arg-type]
        ) as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_completion()

    for completion in (whole, streamed):
        (choice,) = completion.choices
        assert (choice.message.content, choice.finish_reason) == ("Hello!", "tool_calls")
        calls = choice.message.tool_calls or []
        arguments = [call.function.arguments for call in calls if call.type == "function"]
        assert [json.loads(text) for text in arguments] == [{"city": "Rome"}, {"city": "Oslo"}]
        assert calls[1].id == "mine"
        seen = completion.usage
        assert seen is not None
        assert (seen.prompt_tokens, seen.completion_tokens, seen.total_tokens) == (100, 20, 120)
        assert seen.prompt_tokens_details is not None
        assert seen.prompt_tokens_details.cached_tokens == 60
        assert seen.prompt_tokens_details.audio_tokens == 7
        assert seen.completion_tokens_details is not None
        assert seen.completion_tokens_details.reasoning_tokens == 5
    assert [entry.usage for entry in model_server.ledger.entries] == [usage, usage]


async def test_a_chat_stream_tells_its_usage_only_when_asked_but_is_billed(model_server: ModelServer) -> None:
    model_server.script(Reply("Hello!", usage=USAGE))

    async with openai(model_server) as client:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        chunks = [chunk async for chunk in stream]

    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert model_server.ledger.totals().usage == USAGE


async def test_messages_whole_and_streamed(model_server: ModelServer) -> None:
    model_server.script(*[Reply("Hello!", tool_calls=CALLS, usage=USAGE, chunk_size=4)] * 2)

    async with anthropic(model_server) as client:
        whole = await client.messages.create(model="claude-haiku-4-5", messages=HI, max_tokens=99)  # type: ignore[arg-type]
        async with client.messages.stream(model="claude-haiku-4-5", messages=HI, max_tokens=99) as stream:  # type: ignore[arg-type]
            started = [event.message.usage async for event in stream if event.type == "message_start"]
            streamed = await stream.get_final_message()

    for message in (whole, streamed):
        text, rome, oslo = message.content
        assert text.type == "text"
        assert rome.type == oslo.type == "tool_use"
        assert (text.text, rome.input, oslo.input, oslo.id) == (
            "Hello!",
            {"city": "Rome"},
            {"city": "Oslo"},
            "mine",
        )
        assert message.stop_reason == "tool_use"
        # Here the cached parts are beside the input, not in it.
        assert (message.usage.input_tokens, message.usage.output_tokens) == (30, 20)
        assert message.usage.cache_read_input_tokens == 60
        assert message.usage.cache_creation_input_tokens == 10
        assert message.usage.service_tier == "standard"
    assert whole.usage.output_tokens_details is not None
    assert whole.usage.output_tokens_details.thinking_tokens == 5
    assert (started[0].input_tokens, started[0].output_tokens) == (30, 1)
    entries = model_server.ledger.entries
    assert [entry.response_id for entry in entries] == [whole.id, streamed.id]
    assert entries[0].request_id == whole._request_id
    assert [entry.usage for entry in entries] == [USAGE, USAGE]


async def test_calls_of_anthropic_that_are_not_json_stay_text(model_server: ModelServer) -> None:
    model_server.script(Reply(tool_calls=[ToolCall("weather", '{"city": ')]))

    async with httpx2.AsyncClient(base_url=model_server.url) as client:
        answer = await client.post("/v1/messages", json={"model": "m", "messages": HI, "max_tokens": 9})

    assert answer.json()["content"][0]["input"] == '{"city": '


async def test_sdk_errors_are_the_right_ones(model_server: ModelServer) -> None:
    model_server.script(
        Reply(fault=Fault.status(429, retry_after=3)),
        Reply(fault=Fault.disconnect()),
        Reply(fault=Fault.status(529)),
    )

    async with openai(model_server) as client:
        with pytest.raises(RateLimitError) as limited:
            await client.responses.create(model="m", input="hi")
        with pytest.raises(APIConnectionError):
            await client.responses.create(model="m", input="hi")
    async with anthropic(model_server) as other:
        with pytest.raises(AnthropicStatusError) as overloaded:
            await other.messages.create(model="m", messages=HI, max_tokens=9)  # type: ignore[arg-type]

    assert (limited.value.code, limited.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "3")
    assert overloaded.value.body == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "the model server was told to fail: status 529"},
        "request_id": model_server.ledger.entries[2].request_id,
    }


async def test_an_sdk_that_retries_makes_an_entry_for_each_attempt(model_server: ModelServer) -> None:
    model_server.script(Reply("at last"))
    model_server.fail_next(2, Fault.status(429, retry_after=0.01))

    async with AsyncOpenAI(base_url=model_server.openai_url, api_key="k", max_retries=2) as client:
        response = await client.responses.create(model="m", input="hi")

    assert response.output_text == "at last"
    assert [entry.billed for entry in model_server.ledger.entries] == [False, False, True]
    assert {entry.headers["x-stainless-retry-count"] for entry in model_server.ledger.entries} == {
        "0",
        "1",
        "2",
    }


async def test_a_request_that_cannot_be_read_is_refused_and_recorded(model_server: ModelServer) -> None:
    async with openai(model_server) as client:
        with pytest.raises(BadRequestError, match="the body is not a request of openai-responses"):
            await client.responses.create(model="m", input=[{"role": "judge", "content": "x"}])  # type: ignore[list-item, misc]

    (entry,) = model_server.ledger.entries
    assert (entry.status, entry.billed, entry.model, entry.body) == (400, False, "", {})
    assert json.loads(entry.raw_body)["model"] == "m"


async def test_another_path_says_which_there_are(model_server: ModelServer) -> None:
    async with httpx2.AsyncClient(base_url=model_server.url) as client:
        answer = await client.post("/v1/embeddings", json={})

    assert answer.status_code == 404
    assert "no POST /v1/embeddings; it has POST /v1/responses" in answer.json()["error"]["message"]
    assert model_server.ledger.entries == ()


async def test_the_ledger_keeps_headers_and_body(model_server: ModelServer) -> None:
    async with AsyncOpenAI(
        base_url=model_server.openai_url, api_key="k", default_headers={"X-Tenant": "blue"}
    ) as client:
        await client.responses.create(model="m", input="hi", metadata={"a": "b"})

    (entry,) = model_server.ledger.entries
    assert entry.headers["x-tenant"] == "blue"
    assert entry.body["metadata"] == {"a": "b"}
    assert json.loads(entry.raw_body) == entry.body


@pytest.mark.parametrize("reference", ["openai:gpt-5-mini", "anthropic:claude-haiku-4-5"])
def test_models_wait_for_a_connection_longer_than_sdks_do(model_server: ModelServer, reference: str) -> None:
    client = model_server.model(reference).client  # type: ignore[attr-defined]
    assert (client.timeout.connect, client.timeout.read) == (60, 600)


# --- batches ---


async def openai_batch(client: AsyncOpenAI, *prompts: str) -> Batch:
    lines = [
        json.dumps(
            {
                "custom_id": prompt,
                "method": "POST",
                "url": "/v1/responses",
                "body": {"model": "gpt-5-mini", "input": prompt},
            }
        ).encode()
        for prompt in prompts
    ]
    file = await client.files.create(file=("batch.jsonl", b"\n".join(lines)), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
    )


async def anthropic_batch(client: AsyncAnthropic, *prompts: str) -> MessageBatch:
    return await client.messages.batches.create(
        requests=[
            {
                "custom_id": prompt,
                "params": {
                    "model": "claude-haiku-4-5",
                    "max_tokens": 9,
                    "messages": [{"role": "user", "content": prompt}],
                },
            }
            for prompt in prompts
        ]
    )


async def test_a_batch_that_is_cancelled_says_so_and_one_that_has_ended_cannot_be(
    model_server: ModelServer,
) -> None:
    async with openai(model_server) as client:
        ended = await openai_batch(client, "hi")
        assert (await client.batches.cancel(ended.id)).status == "completed"
        model_server.holds_batches = True
        going = await openai_batch(client, "hi")
        await client.batches.cancel(going.id)
        cancelled = await client.batches.retrieve(going.id)
    assert (ended.status, going.status, cancelled.status) == ("completed", "in_progress", "cancelled")
    assert cancelled.output_file_id is not None
    async with anthropic(model_server) as client:
        going_on = await anthropic_batch(client, "hi")
        stopped = await client.messages.batches.cancel(going_on.id)
    assert (going_on.cancel_initiated_at, going_on.processing_status) == (None, "in_progress")
    assert (stopped.cancel_initiated_at, stopped.processing_status) == (stopped.created_at, "ended")


@pytest.mark.parametrize("fault", [Fault.malformed(), Fault.hang(), Fault.disconnect()])
async def test_a_fault_in_a_batch_is_that_of_one_request(model_server: ModelServer, fault: Fault) -> None:
    model_server.rule(lambda request: request.prompt == "bad", Reply("x", fault=fault))
    async with openai(model_server) as client:
        batch = await openai_batch(client, "good", "bad")
        assert batch.output_file_id is not None
        content = await client.files.content(batch.output_file_id)
    good, bad = (json.loads(line) for line in content.text.splitlines())
    assert good["response"]["body"]["status"] == "completed"
    if fault.kind == "malformed":
        with pytest.raises(json.JSONDecodeError):
            json.loads(bad["response"]["body"])
    else:
        assert bad["error"]["code"] == "batch_expired"
    async with anthropic(model_server) as client:
        made = await anthropic_batch(client, "good", "bad")
        results = {
            one.custom_id: one.result.type async for one in await client.messages.batches.results(made.id)
        }
    counts = made.request_counts
    assert (counts.succeeded, counts.expired) == ((2, 0) if fault.kind == "malformed" else (1, 1))
    assert results == {"good": "succeeded", "bad": "succeeded" if fault.kind == "malformed" else "expired"}
    is_billed = fault.kind == "malformed"
    assert [entry.billed for entry in model_server.ledger.entries] == [True, is_billed] * 2
    assert all(bool(entry.usage.output_tokens) == entry.billed for entry in model_server.ledger.entries)

"""A trace has what agents and models said to each other, each message once."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import BinaryContent, ModelRetry
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.agents import TOKEN_IS_MICROCENT
from support.faulty_store import everything_in
from support.interruptions import RUN, entries_of, go_on, interrupt, nth

from fastroai import FastroAgent, RunHistory
from fastroai.errors import ConfigurationError, StepExecutionError
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.runtime.facts import RequestEnded, RequestSent
from fastroai.store import EncryptingCodec, MemoryRunStore, RunTrace, SQLiteRunStore
from fastroai.tracing import set_redaction


async def looks_up(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool until it has returned twice, then answer."""
    returned = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
    if len(returned) < 2 and info.function_tools:
        return ModelResponse([ToolCallPart("look_up", {"order": len(returned)}, f"id{len(returned)}")])
    return ModelResponse([TextPart("It is on its way.")])


def clerk(model: Any = None, **options: Any) -> FastroAgent[Any, str]:
    def look_up(order: int) -> str:
        """Look an order up."""
        return f"order {order} was sent"

    options.setdefault("tools", [look_up])
    options.setdefault("instructions", "Be brief.")
    model = model or FunctionModel(looks_up, model_name="paid")
    return FastroAgent(model, name="clerk", cost_calculator=TOKEN_IS_MICROCENT, **options)


def desk(agent: FastroAgent[Any, str], prompt: Any = "Where is it?", **options: Any) -> Pipeline[Any, Any]:
    history = options.pop("message_history", None)

    @step
    async def reply(ctx: StepContext[None]) -> str:
        return (await ctx.run(agent, prompt, message_history=history)).output

    return Pipeline("desk", {"reply": reply}, config=PipelineConfig(**options))


TRANSCRIPT = """\
reply@1: agent 'clerk', call 1
  instructions: Be brief.
  user: Where is it?
  model: calls look_up({"order": 0})
  tool look_up: order 0 was sent
  model: calls look_up({"order": 1})
  tool look_up: order 1 was sent
  model: It is on its way."""


@pytest.mark.parametrize("kept", [True, False])
async def test_each_message_is_in_the_trace_once_with_a_store_and_without(kept: bool) -> None:
    store = MemoryRunStore() if kept else None
    result = await desk(clerk()).execute(run_id=RUN, store=store)
    assert result.trace.transcript() == TRANSCRIPT
    traces = [result.trace, RunTrace.from_json(result.trace.to_json())]
    if store is not None:
        traces.append(await store.trace(RUN))
    for trace in traces:
        (conversation,) = trace.conversations("reply")
        request, call, *_, answer = ModelMessagesTypeAdapter.validate_python(conversation.messages)
        assert isinstance(request, ModelRequest)
        assert request.instructions == "Be brief."
        assert [part.content for part in request.parts if isinstance(part, UserPromptPart)] == [
            "Where is it?"
        ]
        assert isinstance(call, ModelResponse)
        assert isinstance(answer, ModelResponse)
        assert str(conversation) == TRANSCRIPT


async def test_a_history_that_the_agent_is_given_is_counted_and_not_recorded_again() -> None:
    history: list[ModelMessage] = [
        ModelRequest.user_text_prompt("Hello", instructions="Be brief."),
        ModelResponse([TextPart("Hi")]),
    ]
    result = await desk(clerk(tools=[]), message_history=history).execute()
    assert result.trace.transcript().splitlines()[1:] == [
        "  (goes on from 2 earlier messages)",
        "  instructions: Be brief.",
        "  user: Where is it?",
        "  model: It is on its way.",
    ]


async def test_instructions_that_change_are_recorded_again() -> None:
    turns = iter(["Be brief.", "Be kind.", "Be kind."])
    result = await desk(clerk(instructions=lambda: next(turns))).execute()
    said = [line for line in result.trace.transcript().splitlines() if "instructions" in line]
    assert said == ["  instructions: Be brief.", "  instructions: Be kind."]


async def test_a_rejected_answer_and_what_it_was_told_are_in_the_transcript() -> None:
    agent = clerk(tools=[], retries=1)
    seen = []

    @agent.agent.output_validator
    def check(output: str) -> str:
        seen.append(output)
        if len(seen) == 1:
            raise ModelRetry("Say when.")
        return output

    result = await desk(agent).execute()
    (conversation,) = result.trace.conversations()
    assert [message["kind"] for message in conversation.messages] == ["request", "response"] * 2
    assert "Say when." in json.dumps(conversation.messages[2])
    assert result.trace.transcript().count("Say when.") == 1
    assert result.trace.transcript().count("Where is it?") == 1


async def test_a_request_that_is_sent_again_is_told_once() -> None:
    calls = []

    async def flaky(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls.append(1)
        if len(calls) == 1:
            raise ModelHTTPError(503, "paid")
        return ModelResponse([TextPart("Here.")])

    async def down(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(503, "paid")

    for model in (
        FunctionModel(flaky, model_name="paid"),
        FallbackModel(FunctionModel(down, model_name="first"), FunctionModel(flaky, model_name="paid")),
    ):
        result = await desk(clerk(model, tools=[], request_retries=1)).execute()
        assert result.trace.transcript().count("Where is it?") == 1
        assert result.trace.transcript().endswith("user: Where is it?\n  model: Here.")


async def test_streams_and_agents_in_tools_have_conversations_of_their_own() -> None:
    async def streams(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "Bit by "
        yield "bit."

    async def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("Sent.")])

    streamed = clerk(FunctionModel(answers, stream_function=streams, model_name="paid"), tools=[])

    async def look_up(order: int) -> str:
        """Ask another agent."""
        return (await streamed.run(f"order {order}?")).output

    @step
    async def reply(ctx: StepContext[None]) -> str:
        async for _ in ctx.run_stream(streamed, "Slowly?"):
            pass
        return (await ctx.run(clerk(tools=[look_up]), "Where is it?")).output

    store = MemoryRunStore()
    await Pipeline("desk", {"reply": reply}).execute(run_id=RUN, store=store)
    said = [str(one).splitlines() for one in (await store.trace(RUN)).conversations()]
    assert [one[0] for one in said] == [
        "reply@1: agent 'clerk', call 1",
        "reply@1: agent 'clerk', call 2",
        "reply@1: agent 'clerk', call 2/clerk#1, in tool look_up",
        "reply@1: agent 'clerk', call 2/clerk#1, in tool look_up",
    ]
    assert said[0][2:] == ["  user: Slowly?", "  model: Bit by bit."]
    assert said[2][2:] == ["  user: order 0?", "  model: Sent."]
    assert "  tool look_up: Sent." in said[1]


async def test_a_resumed_call_goes_on_with_its_conversation() -> None:
    store = MemoryRunStore()
    await interrupt(desk(clerk()), store, nth(RequestSent, 2), written=True)
    result = await go_on(desk(clerk()), store)
    assert result.trace.transcript() == TRANSCRIPT


async def test_a_run_goes_on_without_the_messages() -> None:
    store = MemoryRunStore()
    await interrupt(desk(clerk(), record_messages=False), store, nth(RequestEnded, 2), written=True)
    result = await go_on(desk(clerk(), record_messages=False), store)
    assert result.output == "It is on its way."
    assert all(one.messages is None for one in await entries_of(store) if isinstance(one, RequestSent))
    transcript = result.trace.transcript()
    assert "Where is it?" not in transcript
    assert transcript.endswith("model: It is on its way."), "responses are on record anyway"


async def test_without_record_messages_no_prompt_is_in_the_store(tmp_path: Path) -> None:
    for number, record in enumerate([True, False]):
        store = SQLiteRunStore(tmp_path / f"{number}.db")
        await desk(clerk(), record_messages=record).execute(run_id=RUN, store=store)
        stored = repr(await everything_in(store))
        await store.aclose()
        assert ("Where is it?" in stored) is record
        assert ("Be brief." in stored) is record


async def test_a_nested_run_cannot_leave_out_messages_that_the_run_around_records() -> None:
    inner = desk(clerk(), record_messages=False)
    with pytest.raises(StepExecutionError) as caught:
        await Pipeline("outer", {"inner": inner.as_step()}).execute()
    assert isinstance(caught.value.__cause__, ConfigurationError)
    assert "record_messages" in str(caught.value.__cause__)
    outer = Pipeline("outer", {"inner": inner.as_step()}, config=PipelineConfig(record_messages=False))
    assert "Where is it?" not in (await outer.execute()).trace.transcript()


async def test_messages_go_through_the_codec() -> None:
    store, codec = MemoryRunStore(), EncryptingCodec({"k": EncryptingCodec.new_key()})
    await desk(clerk(), codec=codec).execute(run_id=RUN, store=store)
    assert (await RunHistory(store, codec=codec).trace(RUN)).transcript() == TRANSCRIPT
    sealed = await store.trace(RUN)
    assert sealed.transcript().splitlines()[1:] == ["  (sealed)"]
    assert [one.is_sealed for one in sealed.conversations()] == [True]


async def test_a_transcript_is_redacted() -> None:
    result = await desk(clerk()).execute()
    set_redaction([re.compile("order . was sent"), "Where"])
    try:
        shown = result.trace.transcript()
    finally:
        set_redaction(None)
    assert "[redacted] is it?" in shown
    assert "tool look_up: [redacted]" in shown


async def test_images_are_recorded_by_their_kind_and_size() -> None:
    store = MemoryRunStore()
    prompt = ["What is this?", BinaryContent(b"\x89PNG" * 250_000, media_type="image/png")]
    await desk(clerk(tools=[]), prompt).execute(run_id=RUN, store=store)
    trace = await store.trace(RUN)
    assert "user: What is this?\n    [image/png, 1,000,000 bytes]\n" in trace.transcript()
    (conversation,) = trace.conversations()
    ModelMessagesTypeAdapter.validate_python(conversation.messages)
    assert len(trace.to_json()) < 5_000


async def test_messages_that_are_too_large_are_refused_before_the_request_and_named() -> None:
    asked = []

    async def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(messages)
        return ModelResponse([TextPart("Read.")])

    agent = clerk(FunctionModel(answers, model_name="paid"), tools=[])
    store = MemoryRunStore(largest_value=100_000)
    with pytest.raises(StepExecutionError, match="messages to model 'paid'.*record_messages=False"):
        await desk(agent, "long " * 30_000).execute(run_id=RUN, store=store)
    assert not asked
    assert not any(isinstance(one, RequestEnded) for one in await entries_of(store))
    result = await desk(agent, "long " * 30_000, record_messages=False).resume(RUN, store=store)
    assert (result.output, len(asked)) == ("Read.", 1)
    assert result.usage.request_count == 1

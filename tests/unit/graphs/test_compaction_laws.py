"""What holds for every history that was made shorter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    repair_messages,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.examples import examples
from support.histories import agent_calls, phases

from fastroai.graphs.conversation.compaction import Compaction, without_payloads
from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.conversation.talk import handed_over
from fastroai.graphs.conversation.thread import Phase, Thread

compactions = st.builds(Compaction, keep=st.integers(1, 3), summary=st.none() | st.just("what was before"))


def thread_of(phases: Sequence[Phase]) -> Thread:
    thread = Thread(GraphConversation(compact_above=1))
    for phase in phases:
        thread = thread.add(phase)
    return thread


def assert_sendable(messages: Sequence[ModelMessage]) -> None:
    """Calls and returns are in pairs, the return after the call, and no message is empty."""
    open_calls: list[str] = []
    for message in messages:
        assert message.parts
        if isinstance(message, ModelResponse):
            assert not open_calls
            open_calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                open_calls.remove(part.tool_call_id)
    assert not open_calls


FEW = settings(max_examples=examples(20))


@FEW
@given(phases(), compactions)
def test_a_shorter_history_can_be_sent_keeps_the_newest_and_is_as_short_as_it_gets(
    phases: list[Phase], compaction: Compaction
) -> None:
    thread = thread_of(phases)
    shorter = thread.compact(compaction)
    assert_sendable(shorter.messages())
    newest = phases[-compaction.keep :]
    assert list(shorter.phases[-compaction.keep :]) == newest
    kept = [message for phase in newest for message in phase.messages]
    assert shorter.messages()[len(shorter.messages()) - len(kept) :] == kept
    assert shorter.compact(compaction) == shorter


@FEW
@given(phases(most=3))
def test_responses_stay_as_they_were_given(phases: list[Phase]) -> None:
    messages = thread_of(phases).messages()
    for new, old in zip(without_payloads(messages), messages, strict=True):
        assert new.kind == old.kind
        if isinstance(new, ModelResponse):
            assert new is old


@FEW
@given(phases(most=2), st.none() | compactions)
def test_a_phase_comes_back_from_json_as_it_was(phases: list[Phase], compaction: Compaction | None) -> None:
    for phase in phases:
        phase = Phase(phase.done, phase.messages, compaction)
        stored = json.dumps(phase.to_json())
        back = Phase.from_json(json.loads(stored))
        assert back == phase
        assert json.dumps(back.to_json()) == stored


@FEW
@given(phases(), compactions, phases(most=2))
def test_a_thread_of_stored_phases_is_the_same_thread(
    before: list[Phase], compaction: Compaction, after: list[Phase]
) -> None:
    visits = list(before)
    if after:
        visits += [Phase(after[0].done, after[0].messages, compaction), *after[1:]]
    stored = [Phase.from_json(json.loads(json.dumps(phase.to_json()))) for phase in visits]
    live, resumed = thread_of(visits), thread_of(stored)
    assert resumed == live
    assert resumed.messages() == live.messages()
    assert resumed.tokens() == live.tokens()


@FEW
@given(agent_calls("a"))
def test_what_travels_has_no_system_prompt_no_id_and_all_the_rest(messages: list[ModelMessage]) -> None:
    gone = handed_over(messages)
    assert_sendable(gone)
    for message in gone:
        assert not any(isinstance(part, SystemPromptPart) for part in message.parts)
        if isinstance(message, ModelResponse):
            assert message.provider_response_id is None
        else:
            assert message.instructions is None
    assert [part for message in gone for part in message.parts] == [
        part for message in messages for part in message.parts if not isinstance(part, SystemPromptPart)
    ]


@FEW
@given(phases(most=4), compactions)
def test_pydantic_ai_takes_it_without_a_repair(phases: list[Phase], compaction: Compaction) -> None:
    heard: list[ModelMessage] = []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        heard.extend(messages)
        return ModelResponse(parts=[TextPart("done")])

    history = thread_of(phases).compact(compaction).messages()
    asyncio.run(Agent(FunctionModel(respond)).run("go on", message_history=history))
    said = [part for message in repair_messages(history) for part in message.parts]
    assert sum(len(message.parts) for message in history) == len(said)
    assert sum(len(message.parts) for message in heard) == len(said) + 1

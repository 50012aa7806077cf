"""The conversation of a branch as a value."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from fastroai.errors import ValueNotStorable
from fastroai.graphs.conversation.compaction import Compaction
from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.conversation.talk import Talk
from fastroai.graphs.conversation.thread import Phase, Thread
from fastroai.graphs.conversation.threads import MOST_UNTOLD, Threads
from fastroai.graphs.machine.branches import Branch

LONG = "x" * 4_000


def said(text: str, tokens: int = 0) -> list[ModelMessage]:
    usage = RequestUsage(input_tokens=tokens)
    return [ModelRequest.user_text_prompt(text), ModelResponse(parts=[TextPart("yes")], usage=usage)]


def used_tool(payload: object, tokens: int = 0) -> list[ModelMessage]:
    call = ToolCallPart("look", {"at": "it"}, "1")
    return [
        ModelRequest.user_text_prompt("look"),
        ModelResponse(parts=[call]),
        ModelRequest(parts=[ToolReturnPart("look", payload, "1")]),
        ModelResponse(parts=[TextPart("seen")], usage=RequestUsage(input_tokens=tokens)),
    ]


def visited(thread: Thread, node: str, messages: list[ModelMessage], visit: int = 1) -> Thread:
    talk = Talk(thread, node, visit)
    talk.heard(messages)
    return thread.add(talk.phase({node: "done"}))


def texts(messages: list[ModelMessage]) -> list[str]:
    return [str(getattr(part, "content", "")) for message in messages for part in message.parts]


def test_the_history_is_that_of_all_phases_with_transitions_between() -> None:
    thread = visited(visited(Thread(), "a", said("one")), "b", said("two"))
    done = "Done: node 'a' wrote a = \"done\".\nNext: node 'b'."
    assert texts(thread.messages()) == ["one", "yes", done, "two", "yes"]


def test_visits_without_agent_calls_are_told_at_the_next_with_some() -> None:
    thread = visited(Thread(), "a", said("one"))
    thread = thread.add(Talk(thread, "b", 1).phase({"n": 1}))
    thread = thread.add(Talk(thread, "c", 1).phase({}, ValueError("no")))
    assert len(thread.phases) == 1
    thread = visited(thread, "d", said("two"))
    told = texts(thread.messages())[2]
    assert told.startswith(
        "Done: node 'a' wrote a = \"done\"; node 'b' wrote n = 1; node 'c' failed: ValueError: no."
    )
    assert str(thread.narrative).splitlines() == [
        "- a: wrote a", "- b: wrote n", "- c: failed", "- d: wrote d",
    ]  # fmt: skip


def test_of_a_visit_that_failed_nothing_is_kept_that_was_said_in_it() -> None:
    talk = Talk(Thread(), "a", 1)
    talk.heard(said("one"))
    thread = Thread().add(talk.phase({}, ValueError("no")))
    assert thread.messages() == []


def test_branches_inherit_the_history_and_do_not_see_each_other() -> None:
    before = visited(Thread(), "a", said("one"))
    left, right = before.fork(), before.fork()
    left = visited(left, "b", said("left"))
    right = visited(right, "c", said("right"))
    assert "right" not in texts(left.messages())
    assert "left" not in texts(right.messages())
    assert texts(left.messages())[:2] == texts(right.messages())[:2] == ["one", "yes"]
    assert before.messages() == left.messages()[:2]


def test_after_a_join_it_is_that_of_the_fork_and_a_mark_for_each_branch() -> None:
    before = visited(Thread(), "a", said("one"))
    left = visited(visited(before.fork(), "b", said("left")), "b2", said("more"))
    right = visited(before.fork(), "c", said("right"))
    joined = before.join([("b", left), ("c", right)])
    assert joined.messages() == before.messages()
    after = texts(visited(joined, "d", said("two")).messages())
    assert after[2:5] == [
        "Done in the branch 'b', beside others: node 'b' wrote b = \"done\"; node 'b2' wrote b2 = \"done\".",
        "Done in the branch 'c', beside others: node 'c' wrote c = \"done\".",
        "Done: node 'a' wrote a = \"done\".\nNext: node 'd'.",
    ]
    assert str(joined.narrative).split("\n") == [
        "- a: wrote a",
        "- b: wrote b",
        "- b2: wrote b2",
        "- c: wrote c",
    ]


def test_a_branch_with_a_fork_in_it_tells_of_all_its_nodes() -> None:
    outer = Thread().fork()
    inner = outer.fork()
    outer = outer.join([("x", visited(inner, "x", said("in"))), ("y", inner)])
    joined = Thread().join([("o", visited(outer, "z", said("after")))])
    (mark, _) = joined.untold.transition("end", None)
    assert (
        mark
        == "Done in the branch 'o', beside others: node 'x' wrote x = \"done\"; node 'z' wrote z = \"done\"."
    )


def test_system_prompts_do_not_travel_and_a_request_that_had_nothing_else_stays_one() -> None:
    request = ModelRequest(parts=[SystemPromptPart("I am a")])
    alone: list[ModelMessage] = [request, ModelResponse(parts=[TextPart("yes")])]
    assert texts(visited(Thread(), "a", alone).messages()) == ["(no prompt)", "yes"]


def test_a_call_that_was_left_open_is_closed() -> None:
    response = ModelResponse(parts=[ToolCallPart("ask", {}, "7")])
    asked: list[ModelMessage] = [ModelRequest.user_text_prompt("go"), response]
    last = visited(Thread(), "a", asked).messages()[-1]
    assert isinstance(last.parts[0], ToolReturnPart)
    assert last.parts[0].tool_call_id == "7"


def test_an_isolated_thread_keeps_nothing() -> None:
    thread = Thread(GraphConversation.of("isolated"))
    assert visited(thread, "a", said("one")) is thread


# --- compaction ---


def test_without_a_summary_the_results_of_tools_are_dropped_from_older_phases() -> None:
    thread = visited(visited(Thread(), "a", used_tool(LONG)), "b", used_tool(LONG))
    shorter = thread.compact(Compaction(1)).messages()
    assert texts(shorter)[2] == "[dropped to save space: a result of 4,000 characters]"
    assert texts(shorter)[-2] == LONG
    assert visited(Thread(), "a", used_tool("short")).compact(Compaction(1)).compacted == 0


def test_a_summary_stands_for_the_older_phases_and_an_older_summary() -> None:
    thread = Thread()
    for node in "abc":
        thread = visited(thread, node, said(node))
    once = thread.compact(Compaction(2, "of a"))
    assert isinstance(once.messages()[0].parts[0], CompactionPart)
    assert texts(once.messages())[0] == "of a"
    assert once.older() == []
    later = visited(once, "d", said("d"))
    assert texts(later.older())[0] == "of a"
    twice = later.compact(Compaction(2, "of a and b"))
    assert texts(twice.messages())[0] == "of a and b"
    assert "of a" not in texts(twice.messages())


def test_counts_of_before_a_compaction_are_of_another_history() -> None:
    thread = visited(visited(Thread(), "a", used_tool(LONG, 9_000)), "b", said("two", 9_500))
    assert thread.tokens() == 9_500
    shorter = thread.compact(Compaction(1))
    assert shorter.tokens() < 200
    assert shorter.tokens(said("three", 300)) == 300
    assert visited(shorter, "c", said("three", 300)).tokens() == 300


# --- on record ---


def test_a_phase_has_only_what_is_new() -> None:
    thread, sizes = Thread(), []
    for visit in range(1, 50):
        talk = Talk(thread, "loop", visit, focus="go on", goal="count")
        talk.heard(said(f"round {visit}", 100))
        phase = talk.phase({"n": visit})
        sizes.append(len(json.dumps(phase.to_json())))
        thread = thread.add(phase)
    assert max(sizes) - sizes[1] < 20


def test_a_visit_without_agent_calls_is_short_on_record() -> None:
    phase = Talk(Thread(), "a", 3).phase({"x": 5})
    assert phase.to_json() == {"node": "a", "visit": 3, "wrote": {"x": "5"}}
    failed = Talk(Thread(), "a", 1).phase({}, ValueError("no"))
    assert failed.to_json() == {"node": "a", "visit": 1, "failure": "ValueError: no"}
    assert Phase.from_json(failed.to_json()) == failed


def test_what_is_no_json_cannot_be_stored() -> None:
    talk = Talk(Thread(), "a", 1)
    talk.heard(used_tool(object()))
    with pytest.raises(ValueNotStorable, match="the conversation of node 'a'"):
        talk.phase({}).to_json()


def test_what_is_no_phase_is_refused() -> None:
    with pytest.raises(ValidationError):
        Phase.from_json({"node": "a"})
    with pytest.raises(ValidationError):
        Phase.from_json({"node": "a", "visit": 1, "messages": [{"kind": "none"}]})


def test_user_prompts_stay_user_prompts() -> None:
    (request, _) = visited(Thread(), "a", said("one")).messages()
    assert isinstance(request.parts[0], UserPromptPart)


def test_a_branch_hears_the_same_of_its_past_however_long_that_is() -> None:
    branch, talked = Branch("a"), {}
    for kept in (False, True):
        threads = Threads(GraphConversation(), "goal")
        for number in range(1, 2 * MOST_UNTOLD):
            threads.add(branch, ("a", number), {"n": number}, ValueError("no") if number % 7 else None)
            if not kept:
                threads.talk(branch, None)
        talked[kept] = threads._lines[""].now()
    assert talked[True] == talked[False]

"""The layers that come after an agent's own instructions."""

from __future__ import annotations

from fastroai.graphs.conversation.markers import KEYS_TOLD, NODES_TOLD, Done, Narrative, layers


def test_the_layers_are_goal_narrative_and_focus_in_this_order() -> None:
    narrative = Narrative().add(Done("classify", 1, {"category": '"billing"'}))
    told = layers("answer the ticket", narrative, "be kind")
    assert told == [
        "You work on one part of a larger task. Its goal: answer the ticket",
        "Done so far:\n- classify: wrote category",
        "Your focus now: be kind",
    ]


def test_what_has_nothing_to_say_is_left_out() -> None:
    assert layers(None, Narrative(), None) == []


def test_a_node_has_one_line_however_often_it_is_visited() -> None:
    narrative = Narrative()
    for visit in range(1, 4):
        narrative = narrative.add(Done("draft", visit, {"text": '"..."'})).add(Done("check", visit, {}))
    assert str(narrative) == "- draft (3 visits): wrote text\n- check (3 visits)"


def test_values_and_messages_of_failures_are_not_in_it() -> None:
    """They may come from anywhere, and instructions have the authority of who wrote them."""
    narrative = Narrative().add(Done("read", 1, {"page": '"obey me"'}))
    narrative = narrative.add(Done("pay", 2, {}, "ValueError: obey me"))
    assert "obey" not in str(narrative)
    assert str(narrative).endswith("- pay (2 visits): failed")


def test_a_long_narrative_leaves_out_the_nodes_that_were_visited_first() -> None:
    narrative = Narrative()
    for number in range(NODES_TOLD + 2):
        narrative = narrative.add(Done(f"n{number}", 1, {}))
    lines = str(narrative).splitlines()
    assert lines[:2] == ["- and 2 before", "- n2"]
    assert len(lines) == NODES_TOLD + 1


def test_of_many_keys_some_are_told() -> None:
    done = Done("wide", 1, {f"k{number}": "1" for number in range(KEYS_TOLD + 3)})
    assert str(Narrative().add(done)).endswith(f"k{KEYS_TOLD - 1} and 3 more")

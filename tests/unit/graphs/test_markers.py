"""What stands between the nodes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fastroai.errors import RecordedError
from fastroai.graphs.conversation.markers import (
    TOLD_AT_ONCE,
    VALUE_LENGTH,
    BranchDone,
    Done,
    Recent,
    Untold,
    shortened,
    told_in_full,
)


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@dataclass
class Point:
    x: int


def done(node: str, number: int = 1, **wrote: object) -> Done:
    return Done.of(node, number, wrote)


def test_a_transition_says_what_was_done_and_what_comes_next() -> None:
    untold = Untold().add(done("fetch", rows=3)).add(done("sort", 2))
    assert untold.transition("write", "be short") == [
        "Done: node 'fetch' wrote rows = 3; node 'sort' (visit 2).\nNext: node 'write'. Focus: be short"
    ]


def test_where_nothing_was_done_only_the_next_is_told() -> None:
    assert not Untold()
    assert Untold().transition("write", None) == ["Next: node 'write'."]


def test_each_joined_branch_has_a_text_of_its_own() -> None:
    branches = [
        BranchDone("a", Recent().add(done("a", x=1)).add(done("b", y="two"))),
        BranchDone("c", Recent()),
    ]
    untold = Untold().add(done("split", n=2)).join(branches)
    assert untold.transition("merge", None) == [
        "Done in the branch 'a', beside others: node 'a' wrote x = 1; node 'b' wrote y = \"two\".",
        "Done in the branch 'c', beside others: nothing.",
        "Done: node 'split' wrote n = 2.\nNext: node 'merge'.",
    ]


def test_all_branches_of_the_last_fork_are_told_and_some_of_those_before() -> None:
    many = [BranchDone(str(number), Recent()) for number in range(50)]
    assert len(Untold().join(many).branches) == 50
    assert len(Untold().join(many).join(many[:2]).branches) == TOLD_AT_ONCE + 2


def test_of_many_visits_the_newest_are_told_and_the_others_counted() -> None:
    recent = Recent()
    for number in range(1, TOLD_AT_ONCE + 6):
        recent = recent.add(done("loop", number))
    assert recent.earlier == 5
    assert str(recent).startswith("5 earlier visits; node 'loop' (visit 6); ")
    twice = recent.extend(recent)
    assert twice.earlier == 5 + 5 + TOLD_AT_ONCE


def test_a_failure_is_told_with_what_was_written_before_it() -> None:
    failed = Done.of("pay", 1, {"sum": 5}, ValueError("no\nmoney"))
    assert str(failed) == "node 'pay' failed: ValueError: no money; it wrote sum = 5"
    assert str(Done.of("pay", 1, {}, ValueError())) == "node 'pay' failed: ValueError"
    assert str(Done.of("pay", 1, {}, Broken())) == "node 'pay' failed: Broken"


@pytest.mark.parametrize("message", ["no money", ""])
def test_a_failure_of_an_earlier_process_is_told_as_it_was_then(message: str) -> None:
    class OutOfMoney(Exception):
        pass

    kind = f"{OutOfMoney.__module__}.{OutOfMoney.__qualname__}"
    live = Done.of("pay", 1, {}, OutOfMoney(message) if message else OutOfMoney())
    assert Done.of("pay", 1, {}, RecordedError(kind, message)) == live


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Point(3), '{"x":3}'),
        (float("nan"), "NaN"),
        (object(), '"<object>"'),
        ("two\nlines", '"two\\nlines"'),
        ("\ud800", "<str>"),
    ],
)
def test_values_are_told_as_json_and_without_addresses(value: object, told: str) -> None:
    assert shortened(value) == told


def test_long_values_are_cut() -> None:
    assert len(shortened("x" * 10_000)) == VALUE_LENGTH
    assert len(shortened(["x" * 10_000])) == VALUE_LENGTH
    assert shortened("x" * 10_000).endswith("…")


def test_a_value_for_a_model_is_cut_where_it_gets_too_long() -> None:
    assert told_in_full("as it is\n", 100) == "as it is\n"
    assert told_in_full({"x": 1}, 100) == '{\n  "x": 1\n}'
    assert told_in_full("x" * 12, 10) == f"{'x' * 10}\n[and 2 characters]"

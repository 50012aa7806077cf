"""Which output of a quorum wins, when it is hopeless, and what is cancelled."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.virtual_time import VirtualTimeLoop, in_virtual_time, now

from fastroai.errors import ConfigurationError
from fastroai.functions.errors import ConsensusFailure
from fastroai.functions.several.quorum import Ballot, Quorum, agreed, agreed_value, groups
from fastroai.human.halting import Halted
from fastroai.runtime import Scope


@dataclass(frozen=True)
class Verdict:
    label: str
    confidence: float = 0.5


def ballot(members: int, threshold: int | None = None, agree_on: str | None = None) -> Ballot[object]:
    return Ballot(Quorum.of(members, agree_on, threshold), lambda vote: vote)


def voted(outputs: Sequence[object], threshold: int | None = None, agree_on: str | None = None) -> object:
    """The winner of these outputs, in whatever order they come."""
    winners: list[object] = []
    for order in itertools.permutations(enumerate(outputs, 1)):
        one = ballot(len(outputs), threshold, agree_on)
        for member, output in order:
            one.votes[member] = output
        winners.append(one.winner())
    assert all(winner is winners[0] for winner in winners), "the order of the votes matters"
    return winners[0]


def test_outputs_agree_as_a_whole_or_on_a_field() -> None:
    sure, unsure = Verdict("spam", 0.9), Verdict("spam", 0.4)

    assert voted([sure, unsure], threshold=2) is None
    assert voted([unsure, sure], threshold=2, agree_on="label") is sure


def test_of_two_groups_the_larger_sum_of_confidence_wins() -> None:
    outputs = [Verdict("a", 0.2), Verdict("a", 0.3), Verdict("b", 0.9), Verdict("c"), Verdict("b", 0.1)]

    assert voted(outputs, threshold=2, agree_on="label") is outputs[2]


def test_of_two_groups_with_equal_confidence_the_earlier_wins() -> None:
    outputs = [Verdict("a", 0.3), Verdict("b", 0.1), Verdict("b", 0.2), Verdict("a", 0.0)]

    assert voted(outputs, threshold=2, agree_on="label") is outputs[0]


def test_outputs_without_confidence_count_one_each() -> None:
    assert voted(["b", "a", "a", "b", "a"], threshold=2) == "a"


def test_an_output_without_the_field_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"agree_on='lable': expected a field of Verdict"):
        agreed_value(Verdict("a"), ("lable",))


def test_fields_of_mappings_and_of_fields_can_be_named() -> None:
    assert agreed_value({"a": {"b": 1}}, ("a.b",)) == [1]
    assert groups([(1, {"a": 1, "b": 1}), (2, {"a": 1, "b": 2})], ("a",)) == [[1, 2]]


@in_virtual_time
async def test_a_member_that_fails_is_a_vote_without_output() -> None:
    async def member(number: int) -> str:
        await asyncio.sleep(number)
        if number == 2:
            raise LookupError("no answer")
        return "a"

    async with Scope("step", "vote", parent=None):
        assert await agreed(ballot(3, 2), member, function="vote") == "a"
        with pytest.raises(ConsensusFailure) as raised:
            await agreed(ballot(3, 3), member, function="vote")
    assert raised.value.outputs == ("a",)
    [error] = raised.value.errors
    assert isinstance(error, LookupError)
    assert raised.value.__cause__ is error
    assert now() == 3 + 2, "after the second had failed, the third was hopeless"


async def test_an_output_without_the_field_ends_all() -> None:
    async def member(number: int) -> object:
        if number > 1:
            await asyncio.Event().wait()
        return Verdict("a")

    with pytest.raises(ConfigurationError, match=r"'lable'.* expected a field of Verdict"):
        await agreed(ballot(3, agree_on="lable"), member, function="vote")


def test_outputs_that_are_none_agree_with_each_other() -> None:
    assert groups([(1, Verdict("a")), (2, None), (3, None)], ("label",)) == [[1], [2, 3]]
    assert voted([None, Verdict("a", 0.1), Verdict("a", 0.2)], agree_on="label") == Verdict("a", 0.2)


@in_virtual_time
async def test_a_member_that_waits_for_a_person_halts_the_call_when_the_others_have_voted() -> None:
    async def member(number: int) -> str:
        await asyncio.sleep(number)
        if number == 1:
            raise Halted
        return "a"

    async with Scope("step", "vote", parent=None):
        with pytest.raises(Halted):
            await agreed(ballot(3, 1), member, function="vote")
    assert now() == 3


votes = st.one_of(st.sampled_from("abc"), st.just(None))


@given(st.lists(st.tuples(votes, st.integers(0, 5)), min_size=1, max_size=7), st.data())
def test_the_result_is_that_of_the_votes_whatever_the_delays(
    plan: list[tuple[str | None, int]], data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, len(plan)), label="threshold")
    ended: dict[int, str] = {}

    async def member(number: int) -> str:
        output, delay = plan[number - 1]
        ended[number] = "cancelled"
        await asyncio.sleep(delay)
        ended[number] = "voted"
        if output is None:
            raise LookupError
        return output

    async def vote() -> str | ConsensusFailure:
        async with Scope("step", "vote", parent=None):
            try:
                result = await agreed(ballot(len(plan), threshold), member, function="vote")
            except ConsensusFailure as failure:
                return failure
            finally:
                assert len(asyncio.all_tasks()) == 1, "a member outlives the vote"
        assert isinstance(result, str)
        return result

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        result = runner.run(vote())
    outputs = [output for output, _ in plan]
    counts = {output: outputs.count(output) for output in outputs if output is not None}
    most = max(counts.values(), default=0)
    if most >= threshold:
        best = [output for output in outputs if output is not None and counts[output] == most]
        assert result == best[0]
        assert set(ended.values()) == {"voted"}
    else:
        assert isinstance(result, ConsensusFailure)
        came = [member for member, how in sorted(ended.items()) if how == "voted"]
        assert result.outputs == tuple(plan[one - 1][0] for one in came if plan[one - 1][0] is not None)
        # Those that were cancelled could not have brought it about, and one vote fewer could have.
        without_last = _could_agree(plan, threshold, max(plan[one - 1][1] for one in came))
        assert without_last


def _could_agree(plan: list[tuple[str | None, int]], threshold: int, last: int) -> bool:
    """Whether enough could still have agreed before the moment at which the last vote came."""
    known = [output for output, delay in plan if delay < last]
    counts = [known.count(output) for output in set(known) if output is not None]
    return max(counts, default=0) + len(plan) - len(known) >= threshold

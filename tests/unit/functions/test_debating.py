"""Debates: rounds, what agents hear of each other, and when a debate ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from support.leftovers import assert_no_task_is_left
from support.virtual_time import in_virtual_time, now

from fastroai import compute
from fastroai.errors import ConfigurationError
from fastroai.functions.several.debating import debate


@dataclass(frozen=True)
class Position:
    vote: str
    reason: str = ""


class Agents:
    """Agents that say what they are told to say, and what they heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def saying(self, *said: object, seconds: float = 1) -> Callable[..., Coroutine[Any, Any, Any]]:
        rest = iter(said)

        async def agent(topic: str, arguments: tuple[object, ...] = ()) -> object:
            self.heard.append((topic, arguments))
            await asyncio.sleep(seconds)
            one = next(rest)
            if isinstance(one, Exception):
                raise one
            return one

        return agent


@in_virtual_time
async def test_agents_hear_the_last_arguments_of_the_others() -> None:
    agents = Agents()
    three = [agents.saying("a1", "a2"), agents.saying("b1", "b2"), agents.saying("c1", "c2")]
    assert await debate(three, "topic") == (("a1", "b1", "c1"), ("a2", "b2", "c2"))
    assert agents.heard == [
        ("topic", ()),
        ("topic", ()),
        ("topic", ()),
        ("topic", ("b1", "c1")),
        ("topic", ("a1", "c1")),
        ("topic", ("a1", "b1")),
    ]
    assert now() == 2


@in_virtual_time
async def test_a_debate_ends_early_when_nobody_changes_their_mind() -> None:
    agents = Agents()
    two = [agents.saying("a", "b", "b", "never"), agents.saying("c", "c", "c", "never")]

    async def synthesize(topic: str, arguments: object, converged: bool) -> tuple[object, ...]:
        return topic, arguments, converged

    rounds = (("a", "c"), ("b", "c"), ("b", "c"))
    assert await debate(two, "topic", 9, synthesize) == ("topic", rounds, True)


@pytest.mark.parametrize(("rounds", "converged"), [(1, False), (2, False), (3, True)])
@in_virtual_time
async def test_synthesis_is_told_whether_the_debate_converged(rounds: int, converged: bool) -> None:
    agents = Agents()
    two = [agents.saying("a", "b", "b"), agents.saying("c", "c", "c")]
    told = await debate(two, "topic", rounds=rounds, synthesize=lambda topic, said, converged: converged)
    assert told is converged


@in_virtual_time
async def test_agents_that_agree_with_each_other_have_not_converged_after_one_round() -> None:
    agents = Agents()
    two = [agents.saying("a"), agents.saying("a")]
    assert await debate(two, "topic", 1, lambda topic, said, converged: (said, converged)) == (
        (("a", "a"),),
        False,
    )


@pytest.mark.parametrize(
    ("agree_on", "rounds"), [("vote", 2), (("vote",), 2), ((), 3), (("vote", "reason"), 3)]
)
@in_virtual_time
async def test_agreement_is_on_fields_or_on_the_whole(agree_on: Any, rounds: int) -> None:
    agents = Agents()
    agent = agents.saying(Position("yes", "1"), Position("yes", "2"), Position("yes", "2"))
    assert len(await debate([agent], "topic", 3, agree_on=agree_on)) == rounds


@in_virtual_time
async def test_a_field_that_arguments_lack_is_told_after_the_first_round() -> None:
    agents = Agents()
    with pytest.raises(ConfigurationError, match=r"agree_on='vot'"):
        await debate([agents.saying(Position("yes"))], "topic", 3, agree_on="vot")
    assert len(agents.heard) == 1


@in_virtual_time
async def test_an_agent_that_fails_ends_the_debate() -> None:
    agents = Agents()
    two = [agents.saying(ValueError("broken")), agents.saying("b", seconds=9)]
    with pytest.raises(ValueError, match="broken"):
        await debate(two, "topic")
    assert now() == 1
    assert_no_task_is_left()


@in_virtual_time
async def test_mistakes_are_told_before_anybody_is_asked() -> None:
    agents = Agents()
    agent = agents.saying("a")
    wrong: list[tuple[Any, Any, str]] = [
        ([], 2, "agents="),
        (agent, 2, "expected a list of at least one function"),
        ([agent], 0, "rounds=0"),
        ([agent], True, "rounds=True"),
        ([agent], 1.5, "rounds=1.5"),
    ]
    for given, rounds, said in wrong:
        with pytest.raises(ConfigurationError, match=said):
            await debate(given, "topic", rounds)

    @compute
    async def advise(topic: str, arguments: tuple[str, ...] = ()) -> str:
        raise AssertionError

    nobody: Any = 3
    with pytest.raises(ConfigurationError, match="synthesize=3: expected a function of topic"):
        await debate([agent], "topic", synthesize=nobody)
    with pytest.raises(ConfigurationError, match="agents=3: expected functions of a topic"):
        await debate([agent, nobody], "topic")
    with pytest.raises(ConfigurationError, match="a field of what 'advise' returns: .*str has no field"):
        await debate([agent, advise], "topic", agree_on="label")
    assert agents.heard == []


async def test_an_agent_takes_the_topic_and_the_arguments_of_the_others() -> None:
    async def deaf(topic: str) -> Position:
        return Position("yes")

    with pytest.raises(ConfigurationError, match=r"agents=.*argue\(topic, arguments\)"):
        await debate([deaf], "merge")  # type: ignore[list-item]

"""What type checkers know of calls side by side."""

from __future__ import annotations

from typing import assert_type

from fastroai.functions import Failure, Success, debate, parallel, race


async def count(text: str) -> int:
    return len(text)


async def label(text: str) -> str:
    return text


async def argue(topic: str, arguments: tuple[str, ...] = ()) -> str:
    return topic


async def decide(topic: str, arguments: tuple[tuple[str, ...], ...], converged: bool) -> int:
    return len(arguments)


def judge(topic: str, arguments: tuple[tuple[str, ...], ...], converged: bool) -> bool:
    return converged


def are_few(found: list[int]) -> bool:
    return sum(found) < 9


async def side_by_side() -> None:
    assert_type(await parallel(count("a"), count("b")), list[int])
    assert_type(await parallel(count("a"), require="any", validate=are_few), list[int])
    assert_type(await parallel(count("a"), require=2), list[int])
    assert_type(await race(label("a"), label("b")), str)
    outcomes = await parallel(count("a"), require=0)
    assert_type(outcomes, list[Success[int] | Failure])
    for one in outcomes:
        if isinstance(one, Success):
            assert_type(one.value, int)
            assert_type(one.error, None)
        else:
            assert_type(one.error, Exception)
            assert_type(one.value, None)
    assert_type(await parallel(parallel(count("a")), parallel(count("b"))), list[list[int]])


async def debates() -> None:
    assert_type(await debate([argue, argue], "topic"), tuple[tuple[str, ...], ...])
    assert_type(await debate([argue], "topic", 3, decide), int)
    assert_type(await debate([argue], "topic", synthesize=decide, agree_on="vote"), int)
    assert_type(await debate([argue], "topic", rounds=1, synthesize=judge), bool)


def mistakes() -> None:
    parallel(count)  # type: ignore[call-overload]  # not called
    race(count("a"), require=1)  # type: ignore[call-arg]

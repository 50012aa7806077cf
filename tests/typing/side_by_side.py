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


def are_few(found: tuple[int, ...]) -> bool:
    return sum(found) < 9


def agree(found: tuple[int, str]) -> bool:
    return found[0] == len(found[1])


async def side_by_side() -> None:
    assert_type(await parallel(count("a"), count("b")), tuple[int, int])
    assert_type(await parallel(count("a")), tuple[int])
    assert_type(await parallel(count("a"), require="any", validate=are_few), tuple[int, ...])
    assert_type(await parallel(count("a"), require=2), tuple[int, ...])
    assert_type(await race(label("a"), label("b")), str)
    outcomes = await parallel(count("a"), require=0)
    assert_type(outcomes, tuple[Success[int] | Failure])
    for one in outcomes:
        if isinstance(one, Success):
            assert_type(one.value, int)
            assert_type(one.error, None)
        else:
            assert_type(one.error, Exception)
            assert_type(one.value, None)
    pairs = await parallel(parallel(count("a"), label("a")), parallel(count("b"), label("b")))
    assert_type(pairs, tuple[tuple[int, str], tuple[int, str]])


async def of_different_types() -> None:
    number, text = await parallel(count("a"), label("a"))
    assert_type(number, int)
    assert_type(text, str)
    assert_type(await parallel(count("a"), label("a"), require="all", validate=agree), tuple[int, str])
    six_results = await parallel(count("1"), label("2"), count("3"), label("4"), count("5"), label("6"))
    assert_type(six_results, tuple[int, str, int, str, int, str])
    one, other = await parallel(count("a"), label("a"), require=0)
    assert_type(one, Success[int] | Failure)
    assert_type(other, Success[str] | Failure)
    six = (label("1"), label("2"), label("3"), label("4"), label("5"), count("6"))
    assert_type(await parallel(*six, require=0), tuple[Success[int | str] | Failure, ...])
    assert_type(await parallel(count("a"), label("a"), require="any"), tuple[int | str, ...])
    assert_type(await parallel(count("a"), label("a"), require=1), tuple[int | str, ...])
    assert_type(await race(count("a"), label("a")), int | str)


async def of_iterables(texts: list[str]) -> None:
    calls = [count(text) for text in texts]
    assert_type(await parallel(*calls), tuple[int, ...])
    assert_type(await parallel(*(label(text) for text in texts)), tuple[str, ...])
    assert_type(await parallel(*calls, require=0), tuple[Success[int] | Failure, ...])
    assert_type(await parallel(*calls, require=2, validate=are_few), tuple[int, ...])
    assert_type(await parallel(count("a"), *calls), tuple[int, ...])
    assert_type(await race(*calls), int)


async def debates() -> None:
    assert_type(await debate([argue, argue], "topic"), tuple[tuple[str, ...], ...])
    assert_type(await debate([argue], "topic", 3, decide), int)
    assert_type(await debate([argue], "topic", synthesize=decide, agree_on="vote"), int)
    assert_type(await debate([argue], "topic", rounds=1, synthesize=judge), bool)


def mistakes() -> None:
    parallel(count)  # type: ignore[call-overload]  # not called
    race(count("a"), require=1)  # type: ignore[call-overload]
    parallel(count("a"), label("a"), validate=are_few)  # type: ignore[arg-type]  # of other results

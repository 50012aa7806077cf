"""What type checkers know of evaluations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, assert_type

from fastroai import FastroAgent
from fastroai.evaluation import Case, Comparison, EvaluatorContext, compare, compare_sync, task


def checked(ctx: EvaluatorContext[str, int]) -> bool:
    assert_type(ctx.output, int)
    assert_type(ctx.expected_output, int)
    return ctx.output == ctx.expected_output


async def asks(inputs: str) -> int:
    return len(inputs)


async def evaluate(agent: FastroAgent[None, str]) -> None:
    assert_type(task(agent), Callable[[Any], Awaitable[str]])
    assert_type(task(asks), Callable[[Any], Awaitable[int]])
    assert_type(task(len), Callable[[Any], Awaitable[int]])
    cases = [Case(inputs="a", expected_output=1)]
    assert_type(await compare({"agent": agent, "function": asks}, cases, [checked]), Comparison)
    assert_type(compare_sync({"agent": agent}, cases), Comparison)
    compare_sync({"agent": agent}, cases, budgets=1)  # type: ignore[call-arg]

import asyncio
from contextvars import ContextVar

import pytest

from fastroai.steps.fanout import run_bounded

VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


async def test_context_variables_of_one_item_are_not_seen_by_the_next() -> None:
    async def one(index: int, item: int) -> str:
        before = VARIABLE.get()
        VARIABLE.set(f"set by {index}")
        await asyncio.sleep(0)
        return before

    assert await run_bounded(one, [1, 2, 3], 1) == ["unset"] * 3


async def test_an_item_that_cancels_itself_is_not_passed_over() -> None:
    async def one(index: int, item: int) -> int:
        if index == 1:
            raise asyncio.CancelledError
        return item

    with pytest.raises(asyncio.CancelledError):
        await run_bounded(one, [1, 2, 3], 2)

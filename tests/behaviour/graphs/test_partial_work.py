"""What a visit wrote before its end: in the result, and in the run that goes on from there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fastroai import MemoryRunStore, PipelineConfig, RetryPolicy, StepContext, step
from fastroai.graphs import Edge, Graph

PAGES = [1, 2, 3]


class ForbiddenError(Exception):
    """A failure that no retry would mend."""

    status_code = 403


class Reading:
    """A graph whose second node writes its pages, and then does not come to its end at first."""

    def __init__(self, store: MemoryRunStore) -> None:
        self.store, self.is_over = store, False
        self.found: list[object] = []
        self.wrote = asyncio.Event()

    def graph(self, how: str) -> Graph[Any, Any]:
        @step(retry=RetryPolicy(1, backoff=50, jitter="none"))
        async def read(ctx: StepContext) -> str:
            self.found.append(ctx.get_input("pages", None))
            if self.is_over:
                return "read"
            if ctx.attempt == 1:
                ctx.write("pages", PAGES)
            self.wrote.set()
            if how == "fails":
                raise ForbiddenError("no")
            if how == "waits":
                raise ConnectionError("not yet")
            await asyncio.Event().wait()
            raise AssertionError

        @step
        async def last(ctx: StepContext) -> object:
            return ctx.get_input("pages", None)

        return Graph(
            "g",
            nodes={"begin": last, "read": read, "last": last},
            edges=[Edge("begin", "read", "on_success"), Edge("read", "last", "on_success")],
            config=PipelineConfig(store=self.store, retries=0),
        )


@pytest.mark.parametrize("how", ["hangs", "waits", "fails"])
async def test_a_run_that_goes_on_has_in_memory_what_its_result_had(how: str) -> None:
    reading = Reading(MemoryRunStore())
    run = asyncio.create_task(reading.graph(how).run(run_id="r"))
    await reading.wrote.wait()
    if how != "fails":
        await reading.graph(how).cancel("r")
    result = await run
    assert (result.status, result.memory["pages"]) == ("failed" if how == "fails" else "cancelled", PAGES)
    reading.is_over = True
    for _ in range(2):
        result = await reading.graph(how).resume("r")
        assert (result.status, result.memory["pages"], result.output) == ("finished", PAGES, PAGES)
    assert reading.found == [None, PAGES]


async def test_what_is_written_stays_as_it_was_at_that_moment() -> None:
    @step(retries=0)
    async def gather(ctx: StepContext) -> None:
        pages = [1]
        ctx.write("pages", pages)
        pages.append(2)
        raise ValueError("no")

    result = await Graph("g", nodes={"gather": gather}).run()
    assert dict(result.memory) == {"pages": [1]}

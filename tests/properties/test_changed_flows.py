"""Flows that are resumed with another body: no wrong output, and one that is put right goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st
from support.interruptions import RUN, DyingStore
from support.virtual_time import VirtualTimeLoop

from fastroai import compute, flow
from fastroai.errors import RunNotFound, RunStoreUnavailable
from fastroai.functions import parallel
from fastroai.functions.errors import FlowDiverged
from fastroai.store import MemoryRunStore

Part: TypeAlias = tuple[str, Any]
"""`call` with a text; `parallel`, `flow` and `beside` with parts."""

program: list[Part] = []


@compute
async def call(text: str) -> str:
    await asyncio.sleep(0)
    return text.upper()


async def performed(parts: Sequence[Part]) -> list[str]:
    found: list[str] = []
    for kind, what in parts:
        if kind == "call":
            found.append(await call(what))
        elif kind == "parallel":
            found += await parallel(*(joined([part]) for part in what))
        elif kind == "flow":
            found.append(await nested(json.dumps(what)))
        else:
            beside = asyncio.create_task(joined(what[:1]))
            found += [await joined(what[1:]), await beside]
    return found


async def joined(parts: Sequence[Part]) -> str:
    return "".join(await performed(parts))


@flow
async def nested(parts: str) -> str:
    return await joined(json.loads(parts))


@flow
async def outermost() -> list[str]:
    return await performed(program)


calls = st.tuples(st.just("call"), st.sampled_from("abc"))
parts = st.recursive(
    calls,
    lambda inside: st.tuples(
        st.sampled_from(["parallel", "flow", "beside"]), st.lists(inside, min_size=1, max_size=3)
    ),
    max_leaves=5,
)
bodies = st.lists(parts, min_size=1, max_size=4)


@given(bodies, st.data(), st.integers(2, 12), st.booleans())
def test_a_changed_body_diverges_or_gives_what_it_computes_and_can_be_put_right(
    first: list[Part], data: st.DataObject, dies_at: int, written: bool
) -> None:
    place = data.draw(st.integers(0, len(first) - 1), label="place")
    changed = [*first[:place], *data.draw(st.lists(parts, max_size=2), label="instead"), *first[place + 1 :]]

    async def run() -> None:
        program[:] = changed
        from_changed = await outermost()
        program[:] = first
        from_first = await outermost()
        store = MemoryRunStore()
        dying = DyingStore(store, lambda entries: dying.writes >= dies_at, written=written)
        try:
            assert await outermost.run(run_id=RUN, store=dying) == from_first
            return
        except RunStoreUnavailable:
            pass
        program[:] = changed
        try:
            # A run whose last step is on record has its output, whatever the body is now.
            assert await outermost.resume(RUN, store=store) in (from_changed, from_first)
        except FlowDiverged:
            program[:] = first
            assert await outermost.resume(RUN, store=store) == from_first
        except RunNotFound:
            pass

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())

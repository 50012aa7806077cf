"""However sends, wakes and deaths of processes follow each other: each message is received once, in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.faulty_store import FaultyStore, Write, gone
from support.virtual_time import VirtualTimeLoop

from fastroai import Pipeline, PipelineConfig, StepContext, send_message, step
from fastroai.errors import MessageRejected, RunStoreUnavailable
from fastroai.runtime.facts import WaitEnded
from fastroai.store import MemoryRunStore, RunHistory

NAMES = ("a", "b")
Act = tuple[Literal["send", "wake", "die"], str, int]
"""What happens next: a message of a name is sent, or the run goes on, and dies perhaps at a write."""

acts = st.lists(
    st.tuples(st.sampled_from(["send", "wake", "die"]), st.sampled_from(NAMES), st.integers(1, 12)),
    max_size=12,
)
arrivals = st.dictionaries(st.integers(1, 60), st.sampled_from(NAMES), max_size=8)
"""Messages that come in the middle of a write of the run."""
orders = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5)


def desk(steps: Sequence[Sequence[str]]) -> Pipeline[Any, Any]:
    """Steps side by side that each receive some messages, one after the other."""

    def receiver(number: int, names: Sequence[str]) -> Any:
        @step
        async def receive(ctx: StepContext[Any]) -> dict[str, list[int]]:
            received: dict[str, list[int]] = defaultdict(list)
            for name in names:
                received[name].append(await ctx.receive(name, int))
            return dict(received)

        return receive

    made = {f"s{number}": receiver(number, names) for number, names in enumerate(steps)}
    return Pipeline("desk", made, output_step="s0", config=PipelineConfig(durability="sync"))


@settings(max_examples=examples(30))
@given(st.lists(orders, min_size=1, max_size=3), acts, arrivals)
def test_each_message_is_received_once_and_in_order(
    steps: list[list[str]], acts: list[Act], arrives: dict[int, str]
) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_play(steps, acts, arrives))


async def _play(steps: list[list[str]], acts: list[Act], arrives: dict[int, str]) -> None:
    inner = MemoryRunStore()
    sent: dict[str, list[int]] = defaultdict(list)
    written: list[str] = []
    door = desk(steps)

    async def send(name: str) -> None:
        value = len(sent[name])
        with suppress(MessageRejected):  # the run has finished
            await send_message("r", name, value, store=inner)
            sent[name].append(value)

    async def go_on(dies_at: int | None) -> None:
        """Take the run up if it can go on, while messages come; its store is gone after some writes."""
        store = FaultyStore(inner)

        async def before(write: Write) -> None:
            if dies_at is not None and write.number >= dies_at:
                raise gone()
            written.append(write.key)
            if (name := arrives.get(len(written))) is not None:
                await send(name)

        store.before = before
        with suppress(RunStoreUnavailable):
            await door.recover(store=store)
            await door.wake(store=store)

    await door.execute(run_id="r", store=inner)
    for what, name, number in acts:
        if what == "send":
            await send(name)
        else:
            await go_on(number if what == "die" else None)
    wanted = {name: sum(names.count(name) for names in steps) for name in NAMES}
    for name in NAMES:
        while len(sent[name]) < wanted[name]:
            await send(name)
    for _ in range(sum(wanted.values()) + 2):
        await go_on(None)
    trace = await RunHistory(inner).trace("r")
    assert trace.status == "finished", trace.explain()
    taken = [fact for fact in trace.entries if isinstance(fact, WaitEnded)]
    for name in NAMES:
        values = [fact.value for fact in taken if fact.wait.name == name]
        assert values == list(range(wanted[name])), f"{name}: {values}\n{trace.explain()}"
    assert len({fact.number for fact in taken}) == len(taken) == len({fact.wait.id for fact in taken})
    outputs = [list(output.get(name, [])) for output in trace.outputs.values() for name in NAMES]
    assert all(one == sorted(one) for one in outputs)

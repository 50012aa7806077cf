"""Flows: async functions as runs that can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.agents import paid_agent
from support.interruptions import RUN, DyingStore, nth
from support.virtual_time import in_virtual_time

from fastroai import FastroAgent, Pipeline, StepContext, budget_scope, compute, step
from fastroai.errors import ConfigurationError, RunStoreUnavailable
from fastroai.functions import parallel
from fastroai.functions.configuring import configured
from fastroai.functions.errors import CompileError, FlowDiverged
from fastroai.functions.flow_runs.flows import flow
from fastroai.runtime.facts import CallEnded
from fastroai.steps import PipelineConfig
from fastroai.store import MemoryRunStore, RunHistory, trace_of
from fastroai.usage import Budget


class Calls:
    """Functions of code that count how often they run."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def function(
        self, name: str, does: Callable[[str], str] = lambda text: text
    ) -> Callable[[str], Awaitable[str]]:
        async def declared(text: str) -> str:
            self.made.append(f"{name}({text})")
            return does(text)

        declared.__name__ = name
        return compute(declared)


async def test_a_flow_gives_back_what_its_body_returns() -> None:
    @flow
    async def double(number: int, times: int = 2) -> int:
        return number * times

    assert await double(4) == 8
    assert await double(number=4, times=3) == 12
    assert await double.run(4, run_id="r") == 8
    assert await double.execute({"number": 4}) == 8
    assert double.__name__ == "double"


async def test_a_body_that_calls_otherwise_diverges_before_anything_is_called() -> None:
    calls = Calls()
    one, two = calls.function("one"), calls.function("two")
    suffix = ""

    @flow
    async def both(text: str) -> str:
        return await one(text + suffix) + await two(text)

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await both.run("a", run_id=RUN, store=DyingStore(store, nth(CallEnded, 2)))
    suffix = "!"
    calls.made[:] = []
    with pytest.raises(
        FlowDiverged, match=r"called one\(text='a'\) before it was resumed, and now calls one\(text='a!'\)"
    ):
        await both.resume(RUN, store=store)
    assert calls.made == []
    suffix = ""
    assert await both.resume(RUN, store=store) == "aa"


async def test_a_nested_flow_is_a_part_of_the_run_around_it() -> None:
    calls = Calls()
    one = calls.function("one")

    @flow
    async def inner(text: str) -> str:
        return await one(text)

    @flow
    async def outer(text: str) -> str:
        first, second = await asyncio.gather(inner(text), inner(text + text))
        return first + second + await one(text)

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await outer.run("a", run_id=RUN, store=DyingStore(store, nth(CallEnded, 3)))
    assert await outer.resume(RUN, store=store) == "aaaa"
    assert sorted(calls.made) == ["one(a)", "one(a)", "one(a)", "one(aa)"]
    trace = await RunHistory(store).trace(RUN)
    assert [one.flow for one in trace.calls] == ["inner", "inner", "outer"]
    assert {one.parent_flow_id for one in trace.calls} == {RUN, ""}
    assert len({one.flow_id for one in trace.calls}) == 3


async def test_equal_calls_are_told_apart_by_their_ordinal_and_others_by_their_inputs() -> None:
    one = Calls().function("one")

    @step
    async def work(ctx: StepContext[None]) -> list[str]:
        return list(await asyncio.gather(*map(one, "aba")))

    result = await Pipeline("p", {"work": work}).execute(store=MemoryRunStore())
    places = [fact.place for fact in result.trace.entries if isinstance(fact, CallEnded)]
    first, second, again = places
    assert again == f"{first}.2"
    assert first != second
    assert all(place.startswith("work@1/one#") for place in places)


async def test_a_flow_in_a_step_joins_its_run() -> None:
    @flow
    async def inner(text: str) -> str:
        return text * 2

    @step
    async def work(ctx: StepContext[None]) -> str:
        return await inner("ab")

    result = await Pipeline(
        "p", {"work": work, "flow": inner.as_step(lambda ctx: {"text": "x"})}, {"flow": ["work"]}
    ).execute(store=MemoryRunStore())
    assert result.step_outputs == {"work": "abab", "flow": "xx"}


async def test_the_store_of_the_configuration_keeps_flows() -> None:
    @flow
    async def double(number: int) -> int:
        return number * 2

    store = MemoryRunStore()
    with configured(store=store):
        await double.run(2, run_id="r")
    assert (await RunHistory(store).state("r")).status == "finished"


def test_a_flow_that_is_not_async_is_refused() -> None:
    with pytest.raises(CompileError, match="must be async"):

        @flow  # type: ignore[arg-type]
        def double(number: int) -> int:
            return number * 2


def test_a_parameter_with_the_name_of_an_option_is_refused() -> None:
    with pytest.raises(CompileError, match="parameter 'store' has the name of an option"):

        @flow
        async def double(store: int) -> int:
            return store * 2


async def test_side_by_side_calls_may_come_in_another_order() -> None:
    calls = Calls()
    one = calls.function("one")
    texts = ["a", "b", "a"]

    @flow
    async def three(text: str) -> list[str]:
        found = await asyncio.gather(*map(one, texts))
        return [*sorted(found), await one("last")]

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await three.run("a", run_id=RUN, store=DyingStore(store, nth(CallEnded, 3), written=True))
    texts.reverse()
    texts[0], texts[1] = texts[1], texts[0]
    calls.made[:] = []
    assert await three.resume(RUN, store=store) == ["a", "a", "b", "last"]
    assert calls.made == ["one(last)"]


async def test_a_body_that_catches_its_divergence_does_not_end_as_if_nothing_had_happened() -> None:
    calls = Calls()
    one = calls.function("one")
    suffix = ""

    @flow
    async def caught(text: str) -> str:
        try:
            await one(text + suffix)
        except FlowDiverged:
            return "caught"
        return await one("last")

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await caught.run("a", run_id=RUN, store=DyingStore(store, nth(CallEnded, 2)))
    suffix = "!"
    with pytest.raises(FlowDiverged):
        await caught.resume(RUN, store=store)


async def test_a_nested_flow_with_other_inputs_diverges_before_anything_is_called() -> None:
    calls = Calls()
    one = calls.function("one")
    suffix = ""

    @flow
    async def nested(text: str) -> str:
        return await one(text)

    @flow
    async def around(text: str) -> str:
        return await nested(text + suffix) + await one("last")

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await around.run("a", run_id=RUN, store=DyingStore(store, nth(CallEnded, 2)))
    suffix = "!"
    calls.made[:] = []
    with pytest.raises(
        FlowDiverged, match=r"called nested\(...\) before it was resumed, and now calls nested\(text='a!'\)"
    ):
        await around.resume(RUN, store=store)
    assert calls.made == []
    suffix = ""
    assert await around.resume(RUN, store=store) == "alast"
    assert calls.made == ["one(last)"]


async def test_a_nested_flow_that_was_begun_beside_the_body_may_come_later() -> None:
    calls = Calls()
    one = calls.function("one")

    @flow
    async def nested(text: str) -> str:
        return await one(text)

    @flow
    async def around(text: str) -> str:
        beside = asyncio.create_task(nested(text))
        first = await one("first")
        return first + await beside

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await around.run("a", run_id=RUN, store=DyingStore(store, nth(CallEnded)))
    assert await around.resume(RUN, store=store) == "firsta"


async def test_side_by_side_changed_inputs_diverge_when_the_body_ends_which_can_be_put_right() -> None:
    calls = Calls()
    one = calls.function("one")
    suffix = ""

    @flow
    async def both(text: str) -> str:
        found = await asyncio.gather(one(text), one(f"{text}{text}{suffix}"))
        return "".join(found) + (await one("last") if not suffix else "")

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await both.run("a", run_id=RUN, store=DyingStore(store, nth(CallEnded, 3)))
    suffix = "!"
    with pytest.raises(
        FlowDiverged, match=r"called one\(text='aa'\) before it was resumed, and now calls one\(text='aa!'\)"
    ):
        await both.resume(RUN, store=store)
    suffix = ""
    calls.made[:] = []
    assert await both.resume(RUN, store=store) == "aaalast"
    assert "one(aa)" not in calls.made


async def test_after_a_failure_the_second_choice_of_a_body_need_not_be_called_again() -> None:
    calls = Calls()
    fails = True

    def work(text: str) -> str:
        if fails:
            raise LookupError("no such thing")
        return text

    first, second, last = (
        calls.function("first", work),
        calls.function("second", work),
        calls.function("last"),
    )

    @flow
    async def nested(text: str) -> str:
        return await second(text)

    @flow
    async def either(text: str) -> str:
        try:
            found = await first(text)
        except LookupError:
            found = await (nested(text) if text == "b" else second(text))
        return found + await last(text)

    store = MemoryRunStore()
    for text in ("a", "b"):
        fails = True
        with pytest.raises(LookupError):
            await either.run(text, run_id=text, store=store)
        fails = False
        assert await either.resume(text, store=store) == text * 2


async def test_a_call_in_code_that_failed_is_not_paid_again_when_the_code_runs_again() -> None:
    calls = Calls()
    fails = True

    def second(text: str) -> str:
        if fails:
            raise LookupError("no such thing")
        return text

    first, then = calls.function("first"), calls.function("then", second)

    @flow
    async def inner(text: str) -> str:
        return await first(text) + await then(text)

    @flow
    async def outer(text: str) -> str:
        return await inner(text)

    store = MemoryRunStore()
    with pytest.raises(LookupError):
        await outer.run("a", run_id=RUN, store=store)
    fails = False
    assert await outer.resume(RUN, store=store) == "aa"
    assert calls.made == ["first(a)", "then(a)", "then(a)"]


async def test_an_error_of_a_flow_has_the_trace_of_its_run_whoever_s_error_it_is() -> None:
    @flow
    async def inner(text: str) -> str:
        raise ValueError(text)

    @flow
    async def outer(text: str) -> str:
        return await inner(text)

    with pytest.raises(ValueError, match="no good") as raised:
        await outer.run("no good", run_id="r")
    trace = trace_of(raised.value)
    assert trace is not None
    assert (trace.run_id, trace.pipeline, trace.status) == ("r", "outer", "failed")


class AtOnce:
    """Counts how many calls run at once."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def __call__(self, prompt: str = "") -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(1)
        self.running -= 1
        return "done"


@in_virtual_time
async def test_max_concurrency_bounds_all_calls_of_the_body_of_a_flow_but_not_those_inside_of_these() -> None:
    at_once, inside = AtOnce(), AtOnce()
    agent = paid_agent(1, before=at_once)

    @compute
    async def twice(number: int) -> str:
        at_once.running += 1
        at_once.most = max(at_once.most, at_once.running)
        await asyncio.gather(leaf(number), leaf(-number))
        at_once.running -= 1
        return "done"

    @compute
    async def leaf(number: int) -> str:
        return await inside()

    @flow
    async def nested(number: int) -> str:
        return await twice(number)

    @flow(config=PipelineConfig(max_concurrency=2))
    async def wide() -> int:
        async with budget_scope(Budget(usd=1)):
            asked = [agent.run(str(number)) for number in range(3)]
            await asyncio.gather(*asked, *(twice(number) for number in range(1, 4)))
        await parallel(*(nested(number) for number in range(4, 8)))
        return at_once.most

    assert await wide() == 2
    assert inside.most == 4
    assert await wide() == 2, "each run counts for itself"


@in_virtual_time
async def test_a_call_while_the_body_reads_a_stream_waits_for_no_slot_that_the_stream_has() -> None:
    async def speaks(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three ", "four"):
            await asyncio.sleep(1)
            yield word

    agent, inside = FastroAgent(FunctionModel(stream_function=speaks)), AtOnce()

    @compute
    async def leaf(number: int) -> str:
        return await inside()

    @flow(config=PipelineConfig(max_concurrency=1))
    async def reads() -> list[str]:
        found: list[str] = []
        async with agent.run_stream("hello") as stream:
            async for text in stream.stream_text():
                found += [text, await leaf(len(found))]
        return found

    async with asyncio.timeout(60):
        assert (await reads()).count("done") > 1


def test_a_flow_has_no_on_error() -> None:
    with pytest.raises(ConfigurationError, match=r"on_error='continue'.*Catch the exception in its body"):

        @flow(config=PipelineConfig(on_error="continue"))
        async def carries_on() -> str:
            return ""

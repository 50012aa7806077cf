"""Values that nodes change in place: each node has copies of its own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from fastroai import MemoryRunStore, StepContext, step
from fastroai.graphs import Edge, Graph, Node


class Draft(BaseModel):
    lines: list[str] = []


@dataclasses.dataclass(frozen=True)
class Frozen:
    lines: list[str]


class Pair(NamedTuple):
    lines: list[str]
    price: Decimal


def lines_of(value: Any) -> list[str]:
    """The list somewhere in one of the values below."""
    while not isinstance(value, list) or isinstance(value[0] if value else "", list):
        match value:
            case dict():
                value = value["lines"]
            case list() | tuple():
                value = value[0]
            case _:
                value = value.lines
    return value


VALUES: list[Any] = [
    [],
    {"lines": []},
    {"lines": {"lines": ([],)}},
    [[]],
    Draft(lines=[]),
    Frozen([]),
    Pair([], Decimal(1)),
    defaultdict(list, {"lines": []}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_branch_does_not_see_what_another_changes_in_place(value: Any) -> None:
    @step
    async def make(ctx: StepContext) -> object:
        return value

    @step
    async def add(ctx: StepContext) -> object:
        for one in (ctx.get_input("make"), ctx.get_dependency("make"), ctx.inputs["make"]):
            lines_of(one).append(ctx.step_id)
        await asyncio.sleep(0)
        return list(lines_of(ctx.get_dependency("make")))

    @step
    async def join(ctx: StepContext) -> object:
        return [ctx.get_input("b"), ctx.get_input("c"), lines_of(ctx.get_input("make"))]

    nodes = {"make": make, "b": add, "c": add, "join": join}
    edges = [Edge("make", "b"), Edge("make", "c"), Edge("b", "join"), Edge("c", "join")]
    result = await Graph("g", nodes=nodes, edges=edges).run()
    assert result.output == [["b"], ["c"], []]
    assert lines_of(result.memory["make"]) == []


def counting(fails: bool) -> Graph[Any, Any]:
    @step
    async def make(ctx: StepContext) -> dict[str, list[str]]:
        return {"items": []}

    @step
    async def add(ctx: StepContext) -> None:
        ctx.get_input("items").append("b")

    @step(retries=0)
    async def tell(ctx: StepContext) -> object:
        if fails:
            raise RuntimeError("down")
        return ctx.get_input("items")

    nodes: dict[str, Any] = {"make": Node(make, writes=["items"]), "add": add, "tell": tell}
    return Graph(
        "g", nodes=nodes, edges=[Edge("make", "add", "on_success"), Edge("add", "tell", "on_success")]
    )


async def test_a_run_that_was_resumed_gives_what_one_gives_that_was_not() -> None:
    store = MemoryRunStore()
    live = await counting(fails=False).run()
    assert (await counting(fails=True).run(run_id="r", store=store)).status == "failed"
    resumed = await counting(fails=False).resume("r", store=store)
    assert live.output == resumed.output == []


async def test_another_attempt_begins_with_the_values_as_they_are() -> None:
    seen = []

    @step(retries=1, retry_delay=0)
    async def add(ctx: StepContext) -> None:
        items = ctx.get_input("items")
        seen.append(list(items))
        items.append(ctx.attempt)
        assert ctx.get_input("items") is items
        if ctx.attempt == 1:
            raise ConnectionError("not yet")

    given: list[int] = []
    assert (await Graph("g", nodes={"add": add}).run({"items": given})).ok
    assert (seen, given) == ([[], []], [])


async def test_objects_of_other_kinds_are_handed_on_as_they_are() -> None:
    class Client:
        pass

    client, known = Client(), {"client": [Client()]}

    @step
    async def look(ctx: StepContext) -> object:
        assert ctx.get_input("client") is client
        return ctx.get_input("known")["client"][0] is known["client"][0]

    assert (await Graph("g", nodes={"look": look}).run({"client": client, "known": known})).output is True


async def test_a_value_that_contains_itself_is_copied_as_such() -> None:
    loop: list[Any] = []
    loop.append(loop)

    @step
    async def look(ctx: StepContext) -> object:
        copy = ctx.get_input("loop")
        return copy is not loop and copy[0] is copy

    assert (await Graph("g", nodes={"look": look}).run({"loop": loop})).output is True


async def test_a_condition_reads_large_data_where_it_is() -> None:
    reads = 0

    class Item(dict[str, Any]):
        def items(self) -> Any:  # type: ignore[override]
            nonlocal reads
            reads += 1
            return super().items()

    many = [Item(n=n) for n in range(100)]

    @step
    async def turn(ctx: StepContext) -> dict[str, int]:
        return {"n": ctx.visit}

    @step
    async def make(ctx: StepContext) -> dict[str, Any]:
        return {"many": many}

    nodes = {"make": Node(make, writes=["many"]), "turn": Node(turn, writes=["n"]), "end": turn}
    edges = [
        Edge("make", "turn"),
        Edge("turn", "turn", "conditional", condition="len(many) > 3 and n < 5"),
        Edge("turn", "end", "always"),
    ]
    result = await Graph("g", nodes=nodes, edges=edges, entry="make").run()
    assert (result.visits["turn"], reads) == (5, 0)

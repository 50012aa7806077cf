"""Nodes that return `Send`s: what users see of it; `tests/graphs/scenarios/sends.yaml` has what happens."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic import JsonValue

from fastroai import Edge, Graph, Node, PipelineConfig, StepContext, step
from fastroai.errors import ConfigurationError
from fastroai.graphs import EdgesResolved, Send
from fastroai.pipelines import StepStarted
from fastroai.store import MemoryRunStore


@step
async def split(ctx: StepContext) -> list[Send]:
    return [Send("work", {"number": number}) for number in ctx.get_input("numbers")]


@step
async def work(ctx: StepContext) -> int:
    return int(ctx.get_input("number")) * 10


@step
async def total(ctx: StepContext) -> list[JsonValue]:
    return [ctx.get_input("work", None), ctx.get_input("number", "no number")]


def mapping(config: PipelineConfig | None = None, **nodes: Any) -> Graph[None, Any, Any]:
    return Graph(
        "mapping",
        nodes={"split": split, "work": work, "total": total, **nodes},
        edges=[Edge("split", "work", "send"), Edge("work", "total")],
        reducers={"work": "append"},
        config=config,
    )


# --- what is sent ---


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
@pytest.mark.parametrize(("numbers", "expected"), [([], None), ([3], [30]), ([3, 1, 2], [30, 10, 20])])
async def test_what_was_sent_comes_together_in_the_order_in_which_it_was_returned(
    store: MemoryRunStore | None, numbers: list[int], expected: list[int] | None
) -> None:
    result = await mapping().run({"numbers": numbers}, store=store)
    assert result.output == [expected, "no number"], "inputs are those of the branch alone"
    assert result.visits.get("work", 0) == len(numbers)
    assert "split" not in result.memory, "what is sent is nothing to write"
    assert result.outputs["split"] == [Send("work", {"number": number}) for number in numbers]


async def test_a_tuple_and_outputs_without_a_declared_type_are_sent_too() -> None:
    @step
    async def untyped(ctx: StepContext):  # type: ignore[no-untyped-def]
        return (Send("work", {"number": 1}),)

    @step
    async def typed(ctx: StepContext) -> tuple[Send, ...]:
        return (Send("work", {"number": 1}),)

    assert (await mapping(split=typed).run(store=MemoryRunStore())).output == [[10], "no number"]
    assert (await mapping(split=untyped).run()).output == [[10], "no number"]


async def test_a_node_that_reads_some_keys_reads_those_of_what_it_was_sent() -> None:
    @step
    async def look(ctx: StepContext) -> int:
        assert "numbers" not in ctx.inputs
        return int(ctx.get_input("number"))

    result = await mapping(work=Node(look, reads=["number"])).run({"numbers": [1, 2]})
    assert result.output == [[1, 2], "no number"]


async def test_what_one_branch_does_to_its_inputs_no_other_sees() -> None:
    shared: list[int] = []

    @step
    async def share(ctx: StepContext) -> list[Send]:
        return [Send("work", {"found": shared}) for _ in range(3)]

    @step
    async def change(ctx: StepContext) -> int:
        found: list[int] = ctx.get_input("found")
        found.append(1)
        return len(found)

    assert (await mapping(split=share, work=change).run()).output == [[1, 1, 1], "no number"]
    assert shared == []


async def test_a_value_that_is_no_json_fails_the_node_that_sends_it_to_a_run_on_record() -> None:
    @step(retries=0)
    async def send_objects(ctx: StepContext) -> list[Send]:
        return [Send("work", {"number": 1 + 2j})]

    @step
    async def look(ctx: StepContext) -> bool:
        return isinstance(ctx.get_input("number"), complex)

    graph = mapping(split=send_objects, work=look)
    assert (await graph.run()).output == [[True], "no number"]
    result = await graph.run(store=MemoryRunStore())
    assert "the output of node 'split'" in str(result.error)


async def test_a_codec_keeps_what_is_sent_from_the_store() -> None:
    class Reversed:
        def encode(self, payload: bytes) -> bytes:
            return payload[::-1]

        def decode(self, payload: bytes) -> bytes:
            return payload[::-1]

    store = MemoryRunStore()
    graph = mapping(PipelineConfig(store=store, codec=Reversed()))
    result = await graph.run({"numbers": [123]}, run_id="r")
    assert result.output == [[1230], "no number"]
    assert (await mapping(PipelineConfig(store=store, codec=Reversed())).resume("r")).output == result.output


async def test_values_that_one_key_loses_are_counted_in_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    graph = Graph[None, Any, Any](
        "mapping",
        nodes={"split": split, "work": work, "total": total},
        edges=[Edge("split", "work", "send"), Edge("work", "total")],
    )
    with caplog.at_level(logging.WARNING, "fastroai.graphs"):
        assert (await graph.run({"numbers": [1, 2, 3]})).output == [30, "no number"]
    assert "The value of 'work' was the last, that of 'work' (2 times) is overwritten." in caplog.text


# --- mistakes ---


async def failure_of(*sent: object, node: str = "split") -> str:
    @step(retries=0)
    async def wrong(ctx: StepContext) -> Any:
        return sent[0] if len(sent) == 1 else list(sent)

    result = await mapping(**{node: wrong}).run({"numbers": [1]})
    error = result.errors[node]
    assert isinstance(error, ConfigurationError)
    return str(error)


async def test_a_send_to_a_node_that_is_not_declared_names_both_and_what_is_declared() -> None:
    told = await failure_of(Send("work"), Send("wrk"))
    assert "target='wrk': expected a target of the send edges of node 'split'" in told
    assert "'work'; add Edge('split', 'wrk', when='send'). Did you mean 'work'?" in told
    assert "'total'" not in told


async def test_a_node_without_send_edges_sends_nothing() -> None:
    told = await failure_of(Send("total"), Send("total"), node="work")
    assert "send edges of node 'work', which are declared to: none" in told
    assert "node 'work'" in await failure_of(Send("total"), node="work")


@pytest.mark.parametrize("output", [None, "work", {"number": 1}, Send("work"), [Send("work"), "work"]])
async def test_a_node_with_send_edges_returns_a_list_of_sends(output: object) -> None:
    assert "expected a list of Send(...), as node 'split' has send edges" in await failure_of(output)


@pytest.mark.parametrize(("target", "inputs"), [(1, {}), ("work", [1]), ("work", {1: 2})])
def test_a_send_is_of_a_name_and_a_mapping(target: Any, inputs: Any) -> None:
    with pytest.raises(ConfigurationError):
        Send(target, inputs)


# --- what is told ---


async def test_explain_and_events_tell_what_was_sent() -> None:
    stream = mapping().stream({"numbers": [1, 2]})
    events = [event async for event in stream]
    started = [event for event in events if isinstance(event, StepStarted) and event.step_id == "work"]
    assert [(one.visit, one.branch, one.cause) for one in started] == [
        (1, "split#1/work[0]", "'split' has sent work[0]"),
        (2, "split#1/work[1]", "'split' has sent work[1]"),
    ]
    (edges,) = (
        event.edges for event in events if isinstance(event, EdgesResolved) and event.step_id == "split"
    )
    assert [(one.when, one.taken, one.why) for one in edges] == [("send", True, "'split' has sent 2 there")]
    assert "the send edge to 'work' is taken: 'split' has sent 2 there" in stream.result.explain()
    nothing = await mapping().run({"numbers": []})
    assert "the send edge to 'work' is not taken: 'split' has sent nothing there" in nothing.explain()
    assert "total: started, because 'split' has sent nothing" in nothing.explain()
    assert '-->|"send"|' in mapping().to_mermaid(stream.result)

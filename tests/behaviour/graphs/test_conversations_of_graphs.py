"""The conversation of a whole graph, live."""

from __future__ import annotations

from typing import Any

from fastroai import FastroAgent, MemoryRunStore, StepContext, step
from fastroai.graphs import AgentNode, Edge, Graph, Node
from fastroai.testing import ModelServer, Reply
from fastroai.testing.requests import ServedRequest


async def test_a_node_that_streams_hears_what_was_said_and_is_heard(server: ModelServer) -> None:
    requests: list[ServedRequest] = []

    @server.rule()
    def answer(request: ServedRequest) -> Reply:
        requests.append(request)
        return Reply(text=f"answer {len(requests)}")

    agent = FastroAgent(server.model("openai:gpt-5-mini"), name="agent", system_prompt="Be kind.")

    @step
    async def streams(ctx: StepContext[Any]) -> str:
        return "".join([chunk.content async for chunk in ctx.run_stream(agent, "second") if chunk.content])

    graph = Graph[Any, Any, str](
        "talk",
        nodes={"first": agent.as_step("first"), "streams": streams, "last": agent.as_step("third")},
        edges=[Edge("first", "streams"), Edge("streams", "last")],
    )
    store = MemoryRunStore()
    result = await graph.run(run_id="talk", store=store)

    assert result.output == "answer 3"
    assert [message.text for message in requests[1].messages if message.role == "assistant"] == ["answer 1"]
    assert [message.text for message in requests[2].messages if message.role == "assistant"] == [
        "answer 1",
        "answer 2",
    ]
    assert str(requests[2].body).count("Be kind.") == 1
    resumed = await graph.resume("talk", store=store)
    assert resumed.output == "answer 3"
    assert len(requests) == 3


async def test_an_agent_node_without_a_prompt_is_given_what_the_node_reads(server: ModelServer) -> None:
    asked: list[str] = []

    @server.rule()
    def answer(request: ServedRequest) -> Reply:
        asked.append(request.prompt)
        return Reply(text="a summary")

    agent = FastroAgent(server.model("openai:gpt-5-mini"))
    node = AgentNode(agent, judge="len(output) > 3", max_iterations=2)
    nodes = {"first": Node(node, reads=["ticket"]), "second": Node(node, writes=["done"])}
    graph = Graph("prompts", nodes=nodes, edges=[Edge("first", "second")], conversation="isolated")
    result = await graph.run({"ticket": "It is broken.", "order": {"id": 7}})

    assert result.memory["done"] == "a summary"
    assert asked == [
        "It is broken.",
        'ticket: It is broken.\norder: {\n  "id": 7\n}\nfirst: a summary',
    ]

"""Runs as server-sent events: complete, in order, without doubles, whatever process runs them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic_ai.models.function import FunctionModel
from support.patience import PATIENCE
from web.conftest import Build, Desk, fastapi_app, letters, serving

from fastroai import Edge, FastroAgent, Graph, RunHistory
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import (
    FailedAgentCall,
    RunFinished,
    RunStarted,
    StepCancelled,
    StepHalted,
    StepSkipped,
    Wait,
    WaitEnded,
    WaitStarted,
)
from fastroai.store import MemoryRunStore, SQLiteRunStore
from fastroai.testing import ModelServer, Reply
from fastroai.web import RunsHost, runs_router, shown_to_clients


@dataclass(frozen=True)
class Event:
    name: str
    data: dict[str, Any]
    id: int | None


async def events_of(
    client: httpx2.AsyncClient, run_id: str, after: int | None = None, **query: Any
) -> AsyncGenerator[Event]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    path = f"/letters/runs/{run_id}/events"
    async with client.stream("GET", path, headers=headers, params=query) as response:
        if response.status_code == 204:
            return
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "data" in fields:
                number = fields.get("id")
                yield Event(
                    fields["event"], json.loads(fields["data"]), None if number is None else int(number)
                )
                fields = {}


async def all_of(client: httpx2.AsyncClient, run_id: str, after: int | None = None) -> list[Event]:
    return [event async for event in events_of(client, run_id, after)]


async def test_a_client_sees_every_fact_once_and_the_result_at_the_end(client: httpx2.AsyncClient) -> None:
    await client.put("/letters/runs/l1?wait=30", json={"text": "hello"})
    *facts, state = await all_of(client, "l1")
    kinds = [fact.data["kind"] for fact in facts]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_finished"
    assert kinds.count("step_finished") == 3
    assert [fact.id for fact in facts] == sorted(fact.data["position"] for fact in facts)
    assert (state.name, state.data["output"]) == ("state", "HELLO x1")
    assert state.data["position"] == facts[-1].id


async def test_a_client_that_reconnects_misses_nothing_and_sees_nothing_twice(
    client: httpx2.AsyncClient, desk: Desk
) -> None:
    desk.may_write.clear()
    await client.put("/letters/runs/l1", json={"text": "hello"})
    seen: list[Event] = []
    async with aclosing(events_of(client, "l1")) as events:
        async for event in events:
            seen.append(event)
            if event.data.get("step_id") == "write":
                break  # the connection drops
    desk.may_write.set()
    seen += await all_of(client, "l1", after=seen[-1].id)
    whole = await all_of(client, "l1")
    assert [event.id for event in seen] == [event.id for event in whole]
    assert await all_of(client, "l1", after=whole[-2].id) == []


async def test_a_position_that_is_not_there_is_refused(client: httpx2.AsyncClient) -> None:
    await client.put("/letters/runs/l1?wait=30", json={"text": "hello"})
    for query in ("after=99", "after=-1", "after=x"):
        assert (await client.get(f"/letters/runs/l1/events?{query}")).status_code in (400, 422)


async def test_a_stream_lasts_while_a_person_thinks(client: httpx2.AsyncClient) -> None:
    asked = (await client.put("/letters/runs/l1?wait=30", json={"text": "doubtful"})).json()
    states: list[str] = []
    async with aclosing(events_of(client, "l1")) as events:
        async for event in events:
            if event.name == "state":
                states.append(event.data["status"])
                if event.data["status"] == "paused":
                    answer = {"question": asked["questions"][0]["key"], "value": True}
                    await client.post("/letters/runs/l1/answers", json=answer)
    assert states[0] == "paused"
    assert states[-1] == "finished"


async def test_a_client_that_leaves_cancels_the_run_only_if_told_to(
    client: httpx2.AsyncClient, desk: Desk
) -> None:
    desk.may_write.clear()
    for run_id, query in (("stays", {}), ("goes", {"cancel_on_disconnect": True})):
        await client.put(f"/letters/runs/{run_id}", json={"text": "hello"})
        async with aclosing(events_of(client, run_id, **query)) as events:
            await anext(events)
    assert (await client.get("/letters/runs/goes?wait=30")).json()["status"] == "cancelled"
    assert (await client.get("/letters/runs/stays")).json()["status"] == "running"
    desk.may_write.set()
    assert (await client.get("/letters/runs/stays?wait=30")).json()["status"] == "finished"


async def test_streams_are_told_to_come_back_when_their_process_ends(
    build: Build, host: RunsHost[None], desk: Desk, tmp_path: Path
) -> None:
    """The step that is running finishes, and another process goes on: without the interrupted client."""
    desk.may_write.clear()
    seen: list[Event] = []
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(serving(build(host)))
        await client.put("/letters/runs/l1", json={"text": "hello"})

        async def follow() -> None:
            async for event in events_of(client, "l1"):
                seen.append(event)

        following = asyncio.create_task(follow())
        while not any(event.data.get("step_id") == "write" for event in seen):
            await asyncio.sleep(0.01)
        asyncio.get_running_loop().call_later(1.0, desk.may_write.set)
    async with asyncio.timeout(PATIENCE):
        await following
    assert seen[-1].name == "reconnect"

    other = RunsHost(letters(desk, tmp_path / "runs.db"), every=0.05)
    async with serving(build(other)) as client:
        seen = seen[:-1] + await all_of(client, "l1", after=seen[-2].id)
        assert seen[-1].data["output"] == "HELLO x1"
        assert desk.calls.count("write") == 1
        whole = await all_of(client, "l1")
        assert [event.id for event in seen] == [event.id for event in whole]


def writing(store: SQLiteRunStore, model_server: ModelServer) -> Pipeline[Any, Any, Any]:
    agent = FastroAgent(model_server.model("openai:gpt-5-mini"))

    @step
    async def write(ctx: StepContext) -> str:
        text = ""
        async with ctx.run_stream(agent, "Write") as stream:
            async for chunk in stream:
                text += chunk.content
        return text

    return Pipeline("letters", {"write": write}, config=PipelineConfig(store=store))


async def text_seen(client: httpx2.AsyncClient) -> tuple[str, str, int]:
    """The text that a client puts together, the output, and the number of pieces."""
    draft, pieces = "", 0
    async for event in events_of(client, "l1"):
        if event.name == "text":
            draft, pieces = draft[: event.data["at"]] + event.data["text"], pieces + 1
        elif event.name == "state":
            return draft, event.data["output"], pieces
    raise AssertionError("the stream ended without the result")


async def test_text_is_seen_while_it_is_written_in_whatever_process(
    model_server: ModelServer, tmp_path: Path
) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    model_server.script(Reply(words, chunk_delay=0.05))
    hosts = [
        RunsHost(writing(SQLiteRunStore(tmp_path / "runs.db"), model_server), every=60) for _ in range(2)
    ]
    apps = []
    for host in hosts:
        app = fastapi_app(host)
        apps.append(app)
    async with serving(apps[0]) as here, serving(apps[1]) as there:
        await here.put("/letters/runs/l1", json={})
        for draft, output, pieces in await asyncio.gather(text_seen(here), text_seen(there)):
            assert output == words
            assert draft
            assert words.startswith(draft)
            assert pieces > 1
    assert not [key async for key in _keys(hosts[0], "text:")]


async def _keys(host: RunsHost[Any], prefix: str) -> AsyncGenerator[str]:
    for found in await host.store.list(prefix):
        yield found.key


async def test_a_slow_reader_holds_nothing_in_memory(host: RunsHost[None], tmp_path: Path) -> None:
    """A reader that reads nothing stops the stream at the buffers of the connection."""
    read: list[Fact] = []

    def shown(fact: Fact) -> dict[str, Any]:
        read.append(fact)
        return {"kind": fact.kind, "padding": "x" * 100_000}

    steps = {f"s{number}": _nothing() for number in range(200)}
    many = Pipeline("many", steps, output_step="s0", config=PipelineConfig(store=host.store))
    await many.run(run_id="m1")
    read.clear()
    app = fastapi_app(host)
    app.include_router(runs_router(RunsHost(many), show=shown), prefix="/many")
    async with serving(app) as client, client.stream("GET", "/many/runs/m1/events") as response:
        lines = response.aiter_lines()
        await anext(lines)
        count = -1
        while count != len(read):
            count = len(read)
            await asyncio.sleep(0.3)
        assert 0 < count < 200  # of more than 400


def _nothing() -> Any:
    @step
    async def nothing(ctx: StepContext) -> int:
        return 1

    return nothing


async def test_a_run_that_is_deleted_ends_its_streams(
    client: httpx2.AsyncClient, host: RunsHost[None]
) -> None:
    await client.put("/letters/runs/l1?wait=30", json={"text": "doubtful"})
    names: list[str] = []
    async for event in events_of(client, "l1"):
        names.append(event.name)
        if event.name == "state":
            await host.history.delete("l1")
    assert names[-1] == "gone"


@pytest.mark.parametrize("prefix", ["", "/behind/a/proxy"])
async def test_routes_work_under_a_path_of_a_proxy(host: RunsHost[None], prefix: str) -> None:
    async with serving(fastapi_app(host), root_path=prefix) as client:
        run = await client.put("/letters/runs/l1?wait=30", json={"text": "hello"})
        assert run.json()["output"] == "HELLO x1"
        missing = await client.get("/letters/runs/l9")
        assert missing.json()["instance"] == f"{prefix}/letters/runs/l9"


@pytest.mark.parametrize(
    "fact",
    [
        StepSkipped(step_id="write", cause="the secret of the house"),
        StepCancelled(step_id="write", cause="the secret of the house"),
        StepHalted("write", (Wait(what="spend_limit", id="w", why="the secret of the house"),)),
        WaitStarted("write", Wait(what="spend_limit", id="w", why="the secret of the house")),
        WaitEnded("write", Wait(what="message", id="w"), number=1, value="the secret of the house"),
        RunFinished(
            step_id="write",
            status="failed",
            failed_calls=(FailedAgentCall(place="write@1", call="secret#1", attempt=1),),
        ),
    ],
)
def test_what_is_for_the_people_who_run_the_service_is_not_for_clients(fact: Fact) -> None:
    shown = shown_to_clients(fact)
    assert shown is not None
    assert shown["step_id"] == "write"
    assert "secret" not in str(shown)


def test_the_run_from_which_a_run_was_forked_is_not_for_clients() -> None:
    shown = shown_to_clients(RunStarted(definition={}, inputs={"topic": "tea"}, forked_from="secret.l1"))
    assert shown is not None
    assert shown["inputs"] == {"topic": "tea"}
    assert "secret" not in str(shown)


async def test_why_a_model_could_not_choose_an_edge_is_not_for_clients() -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("the secret of the house")

    @step
    async def node(ctx: StepContext) -> dict[str, str]:
        return {"failure": "of a node", "why": "by the user"}

    edges = [Edge("a", "b", "llm_decide"), Edge("a", "c", "llm_decide", fallback=True)]
    decider = FastroAgent(FunctionModel(broken))
    graph: Graph[Any, Any] = Graph(
        "g", nodes={"a": node, "b": node, "c": node}, edges=edges, entry="a", decider=decider
    )
    store = MemoryRunStore()
    await graph.execute(run_id="r", store=store)
    shown = [shown_to_clients(fact) async for _, fact in RunHistory(store).follow("r")]
    assert "secret" not in str(shown)
    (resolved,) = [one for one in shown if one and one["kind"] == "edges_resolved"]
    assert [(edge["target"], edge["taken"]) for edge in resolved["edges"]] == [("b", False), ("c", True)]  # type: ignore[union-attr, call-overload, index]
    finished = {one["step_id"]: one["output"] for one in shown if one and one["kind"] == "step_finished"}
    assert finished["c"] == {"failure": "of a node", "why": "by the user"}
    assert finished["llm_decide(a)"] == {"target": "c", "reasoning": ""}

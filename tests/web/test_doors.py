"""All that has runs is served: graphs, routers and flows, with the inputs that each declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from web.conftest import serving

from fastroai.functions import flow
from fastroai.graphs import Graph
from fastroai.pipelines import BasePipeline, Pipeline, StepContext, step
from fastroai.store import SQLiteRunStore
from fastroai.testing import ModelServer, Reply
from fastroai.web import RunsHost, runs_router
from fastroai.workflows import Workflow


@step
async def shout(ctx: StepContext) -> str:
    return ctx.get_input("text", str).upper()


@flow
async def shouted(text: str, times: int = 1) -> str:
    return text.upper() * times


class Routed(BasePipeline[None, dict[str, Any], str]):
    async def route(self, inputs: dict[str, Any], deps: None) -> str:
        return "loud"


def router() -> Routed:
    routed = Routed("routed")
    routed.register_pipeline("loud", Pipeline("loud", {"shout": shout}))
    return routed


DOORS = {
    "graph": lambda: Graph(
        "shouting", nodes={"shout": shout}, edges=[], entry="shout", accepts={"text": str}
    ),
    "router": router,
    "flow": lambda: shouted,
}


@pytest.mark.parametrize("kind", DOORS)
async def test_every_kind_of_run_is_served(kind: str, tmp_path: Path) -> None:
    door: Any = DOORS[kind]()
    app = FastAPI()
    app.include_router(runs_router(RunsHost(door, store=SQLiteRunStore(tmp_path / "runs.db"))))
    async with serving(app) as client:
        begun = await client.put("/runs/r1?wait=30", json={"text": "a"})
        assert (begun.json()["status"], begun.json()["output"]) == ("finished", "A"), begun.text
        again = await client.put("/runs/r1?wait=30", json={"text": "a"})
        assert (again.status_code, again.json()) == (200, begun.json())


@pytest.mark.parametrize(
    ("inputs", "pointer"), [({}, "/text"), ({"text": 7}, "/text"), ({"text": "a", "times": "b"}, "/times")]
)
async def test_arguments_of_a_flow_are_checked_and_its_defaults_hold(
    inputs: dict[str, Any], pointer: str, tmp_path: Path
) -> None:
    app = FastAPI()
    app.include_router(runs_router(RunsHost(shouted, store=SQLiteRunStore(tmp_path / "runs.db"))))
    schema = app.openapi()["components"]["schemas"]["Accepted"]
    assert schema["required"] == ["text"]
    async with serving(app) as client:
        refused = await client.post("/runs", json=inputs)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == pointer


async def test_a_workflow_is_served_with_its_gate(model_server: ModelServer, tmp_path: Path) -> None:
    texts = ["Version 2.0 is out.", "To migrate, await run()."]
    model_server.script(*(Reply(data={"text": text, "breaking": ["run() is async"]}) for text in texts))
    spec = Path(__file__).parents[2] / "examples/release_notes.workflow.yaml"
    notes = Workflow.load(spec).bind(model=model_server.model("openai:gpt-5-mini"))
    app = FastAPI()
    app.include_router(runs_router(RunsHost(notes, store=SQLiteRunStore(tmp_path / "runs.db"), every=0.05)))
    async with serving(app) as client:
        refused = await client.post("/runs", json={"verison": "2.0"})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid-input"), refused.text
        waiting = (await client.put("/runs/r1?wait=30", json={"version": "2.0"})).json()
        assert (waiting["status"], waiting["code"]) == ("paused", "question")
        answer = {"question": waiting["questions"][0]["key"], "value": "approve", "reviewer": "Mia"}
        assert (await client.post("/runs/r1/answers", json=answer)).status_code == 202
        done = (await client.get("/runs/r1?wait=30")).json()
    assert (done["status"], done["requests"]) == ("finished", 2)
    assert done["output"]["text"] == texts[1]


async def test_a_graph_that_waits_for_an_answer_cannot_be_resumed_without_it(tmp_path: Path) -> None:
    @step
    async def ask(ctx: StepContext[None]) -> str:
        return "go on?"

    graph: Graph[None, Any] = Graph("g", nodes={"ask": ask}, edges=[], entry="ask", pause_nodes=["ask"])
    app = FastAPI()
    app.include_router(runs_router(RunsHost(graph, store=SQLiteRunStore(tmp_path / "runs.db"))))
    async with serving(app) as client:
        waiting = (await client.put("/runs/r1?wait=30", json={})).json()
        assert waiting["status"] == "paused", waiting
        refused = await client.post("/runs/r1/resume")
        assert (refused.status_code, refused.json()["code"]) == (409, "run-status")
        assert "the answer to a question" in refused.json()["detail"]

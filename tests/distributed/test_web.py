"""The web kit on runs that workers carry: started here, carried there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from support.carried import Notes, doors
from support.patience import PATIENCE
from support.viewing import TOKEN, signed_in

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.distributed import Distributed, QueueOptions
from fastroai.errors import ConfigurationError
from fastroai.testing import ModelServer, Reply
from fastroai.viewer import viewer
from fastroai.web import Caller, RunsHost, runs_router


@pytest.fixture
def url(tmp_path: Path) -> str:
    """One machine is enough here."""
    Notes.path = tmp_path / "notes"
    return str(tmp_path / "runs.db")


async def test_clients_start_answer_and_follow_runs_that_workers_carry(app: Distributed) -> None:
    service = FastAPI()
    people = next(door for door in doors() if door.name == "people")
    service.include_router(runs_router(RunsHost(people, workers=app)), prefix="/people")
    transport = httpx2.ASGITransport(app=service)
    client = httpx2.AsyncClient(transport=transport, base_url="http://test/people", timeout=PATIENCE)
    async with asyncio.timeout(PATIENCE), service.router.lifespan_context(service), client:
        began = await client.put("/runs/one", json={"number": 1})
        assert (began.status_code, began.json()["status"]) == (202, "queued")
        async with app.worker(every=0.05, graceful_timeout=1.0):
            waiting = (await client.get("/runs/one?wait=60")).json()
            assert waiting["status"] == "paused"
            (asked,) = waiting["questions"]
            given = {"question": asked["key"], "value": True}
            assert (await client.post("/runs/one/answers", json=given)).status_code == 202
            ended = (await client.get("/runs/one?wait=60")).json()
            assert (ended["status"], ended["output"]) == ("finished", "rested")
            events = (await client.get("/runs/one/events")).text
        assert json.loads(events.rpartition("data: ")[2])["status"] == "finished"
        assert (await client.get("/runs?status=finished")).json()["runs"][0]["id"] == "one"


async def test_text_that_a_worker_streams_reaches_a_client(
    url: str, name: str, model_server: ModelServer
) -> None:
    model_server.rule(None, lambda request: Reply("one two three four", chunk_size=4, chunk_delay=0.3))
    agent: FastroAgent[None, str] = FastroAgent(model_server.model("openai-chat:gpt-5-mini"))

    @step
    async def draft(ctx: StepContext[None]) -> str:
        return "".join([chunk.content async for chunk in ctx.run_stream(agent, "write")])

    letters = Pipeline("letters", {"draft": draft})
    async with Distributed(url, name=name) as app, asyncio.timeout(PATIENCE):
        app.register(letters)
        app.register_queue("default", QueueOptions(polling_interval_sec=0.05))
        service = FastAPI()
        host = RunsHost(letters, workers=app)
        service.include_router(runs_router(host))
        async with service.router.lifespan_context(service), app.worker(every=0.05):
            await host.start("one", {}, Caller())
            while not (texts := await host.texts("one")):
                await asyncio.sleep(0.05)
            assert "one two three four".startswith(texts["draft"])
            await app.handle("one").wait()


async def test_the_viewer_follows_a_run_from_its_queue_to_its_end(app: Distributed) -> None:
    await app.start("work", {"number": 1}, run_id="one")
    async with signed_in(viewer(app.store, token=TOKEN)) as browser, asyncio.timeout(PATIENCE):
        page = (await browser.get("/runs/one")).text
        assert "It waits for a worker" in page
        assert "hx-sse:connect" in page
        async with app.worker(every=0.05, graceful_timeout=1.0):
            await app.handle("one").wait()
        page = (await browser.get("/runs/one")).text
        assert "It waits for a worker" not in page
        assert "hx-sse:connect" not in page


async def test_what_workers_do_not_use_is_refused(app: Distributed, url: str) -> None:
    work = next(door for door in doors() if door.name == "work")
    options: list[dict[str, Any]] = [{"store": url}, {"reserve": "quote"}, {"deps_for": lambda run: None}]
    for option in options:
        with pytest.raises(ConfigurationError, match="which workers do not use"):
            RunsHost(work, workers=app, **option)
    with pytest.raises(ConfigurationError, match="deps_factory makes them in the worker"):
        await RunsHost(work, workers=app).start("one", {"number": 1}, Caller(deps="mine"))

"""The web kit beside an endpoint of FastAPI that calls a bare agent: requests, events, and open streams."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from benchmarks.measure import Row, timings
from fastroai import FastroAgent
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.store import MemoryRunStore, RunStore, SQLiteRunStore
from fastroai.web import RunsHost, runs_router

AT_ONCE, STREAMS, STEPS = 20, 300, 300
_ids = count()


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncGenerator[httpx2.AsyncClient]:
    """Serve an application on loopback, in this process: client and server both count."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        served = asyncio.create_task(server.serve([listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as client:
            yield client
        server.should_exit = True
        await served


def asking(store: RunStore) -> Pipeline[Any, Any, Any]:
    """A pipeline with one agent."""
    ask = FastroAgent(TestModel()).as_step(lambda ctx: ctx.get_input("text", str))
    return Pipeline("ask", {"ask": ask}, config=PipelineConfig(store=store))


async def requests_beside_a_bare_endpoint() -> AsyncIterator[Row]:
    """A run and its result in one request, in each store, beside a bare agent in a bare endpoint."""
    bare = Agent(TestModel())
    app = FastAPI()

    @app.post("/bare")
    async def run_bare(body: dict[str, str]) -> dict[str, str]:
        return {"output": (await bare.run(body["text"])).output}

    with tempfile.TemporaryDirectory() as folder:
        stores: dict[str, RunStore] = {
            "memory": MemoryRunStore(),
            "SQLite": SQLiteRunStore(Path(folder) / "r.db"),
        }
        for name, store in stores.items():
            app.include_router(runs_router(asking(store)), prefix=f"/{name}")
        async with serving(app) as client:

            async def ask_bare() -> None:
                (await client.post("/bare", json={"text": "hello"})).raise_for_status()

            async def ask(name: str) -> None:
                answer = await client.post(f"/{name}/runs?wait=60", json={"text": "hello"})
                assert answer.json()["status"] == "finished"

            async def at_once(what: Any) -> None:
                await asyncio.gather(*(what() for _ in range(AT_ONCE)))

            took = await timings(
                {
                    "bare": lambda: at_once(ask_bare),
                    "memory": lambda: at_once(lambda: ask("memory")),
                    "SQLite": lambda: at_once(lambda: ask("SQLite")),
                },
                rounds=10,
            )
        for name in stores:
            yield Row(
                f"a run over HTTP, {AT_ONCE} at once, {name}, beside a bare endpoint with a bare agent",
                took[name].each(AT_ONCE),
                took["bare"].each(AT_ONCE),
                took[name].cpu / took["bare"].cpu,
            )


async def events_and_open_streams() -> AsyncIterator[Row]:
    """What an event costs to send and to read, and what a stream costs while nothing happens."""
    may_end = asyncio.Event()

    @step
    async def nothing(ctx: StepContext) -> int:
        return 1

    @step
    async def wait(ctx: StepContext) -> int:
        await may_end.wait()
        return 1

    store = MemoryRunStore()
    config = PipelineConfig(store=store)
    many = Pipeline("many", {f"s{n}": nothing for n in range(STEPS)}, output_step="s0", config=config)
    waits = Pipeline("waits", {"wait": wait}, config=config)
    app = FastAPI()
    app.include_router(runs_router(RunsHost(many)), prefix="/many")
    app.include_router(runs_router(RunsHost(waits)), prefix="/waits")
    async with serving(app) as client:
        await client.put("/many/runs/m?wait=60", json={})

        async def read_all() -> None:
            async with client.stream("GET", "/many/runs/m/events") as events:
                async for _ in events.aiter_bytes():
                    pass

        took = await timings({"ours": read_all}, rounds=8)
        yield Row("an event of a run, sent and read", took["ours"].each(2 * STEPS + 2))
        await client.put("/waits/runs/w", json={})
        async with AsyncExitStack() as stack:
            for _ in range(STREAMS):
                opened = client.stream("GET", "/waits/runs/w/events")
                response = await stack.enter_async_context(opened)
                await anext(response.aiter_lines())
            await asyncio.sleep(3)  # until each looks for text as seldom as it does
            started = process_time()
            await asyncio.sleep(5)
            each = (process_time() - started) / 5 / STREAMS * 1e6
            yield Row("an open stream in which nothing happens, µs CPU a second", f"{each:,.0f} µs")
            may_end.set()


BENCHMARKS = (requests_beside_a_bare_endpoint, events_and_open_streams)

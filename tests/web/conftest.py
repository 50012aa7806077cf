"""Services on the web kit, on loopback, in the process of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Mount
from support.patience import PATIENCE

from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.store import SQLiteRunStore
from fastroai.web import Action, Caller, RunsHost, runs_router, runs_routes


class Letter(BaseModel):
    text: str
    copies: int = 1


@dataclass
class Desk:
    """What the steps of the pipeline of a test wait for."""

    may_write: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[str] = field(default_factory=list)


def letters(desk: Desk, path: Path) -> Pipeline[Any, Any, Any]:
    """A pipeline that reads, waits for a person, and writes."""

    @step
    async def read(ctx: StepContext) -> str:
        desk.calls.append("read")
        return ctx.get_input("text", str).upper()

    @step
    async def check(ctx: StepContext) -> str:
        if ctx.get_input("text", str) == "doubtful":
            await ctx.ask("Send it?", bool)
        return "checked"

    @step
    async def write(ctx: StepContext) -> str:
        desk.calls.append("write")
        await desk.may_write.wait()
        if ctx.get_input("text", str) == "broken":
            raise ValueError("the secret of the house")
        return f"{ctx.get_dependency('read', str)} x{ctx.get_input('copies', int)}"

    return Pipeline(
        "letters",
        {"read": read, "check": check, "write": write},
        {"check": ["read"], "write": ["read", "check"]},
        accepts=Letter,
        config=PipelineConfig(store=SQLiteRunStore(path)),
    )


def caller_in(headers: Any) -> Caller[None]:
    """Who asks, as headers say: the tenant, and what they may do."""
    if headers.get("x-tenant") == "nobody":
        raise HTTPException(401, "sign in first", {"WWW-Authenticate": "Bearer"})
    if headers.get("x-tenant") == "away":
        raise HTTPException(499, "gone")  # a status that is not registered
    may = headers.get("x-may")
    actions: Sequence[Action] | None = None if may is None else may.split(",")
    options: dict[str, Any] = {} if actions is None else {"actions": actions}
    return Caller(tenant=headers.get("x-tenant"), name=headers.get("x-name", ""), **options)


def fastapi_app(host: RunsHost[None]) -> FastAPI:
    async def caller(request: Request) -> Caller[None]:
        return caller_in(request.headers)

    app = FastAPI()
    app.include_router(runs_router(host, caller=caller), prefix="/letters")
    return app


def starlette_app(host: RunsHost[None]) -> Starlette:
    def caller(request: Request) -> Caller[None]:
        return caller_in(request.headers)

    routes = runs_routes(host, caller=caller)
    return Starlette(routes=[Mount("/letters", routes=routes)], lifespan=host.lifespan)


@asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    """Serve an application with uvicorn, and give a client of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on", **options))
        served = asyncio.create_task(server.serve([listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as client:
                yield client
                server.should_exit = True
                await served  # while the client is open: streams end before the server does
        finally:
            server.should_exit = True
            await served


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.may_write.set()
    return desk


@pytest.fixture
def host(desk: Desk, tmp_path: Path) -> RunsHost[None]:
    return RunsHost(letters(desk, tmp_path / "runs.db"), every=0.05)


Build = Callable[[RunsHost[None]], Any]


@pytest.fixture(params=[fastapi_app, starlette_app], ids=["fastapi", "starlette"])
def build(request: pytest.FixtureRequest) -> Build:
    made: Build = request.param
    return made


@pytest.fixture
async def client(build: Build, host: RunsHost[None]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the pipeline of the host, in both frameworks."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(serving(build(host)))

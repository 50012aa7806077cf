"""MCP servers of workflows in processes of their own, and clients of them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from pydantic import JsonValue

from fastroai.store import SQLiteRunStore
from fastroai.workflows.driven_flows import WorkflowRuns
from fastroai.workflows.server.app import workflow_server
from fastroai.workflows.server.context import ServerContext
from fastroai.workflows.server.user_files import sealing_key
from support.fork_server import forks

Flow = dict[str, Any]
"""An answer of a tool, as data."""


def environment(**more: str) -> dict[str, str]:
    """The environment of a server: this source tree, and the measuring of coverage if there is one."""
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("COV", "PYTHON", "FASTROAI"))
    }
    return {"PYTHONPATH": os.pathsep.join(sys.path), **kept, **more}


class Tools:
    """The tools of a server, as a client calls them."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: JsonValue) -> Flow:
        """Call `fastroai_<tool>`, and return its answer; the text of it must say the same."""
        result = await self.client.call_tool(f"fastroai_{tool}", arguments)
        (text,) = result.content
        assert isinstance(text, mcp_types.TextContent)
        assert result.structured_content == json.loads(text.text)
        assert result.is_error == (result.structured_content["status"] == "error")
        return result.structured_content


@asynccontextmanager
async def server_here(
    folder: Path,
    *,
    workspace: Path | None = None,
    clock: Callable[[], float] = time.time,
    trusts_client: bool = False,
    **of_client: Any,
) -> AsyncIterator[Tools]:
    """A server in this process. Those on one folder know of each other no more than processes do."""
    root = folder if workspace is None else workspace
    place = folder / "flows.db"
    store = SQLiteRunStore(place)
    runs = WorkflowRuns(store, workspace=root, clock=clock)
    server = workflow_server(ServerContext(runs, root, trusts_client), sealing_key(str(place)))
    try:
        async with Client(server, **of_client) as client:
            yield Tools(client)
    finally:
        await store.aclose()


@asynccontextmanager
async def stdio_server(
    folder: Path,
    *options: str,
    store: str = "flows.db",
    env: Mapping[str, str] = {},
    **of_client: Any,
) -> AsyncIterator[Tools]:
    """A server as clients start it, over the SDK's own transport."""
    arguments = ["-m", "fastroai.cli", "mcp", "--store", store, *options]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment(**env), cwd=folder)
    with (folder / "server.log").open("a") as log:
        async with Client(stdio_client(server, errlog=log), **of_client) as client:
            yield Tools(client)


class ForkedServer:
    """A server process that starts in milliseconds, as a fork of one that has imported all it needs.

    Its standard input and output are one socket, whose other end is here.
    """

    def __init__(
        self, folder: Path, *options: str, store: str = "flows.db", serves_http: bool = False
    ) -> None:
        """A server that `serves_http` has the socket as its standard error instead."""
        self.here, there = socket.socketpair()
        arguments = ["mcp", "--store", store, *options]
        streams = (2,) if serves_http else (0, 1)
        self.process = forks().Process(target=_serve, args=(there, streams, folder, arguments), daemon=True)
        self.process.start()
        there.close()

    def kill(self) -> None:
        """SIGKILL it."""
        self.process.kill()
        self.process.join()

    @asynccontextmanager
    async def tools(self, **of_client: Any) -> AsyncIterator[Tools]:
        """Call its tools. At the end the connection is closed, and so the server ends by itself."""
        try:
            async with Client(self._transport(), **of_client) as client:
                yield Tools(client)
        finally:
            self.here.close()
            await asyncio.to_thread(self.process.join, 10)
            self.kill()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection(sock=self.here, limit=2**26)
        incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            async with incoming:
                with suppress(anyio.BrokenResourceError, ConnectionError):
                    while line := await reader.readline():
                        message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                        await incoming.send(SessionMessage(message))

        async def write() -> None:
            async with outgoing:
                with suppress(ConnectionError):
                    async for message in outgoing:
                        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                        writer.write(f"{text}\n".encode())
                        await writer.drain()

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(write)
            try:
                yield received, sent
            finally:
                group.cancel_scope.cancel()
                received.close()
                sent.close()
                writer.close()


@asynccontextmanager
async def http_server(folder: Path, *options: str) -> AsyncIterator[str]:
    """A server on a free port of this machine; its URL."""
    server = ForkedServer(folder, "--http", "127.0.0.1:0", *options, serves_http=True)
    reader, writer = await asyncio.open_connection(sock=server.here)
    try:
        said = (await reader.readline()).decode()
        assert said.startswith("fastroai: serving http://127.0.0.1:"), said
        yield said.split()[-1]
    finally:
        server.process.terminate()
        await asyncio.to_thread(server.process.join, 10)
        server.kill()
        writer.close()


def _serve(connection: socket.socket, streams: Sequence[int], folder: Path, arguments: Sequence[str]) -> None:
    from fastroai.cli import main

    os.chdir(folder)
    for stream in streams:
        os.dup2(connection.fileno(), stream)
    connection.close()
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = ["fastroai", *arguments]
    main()


def answering(*decisions: tuple[str, dict[str, str] | None]) -> tuple[Any, list[str]]:
    """A user who answers questions with these actions and values, one after the other; and what was asked."""
    asked: list[str] = []

    async def answer(
        _: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        action, content = decisions[len(asked)]
        asked.append(params.message)
        return mcp_types.ElicitResult(action=action, content=content)  # type: ignore[arg-type]

    return answer, asked

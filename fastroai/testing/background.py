"""The thread of the model server, with its event loop and its HTTP server."""

import asyncio
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.types import Scope

_PATIENCE = 60.0
"""Maximum number of seconds that starting and stopping may take, on a busy machine."""


class BackgroundServer:
    """Serves an application from a thread of its own, until it is stopped."""

    def __init__(self, listener: socket.socket, make: Callable[[Callable[[Scope], None]], Starlette]) -> None:
        self._listener = listener
        config = uvicorn.Config(
            make(self._hang_up),
            # asyncio and h11 come with uvicorn. Other installed packages must not change how tests behave.
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            backlog=4096,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._run, name="fastroai-model-server", daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start, and wait until connections are accepted."""
        self._thread.start()
        if not self._server.ready.wait(_PATIENCE) or self._error:
            self._listener.close()
            raise RuntimeError("the model server did not start") from self._error

    def stop(self) -> None:
        """Stop, drop all connections, and wait for the end of the thread."""
        self._server.stop()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except BaseException as error:
            self._error = error
        finally:
            self._server.ready.set()

    def _hang_up(self, scope: Scope) -> None:
        for connection in self._server.server_state.connections:
            if connection.transport.get_extra_info("peername")[:2] == tuple(scope["client"]):
                connection.transport.close()


class _Server(uvicorn.Server):
    """A uvicorn server that an event stops, instead of polling ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop a server that is ready."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready.set()
        await self._stopping.wait()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

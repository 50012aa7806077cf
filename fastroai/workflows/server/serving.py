"""Serving over stdio, for one client, and over streamable HTTP, for several."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from fastroai.errors import ConfigurationError
from fastroai.workflows.server.context import ServerContext

PATH: Final = "/mcp"
"""Path of the server's URL."""

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_SECONDS_TO_END: Final = 5
"""Seconds that calls in progress may take when the server ends."""


@dataclass(frozen=True, slots=True)
class HttpPlace:
    """An address at which a server listens for streamable HTTP."""

    host: str
    port: int
    """Port; 0 for any free port."""
    names: tuple[str, ...]
    """The names by which clients may call the server; requests with other `Host` or `Origin` are refused."""

    @classmethod
    def of(cls, text: str, names: Sequence[str] = ()) -> HttpPlace:
        """Return the place that `host:port` names, such as `127.0.0.1:8321` or `[::1]:8321`.

        Raises:
            ConfigurationError: the text is no such address; or other machines can reach the address, and
                there are no `names`.
        """
        host, colon, digits = text.rpartition(":")
        if not (colon and host and digits.isascii() and digits.isdigit() and int(digits) < 2**16):
            raise ConfigurationError("--http", text, "HOST:PORT, as in 127.0.0.1:8321")
        is_local = host in _LOOPBACK
        if not (is_local or names):
            expected = (
                "a loopback address, or --allow-host with each name by which clients call this server. "
                "There is no authentication: everybody who reaches it can drive all flows"
            )
            raise ConfigurationError("--http", text, expected)
        return cls(host.strip("[]"), int(digits), (*names, *(_LOOPBACK if is_local else ())))

    def security(self) -> TransportSecuritySettings:
        """Return the checks that keep other web pages from calling the server through a browser."""
        hosts = [form for name in self.names for form in (name, f"{name}:*")]
        origins = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
        return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


async def serve_stdio(server: MCPServer[ServerContext]) -> None:
    """Serve the client that started this process, until it closes standard input."""
    # A thread waits for input and nothing can wake it, so an interrupt ends the process as a kill would:
    # everything on record stays, and the process holds nothing else.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    await server.run_stdio_async()


async def serve_http(server: MCPServer[ServerContext], place: HttpPlace) -> None:
    """Serve clients over streamable HTTP, until the process is told to end.

    Raises:
        ConfigurationError: the address is in use, or is not one of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        listening = socket.create_server((place.host, place.port), family=family)
    except OSError as error:
        at = f"{place.host}:{place.port}"
        raise ConfigurationError(
            "--http", at, f"a free address of this machine ({error.strerror})"
        ) from error
    app = server.streamable_http_app(
        streamable_http_path=PATH, transport_security=place.security(), host=place.host
    )
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_SECONDS_TO_END)
    host = f"[{place.host}]" if ":" in place.host else place.host
    with listening:
        print(f"fastroai: serving http://{host}:{listening.getsockname()[1]}{PATH}", file=sys.stderr)
        await uvicorn.Server(config).serve(sockets=[listening])


def log_to_stderr() -> None:
    """Write warnings to standard error as plain lines, since standard output belongs to the protocol."""
    logging.basicConfig(level=logging.WARNING, format="fastroai: %(message)s", stream=sys.stderr)

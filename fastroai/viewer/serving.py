"""Serving the viewer on this machine, for the people who have its link."""

from __future__ import annotations

import asyncio
import getpass
import secrets
import socket
import webbrowser
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from fastroai.errors import ConfigurationError, MissingExtraError
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.run_store import RunStoreLike
from fastroai.viewer.app import viewer

try:
    import uvicorn
except ImportError as error:
    raise MissingExtraError("the viewer", "viewer", "uvicorn") from error

if TYPE_CHECKING:
    from fastroai.runs.door import FrontDoor
    from fastroai.usage.shared.spend_store import SpendStore

HOST: Final = "127.0.0.1"
_SECONDS_TO_END: Final = 1
"""Seconds that pages in progress may take when the server ends. Streams never end by themselves."""


class Server(uvicorn.Server):
    """A server that tells its link as soon as it answers."""

    def __init__(self, config: uvicorn.Config, is_up: Callable[[], None]) -> None:
        super().__init__(config)
        self._is_up = is_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`."""
        await super().startup(sockets)
        self._is_up()


async def serve(
    store: RunStoreLike,
    *,
    spend: SpendStore | RunStoreLike | None,
    codec: PayloadCodec | None,
    runs: Iterable[FrontDoor[Any, Any, Any]],
    port: int,
    opens_browser: bool,
) -> None:
    """Serve the viewer on the loopback address until the process is told to end, and print its link.

    Raises:
        ConfigurationError: the port is in use.
    """
    token = secrets.token_urlsafe(32)
    app = viewer(store, spend=spend, codec=codec, token=token, name=_user(), runs=runs)
    with _listening(port) as listening:
        link = f"http://{HOST}:{listening.getsockname()[1]}/?token={token}"

        def is_up() -> None:
            print(f"the viewer: {link}\nCtrl-C ends it", flush=True)
            if opens_browser:  # in a thread, as some browsers answer only when they are closed
                asyncio.get_running_loop().run_in_executor(None, webbrowser.open, link)

        # No log of requests: the first one has the token.
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_SECONDS_TO_END,
        )
        await Server(config, is_up).serve(sockets=[listening])


def _listening(port: int) -> socket.socket:
    """Listen at a port of the loopback address; 0 is any free one. Raises `ConfigurationError`."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        expected = f"a free port, or 0 for any ({error.strerror})"
        raise ConfigurationError("--port", port, expected) from error
    except OverflowError as error:
        raise ConfigurationError("--port", port, "a number from 0 to 65535") from error


def _user() -> str:
    """Return the name of the user of this machine; empty if there is none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""

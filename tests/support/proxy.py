"""A TCP proxy that cuts connections where a test wants it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

CHUNK = 16_384

Break = Literal["refused", "unanswered", "silent"]
"""What becomes of an exchange: cut before the server hears of it, or instead of the answer; or the connection
stays open and nothing comes any more."""


class Proxy:
    """Forwards bytes between clients and a server, until it is told not to."""

    def __init__(self, connect: Callable[[], socket.socket], listener: socket.socket | None = None) -> None:
        self._connect = connect
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.down = False
        """Whether connections end at once."""
        self.bytes_up: int | None = None
        """How many more bytes reach the server, before the connection is cut."""
        self.cut_answers = 0
        """How many connections are cut instead of forwarding an answer."""
        self.exchanges = 0
        """How often a client has said something after the server had, or first, over all connections."""
        self.breaks: tuple[Break, range] = "refused", range(0)
        """What becomes of the exchanges with these numbers, from 1."""
        self._numbering = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections, as a server does that is stopped."""
        while self._open:
            hang_up(self._open.pop())

    def close(self) -> None:
        hang_up(self._listener)
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.down:
                    hang_up(client)
                    continue
                server = self._connect()
                self._open += (client, server)
                line = _Line()
                for way in (
                    (client, server, lambda count, line=line: self._allowed_up(count, line)),
                    (server, client, lambda count, line=line: self._allowed_down(count, line)),
                ):
                    threading.Thread(target=self._forward, args=(line, *way), daemon=True).start()

    def _forward(
        self,
        line: _Line,
        source: socket.socket,
        target: socket.socket,
        allowed: Callable[[int], int | None],
    ) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                count = allowed(len(data))
                if count is None:
                    continue
                target.sendall(data[:count])
                if count < len(data):
                    break
        hang_up(source)
        if line.broken != "silent":  # the other side does not even hear of that
            hang_up(target)

    def _allowed_up(self, count: int, line: _Line) -> int | None:
        """How many of these bytes go on; `None` if they are lost, and the connection stays."""
        if not line.is_asking:
            line.is_asking = True
            with self._numbering:
                self.exchanges += 1
                kind, numbers = self.breaks
                line.broken = kind if self.exchanges in numbers else line.broken
        if line.broken == "refused":
            return 0
        if self.bytes_up is None:
            return count
        allowed = min(count, self.bytes_up)
        self.bytes_up -= allowed
        return allowed

    def _allowed_down(self, count: int, line: _Line) -> int | None:
        if line.broken is not None:
            return None if line.broken == "silent" else 0
        line.is_asking = False
        if not self.cut_answers:
            return count
        self.cut_answers -= 1
        return 0


@dataclass
class _Line:
    """A connection of a client."""

    is_asking: bool = False
    """Whether the client has spoken last."""
    broken: Break | None = None


def hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


@contextmanager
def proxy_to(address: tuple[str, int] | str, listener: socket.socket | None = None) -> Iterator[Proxy]:
    """A proxy to a server at a host and port, or at the path of a Unix socket.

    It listens on a free port of this machine, unless a `listener` is given.
    """

    def connect() -> socket.socket:
        if isinstance(address, tuple):
            return socket.create_connection(address)
        line = socket.socket(socket.AF_UNIX)
        line.connect(address)
        return line

    proxy = Proxy(connect, listener)
    yield proxy
    proxy.close()

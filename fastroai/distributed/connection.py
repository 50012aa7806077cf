"""The application whose workers carry runs, as a process has it that starts, finds and stops runs."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, Final, Self

from fastroai.distributed.engine import EngineClient, places_of, stretch_id
from fastroai.distributed.reconciling import go_on_soon
from fastroai.distributed.roster import published_apps, read_roster
from fastroai.distributed.stretches import is_due, next_of
from fastroai.errors import ConfigurationError
from fastroai.human.inbox import Inbox
from fastroai.runs.door import FrontDoor
from fastroai.store.opening import open_run_store
from fastroai.store.reading.history import RunHistory
from fastroai.store.record.halting import release
from fastroai.store.record.headers import FoundHeader
from fastroai.store.record.payloads import PayloadCodec

_NAME: Final = re.compile("[a-z0-9_-]{3,100}")


class Connection:
    """The store and the queues of an application. `Client` starts runs through it, and handles use it."""

    def __init__(self, url: str, *, name: str | None = None, codec: PayloadCodec | None = None) -> None:
        """Prepare it. It connects when it is first used. The arguments are those of `Client`."""
        if name is not None:
            check_name(name)
        place, queues = places_of(url)
        self.codec = codec
        self.store = open_run_store(place)
        self.history = RunHistory(self.store, codec=codec)
        self.inbox = Inbox(self.store, codec=codec)
        self._engine = EngineClient(queues, name or "")

    @property
    def app(self) -> str:
        """The name of the application; empty if it is not known yet."""
        return self._engine.app

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this client. It opens new ones if you use it again."""
        await self._engine.aclose()
        if (close := getattr(self.store, "aclose", None)) is not None:
            await close()

    def door_of(self, name: str) -> FrontDoor[Any, Any, Any] | None:
        """Return the pipeline or graph of a name, if this process has its code.

        A plain client has no code, so it always returns `None`; `Distributed` returns what is registered.
        """
        return None

    async def go_on_soon(self, run_id: str) -> None:
        """Let a worker continue a run at once, if it is due; otherwise do nothing.

        If the store or the queues cannot be reached, a warning is logged, and a worker continues the run when
        it looks next.
        """
        await self._find_app()
        await go_on_soon(self.store, self._engine, run_id)

    async def release(self, run_id: str) -> None:
        """Let workers run a run again that was set aside because too many workers died with it.

        A free worker takes it at once. `RunHandle.release` uses this.

        Raises:
            RunNotFound: there is no such run.
            RunStatusConflict: it was not set aside.
        """
        await release(self.store, run_id)
        await self.go_on_soon(run_id)

    async def why_nobody_has(self, found: FoundHeader) -> str:
        """Return why no worker executes a run that is due or was set aside, as a text for people.

        `found` is what the store says of the run. The text is empty if a worker has the run or will soon, or
        if the run waits or has ended.
        """
        await self._find_app()
        routing = found.header.routing
        if routing is not None and routing.is_set_aside:
            return (
                f"{routing.deaths} workers in a row died while they ran it; release() lets workers run it "
                "again"
            )
        if routing is None or not is_due(found, self.app):
            return ""
        if routing.failure is not None:
            return f"it could not be started, and will be tried again: {routing.failure}"
        roster, name, queue = await read_roster(self.store, self.app), found.header.pipeline, routing.queue
        if not any(queue in worker.queues for worker in roster.workers):
            return f"no running worker takes runs from queue {queue!r}"
        if roster.version_for(name, routing.definition, queue) is not None:
            return ""
        stretch = stretch_id(found.header)
        if next_of(found, (await self._engine.rows([stretch])).get(stretch), roster).fate == "has one":
            return ""
        return f"no running worker has {name!r} in the version that this run has; start one that has"

    async def _find_app(self) -> None:
        """Take the name of the only application there, if none was given. Raises `ConfigurationError`."""
        if self.app:
            return
        apps = await published_apps(self.store)
        if len(apps) != 1:
            expected = f"one of {', '.join(apps)}" if apps else "a name: no worker has started"
            raise ConfigurationError("name", None, expected)
        self._engine.app = apps[0]


def check_name(name: str) -> None:
    """Refuse an invalid name of an application. Raises `ConfigurationError`."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        expected = "3 to 100 lower-case letters, digits, dashes and underscores"
        raise ConfigurationError("name", name, expected)

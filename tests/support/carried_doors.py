"""A front door whose runs a worker carries: the methods of a pipeline, by those of an application."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fastroai.distributed import Distributed, RunHandle


class CarriedDoor:
    """`run`, `resume` and so on start a run or go on with it, and wait for what becomes of it."""

    def __init__(self, app: Distributed, door: Any) -> None:
        self._app, self._door = app, door
        self._deps: object = None
        app.register(door, deps_factory=lambda run: self._deps)

    def replay(self, trace: Any) -> Any:
        return self._door.replay(trace)

    async def run(self, inputs: Any, deps: object = None, *, run_id: str, store: Any) -> Any:
        self._deps = deps
        return await _came_to(await self._app.start(self._door, inputs, run_id=run_id))

    async def resume(self, run_id: str, *, inputs: Any = None, deps: object = None, store: Any) -> Any:
        self._deps = deps
        handle = self._app.handle(run_id)
        await handle.resume(inputs=inputs)
        return await _came_to(handle)

    async def fork(self, run_id: str, *, at: str, inputs: Any, deps: object, store: Any) -> Any:
        self._deps = deps
        return await _came_to(await self._app.handle(run_id).fork(at=at, inputs=inputs))

    async def cancel(self, run_id: str, *, store: Any = None) -> None:
        await self._app.handle(run_id).cancel()

    async def get_state(self, run_id: str, *, store: Any) -> Any:
        return await self._app.handle(run_id).state()

    def follow(self, run_id: str, *, after: int = 0, store: Any) -> Any:
        return self._app.handle(run_id).follow(after=after)


async def _came_to(handle: RunHandle[Any]) -> Any:
    """The result of a run; of one that has not finished, what is on record of it."""
    state = await handle.wait()
    if state.status == "finished":
        return await handle.result()
    return SimpleNamespace(
        status=state.status, run_id=state.run_id, reason=state.finish and state.finish.reason
    )

"""A run that workers carry, as the processes see it that start it, wait for it and stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

from fastroai.distributed.connection import Connection
from fastroai.distributed.stretches import is_due
from fastroai.errors import ConfigurationError, FastroAIError, QuestionClosed, RunExists, RunInProgress
from fastroai.human.answers import answers_to, split_ref
from fastroai.records import Duration, Usage
from fastroai.rows.row_runs import RowRuns
from fastroai.runs.door import FrontDoor
from fastroai.runtime.concurrency.tasks import end_task
from fastroai.runtime.options import seconds_above_zero
from fastroai.store.reading.following import FollowedRun
from fastroai.store.record.definitions import fingerprint
from fastroai.store.record.entries import Routing, RowCounts, RunState
from fastroai.store.record.halting import resume_elsewhere
from fastroai.store.record.headers import FoundHeader, check_run_id, read_header
from fastroai.store.record.payloads import seal
from fastroai.store.record.snapshot import RunSnapshot

ResultT = TypeVar("ResultT", default=Any)

_PAUSE: Final = 0.5
"""Seconds between two looks at a run that waits for a time."""
_LOOK: Final = 1.0
"""Seconds between two looks at whether a run was set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStanding:
    """How far a run is, and why it does not go on if it should."""

    status: RunState
    """`queued`, `running`, `paused`, `finished`, `failed`, `cancelled`, `interrupted` or `set_aside`."""
    reason: str
    """Why no worker carries a run that is due, such as that none knows its pipeline. Empty otherwise."""
    queue: str | None
    stretch: int
    """The number of times that workers have been given the run."""
    rows: RowCounts | None = None
    """How far a run of rows is, as of its last sign of life; `None` for another run."""


class RunStopped(FastroAIError):
    """A distributed run has not finished: it failed, was cancelled, paused or set aside, or waits.

    `RunHandle.result` raises it. `run_id` is the run, and `status` is its status. `questions` are those that
    wait for answers, `usage` is what the run has spent, and `state` is all that is on record of it.
    """

    def __init__(self, run_id: str, state: RunSnapshot) -> None:
        super().__init__(run_id, state)
        self.run_id, self.state = run_id, state
        self.status, self.questions = state.status, state.questions

    @property
    def usage(self) -> Usage:
        """The spending of the run so far, as it is on record: its requests, tokens and cost."""
        return self.state.trace.usage

    def __str__(self) -> str:
        asked = ", ".join(one.id for one in self.questions)
        finish = self.state.finish
        why = f"it waits for the answer to {asked}" if asked else "" if finish is None else finish.reason
        return f"run {self.run_id!r} is {self.status}{why and f': {why}'}"


class RunHandle(Generic[ResultT]):
    """A run that workers carry: `await app.start(...)`, or `app.handle(run_id)`.

    It holds nothing open, and works in any process that reaches the store.
    """

    def __init__(self, client: Connection, run_id: str) -> None:
        """Called by `start` and `handle`."""
        check_run_id(run_id)
        self.run_id = run_id
        self._client = client

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r})"

    async def status(self) -> RunStanding:
        """Return how far the run is.

        Raises:
            RunNotFound: there is no such run.
        """
        found = await read_header(self._client.store, self.run_id)
        routing = found.header.routing
        return RunStanding(
            status=found.state,
            reason=await self._client.why_nobody_has(found),
            queue=None if routing is None else routing.queue,
            stretch=0 if routing is None else routing.stretch,
            rows=found.header.rows,
        )

    async def state(self) -> RunSnapshot:
        """Return what is on record of the run: its outputs so far, its questions, its trace."""
        return await self._client.history.state(self.run_id)

    def follow(self, *, after: int = 0) -> FollowedRun:
        """Iterate the facts of the run with their positions, live, as `pipeline.follow` does."""
        return self._client.history.follow(self.run_id, after=after)

    async def wait(self, *, timeout: Duration | None = None) -> RunSnapshot:
        """Wait until the run has ended, or waits for people or messages, and return what is on record.

        Raises:
            TimeoutError: it goes on after `timeout` seconds.
        """
        async with asyncio.timeout(None if timeout is None else seconds_above_zero("timeout", timeout)):
            while True:
                state = await self.state()
                if not await self._goes_on(state):
                    return state
                await self._something_happens(state)
                if state.status == "paused":
                    await asyncio.sleep(_PAUSE)

    async def _something_happens(self, state: RunSnapshot) -> None:
        """Follow a run to its end or its next wait, or until it is set aside, which its log does not say."""

        async def to_its_end() -> None:
            async for _ in self.follow(after=state.position):
                pass

        following = asyncio.create_task(to_its_end())
        try:
            while not following.done():
                await asyncio.wait([following], timeout=_LOOK)
                if (
                    not following.done()
                    and (await read_header(self._client.store, self.run_id)).state == "set_aside"
                ):
                    return
            following.result()
        finally:
            await end_task(following)

    async def _goes_on(self, state: RunSnapshot) -> bool:
        """Return whether a run goes on without people."""
        if state.status in ("running", "queued", "interrupted"):
            return True
        if state.status != "paused":
            return False
        found = await read_header(self._client.store, self.run_id)
        header = found.header
        is_timed = header.due_at is not None and not header.questions and not header.receives
        is_given = header.routing is not None and is_due(found, header.routing.app)
        return is_timed or is_given or header.status == "running"

    async def result(self, *, timeout: Duration | None = None) -> ResultT:
        """Wait until the run has finished, and return what `execute` of its pipeline or graph returns.

        Of a run of rows, return the table of `map`, whose `status` says how it has ended.

        Raises:
            RunStopped: it failed, was cancelled or set aside, or waits for people.
            TimeoutError: it goes on after `timeout` seconds.
            RunDefinitionChanged: it has finished with other code than that of this process. `wait` returns
                what is on record.
            ConfigurationError: this process has not registered the pipeline or graph. `wait` returns what is
                on record, for which no code is needed.
        """
        _, door = await self._with_code("result()", "; elsewhere, wait() returns what is stored")
        execute = cast("Callable[..., Awaitable[ResultT]]", door.execute)
        async with asyncio.timeout(None if timeout is None else seconds_above_zero("timeout", timeout)):
            state = await self.wait()
            if isinstance(door, RowRuns):
                return cast("ResultT", await door.table(self.run_id, store=self._client.store))
            if state.status != "finished":
                raise RunStopped(self.run_id, state)
            inputs, store = dict(state.inputs), self._client.store
            while True:
                # A worker that dies after the last fact leaves the header to the one that takes the run up.
                with suppress(RunExists, RunInProgress):
                    return await execute(inputs, run_id=self.run_id, store=store, on_existing="return")
                await asyncio.sleep(_PAUSE)

    async def fork(
        self,
        *,
        at: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> RunHandle[ResultT]:
        """Begin a new run with the work of this one up to a point, as `pipeline.fork` does, in its queue.

        Raises:
            ConfigurationError: this process has not registered the pipeline or graph; or there is no such
                step or visit.
            RunExists: the new id is taken.
        """
        found, door = await self._with_code("fork()")
        keeper = door.keeper_of(self._client.store)
        if (before := found.header.routing) is not None:
            routing = Routing(
                app=self._client.app,
                queue=before.queue,
                definition=fingerprint(keeper.definition),
                priority=before.priority,
                partition=before.partition,
            )
            keeper = replace(keeper, routing=routing)
        opening = await keeper.fork(self.run_id, at=at, inputs=inputs, outputs=outputs, new_run_id=run_id)
        run = await opening.open(opening.inputs)
        await run.let_go(Usage())
        await self._client.go_on_soon(opening.run_id)
        return RunHandle(self._client, opening.run_id)

    async def cancel(self) -> None:
        """Stop the run at once, as `pipeline.cancel` does, whether a worker has it or not.

        Raises:
            RunStatusConflict: it has finished, or was cancelled before.
        """
        await self._client.history.cancel(self.run_id)

    async def pause(self) -> None:
        """Let the run finish its current steps, and halt; `resume` continues it.

        Raises:
            RunStatusConflict: no worker carries it now.
        """
        await self._client.history.pause(self.run_id)

    async def resume(
        self, *, inputs: Mapping[str, Any] | None = None, answers: Mapping[str, Any] | None = None
    ) -> None:
        """Let workers go on with a run that is paused, has failed or was cancelled.

        Args:
            inputs: New values for some inputs, as JSON.
            answers: Answers to open questions of the run, by the ids of the questions.

        Raises:
            ConfigurationError: there are inputs, and the run is one of rows, which are on record.
            RunInProgress: a worker carries it now.
            RunStatusConflict: it has finished.
            AnswerRejected: an answer does not fit its question; nothing was put on record.
            QuestionClosed: the run does not wait for one of the answers; nothing was put on record.
        """
        codec = self._client.codec
        if inputs and (await read_header(self._client.store, self.run_id)).header.rows is not None:
            expected = "none: a run of rows continues with those on record. Map others with another run_id"
            raise ConfigurationError("inputs", inputs, expected)
        given: dict[str, JsonValue] = to_jsonable_python(dict(inputs or {}))
        await resume_elsewhere(
            self._client.store,
            self.run_id,
            codec,
            inputs={name: seal(value, codec) for name, value in given.items()},
            also=lambda recorded, found: answers_to(recorded, answers, found.now, codec=codec),
        )
        await self._client.go_on_soon(self.run_id)

    async def answer(
        self, question_id: str, value: object, *, reviewer: str = "", rationale: str = ""
    ) -> bool:
        """Put the answer to a question on record, as `Inbox.answer` does, and let a worker go on at once.

        Raises:
            QuestionClosed: as with `Inbox.answer`; or the question is that of another run.
        """
        if split_ref(question_id)[0] != self.run_id:
            raise QuestionClosed(question_id, f"run {self.run_id!r} has not asked it")
        is_complete = await self._client.inbox.answer(
            question_id, value, reviewer=reviewer, rationale=rationale
        )
        if is_complete:
            await self._client.go_on_soon(self.run_id)
        return is_complete

    async def release(self) -> None:
        """Let workers take up a run again that was set aside because they died with it.

        Raises:
            RunStatusConflict: it was not set aside.
        """
        await self._client.release(self.run_id)

    async def _with_code(self, what: str, advice: str = "") -> tuple[FoundHeader, FrontDoor[Any, Any, Any]]:
        """Return what is on record of the run, and its pipeline, of which this process has the code."""
        found = await read_header(self._client.store, self.run_id)
        name = found.header.pipeline
        door = self._client.door_of(name)
        if door is None:
            raise ConfigurationError(what, self.run_id, f"a call where {name!r} is registered{advice}")
        return found, door

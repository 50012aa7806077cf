"""What each route does, for FastAPI and Starlette alike: from a caller and plain values to a model."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Generic

from pydantic import JsonValue

from fastroai.errors import (
    ConfigurationError,
    CostBudgetExceeded,
    QuestionClosed,
    RunExists,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    SpendLimitExceeded,
    ValueNotStorable,
)
from fastroai.store import RunSnapshot
from fastroai.store.reading.as_json import as_json
from fastroai.store.reading.run_queries import RunQuery
from fastroai.store.reading.trace_diff import same_json
from fastroai.store.record.headers import check_run_id
from fastroai.usage.shared.spend_limit import BY_TENANT
from fastroai.web.caller import Action, Caller, DepsT
from fastroai.web.events import RunEvents, Show, shown_to_clients
from fastroai.web.host import RunsHost
from fastroai.web.models import GivenAnswer, OpenQuestion, QuestionPage, Report, RunLine, RunPage, RunState
from fastroai.web.problems import Problem, invalid_input, limit_reached, no_such_question, no_such_run

LONGEST: Final = 60.0
"""Seconds that a request waits for a result, at most."""
_SOON: Final = 0.1
"""Seconds between two looks at a run that a worker is about to take up."""
_LOOK: Final = 0.5
"""Seconds between two looks at whether the server ends."""


class RunOperations(Generic[DepsT]):
    """Starts, reads, follows, answers and stops the runs of a host, for a caller.

    Its methods are what the routes of `runs_router` and `runs_routes` do. Call them in your own endpoints:

        runs = RunOperations(RunsHost(pipeline, store="runs.db"))

        @app.post("/letters/{number}")
        async def letter(number: str, text: Annotated[str, Body()]) -> RunState:
            _, state = await runs.start(Caller(tenant="ada"), {"text": text}, run_id=number)
            return state

    Run ids are those that the caller knows: without the tenant. The methods raise `Problem` for mistakes of
    the client: 403 if the caller may not do that, 404 if there is no such run of this pipeline that the
    caller sees. They also raise errors of FastroAI, which `problem_of` converts.

    `show` is a function that returns a fact as clients see it in `events`, or `None` to hide it.
    """

    def __init__(self, host: RunsHost[DepsT], *, show: Show = shown_to_clients) -> None:
        self.host, self._show = host, show

    async def start(
        self,
        caller: Caller[DepsT],
        inputs: Mapping[str, JsonValue],
        *,
        run_id: str | None = None,
        wait: float = 0.0,
    ) -> tuple[bool, RunState]:
        """Begin a run, or find the run with this id and the same inputs.

        `run_id` is by default a new one. Return whether the run began now, and its state. By default, that is
        the state right after the beginning; with `wait`, it is the state when the run has ended or waits for
        something, or after `wait` seconds (60 at most).

        Raises:
            Problem: the run with this id has other inputs (409), the id has a dot or an input cannot be
                stored (422), a spend limit is reached (429 or 402), the caller may not start runs (403), or
                this process is busy (503).
            ContractViolation: the inputs are not what the pipeline accepts.
            CostBudgetExceeded: the host has `reserve="quote"`, and a budget has too little left.
        """
        self._allow(caller, "start")
        if run_id is not None and "." in run_id:  # else it could name the run of a tenant
            raise invalid_input([{"loc": ("run_id",), "msg": "an id must have no dot"}])
        stored = self._stored_id(caller, uuid.uuid4().hex if run_id is None else run_id)
        checked = self._checked(inputs)
        begins = run_id is None or not await self._was_begun(caller, stored, checked)
        if begins:
            try:
                await self.host.start(stored, inputs, caller)
            except RunExists:  # another request with this id was faster
                await self._was_begun(caller, stored, checked)
                begins = False
            except ValueNotStorable as error:  # such as half a surrogate pair, or lists in lists in lists
                raise invalid_input([{"loc": (), "msg": str(error)}]) from None
            except SpendLimitExceeded as error:
                raise _limit_told(caller, error) from error
        return begins, await self._state(caller, stored, wait)

    async def read(self, caller: Caller[DepsT], run_id: str, *, wait: float = 0.0) -> RunState:
        """Return the state of a run: at once, or with `wait` as soon as the run has ended or paused.

        It returns after `wait` seconds in any case, or after 60 if `wait` is more.

        Raises:
            Problem: there is no such run that the caller sees (404), or the caller may not read (403).
        """
        self._allow(caller, "read")
        return await self._state(caller, await self._known(caller, run_id), wait)

    async def report(self, caller: Caller[DepsT], run_id: str) -> Report:
        """Return the cost of a run so far, by step, agent, model and so on, in exact US dollars.

        The rows are those of a `UsageReport`.

        Raises:
            Problem: there is no such run that the caller sees (404), or the caller may not read (403).
        """
        self._allow(caller, "read")
        trace = await self.host.history.trace(await self._known(caller, run_id))
        return Report.model_validate_json(trace.report().to_json())

    async def list(
        self, caller: Caller[DepsT], query: RunQuery, *, limit: int, after: str | None = None
    ) -> RunPage:
        """Return a page of the runs that match a query, which the method `query` makes for the caller.

        The page has at most `limit` runs, and in `next` the value of `after` for the next page, which is
        `None` on the last one.

        Raises:
            Problem: `limit` is not from 1 to 1,000, or `after` is not from a page in this order (422); or the
                caller may not read (403).
        """
        self._allow(caller, "read")
        try:
            page = await self.host.history.page(query, limit=limit, after=after)
        except ConfigurationError as error:
            raise _refused(error) from None
        return RunPage(runs=[RunLine.of(run, caller) for run in page.items], next=page.next)

    async def questions(
        self, caller: Caller[DepsT], query: RunQuery, *, limit: int, after: str | None = None
    ) -> QuestionPage:
        """Return a page of the open questions of the runs that match a query, which `query` makes.

        The page has at most `limit` questions, and in `next` the value of `after` for the next page, which is
        `None` on the last one.

        Raises:
            Problem: `limit` is not from 1 to 1,000, or `after` is not from a page in this order (422); or the
                caller may not read (403).
        """
        self._allow(caller, "read")
        try:
            page = await self.host.inbox.page(query, limit=limit, after=after)
        except ConfigurationError as error:
            raise _refused(error) from None
        return QuestionPage(
            questions=[OpenQuestion.of(asked, caller) for asked in page.items], next=page.next
        )

    async def events(
        self, caller: Caller[DepsT], run_id: str, *, after: int = 0, cancel_on_disconnect: bool = False
    ) -> RunEvents | None:
        """Return the events of a run after a position in its log, to be streamed to a client.

        The method `response` of the result returns them as server-sent events. With `after=0`, they begin at
        the start of the run; with the id of an event, after that. Return `None` if the run has ended and has
        no later events.

        With `cancel_on_disconnect`, the run is cancelled when the client leaves before the run has ended;
        the caller needs the right to `cancel`.

        Raises:
            Problem: the run has no such position (400), there is no such run that the caller sees (404), or
                the caller may not do that (403).
        """
        self._allow(caller, "read")
        if cancel_on_disconnect:
            self._allow(caller, "cancel")
        stored = await self._known(caller, run_id)
        run = await self.host.history.state(stored)
        if not 0 <= after <= run.position:
            detail = f"there is no event {after}; the last one is {run.position}"
            raise Problem(400, "no-such-event", "There is no such event", detail)
        if after == run.position and run.status in ("finished", "failed", "cancelled"):
            return None
        return RunEvents(
            self.host,
            stored,
            caller,
            after=after,
            show=self._show,
            cancel_on_disconnect=cancel_on_disconnect,
        )

    async def answer(self, caller: Caller[DepsT], run_id: str, given: GivenAnswer) -> RunState:
        """Put an answer to a question of a run on record, and return the state of the run.

        If the run waits for no other answer, this process continues it, unless a person has paused it. If
        this process is busy, any process that wakes paused runs continues it a few seconds later. The
        reviewer on record is `caller.name`, or the one in `given` if the caller has no name. It is safe to
        repeat an answer with the same reviewer.

        Raises:
            Problem: the question was answered otherwise, or takes no answer any more (409); the run has not
                asked it, or there is no such run that the caller sees (404); or the caller may not answer
                (403).
            AnswerRejected: the answer does not fit the question; nothing is on record.
        """
        self._allow(caller, "answer")
        stored = await self._known(caller, run_id)
        reviewer = caller.name or given.reviewer
        if ":" in given.question:  # else it could name a question of another run
            raise no_such_question()
        question = f"{stored}:{given.question}"
        try:
            is_complete = await self.host.inbox.answer(
                question, given.value, reviewer=reviewer, rationale=given.rationale
            )
        except QuestionClosed:
            await self._check_is_on_record(question, given.value, reviewer)
            return await self._state(caller, stored)
        summary = await self.host.history.summary(stored)
        if is_complete and summary.due_at is not None:  # a run that somebody has paused is not due
            # Otherwise some process wakes it, which looks for such runs every few seconds.
            with suppress(Problem, RunInProgress, CostBudgetExceeded):
                await self.host.resume(summary)
        return await self._state(caller, stored)

    async def pause(self, caller: Caller[DepsT], run_id: str) -> None:
        """Ask a run, in whatever process it is, to let its running steps finish and then halt.

        Return without waiting for that. `resume` continues it.

        Raises:
            RunStatusConflict: no process is running it.
            Problem: there is no such run that the caller sees (404), or the caller may not pause runs (403).
        """
        self._allow(caller, "pause")
        await self.host.door.pause(await self._known(caller, run_id), store=self.host.store)

    async def cancel(self, caller: Caller[DepsT], run_id: str) -> None:
        """Stop a run at once, in whatever process it is. Results that were paid for stay stored.

        A run that is paused or has failed is cancelled, too. `resume` can continue it.

        Raises:
            RunStatusConflict: the run has finished, or was cancelled before.
            Problem: there is no such run that the caller sees (404), or the caller may not cancel runs (403).
        """
        self._allow(caller, "cancel")
        await self.host.door.cancel(await self._known(caller, run_id), store=self.host.store)

    async def resume(self, caller: Caller[DepsT], run_id: str) -> RunState:
        """Continue a run that is paused, has failed, was interrupted, or was cancelled.

        Return its state when it has begun to continue, or when a worker can take it.

        Raises:
            RunStatusConflict: the run has finished.
            RunInProgress: a process is running it.
            RunDefinitionChanged: the pipeline or graph has changed in parts that the run has reached.
            ConfigurationError: a graph is paused at a pause node whose question has no answer (409).
            Problem: there is no such run that the caller sees (404), the caller may not resume runs (403), a
                spend limit is reached (429 or 402), or this process is busy (503).
        """
        self._allow(caller, "resume")
        stored = await self._known(caller, run_id)
        run = await self.host.history.summary(stored)
        if run.status == "finished":
            raise RunStatusConflict(stored, "finished", "a run that can continue")
        try:
            await self.host.resume(run)
        except SpendLimitExceeded as error:
            raise _limit_told(caller, error) from error
        return await self._state(caller, stored)

    async def check_ready(self) -> None:
        """Check that this process can execute runs: that the lifespan is open and the store answers.

        It returns nothing if that is so.

        Raises:
            Problem: the service is starting or stopping (503).
            RunStoreUnavailable: the store could not be read.
        """
        if not self.host.is_open:
            raise Problem(503, "not-ready", "Not ready", "the service is starting or stopping")
        await self.host.history.page(limit=1)

    def query(self, caller: Caller[DepsT], **wanted: Any) -> RunQuery:
        """Return a query for the runs of this pipeline that the caller sees, for `list` and `questions`.

        `wanted` are other fields of `RunQuery`, such as `status` and `tag`. Nothing is read from the store.

        Raises:
            Problem: a value does not fit its field (422).
        """
        try:
            return RunQuery(pipeline=self.host.door.name, tenant=caller.tenant, **wanted)
        except ConfigurationError as error:
            raise _refused(error) from None

    # --- parts ---

    def _allow(self, caller: Caller[DepsT], action: Action) -> None:
        if action not in caller.actions:
            raise Problem(403, "not-allowed", "Not allowed", f"you may not {action} runs here")

    def _stored_id(self, caller: Caller[DepsT], run_id: str) -> str:
        if caller.tenant is not None and "." in run_id:  # else two tenants could name one run
            raise invalid_input([{"loc": ("run_id",), "msg": "an id must have no dot"}])
        try:
            check_run_id(stored := caller.stored_id(run_id))
        except ConfigurationError as error:
            raise _refused(error) from None
        return stored

    def _checked(self, inputs: Mapping[str, JsonValue]) -> Mapping[str, object]:
        try:
            return self.host.door.checked_inputs(inputs)
        except TypeError as error:  # a flow lacks an argument, or has another
            raise invalid_input([{"loc": (), "msg": str(error)}]) from None

    async def _known(self, caller: Caller[DepsT], run_id: str) -> str:
        """Return the id in the store of a run that the caller may see."""
        try:
            run = await self.host.history.summary(self._stored_id(caller, run_id))
        except Problem:
            raise no_such_run() from None
        if run.pipeline != self.host.door.name or caller.tenant not in (None, run.tenant):
            raise no_such_run()
        return run.run_id

    async def _was_begun(self, caller: Caller[DepsT], stored: str, inputs: Mapping[str, object]) -> bool:
        """Return whether there is a run with this id and these inputs."""
        try:
            run = await self.host.history.state(stored)
        except RunNotFound:
            return False
        tenant = (await self.host.history.summary(stored)).tenant
        is_same = run.trace.pipeline == self.host.door.name and caller.tenant in (None, tenant)
        if not is_same or not same_json(dict(run.inputs), as_json(inputs)):
            detail = "there is a run with this id and other inputs"
            raise Problem(409, "other-inputs", "The id is taken", detail)
        return True

    async def _check_is_on_record(self, question: str, value: JsonValue, reviewer: str) -> None:
        """Accept the answer of a client that repeats itself. Raises `Problem` for any other one."""
        try:
            asked = await self.host.inbox.get(question)
        except QuestionClosed:
            raise no_such_question() from None
        given = asked.answer
        if given is None or given.reviewer != reviewer or not same_json(given.value, value):
            detail = "it takes no answer any more"
            raise Problem(409, "question-closed", "The question is closed", detail)

    async def _state(self, caller: Caller[DepsT], stored: str, wait: float = 0.0) -> RunState:
        run = await self.host.history.state(stored)
        if wait > 0 and await self.host.goes_on(run):
            run = await self._waited_for(stored, run, min(wait, LONGEST))
        return RunState.of(run, caller)

    async def _waited_for(self, stored: str, run: RunSnapshot, seconds: float) -> RunSnapshot:
        """Return a run when it has halted, or after some seconds, or when the server is told to end."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        halting = asyncio.create_task(self._halted(stored, run))
        try:
            while not self.host.is_ending and (left := until - loop.time()) > 0:
                await asyncio.wait([halting], timeout=min(left, _LOOK))
                if halting.done():
                    return halting.result()
        finally:
            halting.cancel()
            await asyncio.wait([halting])
        return await self.host.history.state(stored)

    async def _halted(self, stored: str, run: RunSnapshot) -> RunSnapshot:
        while await self.host.goes_on(run):
            async for _ in self.host.door.follow(stored, after=run.position, store=self.host.store):
                pass
            if run.status == "paused":  # it is due, and no worker has begun yet
                await asyncio.sleep(_SOON)
            run = await self.host.history.state(stored)
        return run


def _limit_told(caller: Caller[Any], error: SpendLimitExceeded) -> Problem:
    """Return what a caller is told of a limit. What other tenants have spent of it is not for a tenant."""
    told = limit_reached(error)
    if caller.tenant is not None and error.key not in (f"{BY_TENANT}:{caller.tenant}", caller.tenant):
        del told.more["limit_usd"], told.more["spent_usd"]
    return told


def _refused(error: ConfigurationError) -> Problem:
    return invalid_input([{"loc": (error.option,), "msg": f"expected {error.expected}"}])

"""`FrontDoor`: how runs of pipelines, graphs and routers are begun, taken up, watched and stopped."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, Literal, Never, overload

from typing_extensions import Unpack

from fastroai.contracts.accepted import Accepted
from fastroai.errors import ConfigurationError, RunExists, RunInProgress, RunNotFound, RunStatusConflict
from fastroai.human.answers import answers_to
from fastroai.human.messages import send_message
from fastroai.runs.inputs import check_mapping, checked_inputs
from fastroai.runs.openings import (
    AlsoOnRecord,
    OnExisting,
    Opening,
    RunKeeper,
    needed_store,
    store_of,
)
from fastroai.runs.quoting import Reserve
from fastroai.runs.remote import cancel_halted, signal_elsewhere
from fastroai.runs.request import RunRequest
from fastroai.runs.signatures import (
    DepsFor,
    DepsT,
    Forks,
    InputT,
    Opens,
    ResultT,
    Resumes,
    WakeOptions,
    blocking_twin,
    forking,
    opening,
    resuming,
)
from fastroai.runs.stream import RunStream
from fastroai.runs.turns import DO_NOT_WAIT, OnBusy, Turn, WhenBusy, check_existing
from fastroai.runs.waking import Waking
from fastroai.runtime import blocking
from fastroai.runtime.budget_scopes import OnEvent
from fastroai.runtime.events import harmless
from fastroai.runtime.labels import labels_of
from fastroai.runtime.options import check_seconds
from fastroai.steps import PipelineConfig
from fastroai.store.following import FollowedRun
from fastroai.store.headers import check_run_id
from fastroai.store.history import RunHistory
from fastroai.store.run_store import RunStore
from fastroai.store.runs import seize
from fastroai.store.signals import Signal
from fastroai.store.snapshot import RunSnapshot
from fastroai.tracing import Tracer

_KIND: Final = attrgetter("kind")


class FrontDoor(ABC, Generic[DepsT, InputT, ResultT]):
    """What every kind of run offers. The base class of `Pipeline`, `Graph` and `BasePipeline`.

    The decorators of methods are for type checkers, which ask for `deps` unless none are needed.
    """

    kind: ClassVar[str]
    """What errors call it."""
    name: str
    config: PipelineConfig
    version: str | None = None
    """The name of this version of the definition, which is on record with its runs."""
    _accepts: Accepted | None = None

    # --- to be filled in ---

    @abstractmethod
    async def _execute(self, request: RunRequest[DepsT]) -> ResultT:
        """Run to the result."""

    @abstractmethod
    def _keeper(self, store: RunStore) -> RunKeeper:
        """Return how its runs get on record."""

    @abstractmethod
    def _heed(self, run_id: str | None, signal: Signal) -> bool:
        """Pass a signal to a run of this process, or to all of them. Return whether there is such a run."""

    # --- new runs ---

    @opening
    async def execute(
        self,
        inputs: InputT = None,  # type: ignore[assignment]  # as PydanticAI has it for deps
        deps: DepsT = None,  # type: ignore[assignment]
        tracer: Tracer | None = None,
        *,
        context: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        store: object = None,
        tags: Collection[str] = (),
        tenant: str | None = None,
        on_existing: OnExisting = "fail",
        on_busy: OnBusy = "reject",
        busy_timeout: float = 60.0,
        reserve: Reserve | None = None,
    ) -> ResultT:
        """Run to the result. `run` is the same method.

        A graph's run that fails, or that a budget stops, is a result too, with all that was paid for; a
        pipeline raises.

        Args:
            inputs: What steps read with `ctx.get_input`; the memory of a graph begins with it.
            deps: What steps find as `ctx.deps`, and agents called by `ctx.run` too.
            tracer: Where spans go; by default that of the run around this one.
            context: What steps find as `ctx.shared`, by reference: clients, caches.
            run_id: The id of the run; a new one unless given.
            store: Where it is put on record, so that it can be resumed; that of the config unless given.
            tags: Names to find the run and to sum its spending by. They are on its requests, in reports and
                on spans, in runs and calls inside of it too; `RunHistory` and `Inbox` filter by them.
            tenant: The name of the one for whom it runs, such as a customer. It is used like a tag, and
                `SpendLimit(key="tenant")` counts by it.
            on_existing: What to do if the store has a run of this id. `"fail"` raises `RunExists`. `"resume"`
                goes on with it, or returns its result if it has finished. `"return"` returns the result of a
                run that has finished. `"replace"` deletes it, and begins anew. To go on, inputs that differ
                from those on record replace them, as with `resume(inputs=...)`.
            on_busy: What to do if a process has that run; as in `resume`.
            busy_timeout: As in `resume`.
            reserve: With `"quote"`, the run begins only if every budget and spend limit that applies to it
                can pay for the upper amount of its `estimate`. This amount is set aside. The requests of the
                run draw on it, and the rest is given back when the run ends.

        Raises:
            StepExecutionError: a step of a pipeline failed, after its retries. It has the outputs and the
                usage of what finished.
            CostBudgetExceeded: a budget of this pipeline, or of the run around it, is used up. Or, with
                `reserve`, a limit has too little left: then `stopped` is `"run"`, and nothing was sent.
            TimeLimitExceeded: `total_timeout` of a pipeline ran out.
            ContractViolation: the inputs are not what is accepted.
            ConfigurationError: a tag or the tenant is no printable text of 1 to 200 characters; or `reserve`,
                although nothing bounds what the run costs.
            RunExists: the store has a run of this id; or one to be returned that has not finished.
            RunInProgress: a process has the run to go on with, for as long as this waits.
            ValueNotStorable: an input cannot be stored.
            RunStoreUnavailable: the store fails, and has failed each time. What it has is kept.
        """
        labels = labels_of(tags, tenant)
        request = RunRequest(inputs, deps, tracer, context, run_id=run_id, labels=labels, reserve=reserve)
        return await self._begin(request, store, on_existing, WhenBusy(on_busy, busy_timeout))

    run = execute
    execute_sync: Opens[DepsT, InputT, ResultT] = blocking_twin(execute, of=_KIND)
    run_sync: Opens[DepsT, InputT, ResultT] = blocking_twin(run, of=_KIND, name="run")

    @opening
    def stream(
        self,
        inputs: InputT = None,  # type: ignore[assignment]  # as PydanticAI has it for deps
        deps: DepsT = None,  # type: ignore[assignment]
        tracer: Tracer | None = None,
        *,
        context: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        store: object = None,
        tags: Collection[str] = (),
        tenant: str | None = None,
        on_existing: OnExisting = "fail",
        on_busy: OnBusy = "reject",
        busy_timeout: float = 60.0,
        reserve: Reserve | None = None,
    ) -> RunStream[ResultT]:
        """Run and iterate what happens, as typed events; `stream.result` has the result after.

            async with pipeline.stream(inputs) as stream:
                async for event in stream:
                    match event:
                        case TextChunk(step_id=step_id, text=text): ...
                        case StepFinished(step_id=step_id, usage=usage): ...

        Leaving early cancels the run. What `execute` raises is raised at the end of the iteration.
        """
        labels = labels_of(tags, tenant)
        request = RunRequest(inputs, deps, tracer, context, run_id=run_id, labels=labels, reserve=reserve)
        busy = WhenBusy(on_busy, busy_timeout)
        return RunStream(
            lambda listener: self._begin(replace(request, listener=listener), store, on_existing, busy)
        )

    # --- going on ---

    @resuming
    async def resume(
        self,
        run_id: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
        store: object = None,
        deps: DepsT = None,  # type: ignore[assignment]
        tracer: Tracer | None = None,
        context: MutableMapping[str, Any] | None = None,
        force: bool = False,
        on_busy: OnBusy = "reject",
        busy_timeout: float = 60.0,
        reserve: Reserve | None = None,
    ) -> ResultT:
        """Go on with a run that was interrupted, has failed, was cancelled, or is paused.

        What has finished is not run again, and responses and tool results that are on record are not paid
        for again. Budgets, usage, retries and conversations go on from where they were.

        Args:
            run_id: The run.
            inputs: New values for some inputs, such as what a user has said since.
            answers: Answers to questions that it waits for, by their ids, as with `Inbox.answer`.
            store: The store that has the run; by default that of the config.
            deps: As in `execute`; they are not stored.
            tracer: As in `execute`.
            context: As in `execute`; it is not stored.
            force: Go on although the pipeline or graph has changed, and take the run from the process that
                has it, whatever its lease says. There, `RunTakenOver` ends the run at the next write. Use it
                if you know that this process hangs; else a step may run in both at the same time.
            on_busy: What to do if a process has the run. `"reject"` raises `RunInProgress`. `"enqueue"` waits
                until the run has ended or paused, in line with others who wait, in all processes.
                `"interrupt"` cancels it, as `cancel` does, and goes on when it has ended.
            busy_timeout: Seconds for which `on_busy` waits.
            reserve: As in `execute`, with the quote less what the run has spent before. If a limit has too
                little left, the run stays as it was.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process is running it, for as long as `on_busy` waits.
            RunDefinitionChanged: the pipeline or graph has changed, unless `force`.
            AnswerRejected: an answer is not what its question asks for; nothing is on record.
            QuestionClosed: the run does not wait for one of the answers; nothing is on record.
            RunCorrupt: its record cannot be read.
            RunFromNewerVersion: a later version of FastroAI has written its record.
            RunFromOlderVersion: an earlier version of FastroAI has written its record.
        """
        request = RunRequest(inputs, deps, tracer, context, run_id=run_id, reserve=reserve)
        busy = WhenBusy(on_busy, busy_timeout)
        return await self._resume(request, store, busy, force=force, also=self._answers(answers))

    resume_sync: Resumes[DepsT, ResultT] = blocking_twin(resume, of=_KIND)

    @resuming
    def resume_stream(
        self,
        run_id: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
        store: object = None,
        deps: DepsT = None,  # type: ignore[assignment]
        tracer: Tracer | None = None,
        context: MutableMapping[str, Any] | None = None,
        force: bool = False,
        on_busy: OnBusy = "reject",
        busy_timeout: float = 60.0,
        reserve: Reserve | None = None,
    ) -> RunStream[ResultT]:
        """`resume` as a stream: iterate the events of the rest of the run.

        The events of what finished before are not repeated: `follow` has the facts of the whole run.
        """
        request = RunRequest(inputs, deps, tracer, context, run_id=run_id, reserve=reserve)
        also, busy = self._answers(answers), WhenBusy(on_busy, busy_timeout)
        return RunStream(
            lambda listener: self._resume(
                replace(request, listener=listener), store, busy, force=force, also=also
            )
        )

    @forking
    async def fork(
        self,
        run_id: str,
        *,
        at: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        new_run_id: str | None = None,
        store: object = None,
        deps: DepsT = None,  # type: ignore[assignment]
        tracer: Tracer | None = None,
        context: MutableMapping[str, Any] | None = None,
    ) -> ResultT:
        """Start a new run that has, at no cost, what another did before a point, and is different from there.

            await pipeline.fork("invoice-42", at="write", inputs={"tone": "formal"})
            await pipeline.fork("invoice-42", outputs={"classify": "complaint"})
            await graph.fork("essay-7", at="review#2", inputs={"draft": "..."})

        Args:
            run_id: The other run, which stays as it is.
            at: Of a pipeline, the step that runs again, and all that need it; or the place of one inside of
                steps that run pipelines and routers, as traces have it: `write/inner/check`. In a router,
                steps are inside of the step `route`. Of a graph, the visit before which all is kept:
                `draft#2`, or `draft` for the last one.
            inputs: New values for some inputs. In a graph they are written to memory, over what nodes wrote.
            outputs: Outputs by step id, instead of what these steps gave; all that need them run again. Of a
                graph, the output of one visit, after which the new run goes on.
            new_run_id: The id of the new run.
            store: As in `resume`.
            deps: As in `execute`.
            tracer: As in `execute`.
            context: As in `execute`.

        Raises:
            RunNotFound: the store has no such run.
            RunExists: the new id is taken.
            ConfigurationError: there is no such step or visit, or it cannot have this output.
            ContractViolation: the output is not what the node of a graph writes.
            RunDefinitionChanged: the graph has changed.
        """
        check_mapping(inputs)
        if outputs is not None and not isinstance(outputs, Mapping):
            raise ConfigurationError("outputs", outputs, "a mapping of step ids to outputs")
        keeper = self._keeper(needed_store(store, self.config.store))
        opening = await keeper.fork(run_id, at=at, inputs=inputs, outputs=outputs, new_run_id=new_run_id)
        return await self._execute(RunRequest(None, deps, tracer, context).opened_by(opening))

    fork_sync: Forks[DepsT, ResultT] = blocking_twin(fork, of=_KIND)

    @overload
    async def recover(
        self: FrontDoor[None, InputT, ResultT], *, deps_for: None = None, **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]: ...
    @overload
    async def recover(
        self, *, deps_for: DepsFor[DepsT], **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]: ...
    async def recover(
        self,
        *,
        deps_for: DepsFor[DepsT] | None = None,
        store: object = None,
        tracer: Tracer | None = None,
        context: MutableMapping[str, Any] | None = None,
        on_event: OnEvent | None = None,
    ) -> Mapping[str, ResultT | Exception]:
        """Resume the runs whose processes died, which have the status `interrupted`, and no other run.

        `wake` resumes those that wait no longer.

            outcomes = await pipeline.recover(deps_for=lambda run: Deps(tenant=run.tenant))

        Call it when a service starts. Several processes may call it at once: each run is resumed by one of
        them. Ten runs go on at a time.

        Args:
            deps_for: Returns the `deps` of a run, which are not stored. It may be async.
            store: The store that has the runs; by default that of the config.
            tracer: As in `execute`.
            context: As in `execute`; all runs share it.
            on_event: Told of all events of the runs, text included; `event.run_id` says of which run. It may
                be async.

        Returns:
            By run id, the result, or the exception that `resume` raised or `deps_for` did.
        """
        return await self._waking("interrupted", deps_for, store, tracer, context, on_event).once()

    @overload
    async def wake(
        self: FrontDoor[None, InputT, ResultT], *, deps_for: None = None, **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]: ...
    @overload
    async def wake(
        self, *, deps_for: DepsFor[DepsT], **options: Unpack[WakeOptions]
    ) -> Mapping[str, ResultT | Exception]: ...
    async def wake(
        self,
        *,
        deps_for: DepsFor[DepsT] | None = None,
        store: object = None,
        tracer: Tracer | None = None,
        context: MutableMapping[str, Any] | None = None,
        on_event: OnEvent | None = None,
    ) -> Mapping[str, ResultT | Exception]:
        """Resume the paused runs that can go on, and no other run.

        They sleep no longer, what they wait for has come (an answer or a message), or the time for it is
        over. A run that somebody has asked to pause, or whose conversation is incomplete, stays paused. The
        runs are found in an index by time. As with `recover`, several processes may call it at once.

        Args:
            deps_for: As in `recover`.
            store: As in `recover`.
            tracer: As in `recover`.
            context: As in `recover`.
            on_event: As in `recover`.

        Returns:
            By run id, the result, or the exception that `resume` raised or `deps_for` did.
        """
        return await self._waking("due", deps_for, store, tracer, context, on_event).once()

    @overload
    async def wake_every(
        self: FrontDoor[None, InputT, ResultT],
        seconds: float,
        *,
        deps_for: None = None,
        **options: Unpack[WakeOptions],
    ) -> Never: ...
    @overload
    async def wake_every(
        self, seconds: float, *, deps_for: DepsFor[DepsT], **options: Unpack[WakeOptions]
    ) -> Never: ...
    async def wake_every(
        self,
        seconds: float,
        *,
        deps_for: DepsFor[DepsT] | None = None,
        store: object = None,
        tracer: Tracer | None = None,
        context: MutableMapping[str, Any] | None = None,
        on_event: OnEvent | None = None,
    ) -> Never:
        """Look every so many seconds for runs that can go on, and resume them as `wake` does. Never returns.

            waking = asyncio.create_task(pipeline.wake_every(5, deps_for=deps_of))

        It looks again while runs go on that it has resumed; ten go on at a time. Their results are on record.
        An exception is logged, and so is a store that cannot be read. If the task is cancelled, the runs are
        cancelled that it has resumed and that have not ended.

        Args:
            seconds: Seconds between two looks.
            deps_for: As in `recover`.
            store: As in `recover`.
            tracer: As in `recover`.
            context: As in `recover`.
            on_event: As in `recover`.
        """
        check_seconds("seconds", seconds, zero=True)
        await self._waking("due", deps_for, store, tracer, context, on_event).every(seconds)

    # --- messages ---

    async def send(self, run_id: str, name: str, value: object = None, *, store: object = None) -> None:
        """Send a message to a run, which `ctx.receive` in one of its steps returns.

        As `fastroai.send_message`, which says more and needs no code of the pipeline.

        Raises:
            MessageRejected: the run cannot receive it.
            RunNotFound: the store has no such run.
        """
        found = needed_store(store, self.config.store)
        await send_message(run_id, name, value, store=found, codec=self.config.codec)

    send_sync = blocking(send, of=_KIND)

    # --- watching and stopping ---

    async def get_state(self, run_id: str, *, store: object = None) -> RunSnapshot:
        """Return how far a run is, whatever process runs it: status, outputs, what runs, what is asked.

        Raises:
            RunNotFound: the store has no such run.
            RunCorrupt: its record cannot be read.
        """
        return await self._history(store).state(run_id)

    def follow(self, run_id: str, *, after: int = 0, store: object = None) -> FollowedRun:
        """Iterate the facts of a run with their positions, live, whatever process runs it.

            async for position, fact in pipeline.follow(run_id, after=last_position): ...

        See `RunHistory.follow`, which says when it ends and what it raises.
        """
        return self._history(store).follow(run_id, after=after)

    async def pause(self, run_id: str, *, store: object = None) -> None:
        """Have a run that is running finish its current steps, and halt; `resume` goes on with it.

        From any process that reaches the store: a run in another one notices it within a second. It may end
        before it halts. Pipelines, graphs and routers that are steps of the run, and the variants of routers,
        halt before their own next steps. What the code of a step runs itself goes on to its end.

        Raises:
            RunNotFound: nobody runs it here, and the store, if there is one, has no such run.
            RunStatusConflict: no process is running it.
        """
        await self._signal(run_id, "pause", store)

    async def interrupt(self, run_id: str | None = None, *, store: object = None) -> None:
        """Have the process of a run let go of it, so that `recover` goes on with it in another process.

            await pipeline.interrupt()  # all its runs in this process, before that ends

        The run finishes its current steps, as with `pause`, and halts. Its status on record is `interrupted`.
        If its task is cancelled before that, the steps are cut off, and the run is `interrupted` as well, not
        `cancelled`. The caller of `execute` gets a result whose status is `paused`. A run without a store is
        paused or cancelled: there is no record with which another process could go on.

        Args:
            run_id: The run; by default, all runs of this pipeline, graph or router in this process.
            store: As in `pause`.

        Raises:
            RunNotFound: nobody runs it here, and the store, if there is one, has no such run.
            RunStatusConflict: no process is running it.
        """
        if run_id is None:
            self._heed(None, "interrupt")
        else:
            await self._signal(run_id, "interrupt", store)

    async def cancel(self, run_id: str, *, store: object = None) -> None:
        """Stop a run at once; its result has `status="cancelled"` and all partial work.

        As `pause`, from any process; also one that is paused, has failed, or whose process died. A cancelled
        run can be resumed.

        Raises:
            RunNotFound: nobody runs it here, and the store, if there is one, has no such run.
            RunStatusConflict: it has finished, or was cancelled before.
        """
        await self._signal(run_id, "cancel", store)

    # --- parts ---

    def _waking(
        self,
        which: Literal["interrupted", "due"],
        deps_for: DepsFor[DepsT] | None,
        store: object,
        tracer: Tracer | None,
        context: MutableMapping[str, Any] | None,
        on_event: OnEvent | None,
    ) -> Waking[DepsT, ResultT]:
        keeper, history = self._keeper(needed_store(store, self.config.store)), self._history(store)
        interrupted = partial(history.list, status="interrupted", pipeline=self.name)
        return Waking(
            keeper=keeper,
            find=partial(history.due, self.name) if which == "due" else interrupted,
            is_wanted=attrgetter(f"is_{which}"),
            execute=self._execute,
            deps_for=deps_for,
            tracer=tracer,
            context=context,
            listener=None if on_event is None else harmless(on_event, "on_event"),
        )

    async def _begin(
        self,
        request: RunRequest[DepsT],
        store: object = None,
        on_existing: OnExisting = "fail",
        busy: WhenBusy = DO_NOT_WAIT,
    ) -> ResultT:
        if on_existing == "fail" and busy.do == "reject":
            return await self._execute(request.begun(store, self.config.store, self._keeper))
        check_existing(on_existing, busy, request.run_id)
        check_mapping(request.inputs)
        keeper = request.labelling(self._keeper(needed_store(store, self.config.store)))
        inputs = checked_inputs(self._accepts, dict(request.inputs or {}), self.name)
        return await self._in_turn(
            request, keeper, busy, lambda run_id: keeper.begin_or_go_on(on_existing, run_id, inputs)
        )

    async def _resume(
        self,
        request: RunRequest[DepsT],
        store: object,
        busy: WhenBusy,
        *,
        force: bool,
        also: AlsoOnRecord,
    ) -> ResultT:
        check_mapping(request.inputs)
        keeper = self._keeper(needed_store(store, self.config.store))
        if force and request.run_id is not None:
            check_run_id(request.run_id)
            await seize(keeper.store, request.run_id)
        return await self._in_turn(
            request,
            keeper,
            busy,
            lambda run_id: keeper.take_up(run_id, request.inputs, force=force, also=also),
        )

    async def _in_turn(
        self,
        request: RunRequest[DepsT],
        keeper: RunKeeper,
        busy: WhenBusy,
        open_it: Callable[[str], Awaitable[Opening]],
    ) -> ResultT:
        """Run an opening, which is asked for when it is the turn of this caller."""
        run_id = "" if request.run_id is None else request.run_id
        check_run_id(run_id)

        async def interrupt() -> None:
            if not self._heed(run_id, "cancel"):
                with suppress(RunStatusConflict, RunNotFound):  # it has ended meanwhile
                    await signal_elsewhere(keeper.store, run_id, "cancel")

        async with Turn(keeper.store, run_id, busy, interrupt) as turn:
            while True:
                await turn.wait()
                try:
                    opening = turn.ending_with(await open_it(run_id))
                    return await self._execute(request.opened_by(opening))
                except (RunInProgress, RunExists) as lost:
                    if not turn.waits_again(lost):
                        raise

    def _answers(self, answers: Mapping[str, Any] | None) -> AlsoOnRecord:
        return lambda recorded, inputs, found: answers_to(
            recorded, answers, found.now, codec=self.config.codec
        )

    def _history(self, store: object) -> RunHistory:
        return RunHistory(needed_store(store, self.config.store), codec=self.config.codec)

    async def _signal(self, run_id: str, signal: Signal, store: object) -> None:
        check_run_id(run_id)
        if not self._heed(run_id, signal):
            await asyncio.sleep(0)  # lets the task of a run that was started just now begin
            if not self._heed(run_id, signal):
                found = store_of(store, self.config.store)
                if found is None:
                    raise RunNotFound(run_id, f"the runs of this {self.kind} in this process")
                if not await signal_elsewhere(found, run_id, signal):
                    await cancel_halted(self._keeper(found), run_id)


def check_version(version: object) -> None:
    """Refuse an invalid name of a version. Raises `ConfigurationError`."""
    if version is not None and (not isinstance(version, str) or not version):
        raise ConfigurationError("version", version, "a non-empty text")

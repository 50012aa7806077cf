"""`FrontDoor`: the methods that begin, resume, watch and stop runs of pipelines, graphs and routers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic

from pydantic import JsonValue
from typing_extensions import Unpack

from fastroai.contracts.accepted import Accepted
from fastroai.errors import ConfigurationError, RunExists, RunInProgress, RunNotFound, RunStatusConflict
from fastroai.human.answers import answers_to
from fastroai.human.messages import send_message
from fastroai.keyword_options import takes_options
from fastroai.runs.execution import Execution
from fastroai.runs.inputs import check_mapping, checked_inputs
from fastroai.runs.openings import (
    AlsoOnRecord,
    OnExisting,
    Opening,
    RunKeeper,
    needed_store,
    store_of,
)
from fastroai.runs.progress.showing import Watching
from fastroai.runs.quoting import Reserve
from fastroai.runs.request import RunRequest
from fastroai.runs.running.turns import DO_NOT_WAIT, Turn, WhenBusy, check_existing, when_busy
from fastroai.runs.signatures import (
    DEFAULTS,
    BusyOptions,
    DepsT,
    ForkOptions,
    Forks,
    InputT,
    OpenOptions,
    Opens,
    ResultT,
    ResumeOptions,
    Resumes,
    RunOptions,
    blocking_twin,
    forking,
    opening,
    resuming,
)
from fastroai.runs.stream import RunStream
from fastroai.runs.taking_up.serving import TakesUpRuns, Which
from fastroai.runs.taking_up.waking import TakeUp, Waking
from fastroai.runtime import blocking
from fastroai.runtime.events import Listener, listener_of
from fastroai.runtime.labels import NO_LABELS, Labels, labels_of
from fastroai.steps import PipelineConfig
from fastroai.store.reading.following import FollowedRun
from fastroai.store.reading.history import RunHistory
from fastroai.store.record.declarations import OnChanged
from fastroai.store.record.halting import signal_elsewhere
from fastroai.store.record.headers import FoundHeader, check_run_id
from fastroai.store.record.runs import seize
from fastroai.store.record.snapshot import RunSnapshot
from fastroai.store.run_store import RunStore, RunStoreLike
from fastroai.store.signals import Signal
from fastroai.tracing import Tracer
from fastroai.usage.limits import limits_of

_KIND: Final = attrgetter("kind")


class FrontDoor(TakesUpRuns[DepsT, ResultT], ABC, Generic[DepsT, InputT, ResultT]):
    """The methods for runs: the base class of pipelines, graphs, routers, flows and bound workflows.

    The decorators of methods are for type checkers, which ask for `deps` if the steps need any.
    """

    kind: ClassVar[str]
    """Name of this kind of object in errors."""
    name: str
    config: PipelineConfig
    version: str | None = None
    """The name of this version of the definition, which is on record with its runs."""
    _accepts: Accepted | None = None

    # --- to be filled in ---

    @property
    @abstractmethod
    def definition(self) -> dict[str, JsonValue]:
        """The shape, as plain data."""

    @abstractmethod
    async def _execute(self, request: RunRequest[DepsT]) -> ResultT:
        """Carry out a run, and return the result."""

    @abstractmethod
    def _keeper(self, store: RunStore) -> RunKeeper:
        """Return the keeper that puts runs on record in a store."""

    _execution: Execution
    """What carries out the runs, or `_heed` is overridden."""

    def _heed(self, run_id: str | None, signal: Signal) -> bool:
        """Pass a signal to a run of this process, or to all of them. Return whether there is such a run."""
        return self._execution.heed(run_id, signal)

    # --- inputs ---

    @property
    def input_type(self) -> type | None:
        """The type whose fields are the inputs of a run; `None` if no type is declared."""
        return None if self._accepts is None else self._accepts.declared

    def checked_inputs(self, inputs: Mapping[str, object]) -> Mapping[str, object]:
        """Return inputs as a run has them: as their declared types convert them, with defaults.

        Raises:
            ContractViolation: they are not what the pipeline or graph accepts.
        """
        return checked_inputs(self._accepts, inputs, self.name)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from fastroai.store.reading.run_pages import shape_page

        return shape_page(self.definition, repr(self))

    # --- new runs ---

    def _beginning(
        self,
        inputs: Mapping[str, Any] | None,
        deps: DepsT | None,
        tracer: Tracer | None,
        options: OpenOptions,
    ) -> tuple[RunRequest[DepsT], RunStoreLike | None, OnExisting, WhenBusy]:
        """Return the arguments of `_begin` for a run with these options."""
        request = _request(
            options,
            inputs,
            deps,
            tracer,
            run_id=options.get("run_id"),
            labels=labels_of(options.get("tags", ()), options.get("tenant")),
            reserve=options.get("reserve"),
        )
        return request, options.get("store"), options.get("on_existing", "fail"), _when_busy(options)

    @opening
    @takes_options(OpenOptions, defaults=DEFAULTS)
    async def execute(
        self,
        inputs: InputT = None,  # type: ignore[assignment]  # as PydanticAI has it for deps
        deps: DepsT = None,  # type: ignore[assignment]
        tracer: Tracer | None = None,
        **options: Unpack[OpenOptions],
    ) -> ResultT:
        """Run, and return the result. `run` is the same method.

        If the run of a graph fails, or a budget stops it, this returns a result with all work that was paid
        for. A pipeline raises the error.

        Args:
            inputs: Values that steps read with `ctx.get_input`; the memory of a graph begins with them.
            deps: Dependencies, which steps find as `ctx.deps`, and agents called by `ctx.run` get, too.
            tracer: Tracer for the spans of the run; by default that of the run around this one.
            context: Shared objects, such as clients and caches, which steps find as `ctx.shared`, by
                reference. A flow takes none, because its body has no `ctx`.
            run_id: The id of the run; by default a new one. Without a store, the id only names the run in
                events and traces.
            store: The store that keeps the record of the run, so that it can be resumed; by default that of
                the config.
            tags: Names by which the run is found and its spending summed. Requests, reports and spans have
                them, also in runs and calls inside; `RunHistory` and `Inbox` filter by them.
            tenant: The name of the tenant, such as a customer, for whom the run works. It is used like a tag,
                and `SpendLimit(key="tenant")` counts by it.
            on_existing: What to do if the store has a run of this id. `"fail"` raises `RunExists`. `"resume"`
                resumes the run, or returns its result if it has finished. `"return"` returns the result of a
                run that has finished. `"replace"` deletes the run, and begins anew. For `"resume"`, inputs
                that differ from those on record replace them, as with `resume(inputs=...)`.
            on_busy: What to do if a process has that run; as in `resume`.
            busy_timeout: As in `resume`.
            reserve: With `"quote"`, the run begins only if every budget and spend limit that applies to it
                can pay for the upper amount of its `estimate`. This amount is set aside. The requests of the
                run draw on it, and the rest is given back when the run ends.
            budget: Limits on the spending of this run, beside those of the config and of everything around
                it. A `Budget` is on record, so a resumed run keeps it; a `SpendLimit` is not.
            on_event: Function that is called with all events of the run, text included. It may be async. Its
                exceptions are logged. To read events at your own pace, use `stream`.
            progress: Whether to show how far the run is: steps that are done, cost so far, what is left of
                the budget, and how long the rest may take. It is shown on standard error if that is a
                terminal, below the cell of a notebook, or else as lines of a log. `"auto"` shows nothing in a
                log. All runs that go on at the same time share one display.
            on_progress: Function that is called with a `Progress` whenever a step has started or ended or
                money was spent, for a display of your own. It may be async. Its exceptions are logged.

        Raises:
            StepExecutionError: a step of a pipeline failed, after its retries. The error has the outputs of
                the steps that finished, and the usage.
            CostBudgetExceeded: a budget of this pipeline, or of the run around it, is used up. Or, with
                `reserve`, a limit has too little left: then `stopped` is `"run"`, and nothing was sent.
            TimeLimitExceeded: `total_timeout` of a pipeline ran out.
            ContractViolation: the inputs are not what the pipeline or graph accepts.
            ConfigurationError: a tag or the tenant is no printable text of 1 to 200 characters; or the cost
                of the run has no bound, with `reserve`.
            MissingExtraError: rich is not installed (the extra `cli`), and `progress` needs it.
            RunExists: the store has a run of this id, with `"fail"`; or with `"return"`, one that has not
                finished.
            RunInProgress: a process has the run, also after the wait that `on_busy` asks for.
            ValueNotStorable: an input cannot be stored.
            RunStoreUnavailable: the store fails, after retries. The record that it has so far is kept.
        """
        return await self._begin(*self._beginning(inputs, deps, tracer, options))

    run = execute
    execute_sync: Opens[DepsT, InputT, ResultT] = blocking_twin(execute, of=_KIND)
    run_sync: Opens[DepsT, InputT, ResultT] = blocking_twin(run, of=_KIND, name="run")

    @opening
    @takes_options(OpenOptions, defaults=DEFAULTS)
    def execute_stream(
        self,
        inputs: InputT = None,  # type: ignore[assignment]  # as PydanticAI has it for deps
        deps: DepsT = None,  # type: ignore[assignment]
        tracer: Tracer | None = None,
        **options: Unpack[OpenOptions],
    ) -> RunStream[ResultT]:
        """Run, and iterate the events of the run. `stream` is the same method.

        After the iteration, `stream.result` has the result.

            async with pipeline.stream(inputs) as stream:
                async for event in stream:
                    match event:
                        case TextChunk(step_id=step_id, text=text): ...
                        case StepFinished(step_id=step_id, usage=usage): ...

        Leaving the iteration early cancels the run. Errors of the run are raised at the end of the iteration.
        """
        request, *_ = begin = self._beginning(inputs, deps, tracer, options)
        return RunStream(lambda listener: self._begin(request.heard_by(listener), *begin[1:]))

    stream = execute_stream

    # --- going on ---

    def _resumption(
        self,
        run_id: str,
        deps: DepsT | None,
        options: ResumeOptions,
        also: AlsoOnRecord | None = None,
    ) -> Callable[[Listener | None], Awaitable[ResultT]]:
        """Return the function that resumes a run with these options, and tells a listener of its events.

        It puts `also` on record: by default, the answers.
        """
        request = _request(
            options,
            options.get("inputs"),
            deps,
            options.get("tracer"),
            run_id=run_id,
            reserve=options.get("reserve"),
            on_changed=options.get("on_changed"),
        )
        store, force, busy = options.get("store"), options.get("force", False), _when_busy(options)
        also = also or self._answers(options.get("answers"))
        return lambda listener: self._resume(request.heard_by(listener), store, busy, force=force, also=also)

    @resuming
    @takes_options(ResumeOptions, defaults=DEFAULTS)
    async def resume(
        self,
        run_id: str,
        *,
        deps: DepsT = None,  # type: ignore[assignment]
        **options: Unpack[ResumeOptions],
    ) -> ResultT:
        """Resume a run that was interrupted, has failed, was cancelled, or is paused.

        Steps that have finished do not run again, and responses and tool results that are on record are not
        paid for again. Budgets, usage, retries and conversations go on from where they were.

        Args:
            run_id: The run.
            inputs: New values for some inputs, such as a new message of a user.
            answers: Answers to open questions of the run, by the ids of the questions, as with
                `Inbox.answer`.
            store: The store that has the run; by default that of the config.
            deps: As in `execute`; they are not stored.
            tracer: As in `execute`.
            context: As in `execute`; it is not stored.
            force: Resume although the pipeline or graph has changed, and take the run from the process that
                has it, whatever its lease says. There, `RunTakenOver` ends the run at the next write. Use it
                only if you know that the other process hangs; else a step may run in both at the same time.
            on_changed: What to do when the code makes a call that is on record, and what is declared for it
                has changed: its intent, context, instructions, model, output type or settings. `"ask"` asks
                the model again, and `"keep"` uses the answer on record. `"fail"` makes the step fail with
                `CallChangedError` before anything is sent; in a flow, `resume` raises that error. By default,
                what the config says, which is `"ask"` unless given. The facts `CallChanged` and
                `CallLeftOver` say what was done. Steps that have finished stay so.
            on_busy: What to do if a process has the run. `"reject"` raises `RunInProgress`. `"enqueue"` waits
                until the run has ended or paused, in one line with the waiting callers of all processes.
                `"interrupt"` cancels the run, as `cancel` does, and resumes it when it has ended.
            busy_timeout: Seconds for which `on_busy` waits.
            reserve: As in `execute`, with the quote less what the run has spent before. If a limit has too
                little left, the run stays as it was.
            budget: Limits on the spending of the run, in place of those that `execute` was given; by default,
                the run keeps these. Earlier spending counts, and all other limits hold as before.
            on_event: As in `execute`, with the events of the rest of the run.
            progress: As in `execute`; what has finished before counts as done.
            on_progress: As in `execute`.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process has the run, also after the wait that `on_busy` asks for.
            RunDefinitionChanged: the pipeline or graph has changed in parts that the run has reached, unless
                `force`.
            AnswerRejected: an answer does not fit its question; no answer was put on record.
            QuestionClosed: the run does not wait for one of the answers; no answer was put on record.
            RunCorrupt: the record of the run cannot be read.
            RunFromNewerVersion: a later version of FastroAI has written the record.
            RunFromOlderVersion: an earlier version of FastroAI has written the record.
        """
        return await self._resumption(run_id, deps, options)(None)

    resume_sync: Resumes[DepsT, ResultT] = blocking_twin(resume, of=_KIND)

    @resuming
    @takes_options(ResumeOptions, defaults=DEFAULTS)
    def resume_stream(
        self,
        run_id: str,
        *,
        deps: DepsT = None,  # type: ignore[assignment]
        **options: Unpack[ResumeOptions],
    ) -> RunStream[ResultT]:
        """Resume a run, as `resume` does, and iterate the events of its rest.

        Events of steps that finished before are not repeated: `follow` has the facts of the whole run.
        """
        return RunStream(self._resumption(run_id, deps, options))

    @forking
    @takes_options(ForkOptions, defaults=DEFAULTS)
    async def fork(
        self,
        run_id: str,
        *,
        deps: DepsT = None,  # type: ignore[assignment]
        **options: Unpack[ForkOptions],
    ) -> ResultT:
        """Start a new run with the work of another run up to a point, at no cost, and continue differently.

            await pipeline.fork("invoice-42", at="write", inputs={"tone": "formal"})
            await pipeline.fork("invoice-42", outputs={"classify": "complaint"})
            await graph.fork("essay-7", at="review#2", inputs={"draft": "..."})

        Args:
            run_id: The other run, which stays as it is.
            at: For a pipeline, the step that runs again, with all steps that need it; or the place of a step
                inside of steps that run pipelines and routers, as in traces: `write/inner/check`. In a
                router, steps are inside of the step `route`. For a graph, the visit before which the new run
                begins: `draft#2`, or `draft` for the last visit. All before it is kept.
            inputs: New values for some inputs. In a graph they are written to memory, over the values of
                nodes.
            outputs: New outputs by step id, in place of those on record; all steps that need them run again.
                For a graph, the output of one visit, after which the new run goes on.
            new_run_id: The id of the new run.
            store: As in `resume`.
            deps: As in `execute`.
            tracer: As in `execute`.
            context: As in `execute`.
            budget: As in `execute`.
            on_event: As in `execute`.
            progress: As in `execute`.
            on_progress: As in `execute`.

        Raises:
            RunNotFound: the store has no such run.
            RunExists: the new id is taken.
            ConfigurationError: there is no such step or visit, or it cannot have this output.
            ContractViolation: the output does not have what the node of a graph writes.
            RunDefinitionChanged: the graph has changed.
        """
        inputs, outputs = options.get("inputs"), options.get("outputs")
        check_mapping(inputs)
        if outputs is not None and not isinstance(outputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError("outputs", outputs, "a mapping of step ids to outputs")
        request = _request(options, None, deps, options.get("tracer"))
        keeper = request.limiting(self._keeper(needed_store(options.get("store"), self.config.store)))
        opening = await keeper.fork(
            run_id,
            at=options.get("at"),
            inputs=inputs,
            outputs=outputs,
            new_run_id=options.get("new_run_id"),
        )
        return await self._execute(request.opened_by(opening))

    fork_sync: Forks[DepsT, ResultT] = blocking_twin(fork, of=_KIND)

    # --- messages ---

    async def send(
        self, run_id: str, name: str, value: object = None, *, store: RunStoreLike | None = None
    ) -> None:
        """Send a message to a run, which `ctx.receive` in one of its steps returns.

        `fastroai.send_message` does the same without the code of the pipeline, and its docs say more.

        Raises:
            MessageRejected: the run cannot receive the message.
            RunNotFound: the store has no such run.
        """
        run_store = needed_store(store, self.config.store)
        await send_message(run_id, name, value, store=run_store, codec=self.config.codec)

    send_sync = blocking(send, of=_KIND)

    # --- watching and stopping ---

    async def get_state(self, run_id: str, *, store: RunStoreLike | None = None) -> RunSnapshot:
        """Return the state of a run of any process: its status, outputs, running steps and open questions.

        Raises:
            RunNotFound: the store has no such run.
            RunCorrupt: the record of the run cannot be read.
        """
        return await self._history(store).state(run_id)

    def follow(self, run_id: str, *, after: int = 0, store: RunStoreLike | None = None) -> FollowedRun:
        """Iterate the facts of a run with their positions, live, whichever process runs it.

            async for position, fact in pipeline.follow(run_id, after=last_position): ...

        `RunHistory.follow` describes when the iteration ends, and its errors.
        """
        return self._history(store).follow(run_id, after=after)

    async def pause(self, run_id: str, *, store: RunStoreLike | None = None) -> None:
        """Let a running run finish its current steps, and halt; `resume` continues it.

        Call it in any process that reaches the store: a run in another process notices it within a second.
        The run may end before it halts. Pipelines, graphs and routers that are steps of the run, and the
        variants of routers, halt before their own next steps. Runs that the code of a step starts itself go
        on to their end.

        Raises:
            RunNotFound: the run is not in this process, and the store, if there is one, has no such run.
            RunStatusConflict: no process is running it.
        """
        await self._signal(run_id, "pause", store)

    async def interrupt(self, run_id: str | None = None, *, store: RunStoreLike | None = None) -> None:
        """Let the process of a run give it up, so that `recover` resumes it in another process.

            await pipeline.interrupt()  # all its runs in this process, before that ends

        `serve` and `Service` do so when they end. End loops such as `recover_every` first, or they take the
        runs up again.

        The run finishes its current steps, as with `pause`, and halts. Its status on record is `interrupted`.
        If its task is cancelled before that, the steps are cut off, and the run is `interrupted` as well, not
        `cancelled`. The caller of `execute` gets a result whose status is `paused`. A run without a store is
        paused or cancelled, because another process has no record to resume it from.

        Args:
            run_id: The run; by default, all runs of this pipeline, graph or router in this process.
            store: As in `pause`.

        Raises:
            RunNotFound: the run is not in this process, and the store, if there is one, has no such run.
            RunStatusConflict: no process is running it.
        """
        if run_id is None:
            self._heed(None, "interrupt")
        else:
            await self._signal(run_id, "interrupt", store)

    async def cancel(self, run_id: str, *, store: RunStoreLike | None = None) -> None:
        """Stop a run at once; its result has `status="cancelled"` and all partial work.

        Call it in any process, as `pause`. It also cancels a run that is paused, has failed, or whose process
        died. A cancelled run can be resumed.

        Raises:
            RunNotFound: the run is not in this process, and the store, if there is one, has no such run.
            RunStatusConflict: the run has finished, or was cancelled before.
        """
        await self._signal(run_id, "cancel", store)

    # --- for other engines ---

    def keeper_of(self, store: RunStore) -> RunKeeper:
        """Return what puts runs on record in a store, and reads them back. For engines that carry runs."""
        return self._keeper(store)

    async def carry_out(self, request: RunRequest[DepsT]) -> ResultT:
        """Carry out a run that was opened elsewhere, and return the result. For engines that carry runs."""
        return await self._execute(request)

    # --- parts ---

    def _waking(self, which: Which, how: TakeUp[DepsT]) -> Waking[DepsT, ResultT]:
        keeper, history = self._keeper(needed_store(how.store, self.config.store)), self._history(how.store)
        if how.on_changed is not None:
            keeper = replace(keeper, on_changed=how.on_changed)
        return Waking(
            keeper=keeper,
            find=partial(history.due if which == "due" else history.interrupted, self.name),
            is_wanted=_is_due if which == "due" else _is_interrupted,
            execute=self._execute,
            how=how,
        )

    async def _begin(
        self,
        request: RunRequest[DepsT],
        store: RunStoreLike | None = None,
        on_existing: OnExisting = "fail",
        busy: WhenBusy = DO_NOT_WAIT,
    ) -> ResultT:
        if on_existing == "fail" and busy.do == "reject":
            return await self._execute(request.begun(store, self.config.store, self._keeper))
        check_existing(on_existing, busy, request.run_id)
        check_mapping(request.inputs)
        keeper = request.labelling(self._keeper(needed_store(store, self.config.store)))
        inputs = self.checked_inputs(dict(request.inputs or {}))
        open_it = partial(keeper.begin_or_go_on, on_existing, inputs=inputs)
        return await self._in_turn(request, keeper, busy, open_it)

    async def _resume(
        self,
        request: RunRequest[DepsT],
        store: RunStoreLike | None,
        busy: WhenBusy,
        *,
        force: bool,
        also: AlsoOnRecord,
    ) -> ResultT:
        check_mapping(request.inputs)
        keeper = request.limiting(self._keeper(needed_store(store, self.config.store)))
        if force and request.run_id is not None:
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
        """Wait for the turn of this caller, then open the run with `open_it` and carry it out."""
        run_id = "" if request.run_id is None else request.run_id

        async def interrupt() -> None:
            if not self._heed(run_id, "cancel"):
                with suppress(RunStatusConflict, RunNotFound):  # the run has ended meanwhile
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

    def _history(self, store: RunStoreLike | None) -> RunHistory:
        return RunHistory(needed_store(store, self.config.store), codec=self.config.codec)

    async def _signal(self, run_id: str, signal: Signal, store: RunStoreLike | None) -> None:
        check_run_id(run_id)
        if not self._heed(run_id, signal):
            await asyncio.sleep(0)  # let the task of a run begin that was started just now
            if not self._heed(run_id, signal):
                run_store = store_of(store, self.config.store)
                if run_store is None:
                    raise RunNotFound(run_id, None)
                if signal == "cancel":
                    await self._history(run_store).cancel(run_id)
                else:
                    await signal_elsewhere(run_store, run_id, signal)


def _request(
    options: RunOptions,
    inputs: Mapping[str, Any] | None,
    deps: DepsT | None,
    tracer: Tracer | None,
    *,
    run_id: str | None = None,
    labels: Labels = NO_LABELS,
    reserve: Reserve | None = None,
    on_changed: OnChanged | None = None,
) -> RunRequest[DepsT]:
    """Return the request for a run. The arguments after `options` are those that only some methods take."""
    return RunRequest(
        inputs,
        deps,
        tracer,
        options.get("context"),
        listener_of(options.get("on_event")),
        run_id=run_id,
        labels=labels,
        reserve=reserve,
        limits=limits_of(options.get("budget")),
        on_changed=on_changed,
        watching=Watching.of(options.get("progress", False), options.get("on_progress")),
    )


def _when_busy(options: BusyOptions) -> WhenBusy:
    return when_busy(options.get("on_busy", DO_NOT_WAIT.do), options.get("busy_timeout", DO_NOT_WAIT.seconds))


def _is_due(found: FoundHeader) -> bool:
    """Return whether a run is due, and no workers carry it, nor a run of rows that others carry."""
    return found.is_due and found.header.routing is None and not found.header.parent


def _is_interrupted(found: FoundHeader) -> bool:
    """Return whether a run is interrupted, and no workers carry it, nor a run of rows."""
    return found.is_interrupted and found.header.routing is None and not found.header.parent


def check_config(config: object) -> None:
    """Check the type of the config of a run. Raises `ConfigurationError`."""
    if config is not None and not isinstance(config, PipelineConfig):
        raise ConfigurationError("config", config, "a PipelineConfig")


def check_version(version: object) -> None:
    """Check the name of a version. Raises `ConfigurationError`."""
    if version is not None and (not isinstance(version, str) or not version):
        raise ConfigurationError("version", version, "a non-empty text")

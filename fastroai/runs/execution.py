"""One run of a pipeline or graph, from the request for it to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from threading import Lock
from time import perf_counter
from typing import Any, Protocol, TypeVar

from pydantic import JsonValue

from fastroai.contracts.accepted import Accepted
from fastroai.errors import BudgetExceeded, ConfigurationError, ContractViolation, StepExecutionError
from fastroai.human.halting import Halted
from fastroai.human.sinks import tell_people
from fastroai.records import RunKind, first_given, in_seconds
from fastroai.runs.around import EndOnRecord, entered, failure_of_run, how_it_ended
from fastroai.runs.inputs import check_inputs, checked_inputs
from fastroai.runs.progress.progress import RunProgress, what_counts
from fastroai.runs.quoting import Estimate, reserved, usd_to_set_aside
from fastroai.runs.request import RunRequest
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.events import both
from fastroai.runtime.fact_base import Part
from fastroai.runtime.facts import PauseRequested, RunFinished, RunStarted, StopRequested
from fastroai.runtime.retrying.failures import leaves
from fastroai.steps import PipelineConfig
from fastroai.steps.durability import restore_spending
from fastroai.steps.hooks import RunHooks
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import log_of
from fastroai.store.record.runs import DurableRun
from fastroai.store.signals import Signal, heeding_signals
from fastroai.tracing import NoOpTracer, SimpleTracer
from fastroai.usage.limits import NO_LIMITS, Limits, together

DecisionT = TypeVar("DecisionT")
DecisionT_contra = TypeVar("DecisionT_contra", contravariant=True)


class Performer(Protocol[DecisionT_contra]):
    """Carries out the decisions of one machine: the runner of steps, or that of rows."""

    scope: Scope
    is_told: bool
    """Whether listeners were told of the end of the run."""
    finish: RunFinished | None
    """The decision of the machine that ended or paused the run."""

    @property
    def milliseconds(self) -> float:
        """Milliseconds that the run has taken so far in this process."""
        ...

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The steps, nodes or rows with which the run goes on if it is resumed."""
        ...

    async def run(self, decisions: Sequence[DecisionT_contra]) -> None:
        """Carry out decisions, and those that follow, to the end."""
        ...

    def heed(self, request: PauseRequested | StopRequested) -> None:
        """Pause the run when the running steps, nodes or rows end, or stop it. Works from any thread."""
        ...


@dataclass(slots=True)
class OpenRun:
    """A run that has begun. Nobody changes it. Not frozen, because that takes longer to make."""

    scope: Scope
    part: Part
    inputs: Mapping[str, object]
    log: Log
    live: LiveRun
    started: RunStarted
    """The fact that the run began, for listeners of this process."""
    began: float
    """Start of the run, as a value of `perf_counter`: before its time limit began and its store was asked."""

    def halt_around(self, finish: RunFinished) -> None:
        """Raise `Halted` if this run is paused inside of another, so that the step around it halts, too."""
        is_inside = self.log.scope is not self.scope
        if is_inside and finish.status == "paused" and finish.reason_code != "incomplete":
            raise Halted

    @property
    def kept(self) -> DurableRun | None:
        """The run on record that this run is, or is a part of; `None` without a store."""
        return self.log.run


class LiveRun(AbstractContextManager["LiveRun"]):
    """A run of this process, from the request for it to its end. Signals may come before it is open.

    It is a context: `live`, the live runs by id, has it from the beginning to the end.
    """

    def __init__(self, scope: Scope, live: dict[str, list[LiveRun]]) -> None:
        self.scope, self._live = scope, live
        self._lock = Lock()
        self._runner: Performer[Any] | None = None
        self._early: Sequence[Signal] = ()
        self._log: Log | None = None
        """The log whose signals this run takes."""

    def __enter__(self) -> LiveRun:
        self._live.setdefault(self.scope.run_id, []).append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        run_id = self.scope.run_id
        live = self._live[run_id]
        live.remove(self)
        if not live:
            del self._live[run_id]

    def listen(self, log: Log, *, is_step: bool) -> None:
        """Take the signals of the outermost run, if this is the outermost, or a step of a run that does.

        A run that the code of a step started goes on to its end: if it halted, the other work of that step
        would be cancelled.

        Raises:
            Halted: the outermost run was asked to pause already.
        """
        around = self.scope.parent
        while around is not None and around.kind in ("step", "router"):
            around = around.parent
        if log.scope is self.scope or (is_step and around in log.heeding):
            self._log, log.heeding[self.scope] = log, self.heed
            if log.is_pausing:
                raise Halted  # before it begins

    def heed(self, signal: Signal) -> None:
        """Pass a signal to the runner, as soon as there is one. Works from any thread."""
        with self._lock:
            if self._runner is None:
                self._early = (*self._early, signal)
                return
        _heed(self._runner, signal)

    def begin(self, runner: Performer[Any], log: Log) -> None:
        """Set the runner, which takes signals from now on, and pass it those that came earlier."""
        with self._lock:
            self._runner = runner
        for signal in self._early:
            log.heed(signal)

    def _end(self) -> None:
        """Take no more signals, and forget the runner, so that results do not keep it in memory."""
        with self._lock:
            self._runner = None
        if self._log is not None:
            del self._log.heeding[self.scope]
            self._log = None


class Execution:
    """Runs one pipeline or graph, any number of times."""

    def __init__(
        self,
        kind: RunKind,
        name: str,
        config: PipelineConfig,
        limits: Limits | None,
        hooks: RunHooks,
        accepts: Accepted | None,
        estimate: Estimate,
    ) -> None:
        """Make the execution of a pipeline, graph or flow. `estimate` returns the quotes of its runs."""
        self._kind: RunKind = kind
        self._name, self._config, self._limits = name, config, limits
        self._hooks, self._accepts, self._estimate = hooks, accepts, estimate
        self._seconds = in_seconds(first_given(config.total_timeout, default=None))
        """Seconds that a run may take, if that is limited."""
        self._live: dict[str, list[LiveRun]] = {}
        """The live runs of this process, by run id. Runs that are nested in each other have the same id."""

    # --- from outside ---

    def heed(self, run_id: str | None, signal: Signal) -> bool:
        """Pass a signal to a run of this process, or to all of them. Return whether there is such a run."""
        ids = tuple(self._live) if run_id is None else (run_id,)
        live = [run for one in ids for run in self._live.get(one, ())]
        outermost = {log_of(run.scope) or run for run in live}
        for one in outermost:
            one.heed(signal)
        return bool(live)

    # --- running ---

    def scope(self, request: RunRequest[Any]) -> Scope:
        """Return the scope of a run, under the current one. It is not entered yet."""
        parent, opening, config = current_scope(), request.opening, self._config
        recorded = None if opening is None else opening.recorded
        tracer = request.tracer_of(parent)
        if config.trace is False:
            tracer = NoOpTracer()
        elif config.trace is True and tracer is None:
            tracer = SimpleTracer()
        return Scope(
            self._kind,
            self._name,
            parent=parent,
            limits=together(request.own_limits, self._limits),
            deps=request.deps,
            tracer=tracer,
            listener=both(self._hooks.listener(self._name, around=parent), request.listener),
            key=request.key,
            provider_limits=config.provider_limits,
            run_id=request.run_id if opening is None else opening.run_id,
            # A run that has finished only returns its result again, however long it took.
            seconds_before=0.0 if recorded is None or recorded.has_finished else recorded.seconds,
            labels=request.labels if opening is None else opening.labels,
        )

    async def open(
        self,
        stack: AsyncExitStack,
        request: RunRequest[Any],
        scope: Scope,
        definition: Mapping[str, JsonValue],
    ) -> OpenRun:
        """Open a run in its scope, until `stack` ends: span, clock, log. Check the inputs."""
        began = perf_counter()
        aside_usd = None if request.reserve is None else await self._quoted(request)
        if request.opening is not None:
            scope.log = None  # forget the log of the run around: this run gets its own
        await stack.enter_async_context(scope)
        # Before the next await, so that the caller can pause or cancel at once.
        live = stack.enter_context(LiveRun(scope, self._live))
        await entered(stack, scope, self._kind, self._seconds)
        inputs = await check_inputs(self._accepts, dict(request.inputs or {}), scope)
        if aside_usd is not None:
            await stack.enter_async_context(reserved(scope, aside_usd))
        started = RunStarted(part=scope.part, definition=dict(definition), inputs=inputs)
        log = await self._log(stack, request, scope, started, began)
        if request.watching is not None:
            progress = RunProgress(scope, *what_counts(started))
            progress.count_earlier(() if log.run is None else log.run.recorded.entries)
            stack.enter_context(request.watching.during(progress, scope))
        live.listen(log, is_step=request.is_step)
        if log.run is not None and request.opening is not None:
            after = request.opening.last_signal
            heeding = heeding_signals(log.run.store, log.run.header, log.heed, after=after)
            await stack.enter_async_context(heeding)
        return OpenRun(scope, started.part, inputs, log, live, started, began)

    async def _quoted(self, request: RunRequest[Any]) -> Decimal | None:
        """Return the US dollars to set aside for the run."""
        try:
            inputs = checked_inputs(self._accepts, dict(request.inputs or {}), self._name)
        except ContractViolation:
            return None  # `opened` raises the error again, and tells listeners
        recorded = None if request.opening is None else request.opening.recorded
        if recorded is not None and recorded.has_finished:
            return Decimal(0)  # it returns its result again, and runs nothing
        quote = await self._estimate(inputs, request.deps)
        own = request.own_limits or NO_LIMITS
        return usd_to_set_aside(self._name, quote.within(*own.budgets), recorded)

    async def _log(
        self,
        stack: AsyncExitStack,
        request: RunRequest[Any],
        scope: Scope,
        started: RunStarted,
        began: float,
    ) -> Log:
        if request.opening is not None:
            run = await request.opening.open(started.inputs)
            scope.log = log = Log(scope, run, records_messages=self._config.record_messages)
            log.is_handed_over = request.is_handed_over
            log.is_carried = request.is_handed_over or _is_row_of_carried(scope)
            run.open_in(scope)
            log.add_sinks("", self._config.sinks)
            # The callback runs after the end of the run is on record, so it is pushed first.
            stack.push_async_callback(tell_people, log, run)
            stack.push_async_exit(EndOnRecord(log, began))
            charges = run.recorded.requests.charges()
            scope.restore(charges, run.recorded.requests.agent_calls(charges))
            return log
        if (around := log_of(scope)) is not None:
            join_record(self._config, around, scope)
            if around.run is not None:
                restore_spending(scope)
            return around
        scope.log = log = Log(scope, records_messages=self._config.record_messages)
        stack.push_async_exit(EndOnRecord(log, began))
        log.note(started)
        return log

    async def perform(
        self,
        run: OpenRun,
        runner: Performer[DecisionT],
        decisions: Sequence[DecisionT],
    ) -> RunFinished:
        """Carry out a run, tell listeners of its start and its end, and return how it ended."""
        scope = run.scope
        run.live.begin(runner, run.log)
        if scope.listener is not None:
            await scope.emit(run.started)
        try:
            await runner.run(decisions)
        finally:
            scope.write_off_in_flight()  # requests in flight count at their bounds in the usage of the run
            if runner.finish is None and run.log.scope is scope:
                run.log.resume_at = runner.resume_at
        finish = runner.finish
        assert finish is not None
        if finish.raised is not None:
            finish.raised = raised = _of_run(finish, finish.raised, scope)
            finish.failure = failure_of_run(raised)
        await _tell_end(runner, finish)
        if run.log.scope is scope:
            run.log.finished = finish
        return finish

    async def tell_end(self, runner: Performer[Any], error: BaseException) -> None:
        """Tell listeners of an end that came from around the run, such as a time limit."""
        if not runner.is_told and isinstance(error, Exception):
            ended = how_it_ended(error)
            ended.part, ended.resume_at = runner.scope.part, runner.resume_at
            await _tell_end(runner, ended)


def join_record(config: PipelineConfig, around: Log, scope: Scope) -> None:
    """Let the settings of a nested run hold in the record of the run around.

    Its sinks tell its questions. Its values go through the codec of the run around.

    Raises:
        ConfigurationError: the nested run has a codec and the run around has none, so that values of the
            nested run would be stored in plain text; or the nested run does not record messages, and the run
            around does.
    """
    if around.records_messages and not config.record_messages:
        expected = f"False for the outermost run, too: its record has the messages of {scope.name!r}"
        raise ConfigurationError("record_messages", False, expected)
    if around.run is None:
        return
    if config.codec is not None and around.run.codec is None:
        expected = (
            f"a codec in the config of the outermost run, too: its record has the values of {scope.name!r}, "
            "and without a codec, they would be stored in plain text"
        )
        raise ConfigurationError("codec", config.codec, expected)
    around.add_sinks(around.place(scope), config.sinks)


async def _tell_end(runner: Performer[Any], finish: RunFinished) -> None:
    runner.is_told = True
    finish.duration_ms, finish.spent_in = runner.milliseconds, runner.scope
    if runner.scope.listener is not None:
        await runner.scope.emit(finish)


def _is_row_of_carried(scope: Scope) -> bool:
    """Return whether a run is that of a row whose rows are on record, and goes on when these do."""
    row = scope.parent
    log = log_of(None if row is None else row.parent)
    return log is not None and log.scope.kind == "rows" and log.is_carried


def _heed(runner: Performer[Any], signal: Signal) -> None:
    runner.heed(StopRequested(reason="cancel was requested") if signal == "cancel" else PauseRequested())


def _of_run(finish: RunFinished, raised: BaseException, scope: Scope) -> BaseException:
    """Return the exception that a run raises: for a step's failure, one that names the step."""
    if finish.step_id:
        wrapped = StepExecutionError(finish.step_id, raised)
        wrapped.__cause__ = raised
        return wrapped
    budgets = (leaf for leaf in leaves(raised) if isinstance(leaf, BudgetExceeded))
    return next((leaf for leaf in budgets if scope.is_within(leaf.scope_path)), raised)

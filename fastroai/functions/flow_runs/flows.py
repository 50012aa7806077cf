"""`@flow`: an async function as a run, with one scope around all that it calls."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from functools import cached_property
from types import FunctionType
from typing import Any, Generic, NotRequired, ParamSpec, overload

from pydantic import JsonValue
from typing_extensions import TypeVar

from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError, FlowStopped, StepExecutionError, failure_inside
from fastroai.functions.configuring import configuration, tell_reviewers
from fastroai.functions.declaring.signature import Signature
from fastroai.functions.declaring.static_checks import flow_problems
from fastroai.functions.errors import CompileError
from fastroai.functions.flow_runs.flow_run import BODY, FlowRun, flow_run_of
from fastroai.functions.kept_calls import kept_records
from fastroai.other_names import other_names
from fastroai.pipelines import Pipeline, PipelineConfig
from fastroai.pipelines.result import PipelineResult
from fastroai.records import CallRecord, Duration
from fastroai.rows.child_runs import RunRows
from fastroai.rows.door import MapsRows
from fastroai.rows.target import RowTarget
from fastroai.runs.door import FrontDoor, check_config
from fastroai.runs.nesting import NestedStep
from fastroai.runs.openings import OnExisting, RunKeeper
from fastroai.runs.progress.progress import OnProgress
from fastroai.runs.progress.showing import ShowProgress, Watching
from fastroai.runs.quoting import Reserve
from fastroai.runs.request import RunRequest
from fastroai.runs.running.turns import DO_NOT_WAIT, OnBusy, WhenBusy, when_busy
from fastroai.runs.signatures import Inputs
from fastroai.runs.stream import RunStream
from fastroai.runs.taking_up.serving import Which
from fastroai.runs.taking_up.waking import TakeUp, Waking
from fastroai.runtime import blocking, current_scope, run_blocking
from fastroai.runtime.events import OnEvent, listener_of
from fastroai.runtime.labels import labels_of
from fastroai.steps import BaseStep, StepConfig, StepContext
from fastroai.steps.config import refuse_on_error, with_budget
from fastroai.steps.context import scope_of
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.run_store import RunStore, RunStoreLike
from fastroai.store.signals import Signal
from fastroai.tracing import Tracer
from fastroai.usage import BudgetLike, Quote
from fastroai.usage.limits import limits_of

P = ParamSpec("P")
T = TypeVar("T", covariant=True, default=Any)


class Flow(FrontDoor[None, Inputs, T], MapsRows[T], Generic[P, T]):
    """An async function as a run; made by `@flow`. Awaiting a call of the flow runs it.

        @flow(budget=Budget(usd="0.05"))
        async def triage(text: opaque[str]) -> Resolution:
            sentiment, topic = await parallel(feeling(text), topic_of(text))
            return await resolve(text, sentiment, topic)

        resolution = await triage(text)
        resolution = await triage.run(text, run_id="ticket-42", store=store)
        resolution = await triage.resume("ticket-42", store=store)

    A call returns the output of the function. Exceptions of the body are raised as they are. `FlowStopped` is
    raised if the run waits for a person, or was paused or cancelled. A run is on record, and can be resumed,
    only if there is a store: that of the call, of the `config`, or of `configure`.

    It has everything that pipelines have: `stream`, `follow`, `pause`, `cancel`, `recover`, `wake`,
    `get_state`; `execute` and `execute_stream` take the arguments as a mapping. On resume, the body runs
    again: a call that is on record returns its recorded output at no cost, and all other code of the body is
    executed once more. So the body must make the same calls if it gets the same outputs. If it makes others,
    `FlowDiverged` is raised.

    A flow that is called inside of another flow, a step or a node is a nested run: it is a part of the run
    around it, and of the budget of that run.
    """

    kind = "flow"

    def __init__(self, function: Callable[P, Coroutine[Any, Any, T]], config: PipelineConfig) -> None:
        if not isinstance(function, FunctionType):
            raise ConfigurationError("flow", function, "an async function")
        problems = flow_problems(function)
        taken = _options().intersection(inspect.signature(function).parameters)
        problems += [f"parameter {name!r} has the name of an option of run()" for name in sorted(taken)]
        if problems:
            raise CompileError(f"flow {function.__name__!r}", tuple(problems))
        refuse_on_error(config, "a flow", "a flow has no steps. Catch the exception in its body")
        functools.update_wrapper(self, function)
        self.function = function
        self.signature = Signature(function, "flow")
        self.name = function.__name__
        self._front = _Front(self, replace(config, sinks=(*config.sinks, tell_reviewers)))

    def __repr__(self) -> str:
        return f"<flow {self.signature}>"

    @property
    def config(self) -> PipelineConfig:  # type: ignore[override]  # nobody sets it
        """The settings of the flow. If they name no store, this has the store of `configure`, if any."""
        config, store = self._front.config, configuration().store
        return replace(config, store=store) if config.store is None and store is not None else config

    # --- inputs ---

    @property
    def input_type(self) -> type:
        """A TypedDict whose fields are the parameters of the function. Those with defaults may be missing."""
        declared = self._front.input_type
        assert declared is not None
        return declared

    def checked_inputs(self, inputs: Mapping[str, object]) -> Mapping[str, object]:
        """Return arguments by name, as pydantic validates them, with defaults.

        Raises:
            TypeError: an argument is missing or unknown.
            ContractViolation: an argument is not of the type of its parameter.
        """
        return self._front.checked_inputs(self.signature.with_defaults(inputs))

    # --- running ---

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the flow, and return its output.

        Raises:
            FlowStopped: the flow waits for a person, or was paused or cancelled. `resume` goes on with it.
            FlowDiverged: the run around it was resumed, and its calls differ from those on record.
            BudgetExceeded: a budget of this flow, or around it, is used up.
        """
        return await self._begin(RunRequest(self.signature.bind(args, kwargs)))

    async def run(  # type: ignore[override]  # its arguments are those of the function
        self,
        *args: Any,
        run_id: str | None = None,
        store: RunStoreLike | None = None,
        tracer: Tracer | None = None,
        tags: Collection[str] = (),
        tenant: str | None = None,
        on_existing: OnExisting = "fail",
        on_busy: OnBusy = "reject",
        busy_timeout: Duration = DO_NOT_WAIT.seconds,
        reserve: Reserve | None = None,
        budget: BudgetLike | None = None,
        on_event: OnEvent | None = None,
        progress: ShowProgress = False,
        on_progress: OnProgress | None = None,
        **kwargs: Any,
    ) -> T:
        """Run the flow with options of the run, which `execute` explains, and return its output.

        Exceptions that the body raises are raised as they are.

        Args:
            *args: As in a call.
            run_id: The id of the run; by default a new one.
            store: Store that keeps the run on record, so that it can be resumed; by default that of the
                config, or that of `configure`. Without any store, the run is not kept.
            tracer: As in `execute`.
            tags: As in `execute`.
            tenant: As in `execute`.
            on_existing: As in `execute`.
            on_busy: As in `execute`.
            busy_timeout: As in `execute`.
            reserve: As in `execute`. The quote of a flow is its budget, so the flow needs a budget.
            budget: As in `execute`.
            on_event: As in `execute`.
            progress: As in `execute`.
            on_progress: As in `execute`.
            **kwargs: As in a call.

        Raises:
            FlowStopped: the flow waits for a person, or was paused or cancelled.
            TypeError: an argument is missing, unknown, or given twice.
            ContractViolation: an argument, or the output, is not of its declared type.
            RunExists: the store has a run with this id, and `on_existing` is `"fail"`; or it is `"return"`,
                and the run has not finished.
            BudgetExceeded: a budget of this flow, or around it, is used up; or, with `reserve`, a limit has
                less left than the quote.
        """
        request: RunRequest[None] = RunRequest(
            self.signature.bind(args, kwargs),
            tracer=tracer,
            listener=listener_of(on_event),
            run_id=run_id,
            labels=labels_of(tags, tenant),
            reserve=reserve,
            limits=limits_of(budget),
            watching=Watching.of(progress, on_progress),
        )
        return await self._begin(request, store, on_existing, when_busy(on_busy, busy_timeout))

    def run_sync(self, *args: Any, **options: Any) -> T:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Run the flow as `run` does, with its arguments, and wait for the output without `await`.

        For scripts and worker threads.

        Raises:
            RunningLoopError: this thread has a running event loop: `await` the method `run` there.
        """
        return run_blocking(
            lambda: self.run(*args, **options), called=f"{self.name}.run_sync", instead=f"{self.name}.run"
        )

    async def run_result(self, *args: Any, **options: Any) -> PipelineResult[T]:
        """Run the flow, and return its result: the output with its cost, usage and trace.

            result = await triage.run_result(text, run_id="ticket-42", store=store)
            print(result.output, result.cost_usd)

        It takes the arguments and options of `run`, and returns a `PipelineResult`. A run that waits, or that
        was paused or cancelled, returns a result whose `status` says so. Exceptions that the body raises are
        raised as they are.

        Raises:
            RunExists: the store has a run with this id, and `on_existing` is `"fail"`, the default; or it is
                `"return"`, and the run has not finished.
            BudgetExceeded: a budget of this flow, or around it, is used up.
        """
        arguments = {name: options.pop(name) for name in [*options] if name not in _options()}
        options["store"] = self.config.store if options.get("store") is None else options["store"]
        return await self._front.execute(self.signature.bind(args, arguments), **options)

    def stream(  # type: ignore[override]  # as in `run`
        self,
        *args: Any,
        run_id: str | None = None,
        store: RunStoreLike | None = None,
        tracer: Tracer | None = None,
        tags: Collection[str] = (),
        tenant: str | None = None,
        on_existing: OnExisting = "fail",
        on_busy: OnBusy = "reject",
        busy_timeout: Duration = DO_NOT_WAIT.seconds,
        reserve: Reserve | None = None,
        budget: BudgetLike | None = None,
        on_event: OnEvent | None = None,
        progress: ShowProgress = False,
        on_progress: OnProgress | None = None,
        **kwargs: Any,
    ) -> RunStream[T]:
        """Run the flow as `run` does, with the same arguments, and iterate the events of the run.

            async with triage.stream(text, run_id="ticket-42") as stream:
                async for event in stream: ...
            print(stream.result)  # the output of the flow

        The run begins with the iteration. Leaving the block early cancels the run; without `async with`, so
        does leaving the loop. Errors of the run are raised at the end of the iteration. `execute_stream`
        takes the arguments as a mapping.

        Raises:
            TypeError: an argument is missing, unknown, or given twice. It is raised at once.
            ContractViolation: an argument is not of the type of its parameter. It is raised at once.
        """
        return self.execute_stream(
            self.signature.bind(args, kwargs),
            tracer=tracer,
            run_id=run_id,
            store=store,
            tags=tags,
            tenant=tenant,
            on_existing=on_existing,
            on_busy=on_busy,
            busy_timeout=busy_timeout,
            reserve=reserve,
            budget=budget,
            on_event=on_event,
            progress=progress,
            on_progress=on_progress,
        )

    @property
    def records(self) -> tuple[CallRecord, ...]:
        """The calls of `@infer` and `@compute` functions that this flow has made, oldest first.

        A process keeps the records of the last 10,000 calls of all its functions. Calls of agents, and calls
        that a nested flow makes, are not among the records here.

        Calls whose outputs a resumed run only gives back are not among them, because they are not made again.
        The calls of a run in a store are in its trace: `(await RunHistory(store).trace(run_id)).calls`.
        """
        return kept_records(self.signature)

    async def _begin(
        self,
        request: RunRequest[None],
        store: RunStoreLike | None = None,
        on_existing: OnExisting = "fail",
        busy: WhenBusy = DO_NOT_WAIT,
    ) -> T:
        return await super()._begin(self._front.completed(request), store, on_existing, busy)

    async def _execute(self, request: RunRequest[None]) -> T:
        result: PipelineResult[T] = await self._front.carry_out(request)
        if result.status != "finished":
            raise FlowStopped(
                self.name, result.run_id, result.status, result.reason, result.questions, result.waits_until
            )
        return result.output  # type: ignore[return-value]  # a run that has finished has one

    def _keeper(self, store: RunStore) -> RunKeeper:
        return self._front.keeper_of(store)

    def _heed(self, run_id: str | None, signal: Signal) -> bool:
        return self._front.heed(run_id, signal)

    def _waking(self, which: Which, how: TakeUp[None]) -> Waking[None, T]:
        _refuse_context(how.context)
        return super()._waking(which, how)

    def replay(self, trace: RunTrace) -> Divergence | None:
        """Repeat the decisions of a run of this flow on its recorded outcomes, like `trace.replay(self)`.

        Return the first decision that differs; `None` if all are the same. Nothing runs or is sent. The body
        does not run either, so its calls are not compared.

        Raises:
            ConfigurationError: the trace is not of a flow, pipeline or router.
        """
        return self._front.replay(trace)

    def rows_target(self) -> RowTarget[T]:
        """Return the object through which `map` runs this flow: one run for each row. For the library.

        A row has the arguments by name, or is the only one.
        """
        return RunRows(
            door=self,
            returns=self.declared_output(),
            steps={},
            estimate=self.estimate,
            parameters={name: name in self.signature.required for name in self.signature.parameters},
        )

    # --- as a step ---

    def as_step(
        self,
        inputs: Callable[[StepContext[Any]], Mapping[str, Any]] | None = None,
        *,
        config: StepConfig | None = None,
    ) -> BaseStep[Any, T]:
        """Return this flow as a step of a pipeline or graph, whose output is the output of the flow.

        The flow is a nested run: its spending is part of the run around it, and of the budget of that run.

        Args:
            inputs: Function that makes the arguments, by name. By default, a parameter has the input of the
                run with its name, or the output of the direct dependency whose step id is its name.
            config: Settings of the step; by default those of the pipeline. It cannot have a `timeout`: set
                `total_timeout`.

        Raises:
            ConfigurationError: the config sets `timeout`.
        """
        return NestedStep(self, inputs, config or StepConfig())

    @property
    def definition(self) -> dict[str, JsonValue]:
        """The shape of the flow as JSON data, which is on record with its runs: its kind, name and only step.

        It does not have the calls of the body, which are known only when the body runs.
        """
        return self._front.definition

    async def run_inside(self, inputs: Mapping[str, Any], context: StepContext[Any]) -> T:
        """Run the flow inside a step, and return its output. For `as_step`.

        Inputs that are not parameters of the function are left out. Exceptions of the body are raised as they
        are.
        """
        known = {name: value for name, value in inputs.items() if name in self.signature.parameters}
        return await self._begin(RunRequest(known))

    async def estimate(self, inputs: Mapping[str, Any] | None = None, deps: Any = None) -> Quote:
        """Return the `Quote` of a run, in US dollars. Nothing runs or is sent.

        The body may call anything, so its cost is unknown: the lower and expected amounts are 0. The upper
        amount is the budget of the flow, or `None` without a budget in dollars.
        """
        return await self._front.estimate(inputs, deps)

    estimate_sync = blocking(estimate, of=lambda self: self.name)

    def declared_output(self) -> Annotation | None:
        """Return the annotated result type of the function, by which the output is checked and stored.

        It is never `None`: a flow has to say what it returns, and for `-> None`, the type is `NoneType`.
        """
        return self.signature.returns.annotation


@functools.cache
def _options() -> frozenset[str]:
    """Return the names of the options of `Flow.run`, which no parameter of a flow can have."""
    parameters = inspect.signature(Flow.run).parameters.values()
    return frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


def _refuse_context(context: object) -> None:
    """Refuse shared objects, which the body of a flow has no way to read. Raises `ConfigurationError`."""
    if context is not None:
        expected = "no shared objects: the body of a flow has no ctx.shared; import them in its code"
        raise ConfigurationError("context", context, expected)


class _Front(Pipeline[Any, Any, Any]):
    """A flow as a pipeline, whose only step is the body."""

    kind = "flow"

    def __init__(self, flow: Flow[Any, Any], config: PipelineConfig) -> None:
        signature = flow.signature
        accepts = {
            name: one.annotation if name in signature.required else NotRequired[one.annotation]
            for name, one in signature.parameters.items()
        }
        super().__init__(flow.name, {BODY: _Body(flow)}, config=config, accepts=accepts)
        self._flow = flow

    @cached_property
    def definition(self) -> dict[str, JsonValue]:
        """The shape of the flow, as plain data."""
        return {"kind": "flow", **super().definition}

    def completed(self, request: RunRequest[Any]) -> RunRequest[Any]:
        """Return a request with all arguments, and with what tells the run from others around it."""
        inputs = self._flow.signature.with_defaults(request.inputs)
        around = current_scope()
        key = "" if around is None else self._flow.signature.inputs_hash(inputs)
        return replace(request, inputs=inputs, key=key, is_step=flow_run_of(around) is not None)

    async def _begin(
        self,
        request: RunRequest[Any],
        store: RunStoreLike | None = None,
        on_existing: OnExisting = "fail",
        busy: WhenBusy = DO_NOT_WAIT,
    ) -> PipelineResult[Any]:
        return await super()._begin(self.completed(request), store, on_existing, busy)

    async def _execute(self, request: RunRequest[Any]) -> PipelineResult[Any]:
        _refuse_context(request.context)
        around = current_scope()
        outer = flow_run_of(around)
        calls = None if outer is None else outer.calls_in(around)
        if calls is not None:
            request = replace(request, in_line=calls.is_in_line())
        if request.tracer is None and around is None:
            request = replace(request, tracer=configuration().tracer)
        scope = self._execution.scope(request)
        if calls is not None:
            place, flow = scope.part.place, self._flow
            calls.make(place, flow.name, flow.signature.shown(request.inputs or {}))
            calls.made(place)
        try:
            run = await self._perform(self._setup, request, scope)
        except StepExecutionError as error:
            if error.step_id != BODY:
                raise
            raise failure_inside(error) from error.original_error.__cause__
        return run.result()

    def _keeper(self, store: RunStore) -> RunKeeper:
        return replace(super()._keeper(store), kind="flow")

    def heed(self, run_id: str | None, signal: Signal) -> bool:
        """Pass a signal to one run of this process, or to all. Return whether there is such a run."""
        return self._heed(run_id, signal)


class _Body(BaseStep[Any, Any]):
    """The body of a flow, as the only step of its pipeline."""

    opens_span = False
    goes_on = True
    checks_output_itself = True

    def __init__(self, flow: Flow[..., Any]) -> None:
        self._flow = flow

    def inferred_output(self) -> Annotation | None:
        """Return the annotated result type of the function."""
        return self._flow.declared_output()

    async def estimate(self, context: StepContext[Any]) -> Quote:
        """Return an unknown quote, because the body may call anything."""
        return Quote.unknown("its body is code, which may call anything; give it a budget: @flow(budget=...)")

    async def execute(self, context: StepContext[Any]) -> Any:
        """Call the function, and compare its calls with the record."""
        flow, scope = self._flow, scope_of(context)
        at_once = flow.config.max_concurrency
        scope.calls_at_once = None if at_once is None else asyncio.Semaphore(at_once)
        bound = inspect.BoundArguments(inspect.signature(flow.function), {**context.inputs})
        scope.flow_run = flow_run = FlowRun(flow.name, flow.signature, scope)
        with flow_run.following(scope):
            return flow.signature.check_output(await flow.function(*bound.args, **bound.kwargs))


class _FlowDecorator:
    """The decorator that `@flow(...)` returns: a class, because `__call__` keeps the types of functions."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config

    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]]) -> Flow[P, T]:
        return Flow(function, self._config)


@overload
def flow(function: Callable[P, Coroutine[Any, Any, T]], /) -> Flow[P, T]: ...
@overload
def flow(*, budget: BudgetLike | None = ..., config: PipelineConfig | None = ...) -> _FlowDecorator: ...
@other_names()
def flow(
    function: Callable[..., Coroutine[Any, Any, Any]] | None = None,
    /,
    *,
    budget: BudgetLike | None = None,
    config: PipelineConfig | None = None,
) -> Flow[Any, Any] | _FlowDecorator:
    """Make an async function a flow: `@flow`, or `@flow(budget=Budget(usd="0.05"))`.

    The flow is called and awaited like the function. Each call is a run with one budget, usage and trace
    around all that the body calls. With a store, the run can be resumed: the body runs again, and calls on
    record give back their outputs at no cost.

    Args:
        function: The function. Its parameters and its result have types, by which the run stores them.
        budget: The most that a run may spend, with all its calls; by default no limit. The budget of `config`
            applies too.
        config: Other settings of the runs: store, codec, time limits, sinks. `max_concurrency` is the most
            calls that the body of the flow makes at once: of functions, agents, flows and other runs. Calls
            inside of these do not count.

    Raises:
        CompileError: the function is not async, lacks types, or has a parameter with the name of an option of
            `run`.
        ConfigurationError: what is decorated is not a function, or the config is invalid or sets `on_error`,
            which is for steps.
    """
    check_config(config)
    config = config or PipelineConfig()
    if budget is not None:
        config = with_budget(config, budget)
    decorate = _FlowDecorator(config)
    return decorate if function is None else decorate(function)

"""`BasePipeline`: choosing between pipelines."""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, Generic, TypeAlias

from pydantic import JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.errors import (
    ConfigurationError,
    ScopeClosedError,
    StepExecutionError,
    UnknownPipelineError,
    failure_inside,
)
from fastroai.pipelines.estimate import in_turn, one_of
from fastroai.pipelines.fallbacks import FallbackOn, FallbackRule
from fastroai.pipelines.pipeline import Pipeline
from fastroai.pipelines.replay import Orchestration
from fastroai.pipelines.result import OutputT, PipelineResult, check_output, output_inside
from fastroai.places import without_attempts
from fastroai.records import first_given, in_seconds
from fastroai.rows.child_runs import RunRows, parameters_of
from fastroai.rows.door import MapsRows
from fastroai.rows.target import RowTarget
from fastroai.runs.door import FrontDoor, check_config, check_version
from fastroai.runs.execution import join_record
from fastroai.runs.inputs import check_mapping
from fastroai.runs.nesting import NestedStep
from fastroai.runs.openings import RunKeeper
from fastroai.runs.request import RunRequest
from fastroai.runs.signatures import DepsT, Estimates, InputT, blocking_twin, estimating
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.concurrency.clock import Clock
from fastroai.runtime.facts import OnceDone
from fastroai.runtime.scope import current_tool_calls
from fastroai.steps import BaseStep, PipelineConfig, StepConfig, StepContext
from fastroai.steps.config import limits_in, own_settings, settings_of_steps
from fastroai.steps.context import scope_of
from fastroai.steps.durability import step_place
from fastroai.steps.estimating import OutputNotKnown, nothing_paid
from fastroai.steps.once import is_on_record
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import log_of
from fastroai.store.run_store import RunStore
from fastroai.store.signals import Signal
from fastroai.tracing import attributes
from fastroai.usage import Quote
from fastroai.usage.limits import NO_LIMITS

ROUTING: Final = "route"
"""Id of the only step of a router."""

logger = logging.getLogger("fastroai.pipelines")


class BasePipeline(
    FrontDoor[DepsT, InputT, PipelineResult[OutputT]], MapsRows[OutputT], Generic[DepsT, InputT, OutputT]
):
    """A router: `route` names the registered pipeline that gets the inputs.

        class Support(BasePipeline[Deps, dict[str, str], str]):
            def __init__(self) -> None:
                super().__init__("support")
                self.register_pipeline("short", short)
                self.register_pipeline("long", long, fallback="short")

            async def route(self, inputs: dict[str, str], deps: Deps) -> str:
                return "long" if len(inputs["text"]) > 2_000 else "short"

    Run it as a pipeline: `await Support().execute(inputs, deps)` gives the `PipelineResult` of the pipeline
    that ran, whose `route` names it. If that pipeline fails, its `fallback` runs with the same inputs. A
    router can contain routers, and `as_step` turns a router into a step.
    """

    kind = "router"

    def __init__(
        self,
        name: str | None = None,
        *,
        config: PipelineConfig | None = None,
        version: str | None = None,
        fallback_on: FallbackOn | None = None,
    ) -> None:
        """Make a router without pipelines.

        Args:
            name: Name of the router; by default, that of its class.
            config: Settings of its runs. Its `timeout` is for `route`.
            version: A text that is on record with each run.
            fallback_on: The failures of a pipeline after which its fallback runs: an exception type, a
                function of the exception, or a list of both. A type also matches the causes of a failure. By
                default, all failures that another pipeline may survive: whatever a provider answers (400,
                401, 404, 413, 422, refusals), time limits, unusable outputs, exceptions of steps. Not among
                these are budgets, cancellation and mistakes in the configuration. Whatever is given, no
                fallback runs after a cancellation, or after a stop of the run or of a budget around the
                router.

        Raises:
            ConfigurationError: an option is invalid.
        """
        check_version(version)
        check_config(config)
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigurationError("name", name, "a non-empty string")
        self.name: str = name or type(self).__name__
        self.version = version
        self.config: PipelineConfig = config or PipelineConfig()
        if (at_once := self.config.max_concurrency) is not None:
            expected = "no limit in the config of a router, which runs one pipeline; set it on its pipelines"
            raise ConfigurationError("max_concurrency", at_once, expected)
        self._pipelines: dict[str, _Variant[DepsT, InputT, OutputT]] = {}
        self._fallbacks: dict[str, str] = {}
        self._fallback_on = FallbackRule(fallback_on)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, pipelines={list(self._pipelines)})"

    @property
    def pipelines(
        self,
    ) -> Mapping[str, _Variant[DepsT, InputT, OutputT]]:
        """The registered pipelines and routers, by the names by which `route` chooses them; a copy."""
        return dict(self._pipelines)

    def register_pipeline(
        self,
        name: str,
        pipeline: _Variant[DepsT, InputT, OutputT],
        *,
        fallback: str | None = None,
    ) -> None:
        """Register a pipeline, or another router.

        Args:
            name: The name by which `route` chooses it.
            pipeline: The pipeline or router to run.
            fallback: Name of the pipeline to run after a failure of this one that is in `fallback_on` of the
                router. You may register that pipeline later; if you never do, runs of the router raise
                `UnknownPipelineError`.

        Raises:
            ConfigurationError: the name is taken or invalid; the object is not a pipeline or router, or is a
                router with settings such as `timeout` or `retries` in its config; or `fallback` is `name`.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError("name", name, "a non-empty string")
        if name in self._pipelines:
            raise ConfigurationError("name", name, f"a name that router {self.name!r} does not have yet")
        if not isinstance(pipeline, Pipeline | BasePipeline):
            raise ConfigurationError("pipeline", pipeline, "a Pipeline or a BasePipeline")
        if isinstance(pipeline, BasePipeline) and (said := settings_of_steps(pipeline.config)):
            expected = (
                f"a router whose config leaves out {', '.join(said)}, because it runs inside of router "
                f"{self.name!r}: set them on that one, or on the pipelines of {pipeline.name!r}"
            )
            raise ConfigurationError("pipeline", pipeline, expected)
        if fallback == name:
            raise ConfigurationError("fallback", fallback, "the name of another pipeline")
        self._pipelines[name] = pipeline
        vars(self).pop("_front", None)  # its definition names the pipelines
        if fallback is not None:
            self._fallbacks[name] = fallback

    @abstractmethod
    async def route(self, inputs: InputT, deps: DepsT) -> str:
        """Return the name of the registered pipeline that should run. Subclasses implement this.

        The method may call a model: the cost of the choice is part of the run. The `timeout` of the router's
        config limits it. The choice is on record, so a resumed run does not call this again. A name that is
        not registered makes the run raise `UnknownPipelineError`.
        """

    # --- running ---

    @cached_property
    def _front(self) -> Pipeline[DepsT, InputT, OutputT]:
        """The router as a pipeline of one step, which chooses a variant and runs it."""
        steps = {ROUTING: NestedStep(self, None, StepConfig())}
        return Pipeline(self.name, steps, config=self.config, version=self.version)

    async def _execute(self, request: RunRequest[DepsT]) -> PipelineResult[OutputT]:
        routing = _Routing(self)
        try:
            run = await self._front._perform(replace(self._front._setup, steps={ROUTING: routing}), request)
        except StepExecutionError as error:
            if error.step_id != ROUTING:
                raise
            raise failure_inside(error) from error.original_error.__cause__
        result = routing.result
        return run.result() if result is None else result.within(run.scope, run.runner.origin)

    def _keeper(self, store: RunStore) -> RunKeeper:
        return self._front._keeper(store)

    def _heed(self, run_id: str | None, signal: Signal) -> bool:
        return self._front._heed(run_id, signal)

    async def run_variant(
        self, inputs: InputT, context: StepContext[DepsT], around: str = "", *, is_run: bool = False
    ) -> PipelineResult[OutputT]:
        """Choose a pipeline with `route` inside a step, run it, and return its result.

        Runs of routers and steps of `as_step` call this. If the pipeline fails with an error that is in
        `fallback_on`, its fallback runs. The choice is on record, so a resumed run takes the same route.

        Args:
            inputs: The inputs for `route` and for the pipeline.
            context: The context of the step around.
            around: The names of the routers around this one, for the record.
            is_run: Whether the router is run by itself, so that the limits of its config already hold.

        Raises:
            UnknownPipelineError: `route`, or a `fallback`, named a pipeline that is not registered.
            StepExecutionError: the pipeline failed, and no fallback helped.
        """
        for variant in self._fallbacks.values():
            self._named(variant)  # an unknown name is an error before anything runs
        own = PipelineConfig() if is_run else self.config
        scope = Scope(
            "router",
            self.name,
            parent=current_scope(),
            limits=limits_in(own),
            deps=context.deps,
            provider_limits=own.provider_limits,
        )
        async with scope:
            if (log := log_of(scope)) is not None:
                _refuse_own_record(own, log, self.name)
                join_record(own, log, scope)
            with scope.time.nesting():
                return await self._run_variants(scope, inputs, context, f"{around}{self.name}")

    async def _run_variants(
        self, scope: Scope, inputs: InputT, context: StepContext[DepsT], label: str
    ) -> PipelineResult[OutputT]:
        async def routed() -> str:
            clock = Clock(seconds, f"route of router {self.name!r}", of_attempt=True)
            async with scope_of(context).time.bounded(clock):
                name = await self.route(inputs, context.deps)
            self._named(name)
            return name

        seconds = in_seconds(first_given(self.config.timeout, default=None))
        name = await context.once(_route(label), routed)
        place = without_attempts(step_place(scope_of(context)))
        tried = set[str]()
        while True:
            tried.add(name)
            scope.take_route(name)
            fallback = self._fallbacks.get(name)
            switch = _switch(label, name)
            if fallback is None or not is_on_record(scope_of(context), place, switch):
                try:
                    return await self._run_one(scope, name, inputs, context, label)
                except Exception as error:
                    if fallback is None or fallback in tried or not self._fallback_on(scope, error):
                        raise
                    logger.warning("router %r: %r failed, trying %r: %s", self.name, name, fallback, error)
            else:
                await self._pass_over(scope, name, context, label)
            name = await context.once(switch, partial(_same, fallback), returns=str)

    async def _pass_over(self, scope: Scope, name: str, context: StepContext[DepsT], label: str) -> None:
        """Count the runs of a variant that failed in an earlier process, as if they ran again.

        Runs of the same name in one step are told apart by their number, so the fallback has the number that
        it had in that process.
        """
        pipeline = self._named(name)
        if isinstance(pipeline, BasePipeline):
            await pipeline._pass_over_all(scope, context, f"{label}[{name}]/{pipeline.name}")
        else:
            scope.count_inside(pipeline.name, current_tool_calls.get().key_of_runs)

    async def _pass_over_all(self, scope: Scope, context: StepContext[DepsT], label: str) -> None:
        """Count the runs of all variants that were tried in an earlier process."""
        place = without_attempts(step_place(scope_of(context)))
        if not is_on_record(scope_of(context), place, route := _route(label)):
            return  # it failed before it had chosen
        name: str | None = await context.once(route, partial(_same, ""), returns=str)
        while name is not None:
            await self._pass_over(scope, name, context, label)
            fallback = self._fallbacks.get(name)
            name = fallback if is_on_record(scope_of(context), place, _switch(label, name)) else None

    async def _run_one(
        self, scope: Scope, name: str, inputs: InputT, context: StepContext[DepsT], label: str
    ) -> PipelineResult[OutputT]:
        pipeline = self._named(name)
        async with AsyncExitStack() as stack:
            if scope.tracer is not None:
                facts = attributes.route_attributes(router=self.name, route=name, run_id=scope.run_id)
                span = scope.tracer.span(attributes.route_span(self.name), **facts)
                await stack.enter_async_context(span)
            if isinstance(pipeline, BasePipeline):
                return await pipeline.run_variant(inputs, context, f"{label}[{name}]/")
            result = await pipeline._begin(
                RunRequest(inputs, context.deps, context=context.shared, is_step=True)
            )
            check_output(result)
            return result

    @estimating
    async def estimate(
        self,
        inputs: InputT = None,  # type: ignore[assignment]
        deps: DepsT = None,  # type: ignore[assignment]
    ) -> Quote:
        """Estimate the cost of `execute` with these inputs: at least, expected, at most, and why.

        It sends no request. The amounts of the quote are in US dollars; `upper_usd` is `None` if nothing
        limits the cost of a pipeline. `route` is called, and must return the same name again in the run. If
        it needs a value that is not known yet, the quote is for any of the pipelines: from the lowest cost of
        one to the highest of another. If `route` calls a model, only a budget of the router limits the cost.
        The highest cost includes the fallbacks.

        Raises:
            ConfigurationError: `inputs` is not a mapping.
            UnknownPipelineError: `route`, or a `fallback`, named a pipeline that is not registered.
        """
        check_mapping(inputs)
        given: Any = {} if inputs is None else inputs
        calls_model = False
        names = list(self._pipelines)
        limits = limits_in(self.config)
        async with nothing_paid(limits):
            try:
                names = [await self.route(given, deps)]
            except OutputNotKnown:
                pass
            except ScopeClosedError:
                calls_model = True
            quotes = {name: in_turn(await self._estimate_chain(name, given, deps)) for name in names}
        quote = one_of(self.name, quotes)
        if calls_model:
            quote = quote.unbounded("its route calls a model")
        return quote.within(*(limits or NO_LIMITS).budgets)

    async def _estimate_chain(self, name: str | None, inputs: InputT, deps: DepsT) -> dict[str, Quote]:
        """Return the quotes of a pipeline and of its fallbacks, by name."""
        quotes: dict[str, Quote] = {}
        while name is not None and name not in quotes:
            quotes[name] = await self._named(name).estimate(inputs, deps)
            name = self._fallbacks.get(name)
        return quotes

    estimate_sync: Estimates[DepsT, InputT, Quote] = blocking_twin(estimate, of="router")

    def declared_output(self) -> Annotation | None:
        """Return the output type that all pipelines of the router declare.

        Return `None` if they differ or declare none, or if no pipeline is registered.
        """
        declared = [pipeline.declared_output() for pipeline in self._pipelines.values()]
        return declared[0] if declared and all(one == declared[0] for one in declared) else None

    def rows_target(self) -> RowTarget[OutputT]:
        """Return the object with which `map` runs this router for each row. Call `map` instead.

        A row has the inputs of a run, and gets the output of that run.
        """
        return RunRows(
            door=self,
            returns=self.declared_output(),
            steps={},
            estimate=self.estimate,
            parameters=parameters_of(self._accepts),
        )

    def variant_in(self, trace: RunTrace) -> str | None:
        """Return the name that `route` chose first in a recorded run.

        Return `None` if `route` has not chosen yet, or if this router is not in the run.
        A fallback that ran later does not change the name. The run may be one of a pipeline, graph or router
        that has this router inside.
        """
        done = (fact for fact in trace.entries if isinstance(fact, OnceDone))
        chosen = (fact for fact in done if fact.name.startswith(_route("")))
        labels = (_route(self.name), f"]/{self.name}")  # as the outermost router, and inside of another
        return next((str(fact.result) for fact in chosen if fact.name.endswith(labels)), None)

    def replay(self, trace: RunTrace) -> Divergence | None:
        """Repeat the decisions of a run on its recorded outcomes, and return the first difference, if any.

        `None` means that there is none. The decisions of the pipelines that ran are repeated, too; `route` is
        not called. No step runs and nothing is sent. `trace.replay(self)` does the same.

        Raises:
            ConfigurationError: it is the trace of a run of another kind, such as that of a graph.
        """
        return self._front.replay(trace)

    def orchestrations(self) -> tuple[Orchestration, ...]:
        """Return what `replay` needs to decide as a run does: an `Orchestration` for each pipeline.

        These are all pipelines that a run may choose, also those of routers in this one. `replay` calls this;
        you need not.
        """
        return tuple(one for variant in self._pipelines.values() for one in variant.orchestrations())

    @property
    def definition(self) -> dict[str, JsonValue]:
        """Shape of the router as plain data: its name and the shapes of its pipelines, without code.

        A run can be resumed if the parts that it has reached have the same shape, or with `force=True`.
        """
        return {
            "name": self.name,
            "routes": {name: pipeline.definition for name, pipeline in self._pipelines.items()},
        }

    def as_step(
        self,
        inputs: Callable[[StepContext[DepsT]], Mapping[str, Any]] | None = None,
        *,
        config: StepConfig | None = None,
    ) -> BaseStep[DepsT, OutputT]:
        """Return this router as a step of a pipeline, like `Pipeline.as_step`.

        The step inherits the settings of the router's config, but not `timeout`, which limits `route`, and
        not the budget, which holds inside of the step.

        Args:
            inputs: A function of the `StepContext` that returns the router's inputs; by default they are the
                outer run's, and the outputs of the step's direct dependencies under their ids, which replace
                inputs of the same name.
            config: Settings of the step. Each one that it sets takes the place of the inherited one; the
                others are inherited. Set `total_timeout` to limit its time: `timeout` raises
                `ConfigurationError`.
        """
        own = config or StepConfig()
        return NestedStep(self, inputs, replace(own_settings(self.config, own), timeout=own.timeout))

    async def run_inside(self, inputs: Any, context: StepContext[Any]) -> OutputT:
        """Run the router inside a step, and return the output of the pipeline that it chose.

        The step of `as_step` calls this; `context` is that of the step. If a conversation stops the pipeline
        early, its incomplete `ConversationState` is returned, which stops the run around it, too.

        Raises:
            StepExecutionError: the pipeline failed, and no fallback helped.
            UnknownPipelineError: `route`, or a `fallback`, named a pipeline that is not registered.
        """
        result = await self.run_variant(inputs, context)
        return output_inside(result, context)

    def _named(self, name: str) -> _Variant[DepsT, InputT, OutputT]:
        try:
            return self._pipelines[name]
        except (KeyError, TypeError):
            raise UnknownPipelineError(self.name, name, tuple(self._pipelines)) from None


_Variant: TypeAlias = Pipeline[DepsT, InputT, OutputT] | BasePipeline[DepsT, InputT, OutputT]
"""A pipeline or router that can be registered with a router."""


def _refuse_own_record(config: PipelineConfig, around: Log, name: str) -> None:
    """Refuse the store of a router inside of a run that nothing keeps. Raises `ConfigurationError`."""
    if config.store is not None and around.run is None:
        expected = (
            f"None, because {name!r} is run inside of another run and stored as a part of it: set store= in "
            "the config of the outermost pipeline, graph or router"
        )
        raise ConfigurationError("store", config.store, expected)


class SplitPipeline(BasePipeline[DepsT, InputT, OutputT]):
    """An A/B split: a share of the keys goes to each variant, and a key always to the same one.

        split = SplitPipeline("prompts", key=lambda inputs, deps: inputs["user_id"])
        split.add_variant("control", pipeline_a, weight=90)
        split.add_variant("candidate", pipeline_b, weight=10, fallback="control")

    `key` is a function of the inputs and `deps`, not async. It returns the key that stays with one variant,
    such as the id of a user. The variant that ran is `result.route`. Add variants before the first run: a run
    without any raises `ConfigurationError`.

    Raises:
        ConfigurationError: `key` is not a function, or is async, or `name` or `config` is invalid.
    """

    def __init__(
        self,
        name: str,
        *,
        key: Callable[[InputT, DepsT], str],
        config: PipelineConfig | None = None,
        version: str | None = None,
        fallback_on: FallbackOn | None = None,
    ) -> None:
        super().__init__(name, config=config, version=version, fallback_on=fallback_on)
        if not callable(key) or inspect.iscoroutinefunction(key):
            raise ConfigurationError("key", key, "a function of the inputs and deps that is not async")
        self._key = key
        self._weights: dict[str, float] = {}

    def add_variant(
        self,
        name: str,
        pipeline: _Variant[DepsT, InputT, OutputT],
        *,
        weight: float,
        fallback: str | None = None,
    ) -> None:
        """Register a variant that gets `weight` of the sum of all weights, as its share of the keys.

        Args:
            name: The name of the variant.
            pipeline: The pipeline or router to run.
            weight: A number above zero. The weights need not add up to 1 or 100.
            fallback: Name of the variant to run after a failure of this one; by default, none.

        Raises:
            ConfigurationError: the weight is not a finite number above zero; the name is taken or invalid; or
                the object is not a pipeline or router.
        """
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not math.isfinite(weight)
            or weight <= 0
        ):
            raise ConfigurationError("weight", weight, "a finite number above zero")
        self.register_pipeline(name, pipeline, fallback=fallback)
        self._weights[name] = weight

    async def route(self, inputs: InputT, deps: DepsT) -> str:
        """Return the name of the variant that the key of these inputs gets: see `variant_of`.

        Raises:
            ConfigurationError: there are no variants.
        """
        return self.variant_of(str(self._key(inputs, deps)))

    def variant_of(self, key: str) -> str:
        """Return the name of the variant that a key gets, the same in every process. Nothing runs.

        Keys can change their variant when you change the variants, their weights, their order or the name of
        the split.

        Raises:
            ConfigurationError: there are no variants.
        """
        if not self._weights:
            raise ConfigurationError("variants", (), "at least one; add it with add_variant")
        digest = hashlib.sha256(f"{self.name}\x00{key}".encode()).digest()
        point = int.from_bytes(digest[:8], "big") / 2**64 * sum(self._weights.values())
        chosen = ""
        for chosen, weight in self._weights.items():  # noqa: B007  # the last one, if rounding has left more
            point -= weight
            if point < 0:
                break
        return chosen


class _Routing(NestedStep[Any, Any]):
    """The step of one run of a router."""

    def __init__(self, router: BasePipeline[Any, Any]) -> None:
        super().__init__(router, None, StepConfig())
        self._router = router
        self.result: PipelineResult[Any] | None = None
        """Result of the variant, if it ran in this process."""

    async def execute(self, context: StepContext[Any]) -> Any:
        """Run the variant."""
        result = await self._router.run_variant(context.inputs, context, is_run=True)
        self.result = result
        return output_inside(result, context)


async def _same(name: str) -> str:
    return name


def _route(label: str) -> str:
    """Return the name under which the choice of a router is on record."""
    return f"route of {label}"


def _switch(label: str, name: str) -> str:
    """Return the name under which it is on record that a router went on to the fallback of a variant."""
    return f"fallback of {label} after {name}"

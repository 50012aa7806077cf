"""`Workflow`: a spec, and its runs by FastroAI itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Never

from pydantic import JsonValue
from pydantic_ai.models import Model
from typing_extensions import Unpack

from fastroai.drawing import Drawing, mermaid, svg
from fastroai.drawing.pages import escaped, page, picture
from fastroai.errors import (
    BudgetExceeded,
    ConfigurationError,
    TimeLimitExceeded,
    attach_trace,
    nearest_hint,
)
from fastroai.records import RunKind
from fastroai.runs.around import how_it_ended
from fastroai.runs.door import FrontDoor, check_config
from fastroai.runs.execution import Execution
from fastroai.runs.openings import RunKeeper
from fastroai.runs.request import RunRequest
from fastroai.runs.signatures import OpenOptions, ResumeOptions
from fastroai.runtime import blocking
from fastroai.runtime.facts import RunFinished
from fastroai.runtime.labels import Labels
from fastroai.steps import PipelineConfig, StepConfig
from fastroai.steps.config import limits_in, refuse_on_error, resolve
from fastroai.steps.hooks import Hooks, RunHooks
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.run_store import RunStore
from fastroai.usage import Quote
from fastroai.usage.limits import NO_LIMITS, limits_of, together
from fastroai.workflows.checks import Checks
from fastroai.workflows.definition import TAG, define, width_in
from fastroai.workflows.inputs import FlowInputs
from fastroai.workflows.performing import Agents, Callables, Performers
from fastroai.workflows.plan import WorkflowPlan, plan_of
from fastroai.workflows.replay import first_divergence
from fastroai.workflows.result import WorkflowResult
from fastroai.workflows.run import WorkflowRun
from fastroai.workflows.spec.document import FieldSpec, WorkflowSpec
from fastroai.workflows.spec.drawing import draw_flow
from fastroai.workflows.spec.files import Workspace
from fastroai.workflows.spec.reading import load_spec
from fastroai.workflows.work import WorkflowSetup


class Workflow:
    """A flow of a workflow spec, ready to be run, drawn, or bound to the agents and functions for its steps.

        workflow = Workflow.load(Path("review.workflow.yaml"))
        result = await workflow.run(
            {"text": "..."}, functions={"count_words": count_words}, agents={"claude": reviewer}
        )
        result.status, result.output, result.usage.cost_usd

    Agents perform the `infer` functions and the inline steps: the one in `agents` that the step names or, if
    it names none, that is named like its function; else a new one with the model of the spec, or `model`.
    The callables in `functions` perform the `compute` functions. A gate is a question in the inbox of
    `fastroai.human`. Steps that do not need each other run side by side.
    """

    def __init__(self, spec: WorkflowSpec, *, flow: str | None = None) -> None:
        """Take a valid spec and the flow to run, by default its entry flow.

        Raises:
            ConfigurationError: it is no `WorkflowSpec`, or it has no flow of that name.
        """
        if not isinstance(spec, WorkflowSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
            expected = "a WorkflowSpec; of the text of a spec, or the Path of its file, Workflow.load(...)"
            raise ConfigurationError("spec", spec, expected)
        if flow is not None and flow not in spec.flows:
            known = ", ".join(map(repr, spec.flows))
            raise ConfigurationError(
                "flow", flow, f"a flow of the spec: {known}.{nearest_hint(flow, spec.flows)}"
            )
        self.spec = spec
        self.plan: WorkflowPlan = plan_of(spec, flow)

    @classmethod
    def load(cls, source: str | Path, *, flow: str | None = None) -> Workflow:
        """Return a workflow from a spec: its YAML text as a `str`, or a file as a `Path`.

        `flow` is the name of the flow to run, by default the entry flow of the spec.

        Raises:
            WorkflowValidationError: the spec is not valid; every problem is listed with its line and column.
            ConfigurationError: the spec has no flow of that name.
            OSError: the file cannot be read.
            MissingExtraError: a library is not installed that reading the spec needs (the extra `workflows`).
        """
        return cls(load_spec(source), flow=flow)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self.plan.steps)} steps)"

    @property
    def name(self) -> str:
        """The name of the flow that runs, which is also the name of its runs in a store."""
        return self.plan.entry.flow.name

    @property
    def inputs(self) -> Mapping[str, FieldSpec]:
        """The declared inputs of the flow, by name: their types, defaults, and whether they are required."""
        return self.plan.entry.flow.input

    def to_mermaid(self, result: WorkflowResult | None = None) -> str:
        """Return the flow as Mermaid text, with every way between its steps.

        With the result of a run, the drawing is that of this run, in which the steps that ran are marked.
        """
        return mermaid(self._drawing(result))

    def to_svg(self, result: WorkflowResult | None = None) -> str:
        """Return the flow as the text of an SVG image, with every way between its steps.

        With the result of a run, the drawing is that of this run, in which the steps that ran are marked.
        """
        return svg(self._drawing(result))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return page(f"<h3>{escaped(repr(self))}</h3>{picture(self._drawing(None))}", repr(self))

    def _drawing(self, result: WorkflowResult | None) -> Drawing:
        return draw_flow(self.spec, self.name) if result is None else result.trace.drawing()

    def replay(self, trace: RunTrace) -> Divergence | None:
        """Check whether this workflow would decide as a recorded run has, without agents and functions.

        The trace of the run says what its steps returned. Return the first entry that this workflow would
        have decided differently, with what was expected; `None` if there is none. A run of a workflow with
        another name differs from its beginning.

        Raises:
            ConfigurationError: the trace is that of a pipeline or graph.
        """
        fits = Checks(self.spec).fits
        width = width_in(trace.definition)
        return first_divergence(self.plan, self.name, trace, width=width, fits=fits)

    def bind(
        self,
        *,
        functions: Callables | None = None,
        agents: Agents | None = None,
        model: Model | str | None = None,
        workspace: Path | str | None = None,
        config: PipelineConfig | None = None,
    ) -> BoundWorkflow:
        """Return the workflow with agents and functions for its steps. The result has a pipeline's methods.

        Nothing is run. Agents and functions that the flow does not use are refused, as well as missing ones.

        Args:
            functions: Callables by the names of `compute` functions. They get the inputs of the step by name,
                after a `StepContext` if their first parameter is one, and return a value that JSON can hold.
            agents: Agents by the names that steps use (`agent: claude`), or by names of functions.
            model: The model of steps whose spec names none.
            workspace: The folder that `file_exists` and `file_contains` see; without one, they see no file.
            config: Store, codec, tracing, and settings of all steps. Its budget bounds each run, beside the
                budget of the flow.

        Raises:
            ConfigurationError: something is missing or of no use; the message lists all problems.
        """
        check_config(config)
        performers = Performers(self.plan, functions or {}, agents or {}, model)
        return BoundWorkflow(self, performers, workspace, config or PipelineConfig())

    async def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        functions: Callables | None = None,
        agents: Agents | None = None,
        model: Model | str | None = None,
        workspace: Path | str | None = None,
        config: PipelineConfig | None = None,
        deps: Any = None,
        **options: Unpack[OpenOptions],
    ) -> WorkflowResult:
        """Run the workflow, and return a result that says how the run ended.

        A step that fails, a gate that kills the flow, or a budget that is reached raises nothing: see
        `status`, `reason` and `error` of the result. At a gate, the run halts with the status `paused`; when
        a person has answered its question, `resume` continues it. Gates need a store: `store=`, or that of
        the config.

        `inputs` are the inputs of the flow by name. See `bind` for the arguments up to `config`, and
        `Pipeline.execute` for the others.

        Raises:
            ConfigurationError: a step lacks an agent, a model or a function, or one is of no use; nothing has
                run.
            ContractViolation: the inputs are not those of the flow.
        """
        bound = self.bind(functions=functions, agents=agents, model=model, workspace=workspace, config=config)
        return await bound.run(inputs, deps=deps, **options)

    async def resume(
        self,
        run_id: str,
        *,
        functions: Callables | None = None,
        agents: Agents | None = None,
        model: Model | str | None = None,
        workspace: Path | str | None = None,
        config: PipelineConfig | None = None,
        deps: Any = None,
        **options: Unpack[ResumeOptions],
    ) -> WorkflowResult:
        """Continue a run that was interrupted or cancelled, waits at a gate, or failed by an exception.

        Return the result of the whole run, as `run` does. Steps that are done do not run again. A run that is
        complete, was killed, has failed its checks or has used up a budget of the spec only returns its
        result again.

        It needs the store that has the run: `store=`, or that of the config. Agents and functions are not
        stored: give them again. See `bind` for the arguments up to `config`, and `Pipeline.resume` for the
        others.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: another process has the run.
            RunDefinitionChanged: the spec has changed in parts that the run has reached.
            ConfigurationError: there is no store, or a step lacks an agent, a model or a function.
        """
        bound = self.bind(functions=functions, agents=agents, model=model, workspace=workspace, config=config)
        return await bound.resume(run_id, deps=deps, **options)

    run_sync = blocking(run, of="workflow")
    resume_sync = blocking(resume, of="workflow")


class BoundWorkflow(FrontDoor[Any, Mapping[str, Any], WorkflowResult]):
    """A workflow with the agents and functions that execute its steps; made by `Workflow.bind`.

    It has the methods of a pipeline: `run` (or `execute`), `stream`, `resume`, `serve` and so on. They return
    or end with a `WorkflowResult`. Its runs cannot be forked.
    """

    kind: ClassVar[RunKind] = "workflow"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, workflow: Workflow, performers: Performers, workspace: Path | str | None, config: PipelineConfig
    ) -> None:
        why = "the spec says what follows the failure of a step"
        refuse_on_error(config, "a workflow", why)
        self.workflow, self.config = workflow, config
        self.name = workflow.name
        self._setup = WorkflowSetup(
            plan=workflow.plan,
            performers=performers,
            checks=Checks(workflow.spec, None if workspace is None else Workspace(workspace)),
            config=resolve(StepConfig(), pipeline=config),
            max_concurrency=config.max_concurrency,
        )
        budget = workflow.plan.entry.flow.budget
        limits = together(limits_of(budget), limits_in(config))
        self._accepts = FlowInputs(workflow.plan.entry.flow)
        steps = dict.fromkeys(workflow.plan.steps, self._setup.config.hooks)
        self._limits = limits
        self._execution = Execution(
            self.kind,
            self.name,
            config,
            limits,
            RunHooks.of(Hooks.of(config), steps),
            self._accepts,
            self.estimate,
        )

    def __repr__(self) -> str:
        return f"BoundWorkflow({self.name!r})"

    @cached_property
    def definition(self) -> dict[str, JsonValue]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The shape of the workflow as plain data, which must not change while a run is in progress."""
        return define(self.workflow.plan, self.config.max_concurrency)

    def replay(self, trace: RunTrace) -> Divergence | None:
        """Check whether this workflow would decide as a recorded run has, without agents and functions.

        Return the first difference; `None` if there is none. See `Workflow.replay`.

        Raises:
            ConfigurationError: the trace is that of a pipeline or graph.
        """
        return self.workflow.replay(trace)

    async def fork(self, run_id: str, **options: Never) -> Never:  # type: ignore[override]
        """Raise `ConfigurationError`, always: runs of workflows cannot be forked.

        To go back to a checkpoint in such a run, use `WorkflowRuns.revert` or `fastroai flow revert`.

        Raises:
            ConfigurationError: always.
        """
        expected = (
            "a run of a pipeline, graph or router, because runs of workflows cannot be forked; to go back "
            "to a checkpoint in this one, use `fastroai flow revert RUN_ID LABEL`"
        )
        raise ConfigurationError("run_id", run_id, expected)

    async def estimate(self, inputs: Mapping[str, Any] | None = None, deps: Any = None) -> Quote:
        """Return a quote for a run: its highest cost is the lower of the budgets of the flow and the config.

        The cost of the steps is not estimated, so the lowest and the expected cost are $0, and `inputs` and
        `deps` are not used. Without a budget in US dollars, there is no upper limit. Nothing is run.
        """
        quote = Quote.unknown(
            "a workflow, whose steps run as often as its checks say; give the flow a budget"
        )
        return quote.within(*(self._limits or NO_LIMITS).budgets)

    estimate_sync = blocking(estimate, of="workflow")

    async def _execute(self, request: RunRequest[Any]) -> WorkflowResult:
        execution = self._execution
        scope = execution.scope(request)
        run: WorkflowRun | None = None
        finish: RunFinished | None = None
        try:
            async with AsyncExitStack() as stack:
                opened = await execution.open(stack, request, scope, self.definition)
                run = WorkflowRun(self._setup, opened, request)
                finish = await execution.perform(opened, run.runner, run.decisions)
                if finish.raised is not None:
                    raise finish.raised
        except BaseException as error:
            if run is None:
                raise
            attach_trace(error, run.log)  # pyright: ignore[reportArgumentType]
            is_own = run.runner.finish is not None and error is run.runner.finish.raised
            if not is_own and not isinstance(error, BudgetExceeded | TimeLimitExceeded):
                raise
            await execution.tell_end(run.runner, error)
            last = run.runner.finish if is_own else None
            return run.result(last or how_it_ended(error), error if isinstance(error, Exception) else None)
        opened.halt_around(finish)
        return run.result(finish, None)

    def _keeper(self, store: RunStore) -> RunKeeper:
        return RunKeeper(
            definition=self.definition,
            input_types={},
            output_types={},
            store=store,
            durability=self.config.durability,
            on_changed=self.config.on_changed,
            codec=self.config.codec,
            terms=self.config.lease_terms,
            kind="workflow",
            labels=Labels((TAG,)),
        )

"""The work of a workflow that FastroAI runs itself: its visits, and what their outcomes mean."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, TypeAlias

from pydantic import JsonValue

from fastroai.errors import BudgetExceeded, CostBudgetExceeded, TimeBudgetExceeded, TokenBudgetExceeded
from fastroai.records import EXACT, NOT_GIVEN, Usage, exact_sum
from fastroai.runs.running.machine import Changed, Told
from fastroai.runs.running.units import BegunUnit, BegunUnits
from fastroai.runs.running.work import Kept
from fastroai.runtime import RetriesUsed, Scope, facts
from fastroai.runtime.budgets.budget_scopes import budget_scope
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.retrying.failures import leaves
from fastroai.steps import BaseStep, ResolvedConfig, StepContext
from fastroai.steps.context import RunData, StepData, in_thread, scope_of
from fastroai.steps.copies import Copies
from fastroai.steps.durability import step_place
from fastroai.steps.execution import run_step
from fastroai.steps.outputs import Outputs
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.record.unsealing import seal_payloads
from fastroai.usage import Budget
from fastroai.usage.limits import limits_of
from fastroai.workflows.checks import Checks
from fastroai.workflows.errors import ResultRejected
from fastroai.workflows.facts import IterationReported, IterationStarted
from fastroai.workflows.machine.iterations import merged
from fastroai.workflows.machine.machine import WorkflowMachine
from fastroai.workflows.machine.state import FlowKey
from fastroai.workflows.machine.step_inputs import FLAGGED, GateAnswer, options_at
from fastroai.workflows.performing import NotAnOutput, Performer, Performers, Task
from fastroai.workflows.plan import WorkflowPlan
from fastroai.workflows.spec.document import IterationSpec, StepSpec

_QUESTION: Final = "decision"
"""The name of the question that a gate asks."""
_TIMED_OUT: Final = "timed out"
"""The answer to a question whose time is over. It is not an option, so no person can give it."""
_LEAST_USD: Final = Decimal("0.000001")
"""US dollars that are left of a used-up budget: too few to pay for any request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSetup:
    """A workflow, ready to run."""

    plan: WorkflowPlan
    performers: Performers
    checks: Checks
    config: ResolvedConfig
    """The settings that hold for every step."""
    max_concurrency: int | None


Tell: TypeAlias = Callable[[Told, Fact | None], None]
"""Tells the machine a fact, and puts it on record: in the second form, if a store has another one."""


class WorkflowWork:
    """The work of one run."""

    def __init__(
        self,
        setup: WorkflowSetup,
        machine: WorkflowMachine,
        *,
        data: RunData,
        deps: Any,
        scope: Scope,
        log: Log,
    ) -> None:
        """`data` is the same for all steps."""
        self.setup, self.machine = setup, machine
        self.configs: Mapping[str, ResolvedConfig] = dict.fromkeys(setup.plan.steps, setup.config)
        self._data, self._deps, self._scope = data, deps, scope
        self._codec = None if log.run is None else log.run.codec
        self._flows: dict[FlowKey, Scope] = {}
        """Scopes of inner flows that have a budget."""
        self._tell: Tell | None = None
        self._units = BegunUnits()

    def connect(self, tell: Tell, units: BegunUnits) -> None:
        """Take the runner's way to tell the machine, and the units that the runner has begun."""
        self._tell, self._units = tell, units

    # --- scopes ---

    def scope_around(self, step_id: str) -> Scope:
        """Return the scope of the innermost flow with a budget around a step, or else that of the run."""
        for flow in self.machine.around(self.machine.flow_of(step_id)):
            budget = flow.plan.flow.budget
            if flow.path and budget is not None:
                if flow.key not in self._flows:
                    around, limits = self.scope_around(flow.path), limits_of(budget)
                    self._flows[flow.key] = Scope(
                        "budget", flow.path, parent=around, limits=limits, deps=self._deps
                    )
                return self._flows[flow.key]
        return self._scope

    # --- visits ---

    def perform(
        self, started: facts.StepStarted, begun: BegunUnit, used: RetriesUsed
    ) -> Coroutine[Any, Any, object]:
        """Run one attempt at a step, and check its result."""
        step_id = started.step_id
        return run_step(
            _Visit(self, started),
            scoped=begun,
            data=StepData(self._data, Copies(self.machine.inputs(step_id), begun), Outputs({step_id: ()})),
            deps=self._deps,
            config=self.configs[step_id],
            used=used,
        )

    def tell(self, fact: IterationStarted | IterationReported) -> None:
        """Put on record that a loop of a step has begun, or has a new result."""
        assert self._tell is not None
        self._tell(fact, None if self._codec is None else seal_payloads(fact, self._codec))

    def left(self, step_id: str) -> Budget | None:
        """Return the rest of a step's budgets after the attempts before this one; `None` without a budget."""
        budgets = self.setup.plan.steps[step_id][1].budgets
        if not budgets:
            return None
        before = [self._units[step_id, visit] for visit in self.machine.record(step_id).visits[:-1]]
        spent = [one.spent() for one in before]
        return _least(budgets, spent, sum(one.duration_ms for one in before))

    # --- outcomes of visits ---

    def finished(self, started: facts.StepStarted, begun: BegunUnit, output: object) -> facts.StepFinished:
        """Return the fact that a visit has finished with this output."""
        return facts.StepFinished(
            started.step_id,
            output,
            visit=started.visit,
            part=self._scope.part,
            attempt=begun.attempt,
            degraded=begun.degraded,
            duration_ms=begun.duration_ms,
            spent_in=begun,
        )

    def settled(self, fact: facts.StepFinished | facts.QuestionAsked) -> None:
        """Do nothing: the machine has the outputs."""

    def failed(self, started: facts.StepStarted, fact: facts.StepFailed) -> None:
        """Add to the fact the violations of the result, or the flow whose budget is used up."""
        assert fact.raised is not None
        for error in leaves(fact.raised):
            if isinstance(error, ResultRejected):
                fact.violations, fact.output = error.violations, error.output
                message = "; ".join(error.violations)
                fact.failure = replace(fact.failure, error_type=error.check, message=message)
            elif isinstance(error, BudgetExceeded):
                self._note_budget(fact, error)

    def _note_budget(self, fact: facts.StepFailed, error: BudgetExceeded) -> None:
        flows = [*self.machine.around(self.machine.flow_of(fact.step_id))]
        for flow in reversed(flows):  # outermost first
            scope = self._scope if not flow.path else self._flows.get(flow.key)
            is_there = scope is not None and scope.path == tuple(error.scope_path)
            if is_there and _is_used_up(flow.plan.flow.budget, error):
                fact.budget, fact.budget_of = "outer", flow.path
                return

    def cut_short(self, started: facts.StepStarted, fact: facts.StepCancelled | facts.StepHalted) -> None:
        """Do nothing: a visit leaves nothing behind."""

    def follow(self, change: Changed) -> None:
        """Do nothing: only graphs have changes to follow."""

    def stored(self, fact: Kept) -> Kept | None:
        """Return a fact in the form in which a store has it; `None` if the form is the same."""
        if self._codec is None or not isinstance(fact, facts.StepFinished | facts.StepFailed):
            return None
        return seal_payloads(fact, self._codec)


class _Visit(BaseStep[Any, JsonValue]):
    """One attempt at a step, or the question of a gate, or the check of the output of a flow."""

    checks_output_itself = True

    def __init__(self, work: WorkflowWork, started: facts.StepStarted) -> None:
        self._work, self._started = work, started
        self._step_id = started.step_id
        self._step: StepSpec = work.setup.plan.steps[started.step_id][1]

    async def execute(self, context: StepContext[Any]) -> JsonValue:
        """Return a result that has passed its checks.

        Raises:
            ResultRejected: the result has failed a check.
        """
        if self._step.gate is not None:
            return await self._decide(context)
        if self._step.flow is not None:
            result = self._work.machine.inner(self._step_id).output
        else:
            try:
                result = await self._perform(context)
            except NotAnOutput as error:
                wrong = ("the answer is not the structured output that was asked for",)
                raise ResultRejected(self._step_id, "SchemaFailed", wrong, error.said) from error
        await self._check(context, result)
        return result

    async def _perform(self, context: StepContext[Any]) -> JsonValue:
        step, perform, task = self._step, self._performer, self._task()
        async with budget_scope(self._work.left(self._step_id), name=self._step_id):
            if step.iteration is None:
                return await perform(context, task)
            return await self._iterate(context, step.iteration, task)

    @property
    def _performer(self) -> Performer:
        return self._work.setup.performers.by_step[self._step_id]

    def _task(self) -> Task:
        machine = self._work.machine
        inputs, record = machine.inputs(self._step_id), machine.record(self._step_id)
        if not record.violations:
            return Task(inputs)
        previous = machine.flow_of(self._step_id).outputs[self._step.id]["output"]
        return Task(inputs, previous, record.violations[-1])

    async def _iterate(self, context: StepContext[Any], spec: IterationSpec, task: Task) -> JsonValue:
        """Repeat the step until the machine ends its loop, and return the merged result."""
        work, visit = self._work, self._started.visit
        work.tell(IterationStarted(self._step_id, visit=visit))
        loop = work.machine.record(self._step_id).loop
        assert loop is not None
        while True:
            result = await self._performer(context, replace(task, name=f"iteration{loop.count + 1}"))
            work.tell(IterationReported(self._step_id, result, visit=visit))
            if not loop.is_active:
                return merged(spec, loop, result)
            wrong = "it is not the last iteration yet"
            if spec.exit_criterion is not None:
                wrong = f"exit_criterion {spec.exit_criterion.text} does not hold yet"
            task = replace(task, previous=result, violations=(wrong,))

    async def _check(self, context: StepContext[Any], result: JsonValue) -> None:
        """Check a result in a thread, as checks can read files."""
        step, checks = self._step, self._work.setup.checks
        if step.output_schema is None and step.output_contract is None and not step.ensure:
            return
        inputs = self._work.machine.inputs(self._step_id)
        wrong = await in_thread(context, lambda: checks.of_result(step, result, inputs))
        if wrong is not None:
            raise ResultRejected(self._step_id, wrong.error_type, wrong.violations, result)

    async def _decide(self, context: StepContext[Any]) -> JsonValue:
        """Return the decision at a gate: that of its policy, or else the one that a person is asked for."""
        step, machine = self._step, self._work.machine
        gate, record = step.gate, machine.record(self._step_id)
        assert gate is not None
        if record.policy == "flag":
            return FLAGGED.to_json()
        left = machine.revisions_left(self._step_id)
        question = {
            "gate": self._step_id,
            "intent": step.intent,
            "inputs": machine.inputs(self._step_id),
            "round": machine.flow_of(self._step_id).round,
            "revisions_left": left,
        }
        answer = await context.ask(
            question,
            options=options_at(left),
            timeout=gate.timeout,
            on_timeout=NOT_GIVEN if gate.timeout is None else _TIMED_OUT,
            name=_QUESTION,
        )
        if answer == _TIMED_OUT:
            return GateAnswer("kill", "its time was over", "system").to_json()
        return GateAnswer.of(answer, _rationale(context)).to_json()


def _rationale(context: StepContext[Any]) -> str:
    """Return the reason that a person gave for a decision, as the inbox has put it on record."""
    run = run_of(scope_of(context))
    key = facts.question_id(step_place(scope_of(context)), _QUESTION)
    given = None if run is None else run.recorded.last(("question", key), facts.AnswerGiven)
    return "" if given is None else given.rationale


def _is_used_up(budget: Budget | None, error: BudgetExceeded) -> bool:
    """Return whether a budget of the spec stopped the run, and not one that the run was given besides.

    If both have the same limit, both are used up.
    """
    if budget is None:
        return False
    limits = {
        CostBudgetExceeded: budget.microcents,
        TokenBudgetExceeded: budget.tokens,
        TimeBudgetExceeded: budget.ms,
    }
    return error.limit == limits.get(type(error))


def _least(budgets: tuple[Budget, ...], spent: list[Usage], ms: float) -> Budget:
    """Return the smallest limit of each measure among some budgets, less spending and time so far."""
    usd = [one.usd for one in budgets if one.usd is not None]
    tokens = [one.tokens for one in budgets if one.tokens is not None]
    times = [one.ms for one in budgets if one.ms is not None]
    cost = exact_sum(one.committed_usd for one in spent)
    used = sum(one.total_tokens for one in spent)
    return Budget(
        usd=max(EXACT.subtract(min(usd), cost), _LEAST_USD) if usd else None,
        tokens=max(min(tokens) - used, 1) if tokens else None,
        ms=max(int(min(times) - ms), 1) if times else None,
    )

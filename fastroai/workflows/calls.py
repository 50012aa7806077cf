"""One call that drives a workflow: it reads the flow, reports facts, and does all that needs no agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from pydantic import JsonValue

from fastroai.records import RequestRecord, Usage
from fastroai.runs.running.machine import Unit
from fastroai.runtime import facts
from fastroai.runtime.fact_base import FailureFacts
from fastroai.usage import Budget
from fastroai.workflows.checks import CheckFailure
from fastroai.workflows.machine.state import FlowState
from fastroai.workflows.machine.step_inputs import FLAGGED, GateAnswer, options_at
from fastroai.workflows.plan import FlowPlan
from fastroai.workflows.spec.document import StepSpec
from fastroai.workflows.stored_flows import StoredFlow


class FlowCall:
    """A flow as one call sees it. `path` is the inner flow that the call is about, or empty."""

    def __init__(self, flow: StoredFlow, path: str) -> None:
        self.flow, self.path, self.run_id = flow, path, flow.recorded.opened.run_id
        self.plan, self.replay, self.machine = flow.plan, flow.replay, flow.replay.machine

    # --- reading the flow ---

    def flow_id(self, path: str) -> str:
        """Return the id of the flow at a path."""
        return f"{self.run_id}/{path}" if path else self.run_id

    def full_id(self, step_id: str) -> str:
        """Return the id that a step of this call's flow has in the run."""
        return f"{self.path}.{step_id}" if self.path else step_id

    def short_id(self, full: str) -> str:
        """Return the id that a step has in this call's flow; its id in the run for a step of another flow."""
        return full.removeprefix(f"{self.path}.") if self.path else full

    @property
    def due(self) -> list[str]:
        """The steps that are due, by their ids in the run, in the order of the plan."""
        if self.flow.finish is not None and self.flow.finish.status != "paused":
            return []
        units = [*self.replay.due, *self.gate_waits]
        return sorted((step_id for step_id, _ in units), key=self.machine.key)

    @property
    def gate_waits(self) -> dict[Unit, facts.Wait]:
        """Waits of gates, including gates at which a run of FastroAI itself has paused."""
        state = self.machine.state
        halted = {
            unit: waits[0] for unit, waits in state.halted.items() if self.spec(unit[0])[1].gate is not None
        }
        return {**state.asking, **halted}

    def unit(self, step_id: str) -> Unit:
        """Return the unit of a step that is due."""
        return step_id, self.machine.step(step_id).visit

    def spec(self, step_id: str) -> tuple[FlowPlan, StepSpec]:
        """Return a step of the plan, with the plan of its flow."""
        return self.plan.steps[step_id]

    # --- reporting facts ---

    async def done(
        self, step_id: str, result: JsonValue, spent: RequestRecord | None = None
    ) -> CheckFailure | None:
        """Check a result and report the outcome. Return the check that failed; `None` if all passed."""
        visit = self.unit(step_id)[1]
        failure = await self._checked(step_id, result)
        if spent is not None:
            place = facts.StepStarted(step_id, "", visit=visit).place
            self.flow.add(facts.SpendingRecorded(place=place, record=spent))
        exceeded = self._exceeded(step_id, visit, result)
        if exceeded is not None:
            self.flow.add(exceeded)
        elif failure is not None:
            message = "; ".join(failure.violations)
            self.flow.add(
                facts.StepFailed(
                    step_id,
                    _failure(failure.error_type, message),
                    visit=visit,
                    violations=failure.violations,
                    output=result,
                )
            )
        else:
            self.flow.add(facts.StepFinished(step_id, result, visit=visit))
        return failure

    @property
    def late(self) -> Unit | None:
        """The gate whose time is over, if there is one."""
        now = self.flow.clock()
        for unit, wait in self.gate_waits.items():
            if wait.deadline is not None and wait.deadline <= now:
                return unit
        return None

    def answer(self, unit: Unit, answer: GateAnswer) -> None:
        """Report the decision at a gate."""
        wait = self.machine.state.asking.get(unit)
        question = "" if wait is None else wait.id
        self.flow.add(
            facts.AnswerGiven(
                unit[0],
                answer.to_json(),
                visit=unit[1],
                id=question,
                reviewer="" if answer.resolved_by == "human" else answer.by,
                rationale=answer.rationale,
            )
        )

    async def _checked(self, step_id: str, result: JsonValue) -> CheckFailure | None:
        """Check a result. Files can be slow to read, so checks that read them run in a thread."""
        _, step = self.spec(step_id)
        checks, inputs = self.flow.checks, self.machine.inputs(step_id)
        if any("file_" in one.text for one in step.ensure):
            return await asyncio.to_thread(checks.of_result, step, result, inputs)
        return checks.of_result(step, result, inputs)

    async def follow(self) -> None:
        """Do all that needs no agent: ask at gates or approve them, and check the outputs of inner flows."""
        while (unit := next(self._own(), None)) is not None:
            step_id, visit = unit
            if self.spec(step_id)[1].gate is None:
                await self.done(step_id, self.machine.inner(step_id).output)
            elif self.machine.record(step_id).policy == "flag":
                self.answer(unit, FLAGGED)
            elif (given := self.replay.answered.get(unit)) is not None:
                self.answer(unit, given)
            else:
                self._ask(step_id, visit, self.flow.clock())

    def _own(self) -> Iterator[Unit]:
        for unit in self.replay.due:
            step = self.spec(unit[0])[1]
            if step.gate is not None or step.flow is not None:
                yield unit

    def _ask(self, step_id: str, visit: int, now: float) -> None:
        plan, step = self.spec(step_id)
        gate = step.gate
        assert gate is not None
        left = self.machine.revisions_left(step_id)
        question: dict[str, JsonValue] = {
            "workflow": self.flow.recorded.opened.pipeline,
            "flow": plan.flow.name,
            "gate": step.id,
            "intent": step.intent,
            "inputs": self.machine.inputs(step_id),
            "on_approve": gate.on_approve,
            "on_revise": None if left == 0 else gate.on_revise,
            "on_kill": gate.on_kill,
            "revisions_left": left,
        }
        before = self.replay.asked.get((step_id, visit))
        if before is not None:
            deadline = before.deadline  # the first deadline holds, even if FastroAI's own run has set it
        else:
            deadline = None if gate.timeout is None else now + gate.timeout
        asked = facts.QuestionAsked(
            step_id,
            question,
            visit=visit,
            options=options_at(left),
            deadline=deadline,
        )
        asked.id = facts.question_id(asked.place)
        self.flow.add(asked)

    # --- budgets ---

    def _exceeded(self, step_id: str, visit: int, result: JsonValue) -> facts.StepFailed | None:
        """Return the failure of a step by the outermost budget that is used up; `None` if none is."""
        state, record, now = self.machine.step(step_id), self.machine.record(step_id), self.flow.clock()
        for budget, flow in self._budgets(step_id):
            if flow is None:
                what, began = f"step {step_id!r}", self.replay.took[step_id, record.visits[0]].began
                spent = self.replay.spent[step_id, state.entry]
            else:
                clock = self.replay.clocks[flow.key]
                what, began = f"flow {flow.plan.flow.name!r}", clock.began + clock.waited
                spent = self.replay.spent[flow.key]
            if over := _over(budget, spent, now - began, what):
                return facts.StepFailed(
                    step_id,
                    _failure("BudgetExceeded", over),
                    visit=visit,
                    budget="own" if flow is None else "outer",
                    budget_of=None if flow is None else flow.path,
                    output=result,
                )
        return None

    def needs_prices(self, step_id: str) -> bool:
        """Return whether a budget in US dollars holds for a step."""
        return any(budget.usd is not None for budget, _ in self._budgets(step_id))

    def _budgets(self, step_id: str) -> Iterator[tuple[Budget, FlowState | None]]:
        """Yield the budgets that hold for a step, those of outer flows first, each with its flow."""
        for flow in reversed([*self.machine.around(self.machine.flow_of(step_id))]):
            if flow.plan.flow.budget is not None:
                yield flow.plan.flow.budget, flow
        for budget in self.spec(step_id)[1].budgets:
            yield budget, None


def _over(budget: Budget, spent: Usage, seconds: float, what: str) -> str | None:
    if budget.usd is not None and spent.cost_usd > budget.usd:
        return f"the budget of {what} is used up: ${spent.cost_usd} of ${budget.usd}"
    if budget.tokens is not None and spent.total_tokens > budget.tokens:
        return f"the budget of {what} is used up: {spent.total_tokens:,} of {budget.tokens:,} tokens"
    if budget.ms is not None and seconds * 1000 > budget.ms:
        return f"the budget of {what} is used up: {seconds * 1000:,.0f} of {budget.ms:,} ms"
    return None


def _failure(error_type: str, message: str) -> FailureFacts:
    return FailureFacts(error_type=error_type, message=message, failure_class="terminal")

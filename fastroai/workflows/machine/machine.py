"""Decisions on what runs next in a workflow: a pure state machine, `fact -> decisions`.

No clock, no I/O, no coroutine. Each attempt at a step is a visit to it; so is a question at a gate, and the
check of the output of an inner flow, when that flow is complete.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from pydantic import JsonValue

from fastroai.runs.running.machine import Cancel, Decision, Told, Unit, unit_of, why_paused
from fastroai.runtime import facts
from fastroai.runtime.fact_base import NOWHERE, Part
from fastroai.workflows.facts import (
    CheckpointRestored,
    CheckpointSet,
    IterationAborted,
    IterationReported,
    IterationStarted,
    SkipRequested,
)
from fastroai.workflows.inputs import with_defaults
from fastroai.workflows.machine.iterations import Loop
from fastroai.workflows.machine.order import FlowOrder
from fastroai.workflows.machine.state import (
    FlowKey,
    FlowState,
    Record,
    RunState,
    StepState,
    Stopped,
)
from fastroai.workflows.machine.step_inputs import (
    REJECTED,
    GateAnswer,
    missing_values,
    policy_of,
    values_of,
)
from fastroai.workflows.plan import FlowPlan, WorkflowPlan

SKIP_IF: Final = "its skip_if holds"
"""The cause of a step that is skipped because its `skip_if` holds."""
MAX_ROUTES: Final = 1_000
"""Maximum number of times that steps of a flow may route elsewhere in one round, so that loops end."""

Fits: TypeAlias = Callable[[str, JsonValue], Sequence[str]]
"""Checks a value against the contract with a name, and returns the violations."""


class WorkflowMachine:
    """The state machine of one run. `width` is the most units that run at once.

    With a width of 1, a gate that waits for a decision keeps its place: there is one thing to do at a time.
    """

    def __init__(
        self,
        plan: WorkflowPlan,
        *,
        width: int | None = None,
        fits: Fits | None = None,
        part: Part = NOWHERE,
    ) -> None:
        """`fits` checks the output of the entry flow. `part` is the part of the run that its facts name."""
        self.plan, self.part, self._width, self._fits = plan, part, width, fits
        self.state = RunState()
        self.checkpoints: dict[str, RunState] = {}
        """The states to which checkpoints go back, by label, in the order in which they were set."""
        self._visits: defaultdict[str, int] = defaultdict(int)
        self._entries: defaultdict[str, int] = defaultdict(int)
        self._begun: defaultdict[str, int] = defaultdict(int)
        """Numbers of visits, of entries of steps and of flows begun. They only grow, even after a revert."""
        self._orders = {name: FlowOrder.of(flow) for name, flow in plan.spec.flows.items()}
        self._keys = dict(_keys(plan.entry, ()))
        self._decided: list[Decision] = []
        self._pausing = self._has_ended = False

    # --- reading the state ---

    def flow_of(self, step_id: str) -> FlowState:
        """Return the state of the flow that has a step. The flow must have begun."""
        return self.state.flows[self.plan.steps[step_id][0].path]

    def step(self, step_id: str) -> StepState:
        """Return the state of a step that was entered."""
        return self.flow_of(step_id).steps[self.plan.steps[step_id][1].id]

    def record(self, step_id: str) -> Record:
        """Return the record of the current or last entry of a step."""
        return self.flow_of(step_id).records[self.step(step_id).record]

    def inputs(self, step_id: str) -> dict[str, JsonValue]:
        """Return the inputs of a step."""
        return values_of(self.flow_of(step_id), self.plan.steps[step_id][1].inputs)

    def revisions_left(self, step_id: str) -> int | None:
        """Return how often a gate can still send its flow back; `None` means without limit."""
        plan, step = self.plan.steps[step_id]
        if step.gate is None or step.gate.on_revise is None:
            return 0
        most = plan.flow.max_rounds
        return None if most is None else max(0, most - self.flow_of(step_id).round)

    def inner(self, step_id: str) -> FlowState:
        """Return the state of the flow that a step runs."""
        return self.state.flows[step_id]

    def around(self, flow: FlowState) -> Iterator[FlowState]:
        """Yield a flow and the flows around it, innermost first."""
        yield flow
        while flow.parent is not None:
            flow = self.state.flows[flow.parent[0]]
            yield flow

    def key(self, step_id: str) -> tuple[int, ...]:
        """Return the positions of a step, from the outermost flow on. They put steps in order."""
        return self._keys[step_id]

    @property
    def output(self) -> JsonValue:
        """The output of the run, once it is complete."""
        return self.state.flows[""].output

    @property
    def waits(self) -> tuple[facts.Wait, ...]:
        """Waits of gates, and then of steps that have halted."""
        return tuple(wait for _, wait in self._waits())

    def _waits(self) -> Iterator[tuple[str, facts.Wait]]:
        for (step_id, _), wait in self.state.asking.items():
            yield step_id, wait
        for (step_id, _), waits in self.state.halted.items():
            yield from ((step_id, wait) for wait in waits)

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The steps with which the run goes on when it is resumed; empty if it would end as before."""
        state = self.state
        if state.stopped is not None and state.stopped.is_final:
            return ()
        units = (*state.asking, *state.halted, *state.running, *state.again)
        return tuple(
            dict.fromkeys([*(step for step, _ in units), *(step for _, step in sorted(state.ready))])
        )

    # --- facts ---

    def handle(self, fact: Told) -> list[Decision]:
        """Take in a fact, and return the decisions that follow from it."""
        match fact:
            case CheckpointSet(label=label):
                self.checkpoints.pop(label, None)
                self.checkpoints[label] = self.state.copied()
                return []
            case facts.RunStarted(inputs=inputs):
                self._begin(self.plan.entry, inputs, None)
            case (
                facts.StepFinished()
                | facts.StepFailed()
                | facts.StepCancelled()
                | facts.StepHalted()
                | facts.QuestionAsked()
                | facts.AnswerGiven()
                | SkipRequested()
            ):
                self._on_outcome(fact)
            case IterationStarted() | IterationReported() | IterationAborted():
                self._on_iteration(fact)
            case CheckpointRestored(label=label):
                self._restore(self.checkpoints[label])
            case facts.RunResumed():
                self._resume()
            case facts.PauseRequested():
                self._pausing = True
            case facts.StopRequested(reason=reason):
                self._stop(Stopped("cancelled", "cancelled", reason, is_final=False))
            case _:
                raise TypeError(f"{type(fact).__name__} does not belong in the run of a workflow")
        self._unwind()
        self._start_ready()
        self._settle()
        decided, self._decided = self._decided, []
        return decided

    def _on_outcome(self, fact: facts.StepFact) -> None:
        """Take in that a unit no longer runs or asks. In a flow that has failed, that counts for nothing."""
        unit = step_id, _ = unit_of(fact)
        if self.state.asking.pop(unit, None) is None:
            del self.state.running[unit]
        if self.flow_of(step_id).status != "running":
            return
        match fact:
            case facts.StepFinished(output=output) if self.plan.steps[step_id][1].gate is None:
                self._succeed(step_id, output)
            case facts.StepFinished(output=output):
                self._on_answer(step_id, GateAnswer.of(output))
            case facts.StepFailed():
                self._on_failure(fact)
            case facts.StepCancelled():
                self.state.again[unit] = None
            case facts.StepHalted(waits=waits):
                self.state.halted[unit] = waits
                self.step(step_id).stage = "halted"
            case facts.QuestionAsked():
                self.state.asking[unit] = fact.wait
                self.step(step_id).stage = "asking"
            case facts.AnswerGiven():
                self._on_answer(step_id, GateAnswer.of(fact.answer, fact.rationale))
            case SkipRequested(reason=reason):
                self._skip(step_id, "somebody asked for it", reason, visit=fact.visit)

    def _on_iteration(self, fact: IterationStarted | IterationReported | IterationAborted) -> None:
        flow, record = self.flow_of(fact.step_id), self.record(fact.step_id)
        if isinstance(fact, IterationStarted):
            record.loop = Loop(fact.visit)
            return
        loop, spec = record.loop, self.plan.steps[fact.step_id][1].iteration
        assert loop is not None
        assert spec is not None
        reported = (
            loop.report(spec, fact.output) if isinstance(fact, IterationReported) else loop.abort(fact.reason)
        )
        flow.iterations.setdefault(record.step, []).append(reported)

    # --- flows begin and end ---

    def _begin(self, plan: FlowPlan, inputs: Mapping[str, JsonValue], parent: FlowKey | None) -> None:
        for place in _places(plan):
            if (before := self.state.flows.pop(place, None)) is not None:
                self.state.past[place] = (*self.state.past.get(place, ()), before)
        self._begun[plan.path] += 1
        flow = FlowState(plan, self._begun[plan.path], parent, with_defaults(plan.flow, inputs))
        self.state.flows[plan.path] = flow
        self._come_up(flow, self._order(flow).begin(flow))
        self._after(flow)

    def _order(self, flow: FlowState) -> FlowOrder:
        return self._orders[flow.plan.flow.name]

    def _after(self, flow: FlowState) -> None:
        """Go on after something in a flow is over: the flow may route elsewhere now, or be over itself."""
        if flow.status != "running":
            return
        if flow.failing is not None and len(flow.todo) == 1:
            failed, flow.failing = flow.failing, None
            target = flow.plan.step(failed).on_fail
            assert target is not None
            self._clear(flow, target, kept=failed)
            self._route(flow, failed, target, f"{failed!r} failed: its on_fail leads here")
        elif self._order(flow).is_over(flow):
            self._end(flow, "all that comes before is over")

    def _end(self, flow: FlowState, why: str) -> None:
        """Complete a flow, or kill the run if the cleanup of a killed flow is over."""
        if flow.killing:
            self._kill(flow)
            return
        plan = flow.plan
        for position in self._order(flow).left_out(flow, len(plan.flow.steps)):
            self._leave_out(flow, position, why)
        if flow.last is not None:
            flow.output = flow.outputs[plan.flow.steps[flow.last[1]].id]["output"]
        if flow.path:
            flow.status = "complete"
            self._push(flow.path, f"flow {plan.flow.name!r} is complete")
            return
        last = plan.flow.steps[flow.last[1]].id if flow.last is not None else ""
        contract = plan.flow.output
        wrong = self._fits(contract, flow.output) if self._fits is not None and contract is not None else ()
        if wrong:
            reason = f"the output is not what contract {contract!r} says: {'; '.join(wrong)}"
            self._fail(flow, Stopped("failed", "step_failed", reason, last, violations=tuple(wrong)))
        else:
            flow.status = "complete"
            self._stop(Stopped("finished", "completed", "the workflow is complete", last))

    def _kill(self, flow: FlowState) -> None:
        """End the whole run by the decision of a person, whichever flow the gate is in."""
        self._stop(Stopped("cancelled", "killed", flow.kill_reason))

    def _fail(self, flow: FlowState, stopped: Stopped, unit: Unit | None = None) -> None:
        """Fail a flow: the innermost step around it with an `on_fail` goes on, or else the run ends."""
        failed: list[FlowState] = []
        for inner in self.around(flow):
            if inner.killing:
                inner.kill_reason += f"; its cleanup failed: {stopped.reason}"
                self._kill(inner)
                return
            failed.append(inner)
            if inner.path and self.plan.steps[inner.path][1].on_fail is not None:
                for one in failed:
                    one.status = "failed"
                self._abandon(inner.path, stopped.reason)
                return
        if not stopped.is_final and unit is not None:
            self.state.again[unit] = None
        self._stop(stopped)

    def _abandon(self, path: str, reason: str) -> None:
        """Stop everything in the flow of a step. The step fails when all that runs there has ended."""
        state, inside = self.state, f"{path}."
        state.unwinding[path] = reason
        state.ready = [one for one in state.ready if not one[1].startswith(inside)]
        heapq.heapify(state.ready)
        for units in (state.asking, state.halted, state.again):
            for unit in [unit for unit in units if unit[0].startswith(inside)]:
                units.pop(unit)
        running = [unit for unit in state.running if unit[0].startswith(inside)]
        if running:
            self._decided.append(Cancel(running, f"the flow of {path!r} has failed"))

    def _unwind(self) -> None:
        state = self.state
        for path in [*state.unwinding]:
            if not any(step_id.startswith(f"{path}.") for step_id, _ in state.running):
                reason = state.unwinding.pop(path)
                if self.flow_of(path).status == "running":
                    self._step_failed(path, Stopped("failed", "step_failed", reason, path))

    def _stop(self, stopped: Stopped) -> None:
        """Let the run end when nothing runs any more."""
        before, running = self.state.stopped, [*self.state.running]
        if before is None or (stopped.is_final and not before.is_final):
            self.state.stopped = stopped
            for flow in self.state.flows.values() if stopped.is_final else ():
                if flow.status == "running":
                    flow.status = "killed" if stopped.code == "killed" else "failed"
        if before is None and running:
            is_budget = stopped.code == "budget_exceeded"
            self._decided.append(Cancel(running, stopped.reason, answers_first=is_budget))

    # --- steps start ---

    def _come_up(
        self, flow: FlowState, positions: Sequence[int], routed: tuple[int, str, str] | None = None
    ) -> None:
        """Let steps start: each begins an entry. `routed` is a target, the step that leads there, and why."""
        plan = flow.plan
        for position in positions:
            step = plan.flow.steps[position]
            step_id = plan.step_id(step.id)
            self._entries[step_id] += 1
            needs = self._order(flow).needs[position]
            # Reasons are on record, and replays compare them: their words do not change.
            why = "all that it needs is over" if needs else "it needs no other step"
            state = StepState("ready", self._entries[step_id], 0, 0, -1, why)
            if routed is not None and position == routed[0]:
                state.routed_from, state.why = routed[1], routed[2]
            flow.steps[step.id] = state
            heapq.heappush(self.state.ready, (self._keys[step_id], step_id))

    def _push(self, step_id: str, why: str) -> None:
        """Let a step go on: with another attempt, or with the check of its flow's output."""
        step = self.step(step_id)
        step.stage, step.why = "ready", why
        heapq.heappush(self.state.ready, (self._keys[step_id], step_id))

    def _start_ready(self) -> None:
        state, width = self.state, self._width
        while state.ready and state.stopped is None and not self._pausing:
            if width is not None and len(state.running) + (len(state.asking) if width == 1 else 0) >= width:
                return
            self._launch(heapq.heappop(state.ready)[1])
            self._unwind()
            state = self.state

    def _launch(self, step_id: str) -> None:
        step = self.step(step_id)
        if step.record < 0:
            self._enter(step_id, step)
        else:
            self._attempt(step_id, step)

    def _enter(self, step_id: str, state: StepState) -> None:
        flow, (plan, step) = self.flow_of(step_id), self.plan.steps[step_id]
        record = Record("gate" if step.gate is not None else "step", step.id)
        state.record, state.attempt, record.attempts = len(flow.records), 1, 1
        flow.records.append(record)
        if step.skip_if is not None and step.skip_if.test({"input": flow.inputs, "steps": flow.outputs}):
            self._skip(step_id, SKIP_IF, step.skip_reason)
        elif missing := missing_values(flow, step.inputs):
            reason = f"{step_id!r} failed: {'; '.join(missing)}"
            self._step_failed(step_id, Stopped("failed", "step_failed", reason, step_id))
        elif step.flow is not None:
            state.stage = "inside"
            child = plan.children[step.id]
            record.child = (step_id, self._begun[step_id] + 1)
            self._begin(child, self.inputs(step_id), flow.key)
        elif step.gate is not None:
            record.policy = policy_of(flow, step.gate)
            if record.policy == "skip":
                record.type = "policy"
                self._decided.append(self._skipped(step_id, "its policy is to skip it"))
                self._on_answer(step_id, GateAnswer("approve", "", "system"))
            else:
                self._attempt(step_id, state)
        else:
            self._attempt(step_id, state)

    def _attempt(self, step_id: str, step: StepState) -> None:
        """Start the next visit to a step; after a resumption, start the same visit again."""
        if step.is_started:
            step.is_started = False
        else:
            step.visit = self._next_visit(step_id)
            self.record(step_id).visits.append(step.visit)
        self.record(step_id).outcome = "open"
        step.stage = "running"
        self.state.running[step_id, step.visit] = None
        self._decided.append(facts.StepStarted(step_id, step.why, visit=step.visit, part=self.part))

    def _next_visit(self, step_id: str) -> int:
        self._visits[step_id] += 1
        return self._visits[step_id]

    # --- steps end ---

    def _succeed(self, step_id: str, output: JsonValue) -> None:
        flow, (plan, step) = self.flow_of(step_id), self.plan.steps[step_id]
        self.record(step_id).outcome = "succeeded"
        flow.outputs[step.id] = {"output": output}
        done = flow.passes, plan.order[step.id]
        if flow.last is None or done > flow.last:
            flow.last = done
        if step.next is not None:
            self._route(flow, step.id, step.next, f"{step.id!r} is done: its next leads here")
        else:
            self._over(flow, step.id)

    def _over(self, flow: FlowState, name: str) -> None:
        flow.steps[name].stage = "over"
        self._come_up(flow, self._order(flow).over(flow, flow.plan.order[name]))
        self._after(flow)

    def _skip(self, step_id: str, cause: str, reason: str, *, visit: int | None = None) -> None:
        """Skip a step that was entered."""
        flow, record = self.flow_of(step_id), self.record(step_id)
        name = record.step
        if record.violations or record.loop is not None:  # its attempts stay on record
            record.outcome = "skipped"
            record = Record("skip", name)
            flow.records.append(record)
        record.type, record.outcome, record.skip_reason = "skip", "skipped", reason
        flow.outputs[name] = {"output": None}
        self._decided.append(self._skipped(step_id, cause, visit))
        self._over(flow, name)

    def _leave_out(self, flow: FlowState, position: int, cause: str) -> None:
        """Skip a step that was not entered."""
        name = flow.plan.flow.steps[position].id
        flow.records.append(Record("skip", name, outcome="skipped", skip_reason=cause))
        flow.outputs[name] = {"output": None}
        self._decided.append(self._skipped(flow.plan.step_id(name), cause))

    def _skipped(self, step_id: str, cause: str, visit: int | None = None) -> facts.StepSkipped:
        number = self._next_visit(step_id) if visit is None else visit
        return facts.StepSkipped(step_id, cause, visit=number, part=self.part)

    def _on_failure(self, fact: facts.StepFailed) -> None:
        """Handle a failure: a result was not accepted, a budget is used up, or an exception was raised."""
        step_id, unit, state = fact.step_id, unit_of(fact), self.state
        step, spec, record = self.step(step_id), self.plan.steps[step_id][1], self.record(step_id)
        if state.stopped is not None:
            state.again[unit] = None
            return
        if fact.violations:
            record.violations.append(fact.violations)
            self.flow_of(step_id).outputs[spec.id] = {"output": fact.output, REJECTED: True}
        message, budget = fact.failure.message, fact.budget
        code: facts.ReasonCode = "step_failed" if budget is None else "budget_exceeded"
        if fact.violations and budget is None and step.attempt < spec.attempts:
            step.attempt += 1
            record.attempts = step.attempt
            self._push(
                step_id, f"attempt {step.attempt} of {spec.attempts}: the result did not pass its checks"
            )
        elif budget == "outer":
            is_ours = fact.budget_of is not None
            record.error = message
            stopped = Stopped("failed", code, message, step_id, fact.failure, fact.raised, is_ours)
            if fact.budget_of is None:
                state.again[unit] = None
                self._stop(stopped)
            else:
                record.outcome = "failed"
                self._fail(state.flows[fact.budget_of], stopped)
        else:
            record.error = "" if fact.violations else message
            reason = f"{step_id!r} failed: {message}"
            is_final = bool(fact.violations) or budget == "own"
            self._step_failed(
                step_id,
                Stopped(
                    "failed", code, reason, step_id, fact.failure, fact.raised, is_final, fact.violations
                ),
                unit,
            )

    def _step_failed(self, step_id: str, stopped: Stopped, unit: Unit | None = None) -> None:
        flow, (_, step), record = self.flow_of(step_id), self.plan.steps[step_id], self.record(step_id)
        record.outcome = "failed"
        if not record.error and not stopped.violations:
            record.error = stopped.reason
        if step.on_fail is None:
            self._fail(flow, stopped, unit)
        else:
            flow.failing = step.id
            self._after(flow)

    # --- gates ---

    def _on_answer(self, step_id: str, answer: GateAnswer) -> None:
        flow, (_, step), record = self.flow_of(step_id), self.plan.steps[step_id], self.record(step_id)
        gate, name = step.gate, step.id
        assert gate is not None
        record.outcome, record.rationale = answer.decision, answer.rationale
        record.resolved_by = answer.resolved_by
        if record.policy == "flag" and answer.resolved_by == "system" and answer.decision == "approve":
            record.type = "policy"
        match answer.decision:
            case "approve" if gate.on_approve is None:
                flow.steps[name].stage = "over"
                flow.todo.clear()
                self._end(flow, f"gate {name!r} was approved, which ends the flow")
            case "approve":
                assert gate.on_approve is not None
                self._route(flow, name, gate.on_approve, f"gate {name!r} was approved")
            case "revise":
                assert gate.on_revise is not None
                self._revise(flow, name, gate.on_revise)
            case "kill":
                flow.killing = True
                flow.kill_reason = f"gate {step_id!r} was killed by {answer.by}" + (
                    f": {answer.rationale}" if answer.rationale else ""
                )
                if gate.on_kill is None:
                    self._kill(flow)
                else:
                    self._route(flow, name, gate.on_kill, f"gate {name!r} was killed: this cleans up")

    def _revise(self, flow: FlowState, name: str, target: str) -> None:
        step_id = flow.plan.step_id(name)
        if self.revisions_left(step_id) == 0:  # nobody is offered this; an answer on record may still say it
            reason = (
                f"the decision at gate {step_id!r} is 'revise', but the flow has gone back "
                f"max_rounds={flow.plan.flow.max_rounds} times already; raise max_rounds in the spec, and "
                "start a new flow"
            )
            self._fail(flow, Stopped("failed", "max_rounds", reason, step_id))
            return
        flow.rounds.append(tuple(flow.records))
        flow.archived_iterations.append(flow.iterations)
        flow.records, flow.iterations, flow.routes = [], {}, 0
        flow.round += 1
        self._clear(flow, target)
        self._route(flow, name, target, f"gate {name!r} asks for another round")
        for one in [name for name, step in flow.steps.items() if step.stage == "over"]:
            del flow.steps[one]  # their records belong to the round before

    def _clear(self, flow: FlowState, target: str, kept: str | None = None) -> None:
        """Forget the outputs of all steps from `target` on, except the step `kept`."""
        steps, to = flow.plan.flow.steps, flow.plan.order[target]
        for step in steps[to:]:
            if step.id != kept:
                flow.outputs.pop(step.id, None)
        if flow.last is not None and steps[flow.last[1]].id not in flow.outputs:
            left = [position for position in range(to) if steps[position].id in flow.outputs]
            flow.last = (flow.passes, left[-1]) if left else None

    def _route(self, flow: FlowState, name: str, target: str, why: str) -> None:
        """Go on from the step `target`.

        Everything up to the step that routes is over, and nothing after it has started.
        """
        step_id, order, to = flow.plan.step_id(name), self._order(flow), flow.plan.order[target]
        flow.routes += 1
        if flow.routes > MAX_ROUTES:
            reason = f"{step_id!r} routes on, and the flow did so {MAX_ROUTES:,} times in this round"
            self._fail(flow, Stopped("failed", "max_steps", reason, step_id))
            return
        flow.steps[name].stage = "over"
        if to > flow.plan.order[name] and not flow.killing:
            for left in order.left_out(flow, to):
                self._leave_out(flow, left, f"{name!r} leads on to {target!r}")
        flow.passes += 1
        self._come_up(flow, order.begin(flow, to), (to, name, why))

    # --- the run ---

    def _resume(self) -> None:
        """Start everything anew that had started and is not over. A run that ended by its rules stays so."""
        self._has_ended = self._pausing = False
        state = self.state
        if state.stopped is not None and state.stopped.is_final:
            return
        state.stopped = None
        left = [*state.halted, *state.running, *state.again]
        for units in (state.halted, state.running, state.again):
            units.clear()
        for step_id, _ in left:
            if self.flow_of(step_id).status == "running":
                self._push(step_id, "the run was resumed")
                self.step(step_id).is_started = True

    def _restore(self, checkpoint: RunState) -> None:
        """Go back to a checkpoint, unless the run was killed or is complete. Due steps get new visits."""
        self._has_ended = self._pausing = False
        stopped = self.state.stopped
        if stopped is not None and stopped.is_final and stopped.status != "failed":
            return
        self.state = state = checkpoint.copied()
        due = [*state.asking, *state.halted, *state.running, *state.again]
        for units in (state.asking, state.halted, state.running, state.again):
            units.clear()
        for step_id, visit in due:
            self._push(step_id, "the workflow went back to a checkpoint")
            self.step(step_id).is_started = False
            loop = self.record(step_id).loop
            if loop is not None and loop.visit == visit:
                loop.visit = self._visits[step_id] + 1

    def _settle(self) -> None:
        """End or pause the run, if nothing runs any more."""
        state = self.state
        if state.running or self._has_ended:
            return
        finish = facts.RunFinished(status="paused", part=self.part)
        if (stopped := state.stopped) is not None:
            self._has_ended = True
            finish.status, finish.reason, finish.reason_code = stopped.status, stopped.reason, stopped.code
            finish.step_id, finish.failure, finish.raised = stopped.step_id, stopped.failure, stopped.error
        elif self._pausing or not self.waits:
            finish.reason_code, finish.reason = "pause_requested", "a pause was requested"
        else:
            finish.reason_code, finish.reason = why_paused(self._waits())
        if finish.status == "paused":
            finish.waits = self.waits
        if finish.status != "finished":
            finish.resume_at = self.resume_at
        self._decided.append(finish)


def _keys(plan: FlowPlan, before: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each step with its positions, from the outermost flow on."""
    for position, step in enumerate(plan.flow.steps):
        yield plan.step_id(step.id), (*before, position)
        if (child := plan.children.get(step.id)) is not None:
            yield from _keys(child, (*before, position))


def _places(plan: FlowPlan) -> Iterator[str]:
    yield plan.path
    for child in plan.children.values():
        yield from _places(child)

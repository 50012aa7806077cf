"""Answers that say what is to be done next in a flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final, Literal

from fastroai.runtime.facts import RunFinished, StepSkipped
from fastroai.store.reading.history import RunSummary
from fastroai.workflows.answers import (
    ENDS,
    AwaitGate,
    DeclaredField,
    ErrorAnswer,
    ExecuteFlow,
    ExecuteStep,
    FlowEnded,
    IterationAnswer,
    ListedFlow,
    ListedStatus,
    LoopState,
    NextAnswer,
    Skipped,
    error,
)
from fastroai.workflows.auditing import duration_ms, records_of
from fastroai.workflows.calls import FlowCall
from fastroai.workflows.machine.iterations import IterationOutcome, Loop, Reported
from fastroai.workflows.machine.machine import SKIP_IF
from fastroai.workflows.machine.state import FlowState
from fastroai.workflows.spec.document import IterationSpec


def next_of(call: FlowCall, *, reverted_to: str | None = None) -> NextAnswer:
    """Return what is to be done next, or how the flow has ended."""
    finish = call.flow.finish
    if finish is not None and finish.status != "paused":
        return ended_of(call, finish, reverted_to=reverted_to)
    due = call.due
    if not due:
        message = "Nothing is due: the run is paused. Continue it with resume."
        return error("flow_ended", message, flow_id=call.run_id)
    return _around(call, due[0], reverted_to)


def ended_of(
    call: FlowCall, finish: RunFinished, *, reverted_to: str | None = None
) -> FlowEnded | ErrorAnswer:
    """Return how a flow has ended."""
    if finish.status == "cancelled" and finish.reason_code != "killed":
        message = f"The run was cancelled: {finish.reason}. Continue it with resume."
        return error("flow_ended", message, flow_id=call.run_id)
    flow, machine = call.machine.state.flows[""], call.machine
    stopped = machine.state.stopped
    return FlowEnded(
        status=ENDS[finish.status],
        flow_id=call.run_id,
        flow=flow.plan.flow.name,
        output=flow.output,
        trace=records_of(call, flow, flow.records),
        total_duration_ms=duration_ms(call, flow),
        reason=finish.reason,
        reason_code=finish.reason_code or "",
        step_id=None if finish.status == "finished" else finish.step_id or None,
        violations=() if stopped is None else stopped.violations,
        reverted_to=reverted_to,
        skipped=_skipped(call),
    )


def rejected(call: FlowCall, step_id: str, status: Literal["ensure_failed", "schema_failed"]) -> ExecuteStep:
    """Return the answer for a step to be done again, as its result was not accepted."""
    answer = _step(call, step_id, status)
    return answer.model_copy(update={"violations": call.machine.record(step_id).violations[-1]})


def _around(call: FlowCall, step_id: str, reverted_to: str | None) -> ExecuteStep | AwaitGate | ExecuteFlow:
    """Return the answer for a step, wrapped in an `ExecuteFlow` for each flow around it, outermost first."""
    plan, step = call.spec(step_id)
    answer: ExecuteStep | AwaitGate | ExecuteFlow
    answer = _step(call, step_id, "execute_step") if step.gate is None else _gate(call, step_id)
    while plan.path:
        inner, path = plan, plan.path
        plan, _ = call.spec(path)
        answer = ExecuteFlow(
            status="execute_flow",
            **_common(call, path),
            child_flow=inner.flow.name,
            child_flow_id=call.flow_id(path),
            child_step=answer,
        )
    return answer.model_copy(update={"reverted_to": reverted_to, "skipped": _skipped(call)})


def _common(call: FlowCall, step_id: str) -> dict[str, Any]:
    plan, step = call.spec(step_id)
    flow, state = call.machine.flow_of(step_id), call.machine.step(step_id)
    return {
        "flow_id": call.flow_id(plan.path),
        "flow": plan.flow.name,
        "step_id": step.id,
        "step_number": plan.order[step.id] + 1,
        "total_steps": len(plan.flow.steps),
        "round": flow.round,
        "routed_from": state.routed_from,
        "violations": _violations_of(flow, state.routed_from),
    }


def _violations_of(flow: FlowState, routed_from: str | None) -> tuple[str, ...]:
    """Return the violations of the last result of `routed_from`, the step that led to this one."""
    if routed_from is None or routed_from not in flow.steps:
        return ()
    record = flow.records[flow.steps[routed_from].record]
    return record.violations[-1] if record.outcome == "failed" and record.violations else ()


def _step(
    call: FlowCall, step_id: str, status: Literal["execute_step", "ensure_failed", "schema_failed"]
) -> ExecuteStep:
    _, step = call.spec(step_id)
    state, loop = call.machine.step(step_id), call.machine.record(step_id).loop
    contracts = call.plan.spec.contracts
    fields = {} if step.output_contract is None else contracts[step.output_contract].fields
    iteration = step.iteration
    return ExecuteStep(
        status=status,
        **_common(call, step_id),
        next_call=_next_call(iteration, loop, state.visit),
        step_mode="inline" if step.function is None else "function",
        intent=step.intent,
        inputs=call.machine.inputs(step_id),
        output_contract=step.output_contract,
        output_fields={name: field.type for name, field in fields.items()},
        contract={name: DeclaredField.of(field) for name, field in fields.items()},
        ensure=tuple(condition.text for condition in step.ensure),
        attempt=state.attempt,
        max_attempts=step.attempts,
        retries_remaining=step.attempts - state.attempt + 1,
        function=step.function,
        mode=step.mode,
        agent=step.agent,
        model=step.model,
        context=step.context,
        output_schema=None if step.output_schema is None else dict(step.output_schema),
        max_iterations=None if iteration is None else iteration.max_iterations,
        exit_criterion=None
        if iteration is None or iteration.exit_criterion is None
        else iteration.exit_criterion.text,
        accumulate=None if iteration is None else iteration.accumulate,
        loop=None
        if loop is None
        else LoopState(
            iteration=loop.count,
            outcome=loop.outcome,
            accumulated_count=len(loop.items),
            dry_streak=loop.dry_streak,
        ),
    )


def _next_call(
    iteration: IterationSpec | None, loop: Loop | None, visit: int
) -> Literal["step_done", "iteration_start", "iteration_report"]:
    if iteration is None:
        return "step_done"
    if loop is not None and loop.is_active:
        return "iteration_report"
    return "iteration_start" if loop is None or loop.visit != visit else "step_done"


def _gate(call: FlowCall, step_id: str) -> AwaitGate:
    _, step = call.spec(step_id)
    gate = step.gate
    assert gate is not None
    wait, left = call.gate_waits.get(call.unit(step_id)), call.machine.revisions_left(step_id)
    deadline = None if wait is None else wait.deadline
    return AwaitGate(
        status="await_gate",
        **_common(call, step_id),
        function=step.function or "",
        intent=step.intent,
        inputs=call.machine.inputs(step_id),
        on_approve=gate.on_approve,
        on_revise=None if left == 0 else gate.on_revise,
        on_kill=gate.on_kill,
        revisions_left=left,
        timeout=gate.timeout,
        expires_at=None if deadline is None else datetime.fromtimestamp(deadline, UTC),
    )


def _skipped(call: FlowCall) -> tuple[Skipped, ...]:
    """Return the steps that were left out in this call."""
    return tuple(
        Skipped(step_id=decision.step_id, reason=_reason(call, decision))
        for decision in call.flow.decided
        if isinstance(decision, StepSkipped) and call.spec(decision.step_id)[1].gate is None
    )


def _reason(call: FlowCall, skipped: StepSkipped) -> str:
    said = call.spec(skipped.step_id)[1].skip_reason
    return said if said and skipped.cause == SKIP_IF else skipped.cause


def iteration_answer(
    call: FlowCall, step_id: str, spec: IterationSpec, reported: Reported | None = None
) -> IterationAnswer:
    """Return how far the loop of a step is, after a report if there was one."""
    gathers = spec.accumulate is not None
    answer = IterationAnswer(
        status="iteration_started" if reported is None else _AFTER_REPORT[reported.outcome],
        flow_id=call.flow_id(call.path),
        step_id=step_id,
        iteration=0,
        max_iterations=spec.max_iterations,
        exit_criterion=None if spec.exit_criterion is None else spec.exit_criterion.text,
        accumulated_count=0 if gathers else None,
        dry_streak=0 if gathers else None,
    )
    if reported is None:
        return answer
    fields = asdict(reported)
    del fields["reason"]
    return answer.model_copy(update=fields)


_AFTER_REPORT: Final[
    Mapping[IterationOutcome, Literal["iteration_continue", "iteration_exit", "iteration_aborted"]]
] = {
    "continue": "iteration_continue",
    "exit_success": "iteration_exit",
    "exit_max": "iteration_exit",
    "exit_abort": "iteration_aborted",
}


def listed(run: RunSummary) -> ListedFlow:
    """Return a run in the form that lists of flows have."""
    return ListedFlow(
        flow_id=run.run_id,
        workflow=run.pipeline or "",
        status=_LISTED.get(run.status, "in_progress"),
        awaits=run.open_questions > 0,
        started_at=run.started_at,
        updated_at=run.updated_at,
        error=run.error,
    )


_LISTED: Final[Mapping[str, ListedStatus]] = {**ENDS, "unreadable": "unreadable"}

"""Audits of flows, as answers: their steps, rounds, loops and inner flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from fastroai.places import quoted
from fastroai.records import RequestRecord, Usage
from fastroai.workflows.answers import (
    ENDS,
    AuditAnswer,
    FlowStatus,
    IterationRecord,
    RoundRecord,
    StepRecord,
)
from fastroai.workflows.calls import FlowCall
from fastroai.workflows.machine.iterations import Reported
from fastroai.workflows.machine.state import FlowKey, FlowState, Record


def records_of(call: FlowCall, flow: FlowState, records: Iterable[Record]) -> tuple[StepRecord, ...]:
    """Return records of a flow in the form that answers have."""
    return tuple(_record(call, flow, one) for one in records)


def audit_of(call: FlowCall, flow: FlowState) -> AuditAnswer:
    """Return the audit of a flow, with the audits of the flows inside of it."""
    plan = flow.plan
    rounds = tuple(
        RoundRecord(round=number, steps=records_of(call, flow, records))
        for number, records in enumerate(flow.rounds)
    )
    done, skipped = _over(call, flow)
    children = {
        step.id: tuple(audit_of(call, child) for child in _flows_at(call, plan.step_id(step.id), flow.key))
        for step in plan.flow.steps
        if step.flow is not None
    }
    ended = call.flow.recorded.ended
    status = _status(call, flow)
    usage = (
        _spent(call, flow) if flow.path else Usage.of(_records(call, ""))
    )  # usage of the run includes reverted work
    return AuditAnswer(
        status=status,
        flow_id=call.flow_id(flow.path),
        flow=plan.flow.name,
        steps_completed=done,
        total_steps=len(plan.flow.steps),
        steps_skipped=skipped,
        trace=records_of(call, flow, flow.records),
        round=flow.round,
        rounds=rounds,
        iterations=_iterations(flow.iterations),
        archived_iterations=tuple(map(_iterations, flow.archived_iterations)),
        child_audits={name: audits for name, audits in children.items() if audits},
        total_duration_ms=duration_ms(call, flow),
        cost_usd=usage.cost_usd,
        cost_complete=usage.cost_complete,
        tokens=usage.total_tokens,
        output=flow.output,
        reason="" if flow.path or ended is None else ended.reason,
        reason_code="" if flow.path or ended is None else ended.reason_code or "",
        checkpoints=() if flow.path else tuple(call.machine.checkpoints),
    )


def _over(call: FlowCall, flow: FlowState) -> tuple[int, tuple[str, ...]]:
    """Return how many steps of a flow are over, and which of them were skipped.

    In a complete flow, every step is over: those that nothing led to were skipped.
    """
    plan = flow.plan
    latest: dict[str, str] = {}  # a step that a jump repeats has several records
    for records in (*flow.rounds, flow.records):
        latest |= {one.step: one.outcome for one in records}
        revised = next((plan.step(one.step).gate for one in records if one.outcome == "revise"), None)
        if revised is not None and revised.on_revise is not None:
            first = plan.order[revised.on_revise]
            latest = {name: outcome for name, outcome in latest.items() if plan.order[name] < first}
    if flow.status == "complete":
        latest = {name: latest.get(name, "skipped") for name in plan.order}
    skipped = tuple(name for name in plan.order if latest.get(name) == "skipped")
    return sum(outcome != "open" for outcome in latest.values()), skipped


def duration_ms(call: FlowCall, flow: FlowState) -> float:
    """Return the milliseconds that a flow has run: until its end, or until its last entry so far."""
    clock = call.replay.clocks.get(flow.key)
    if clock is None:
        return 0.0
    if not flow.path:
        last = call.flow.recorded.entries[-1].timestamp
    else:
        records = chain(*flow.rounds, flow.records)
        units = [(flow.plan.step_id(record.step), visit) for record in records for visit in record.visits]
        ends = [took.ended for unit in units if (took := call.replay.took.get(unit)) and took.ended]
        last = max(ends, default=clock.began)
    return _rounded(last - clock.began)


def _flows_at(call: FlowCall, path: str, parent: FlowKey) -> Iterator[FlowState]:
    """Yield the flows that a step has run, in the order in which they began."""
    state = call.machine.state
    for one in (*state.past.get(path, ()), *filter(None, (state.flows.get(path),))):
        if one.parent == parent:
            yield one


def _status(call: FlowCall, flow: FlowState) -> FlowStatus:
    ended = call.flow.recorded.ended
    if flow.status != "running":
        return flow.status
    if ended is None or flow.path or ended.status not in ENDS:
        return "in_progress"
    was_killed = ended.reason_code == "killed"
    return "cancelled" if ended.status == "cancelled" and not was_killed else ENDS[ended.status]


def _record(call: FlowCall, flow: FlowState, record: Record) -> StepRecord:
    plan = flow.plan
    step, step_id = plan.step(record.step), plan.step_id(record.step)
    took = [one for visit in record.visits if (one := call.replay.took.get((step_id, visit))) is not None]
    ends = [one.ended for one in took if one.ended is not None]
    seconds = max(ends) - took[0].began if took and ends else 0.0
    usage, child = _spent_on(call, flow, record), _child(call, flow, record)
    milliseconds = _rounded(seconds) + (0.0 if child is None else duration_ms(call, child))
    return StepRecord(
        type=record.type,
        step_id=record.step,
        outcome=record.outcome,
        attempts=record.attempts if record.type == "step" else 0,
        duration_ms=milliseconds,
        step_mode=None if step.kind == "gate" else step.kind,
        function=step.function,
        agent=step.agent,
        violations=tuple(one for violations in record.violations for one in violations),
        error=record.error,
        resolved_by=record.resolved_by,
        rationale=record.rationale,
        policy=record.policy,
        skip_reason=record.skip_reason,
        iteration_outcome=None if record.loop is None else record.loop.outcome,
        child_flow_id=None if record.child is None else call.flow_id(step_id),
        cost_usd=usage.cost_usd,
        tokens=usage.total_tokens,
    )


def _child(call: FlowCall, flow: FlowState, record: Record) -> FlowState | None:
    """Return the inner flow that one record of a step stands for; `None` if the step ran none."""
    if record.child is None:
        return None
    return next((one for one in _flows_at(call, record.child[0], flow.key) if one.key == record.child), None)


def _spent_on(call: FlowCall, flow: FlowState, record: Record) -> Usage:
    """Return the usage of one record of a step, inner flows at any depth included."""
    step_id = flow.plan.step_id(record.step)
    usage = Usage.of([one for visit in record.visits for one in _records(call, _place(step_id, visit))])
    child = _child(call, flow, record)
    return usage if child is None else usage + _spent(call, child)


def _spent(call: FlowCall, flow: FlowState) -> Usage:
    """Return the usage of a flow, inner flows at any depth included, reverted work excluded."""
    total = Usage()
    for record in chain(*flow.rounds, flow.records):
        total += _spent_on(call, flow, record)
    return total


def _place(step_id: str, visit: int) -> str:
    return quoted(step_id) if visit == 1 else f"{quoted(step_id)}#{visit}"


def _records(call: FlowCall, place: str) -> list[RequestRecord]:
    return [one.record for one in call.flow.recorded.requests.charges(place)]


def _iterations(reported: Mapping[str, list[Reported]]) -> dict[str, tuple[IterationRecord, ...]]:
    return {name: tuple(map(IterationRecord.model_validate, reports)) for name, reports in reported.items()}


def _rounded(seconds: float) -> float:
    return round(max(0.0, seconds) * 1000, 3)

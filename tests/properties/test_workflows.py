"""Random workflows with random results keep the promises of the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from support.random_workflows import MOST_FACTS, Drive, Fates, flow_of, plan_of_flows, workflows

from fastroai.runs.running.machine import Cancel, Decision
from fastroai.runtime import facts
from fastroai.workflows.facts import CheckpointRestored, CheckpointSet
from fastroai.workflows.machine.machine import WorkflowMachine
from fastroai.workflows.machine.state import FlowState, RunState
from fastroai.workflows.plan import WorkflowPlan
from fastroai.workflows.spec.document import StepSpec

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def driven(
    plan: WorkflowPlan, fates: Fates, width: int | None, data: st.DataObject | None = None
) -> Drive | None:
    """Drive a run to its end; `None` if it takes too long. Units end in order, or as `data` chooses."""
    drive = Drive(plan, fates, width)
    drive.tell(facts.RunStarted(inputs={}))
    while not drive.has_ended:
        if len(drive.told) > MOST_FACTS:
            return None
        units = drive.units
        assert units, f"nothing is left to do, and the run has not ended: {drive.machine.state}"
        number = 0 if data is None else data.draw(st.integers(0, len(units) - 1))
        drive.end(units[number])
    return drive


def seen(decisions: list[Decision]) -> list[object]:
    """What decisions say, but for their times."""
    return [one if isinstance(one, Cancel) else replace(one, timestamp=0.0) for one in decisions]  # type: ignore[type-var]


@SLOW
@given(workflows(), st.sampled_from([1, 2, None]), st.data())
def test_every_run_ends_within_its_limits(
    drawn: tuple[WorkflowPlan, Fates], width: int | None, data: st.DataObject
) -> None:
    plan, fates = drawn
    drive = driven(plan, fates, width, data)
    if drive is None:
        event("took too long")
        return
    assert drive.finish is not None
    event(f"{drive.finish.status}: {drive.finish.reason_code}")
    assert width is None or drive.most_at_once <= width
    for flow in every_flow(drive.machine.state):
        steps = flow.plan.flow
        for record in [*flow.records, *(one for records in flow.rounds for one in records)]:
            spec = next(one for one in steps.steps if one.id == record.step)
            assert record.attempts <= max(1, spec.attempts)
            assert len(record.violations) <= spec.attempts
        if steps.max_rounds is not None:
            assert flow.round <= steps.max_rounds
    assert drive.running == {}


@SLOW
@given(workflows(), st.data())
def test_no_step_starts_while_one_that_it_needs_is_not_over(
    drawn: tuple[WorkflowPlan, Fates], data: st.DataObject
) -> None:
    assert_steps_wait(*drawn, lambda count: data.draw(st.integers(0, count - 1)))


def test_a_step_to_which_a_flow_leads_that_fails_need_not_wait_for_it() -> None:
    failing = flow_of("inner", StepSpec(id="s0", kind="inline"))
    main = flow_of(
        "main",
        StepSpec(id="s0", kind="flow", flow="inner", on_fail="s1"),
        StepSpec(id="s1", kind="inline"),
        needs={"s0": (), "s1": ("s0",)},
    )
    fates = Fates({"s0": ["ok"], "s0.s0": ["bad"], "s1": ["ok"]})
    assert_steps_wait(plan_of_flows(main, failing), fates, lambda count: 0)


def assert_steps_wait(plan: WorkflowPlan, fates: Fates, choose: Callable[[int], int]) -> None:
    """Drive a run: no step starts too early. Which of so many units ends next, somebody chooses."""
    drive = Drive(plan, fates, None)
    over: set[str] = set()
    routed = False

    def check(decisions: list[Decision]) -> None:
        nonlocal routed
        # A step that a route leads to need not wait; one with a flow of its own starts without a fact.
        flows = drive.machine.state.flows.values()
        routed = routed or any(step.routed_from for one in flows for step in one.steps.values())
        running = {step for step, _ in drive.running} | {step for step, _ in drive.asking}
        for one in decisions:
            if isinstance(one, facts.StepSkipped):
                over.add(one.step_id)
            if isinstance(one, facts.StepStarted):
                around, step = plan.steps[one.step_id]
                for need in around.flow.needs.get(step.id, ()):
                    full = around.step_id(need)
                    assert full not in running - {one.step_id}
                    assert full in over or routed or around.path

    check(drive.tell(facts.RunStarted(inputs={})))
    while not drive.has_ended and len(drive.told) < 100:
        units = drive.units
        unit = units[choose(len(units))]
        over.add(unit[0])
        drive.end(unit)
        check(drive.decided[-1])


@SLOW
@given(workflows(), st.data())
def test_the_same_facts_lead_to_the_same_decisions(
    drawn: tuple[WorkflowPlan, Fates], data: st.DataObject
) -> None:
    plan, fates = drawn
    drive = driven(plan, fates, None, data)
    assume(drive is not None)
    assert drive is not None
    again = WorkflowMachine(plan)
    for fact, decided in zip(drive.told, drive.decided, strict=True):
        assert seen(again.handle(fact)) == seen(decided)
    assert again.state == drive.machine.state


@SLOW
@given(workflows(), st.data())
def test_a_flow_that_has_ended_stays_so(drawn: tuple[WorkflowPlan, Fates], data: st.DataObject) -> None:
    plan, fates = drawn
    drive = Drive(plan, fates, 1)
    drive.tell(facts.RunStarted(inputs={}))
    mark = data.draw(st.integers(0, 5))
    while not drive.has_ended:
        if len(drive.told) > MOST_FACTS:
            return
        if len(drive.told) == mark:
            drive.tell(CheckpointSet(label="mark"))
        drive.end(drive.units[0])
    finish = drive.finish
    assert finish is not None
    for _ in range(2):
        [again] = drive.tell(facts.RunResumed())
        assert again == replace(finish, timestamp=again.timestamp)  # type: ignore[type-var, union-attr]
    if finish.status != "failed" and "mark" in drive.machine.checkpoints:
        [again] = drive.tell(CheckpointRestored(label="mark"))
        assert again == replace(finish, timestamp=again.timestamp)  # type: ignore[type-var, union-attr]


@SLOW
@given(workflows(), st.data())
def test_how_many_steps_run_at_once_makes_no_difference_to_the_outputs(
    drawn: tuple[WorkflowPlan, Fates], data: st.DataObject
) -> None:
    plan, fates = drawn
    one, many = driven(plan, fates, 1), driven(plan, fates, None, data)
    assume(one is not None and many is not None)
    assert one is not None and many is not None  # noqa: PT018
    assert one.finish is not None and many.finish is not None  # noqa: PT018
    assert (one.finish.status == "finished") == (many.finish.status == "finished")
    if one.finish.status == "finished":
        assert many.machine.output == one.machine.output
        assert many.machine.state.flows[""].outputs == one.machine.state.flows[""].outputs


@SLOW
@given(workflows(), st.data())
def test_a_run_that_is_interrupted_and_resumed_ends_as_it_would_have(
    drawn: tuple[WorkflowPlan, Fates], data: st.DataObject
) -> None:
    plan, fates = drawn
    whole = driven(plan, fates, 1)
    assume(whole is not None)
    assert whole is not None
    drive = Drive(plan, fates, 1)
    drive.tell(facts.RunStarted(inputs={}))
    while not drive.has_ended:
        if data.draw(st.booleans()):
            running = [*drive.running]
            drive.running.clear()
            drive.tell(facts.RunResumed())
            assert [*drive.running] == running
        drive.end(drive.units[0])
    assert drive.finish is not None
    assert whole.finish is not None
    assert (drive.finish.status, drive.finish.reason_code) == (whole.finish.status, whole.finish.reason_code)
    for flow, same in zip(every_flow(drive.machine.state), every_flow(whole.machine.state), strict=True):
        assert (flow.outputs, flow.records, flow.rounds) == (same.outputs, same.records, same.rounds)


@SLOW
@given(workflows(), st.data())
def test_a_checkpoint_brings_back_all_that_can_change(
    drawn: tuple[WorkflowPlan, Fates], data: st.DataObject
) -> None:
    plan, fates = drawn
    drive = Drive(plan, fates, 1)
    drive.tell(facts.RunStarted(inputs={}))
    for _ in range(data.draw(st.integers(0, 6))):
        if not drive.has_ended:
            drive.end(drive.units[0])
    assume(not drive.has_ended)
    drive.tell(CheckpointSet(label="mark"))
    before = drive.machine.state.copied()
    assert not shared(drive.machine.state, drive.machine.checkpoints["mark"])
    due = {step for step, _ in drive.units}
    for _ in range(data.draw(st.integers(0, 8))):
        if not drive.has_ended:
            drive.end(drive.units[0])
    assert drive.machine.checkpoints["mark"] == before
    assume(drive.finish is None or drive.finish.status not in ("finished", "cancelled"))
    drive.running.clear()
    drive.asking.clear()
    drive.tell(CheckpointRestored(label="mark"))
    assert {step for step, _ in drive.running} == due
    for flow in drive.machine.state.flows.values():
        assert flow.outputs == before.flows[flow.path].outputs


def every_flow(state: RunState) -> list[FlowState]:
    return [*state.flows.values(), *(one for flows in state.past.values() for one in flows)]


FINAL = {"plan", "past", "rounds", "archived_iterations", "outputs", "inputs", "output", "stopped", "child"}
"""What is replaced as a whole, and never changed."""


def shared(one: Any, other: Any) -> set[int]:
    """The mutable objects that two values have in common."""
    return mutable(one) & mutable(other)


def mutable(value: Any) -> set[int]:
    found: set[int] = set()
    if is_dataclass(value) and not isinstance(value, type):
        if not value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            found.add(id(value))
        for field in fields(value):
            if field.name not in FINAL:
                found |= mutable(getattr(value, field.name))
            elif isinstance(getattr(value, field.name), dict | list) and field.name in (
                "past",
                "outputs",
                "rounds",
            ):
                found.add(id(getattr(value, field.name)))
    elif isinstance(value, dict):
        found.add(id(value))
        for part in value.values():
            found |= mutable(part)
    elif isinstance(value, list | set):
        found.add(id(value))
        for part in value:
            found |= mutable(part)
    return found

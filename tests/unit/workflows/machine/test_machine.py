"""What runs next in a workflow: several steps at once, failures of other kinds, stops and resumptions."""

from __future__ import annotations

from typing import Any

import pytest
from support.calls_made import python_calls

from fastroai.runs.running.machine import Cancel, Decision
from fastroai.runtime import facts
from fastroai.runtime.fact_base import FailureFacts
from fastroai.workflows.machine.machine import MAX_ROUTES, WorkflowMachine
from fastroai.workflows.plan import WorkflowPlan, plan_of
from fastroai.workflows.spec.document import FlowSpec, GateSpec, StepSpec, WorkflowSpec


def flow(name: str, *steps: StepSpec, routed: tuple[str, ...] = (), **more: Any) -> FlowSpec:
    needs = {step.id: step.depends_on for step in steps}
    settings: dict[str, Any] = {"output": None, "budget": None, "max_rounds": None} | more
    return FlowSpec(name=name, input={}, steps=steps, routed_only=frozenset(routed), needs=needs, **settings)


def step(name: str, *needs: str, **more: Any) -> StepSpec:
    kind = "gate" if "gate" in more else "flow" if "flow" in more else "inline"
    return StepSpec(id=name, kind=kind, depends_on=needs, **more)


def plan(*flows: FlowSpec) -> WorkflowPlan:
    return plan_of(
        WorkflowSpec(
            version="0.2",
            text="",
            source=None,
            contracts={},
            functions={},
            flows={one.name: one for one in flows},
            workflow=None,
            entry=flows[0].name,
        )
    )


class Run:
    """A machine that is told, step by step."""

    def __init__(self, *flows: FlowSpec, width: int | None = None) -> None:
        self.machine = WorkflowMachine(plan(*flows), width=width)
        self.decided: list[Decision] = []
        self.tell(facts.RunStarted(inputs={}))

    def tell(self, fact: Any) -> list[str]:
        """Tell it something; return what starts."""
        self.decided = self.machine.handle(fact)
        return self.started

    @property
    def started(self) -> list[str]:
        return [_unit(one) for one in self.decided if isinstance(one, facts.StepStarted)]

    @property
    def cancelled(self) -> list[str]:
        units = [unit for one in self.decided if isinstance(one, Cancel) for unit in one.units]
        return [f"{step_id}#{visit}" for step_id, visit in units]

    @property
    def skipped(self) -> list[str]:
        return [one.step_id for one in self.decided if isinstance(one, facts.StepSkipped)]

    @property
    def finish(self) -> facts.RunFinished:
        [finish] = [one for one in self.decided if isinstance(one, facts.RunFinished)]
        return finish

    def done(self, name: str, output: Any = None, visit: int = 1) -> list[str]:
        return self.tell(facts.StepFinished(name, output, visit=visit))

    def bad(self, name: str, visit: int = 1, **more: Any) -> list[str]:
        more = {"violations": ("bad",), "output": {"bad": visit}} | more
        failure = FailureFacts(error_type="EnsureFailed", message="bad", failure_class="terminal")
        return self.tell(facts.StepFailed(name, failure, visit=visit, **more))

    def raised(self, name: str, visit: int = 1) -> list[str]:
        failure = FailureFacts(error_type="OSError", message="down", failure_class="ambiguous")
        return self.tell(facts.StepFailed(name, failure, visit=visit, raised=OSError("down")))


def _unit(started: facts.StepStarted) -> str:
    return f"{started.step_id}#{started.visit}"


GATE = GateSpec(on_approve=None, on_revise="a", on_kill=None)


# --- order ---


def test_steps_without_needs_start_at_once_and_a_gate_waits_for_all_before_it() -> None:
    run = Run(flow("main", step("a"), step("b"), step("c", "a"), step("g", gate=GATE), step("d", "g")))
    assert run.started == ["a#1", "b#1"]
    assert run.done("a") == ["c#1"]
    assert run.done("c") == []
    assert run.done("b") == ["g#1"]


def test_nothing_after_a_step_with_on_fail_starts_before_it_is_over() -> None:
    run = Run(flow("main", step("a"), step("r", on_fail="fix"), step("fix"), step("b"), routed=("fix",)))
    assert run.started == ["a#1", "r#1"]
    assert run.done("r") == ["b#1"]


def test_a_width_limits_what_runs_at_once_in_the_order_of_the_flow() -> None:
    run = Run(flow("main", step("a"), step("b"), step("c")), width=2)
    assert run.started == ["a#1", "b#1"]
    assert run.done("b") == ["c#1"]


def test_a_gate_keeps_its_place_only_if_there_is_one_thing_to_do_at_a_time() -> None:
    flows = (
        flow("main", step("sub", flow="inner"), step("b")),
        flow("inner", step("g", gate=GateSpec(on_approve=None, on_revise=None, on_kill=None))),
    )
    asked = facts.QuestionAsked("sub.g", "?", id="q")
    one, two = Run(*flows, width=1), Run(*flows, width=2)
    assert one.started == ["sub.g#1"]
    assert one.tell(asked) == []
    assert one.finish.status == "paused"
    assert two.started == ["sub.g#1", "b#1"]
    two.tell(asked)
    assert two.done("b") == []
    assert (two.finish.reason_code, two.finish.resume_at) == ("question", ("sub.g",))


def test_a_retry_goes_before_steps_that_come_later() -> None:
    run = Run(flow("main", step("a", attempts=2), step("b")), width=1)
    assert run.bad("a") == ["a#2"]
    assert run.done("a", visit=2) == ["b#1"]


# --- failures ---


def test_on_fail_waits_for_what_runs_before_it() -> None:
    run = Run(
        flow("main", step("a"), step("r", on_fail="a"), step("b", "r")),
    )
    assert run.bad("r") == []
    assert run.done("a") == ["a#2", "r#2"]


def test_a_jump_back_by_on_fail_clears_outputs_but_that_of_the_failed_step() -> None:
    run = Run(flow("main", step("z"), step("a", "z"), step("r", "a", on_fail="a")), width=1)
    run.done("z", "Z")
    run.done("a", "A")
    assert run.bad("r") == ["a#2"]
    assert run.machine.state.flows[""].outputs == {
        "z": {"output": "Z"},
        "r": {"output": {"bad": 1}, "rejected": True},
    }


@pytest.mark.parametrize(("before", "output"), [((), None), (("z",), "before")])
def test_a_gate_that_ends_a_flow_whose_last_output_was_cleared_leaves_it_what_is_left(
    before: tuple[str, ...], output: Any
) -> None:
    gate = step("g", gate=GateSpec(on_approve=None, on_revise=None, on_kill=None))
    steps = (*map(step, before), gate, step("a"), step("r", "a", on_fail="g"))
    run = Run(flow("main", *steps, routed=("g",)), width=1)
    for name in before:
        run.done(name, "before")
    run.done("a", "cleared")
    assert run.bad("r") == ["g#1"]
    run.tell(facts.AnswerGiven("g", "approve"))
    assert run.finish.status == "finished"
    assert run.machine.state.flows[""].output == output


def test_next_keeps_outputs_until_they_are_replaced() -> None:
    run = Run(flow("main", step("a"), step("b", "a", next="a")), width=1)
    run.done("a", "A")
    run.done("b", "B")
    assert run.machine.state.flows[""].outputs == {"a": {"output": "A"}, "b": {"output": "B"}}


def test_a_jump_ahead_leaves_out_what_lies_between() -> None:
    run = Run(flow("main", step("a", next="d"), step("b"), step("c"), step("d"), routed=("c",)), width=1)
    assert run.done("a") == ["d#1"]
    assert run.skipped == ["b"]


def test_a_final_failure_cancels_what_runs_and_the_run_ends_after_it() -> None:
    run = Run(flow("main", step("a"), step("b")))
    assert run.bad("a") == []
    assert run.cancelled == ["b#1"]
    run.tell(facts.StepCancelled("b", "so"))
    assert (run.finish.status, run.finish.reason_code, run.finish.step_id) == ("failed", "step_failed", "a")
    assert run.finish.resume_at == ()


def test_a_flow_that_fails_is_left_before_its_step_goes_on() -> None:
    run = Run(
        flow("main", step("sub", flow="inner", on_fail="fix"), step("fix"), routed=("fix",)),
        flow("inner", step("x"), step("y")),
    )
    assert run.bad("sub.x") == []
    assert run.cancelled == ["sub.y#1"]
    assert run.done("sub.y") == ["fix#1"]
    assert run.machine.state.flows["sub"].status == "failed"


def test_a_step_that_raised_goes_on_when_the_run_is_resumed_with_what_was_cancelled_for_it() -> None:
    run = Run(flow("main", step("a", attempts=3), step("b")))
    assert run.raised("a") == []
    assert run.cancelled == ["b#1"]
    run.tell(facts.StepCancelled("b", "so"))
    assert (run.finish.status, run.finish.resume_at) == ("failed", ("a", "b"))
    assert isinstance(run.finish.raised, OSError)
    assert run.tell(facts.RunResumed()) == ["a#1", "b#1"]
    assert run.machine.step("a").attempt == 1


def test_a_step_that_raised_inside_a_flow_leads_to_the_on_fail_around_it() -> None:
    run = Run(
        flow("main", step("sub", flow="inner", on_fail="fix"), step("fix"), routed=("fix",)),
        flow("inner", step("x")),
    )
    assert run.raised("sub.x") == ["fix#1"]


@pytest.mark.parametrize("path", ["", "sub"])
def test_the_budget_of_a_flow_ends_that_flow(path: str) -> None:
    run = Run(
        flow("main", step("sub", flow="inner", on_fail="fix"), step("fix"), routed=("fix",)),
        flow("inner", step("x", attempts=3, on_fail="y"), step("y")),
    )
    started = run.bad("sub.x", budget="outer", budget_of=path, violations=())
    if path:
        assert started == ["fix#1"]
    else:
        assert (run.finish.status, run.finish.reason_code) == ("failed", "budget_exceeded")
        run.tell(facts.RunResumed())
        assert run.finish.reason_code == "budget_exceeded"


def test_a_budget_around_the_run_stops_it_until_it_is_resumed() -> None:
    run = Run(flow("main", step("a", on_fail="b"), step("b"), routed=("b",)))
    run.bad("a", budget="outer", violations=())
    assert (run.finish.reason_code, run.finish.resume_at) == ("budget_exceeded", ("a",))
    assert run.tell(facts.RunResumed()) == ["a#1"]


def test_the_budget_of_a_step_leads_to_its_on_fail_without_another_attempt() -> None:
    run = Run(flow("main", step("a", attempts=3, on_fail="b"), step("b"), routed=("b",)))
    assert run.bad("a", budget="own", violations=()) == ["b#1"]


def test_a_loop_that_never_ends_fails() -> None:
    run = Run(flow("main", step("a"), step("b", "a", next="a")), width=1)
    for number in range(1, MAX_ROUTES + 1):
        assert run.done("a", visit=number) == [f"b#{number}"]
        assert run.done("b", visit=number) == [f"a#{number + 1}"]
    run.done("a", visit=MAX_ROUTES + 1)
    run.done("b", visit=MAX_ROUTES + 1)
    assert (run.finish.status, run.finish.reason_code) == ("failed", "max_steps")


def test_gates_that_skip_each_other_in_a_circle_fail() -> None:
    gates = [GateSpec(on_approve=to, on_revise=None, on_kill=None, policy="skip") for to in ("h", "g")]
    run = Run(flow("main", step("g", gate=gates[0]), step("h", gate=gates[1])))
    assert (run.finish.status, run.finish.reason_code) == ("failed", "max_steps")


# --- kills ---


def test_a_kill_inside_a_flow_cancels_what_runs_elsewhere() -> None:
    run = Run(
        flow("main", step("sub", flow="inner"), step("b")),
        flow("inner", step("g", gate=GateSpec(on_approve=None, on_revise=None, on_kill=None))),
    )
    run.tell(facts.QuestionAsked("sub.g", "?", id="q"))
    run.tell(facts.AnswerGiven("sub.g", "kill"))
    assert run.cancelled == ["b#1"]
    run.tell(facts.StepCancelled("b", "so"))
    assert (run.finish.status, run.finish.reason_code) == ("cancelled", "killed")


def test_a_cleanup_that_fails_ends_the_flow_as_killed() -> None:
    gate = GateSpec(on_approve=None, on_revise=None, on_kill="tidy")
    run = Run(flow("main", step("g", gate=gate), step("tidy"), routed=("tidy",)))
    run.tell(facts.QuestionAsked("g", "?", id="q"))
    assert run.tell(facts.AnswerGiven("g", {"decision": "kill", "resolved_by": "agent"})) == ["tidy#1"]
    run.bad("tidy")
    assert (run.finish.status, run.finish.reason_code) == ("cancelled", "killed")
    assert "an agent" in run.finish.reason
    assert "cleanup failed" in run.finish.reason


# --- pauses and stops ---


def test_a_pause_lets_running_steps_finish_and_starts_no_other() -> None:
    run = Run(flow("main", step("a"), step("b", "a")))
    run.tell(facts.PauseRequested())
    assert run.done("a") == []
    assert (run.finish.status, run.finish.reason_code) == ("paused", "pause_requested")
    assert run.finish.resume_at == ("b",)
    assert run.tell(facts.RunResumed()) == ["b#1"]


def test_a_stop_cancels_what_runs_and_a_resumption_starts_it_anew() -> None:
    run = Run(flow("main", step("a"), step("b")))
    run.tell(facts.StopRequested(reason="enough"))
    assert run.cancelled == ["a#1", "b#1"]
    run.done("a")
    run.tell(facts.StepCancelled("b", "enough"))
    assert (run.finish.status, run.finish.reason_code, run.finish.resume_at) == (
        "cancelled",
        "cancelled",
        ("b",),
    )
    assert run.tell(facts.RunResumed()) == ["b#1"]
    run.done("b")
    assert run.finish.status == "finished"


def test_a_step_that_halts_runs_again_as_the_same_visit() -> None:
    run = Run(flow("main", step("a")))
    wait = facts.Wait(what="message", id="m", name="go")
    run.tell(facts.StepHalted("a", (wait,)))
    assert (run.finish.reason_code, run.finish.waits) == ("message", (wait,))
    assert run.tell(facts.RunResumed()) == ["a#1"]


# --- what it costs ---


async def test_a_run_is_linear_in_its_steps() -> None:
    async def calls(count: int) -> int:
        names = [f"s{number}" for number in range(count)]
        steps = [step(name, *names[max(0, number - 1) : number]) for number, name in enumerate(names)]
        flows = flow("main", *steps)

        async def run() -> None:
            told = Run(flows)
            for name in names:
                told.done(name)
            assert told.finish.status == "finished"

        return await python_calls(run)

    assert await calls(1_000) < 11 * await calls(100)


async def test_a_loop_costs_the_same_in_each_turn() -> None:
    run = Run(flow("main", step("a"), step("b", "a", next="a")), width=1)
    visit = 0

    async def turn() -> None:
        nonlocal visit
        visit += 1
        run.done("a", visit=visit)
        run.done("b", visit=visit)

    early = await python_calls(turn)
    for _ in range(500):
        await turn()
    assert await python_calls(turn) == early

"""Calls that drive workflows, in any order, with any arguments, are answered, and leave no flow broken."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.workflow_scenarios import loaded, scenarios

from fastroai.store import MemoryRunStore, RunHistory
from fastroai.workflows.answers import Answer, ErrorAnswer
from fastroai.workflows.checks import Checks
from fastroai.workflows.driven_flows import WorkflowRuns
from fastroai.workflows.plan import plan_of
from fastroai.workflows.replay import first_divergence
from fastroai.workflows.spec.reading import load_spec

FOLDER = Path(__file__).parents[1] / "workflows" / "scenarios"
BROAD = (
    "checkpoints",
    "gate_revise",
    "gate_kill_with_cleanup",
    "on_fail",
    "next_loop",
    "sub_flow_fails",
    "sub_flow_killed",
    "accumulate",
    "policy_by_reference",
    "budget_of_a_step",
)
"""Scenarios whose specs have all that a flow can do."""
RESULTS: tuple[Any, ...] = ({"v": "good"}, {"v": "bad"}, {"clean": True}, {"flaws": [{"id": 1}]}, None, 3)
USAGE = {"model": "openai:gpt-4o", "input_tokens": 300}
ENDS = ("complete", "killed", "failed")


@st.composite
def calls(draw: st.DrawFn, steps: list[str]) -> tuple[str, dict[str, Any]]:
    """Draw a call about a flow."""
    name = draw(
        st.sampled_from(
            ["step_done"] * 6
            + ["gate_resolve"] * 2
            + ["iteration_report"] * 2
            + ["iteration_start", "iteration_abort", "skip_step", "commit", "revert", "resume", "audit"]
            + ["check_timeouts"]
        )
    )
    arguments: dict[str, Any] = {}
    if name in ("step_done", "gate_resolve", "skip_step") or name.startswith("iteration"):
        arguments["step_id"] = draw(st.sampled_from(["due", "due", "due", *steps]))
    if name in ("step_done", "iteration_report"):
        arguments["result"] = draw(st.sampled_from(RESULTS))
    if name == "step_done" and draw(st.booleans()):
        arguments["usage"] = USAGE
    if name == "gate_resolve":
        arguments["outcome"] = draw(st.sampled_from(["approve", "revise", "kill"]))
    if name in ("commit", "revert"):
        arguments["label"] = draw(st.sampled_from(["a", "b"]))
    return name, arguments


def due_in(answer: dict[str, Any]) -> str:
    """Return the step that an answer asks for, by its id in the run."""
    path = []
    while answer.get("status") == "execute_flow":
        path.append(answer["step_id"])
        answer = answer["child_step"]
    return ".".join([*path, answer.get("step_id") or "none"])


@settings(deadline=None)
@given(st.sampled_from(BROAD), st.data())
def test_any_calls_are_answered_and_leave_a_flow_that_can_be_replayed(name: str, data: st.DataObject) -> None:
    asyncio.run(drive(name, data))


async def drive(name: str, data: st.DataObject) -> None:
    scenario = loaded(FOLDER / f"{name}.yaml")
    spec = load_spec(scenario.spec)
    plan = plan_of(spec, scenario.flow)
    store = MemoryRunStore()
    runs = WorkflowRuns(store)
    flow_id = (await runs.plan(scenario.spec, scenario.flow, scenario.inputs)).to_json()["flow_id"]
    assert isinstance(flow_id, str)
    ended: str | None = None
    for _ in range(data.draw(st.integers(1, 14))):
        call, arguments = data.draw(calls([*plan.steps]))
        now = (await runs.resume(flow_id)).to_json()
        # What is kept from call to call is what a new object reads from the log.
        assert now == (await WorkflowRuns(store).resume(flow_id)).to_json()
        if arguments.get("step_id") == "due":
            arguments["step_id"] = due_in(now)
        before = len((await RunHistory(store).trace(flow_id)).entries)
        answer = await getattr(runs, call)(flow_id, **arguments)
        assert isinstance(answer, Answer)
        said = answer.to_json()
        after = len((await RunHistory(store).trace(flow_id)).entries)
        if isinstance(answer, ErrorAnswer):
            assert answer.error_type not in ("conflict", "store_unavailable", "flow_unreadable"), answer
            assert after == before
        if ended in ("complete", "killed"):
            assert said["status"] in (ended, "error", "no_timeout")
        if said["status"] in ENDS:
            ended = str(said["status"])
        elif call == "revert" and not isinstance(answer, ErrorAnswer):
            ended = None
    event(f"{name}: {ended}")
    trace = await RunHistory(store).trace(flow_id)
    fits = Checks(spec).fits
    assert first_divergence(plan, plan.entry.flow.name, trace, width=1, fits=fits) is None
    assert trace.explain()
    audit = await runs.audit(flow_id)
    spent = sum(300 for entry in trace.entries if entry.kind == "spending_recorded")
    assert audit.to_json()["tokens"] == spent


def test_every_broad_scenario_is_there() -> None:
    assert {one.name for one in scenarios()} >= set(BROAD)

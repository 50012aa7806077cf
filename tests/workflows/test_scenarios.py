"""Each scenario is driven in memory, and by a new object on the same store between any two calls."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from support.workflow_scenarios import Clock, Scenario, run_scenario, scenarios, workspace

from fastroai.store import MemoryRunStore, RunHistory, SQLiteRunStore
from fastroai.workflows.answers import Answer
from fastroai.workflows.checks import Checks
from fastroai.workflows.driven_flows import WorkflowRuns
from fastroai.workflows.plan import plan_of
from fastroai.workflows.replay import first_divergence
from fastroai.workflows.spec.reading import load_spec

ALL = list(scenarios())


async def call(runs: WorkflowRuns, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    given = {key: value for key, value in arguments.items() if key != "flow_id" or name != "plan"}
    answer: Answer = await getattr(runs, name)(**given)
    return answer.to_json()


@pytest.mark.parametrize("scenario", ALL, ids=lambda one: one.name)
async def test_a_flow_in_memory_answers_as_the_scenario_says(scenario: Scenario, tmp_path: Path) -> None:
    clock, store = Clock(), MemoryRunStore()
    runs = WorkflowRuns(store, workspace=workspace(scenario, tmp_path), clock=clock)
    flow_id = await run_scenario(scenario, lambda name, given: call(runs, name, given), clock.passes)
    if await RunHistory(store).list():
        trace = await RunHistory(store).trace(flow_id)
        spec = load_spec(scenario.spec)
        plan = plan_of(spec, scenario.flow)
        fits = Checks(spec).fits
        assert first_divergence(plan, plan.entry.flow.name, trace, width=1, fits=fits) is None
        assert trace.explain()
        assert trace.steps


@pytest.mark.parametrize("scenario", ALL, ids=lambda one: one.name)
async def test_a_flow_survives_a_new_server_between_any_two_calls(scenario: Scenario, tmp_path: Path) -> None:
    clock, root, path = Clock(), workspace(scenario, tmp_path), tmp_path / "flows.db"

    async def do(name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        async with aclosing(SQLiteRunStore(path)) as store:
            return await call(WorkflowRuns(store, workspace=root, clock=clock), name, given)

    await run_scenario(scenario, do, clock.passes)

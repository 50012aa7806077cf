"""Each scenario is driven over stdio by the SDK's client: by one server process, and by one that is killed.

All of them are, and survive a kill after each call, in `make kill-sweep`. In the suite some are, which have
all kinds of answers and of state between them; `test_scenarios.py` has them all without the protocol.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from support.workflow_scenarios import Clock, Scenario, run_scenario, scenarios, workspace
from support.workflow_servers import ForkedServer, Tools, server_here

pytestmark = pytest.mark.slow

ALL: Final = list(scenarios())
KILLED: Final = ("accumulate", "budget_of_a_flow", "gate_revise", "sub_flow")
DRIVEN: Final = (
    *KILLED,
    *("checkpoints", "ensure_failed", "extraction_error", "invalid_gates", "iterations_until_met"),
    *("max_rounds", "on_fail", "skip_if"),
)


def some_of(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of these names; all of them in a sweep."""
    if "FASTROAI_KILL_SWEEP" in os.environ:
        return ALL
    chosen = [one for one in ALL if one.name in names]
    assert len(chosen) == len(names)
    return chosen


def calls_of(tools: Tools) -> Any:
    """Make the calls of a scenario as an agent does for a person."""

    async def do(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        given = {key: value for key, value in arguments.items() if value is not None or key == "result"}
        if name == "gate_resolve":
            given.setdefault("resolved_by", "human")
        return await tools(name, **given)

    return do


@pytest.mark.parametrize("scenario", some_of(DRIVEN), ids=lambda one: one.name)
async def test_a_flow_over_stdio_answers_as_the_scenario_says(scenario: Scenario, tmp_path: Path) -> None:
    root, clock = workspace(scenario, tmp_path), Clock()
    if scenario.waits:  # a process of its own would have its own time
        async with server_here(
            tmp_path, workspace=root, clock=clock, mode="legacy", trusts_client=True
        ) as tools:
            await run_scenario(scenario, calls_of(tools), clock.passes)
        return
    async with ForkedServer(tmp_path, "--workspace", str(root), "--trust-client").tools() as tools:
        await run_scenario(scenario, calls_of(tools))


@pytest.mark.parametrize(
    "scenario", [one for one in some_of(KILLED) if not one.waits], ids=lambda one: one.name
)
async def test_a_flow_survives_a_kill_after_each_call(scenario: Scenario, tmp_path: Path) -> None:
    root = workspace(scenario, tmp_path)

    async def do(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        server = ForkedServer(tmp_path, "--workspace", str(root), "--trust-client")
        async with server.tools() as tools:
            answer = await calls_of(tools)(name, arguments)
            server.kill()
        return dict(answer)

    await run_scenario(scenario, do)

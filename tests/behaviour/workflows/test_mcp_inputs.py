"""What a client sends is untrusted. Whatever it is, the answer says what is wrong, and nothing changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.workflow_servers import Tools, server_here
from support.workflow_specs import ARTICLE, DRAFT


async def error_of(call: Tools, tool: str, **arguments: Any) -> tuple[str, str]:
    answer = await call(tool, **arguments)
    assert answer["status"] == "error", answer
    assert len(json.dumps(answer)) < 20_000
    return answer["error_type"], answer["message"]


BY_FLOW: dict[str, dict[str, Any]] = {
    "step_done": {"step_id": "draft", "result": DRAFT},
    "audit": {},
    "resume": {},
    "gate_resolve": {"step_id": "ship", "outcome": "approve"},
    "check_timeouts": {},
    "skip_step": {"step_id": "draft", "reason": "not needed"},
    "commit": {"label": "one"},
    "revert": {"label": "one"},
    "iteration_start": {"step_id": "draft"},
    "iteration_report": {"step_id": "draft", "result": DRAFT},
    "iteration_abort": {"step_id": "draft", "reason": "enough"},
}
"""The tools that take a flow, with arguments that are in order otherwise."""


@pytest.mark.parametrize("tool", BY_FLOW)
async def test_a_flow_that_is_not_there_is_told(tmp_path: Path, tool: str) -> None:
    async with server_here(tmp_path) as call:
        for flow in ("0" * 32, "", "../../etc/passwd", "a/b/../c", "x" * 100_000, "\x00", "run/step"):
            kind, message = await error_of(call, tool, flow_id=flow, **BY_FLOW[tool])
            assert kind in {"flow_not_found", "invalid_input"}, (flow[:20], message)


@pytest.mark.parametrize("tool", BY_FLOW)
async def test_arguments_of_other_types_and_names_are_told_all_at_once(tmp_path: Path, tool: str) -> None:
    async with server_here(tmp_path) as call:
        kind, message = await error_of(call, tool, **{**BY_FLOW[tool], "flow_id": 7, "floe": "x"})
        assert kind == "invalid_input"
        assert f"invalid arguments of fastroai_{tool}: " in message
        assert "flow_id: Input should be a valid string" in message
        assert "floe: Extra inputs are not permitted" in message
        assert "It takes flow_id" in message
        assert "flow_id: Field required" in (await error_of(call, tool, **BY_FLOW[tool]))[1]


async def test_choices_and_usage_are_checked(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        for tool, argument, value in (
            ("gate_resolve", "outcome", 7),
            ("gate_resolve", "rationale", ["because"]),
            ("step_done", "usage", "many"),
            ("plan", "inputs", [1, 2]),
        ):
            arguments = {"spec": ARTICLE} if tool == "plan" else {"flow_id": flow, **BY_FLOW[tool]}
            kind, message = await error_of(call, tool, **{**arguments, argument: value})
            assert (kind, argument in message) == ("invalid_input", True), message
        for usage in (
            {"model": "openai:gpt-4o-mini", "input_tokens": -1},
            {"input_tokens": 1},
            {"model": "openai:gpt-4o-mini", "dollars": 1},
        ):
            given = {"step_id": "draft", "result": DRAFT, "usage": usage}
            assert (await error_of(call, "step_done", flow_id=flow, **given))[0] == "invalid_usage"
        assert (await call("resume", flow_id=flow))["attempt"] == 1, "nothing has changed"


async def test_calls_that_do_not_fit_the_flow_are_told_with_what_would(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        expected = {
            "step_not_found": ("step_done", {"step_id": "draught", "result": DRAFT}),
            "gate_step_requires_gate_resolve": ("step_done", {"step_id": "ship", "result": DRAFT}),
            "not_a_gate_step": ("gate_resolve", {"step_id": "draft", "outcome": "approve"}),
            "step_not_due": ("gate_resolve", {"step_id": "ship"}),
            "checkpoint_not_found": ("revert", {"label": "one"}),
            "no_iterations": ("iteration_start", {"step_id": "draft"}),
        }
        for error_type, (tool, arguments) in expected.items():
            assert (await error_of(call, tool, flow_id=flow, **arguments))[0] == error_type
        await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        await call("gate_resolve", flow_id=flow, step_id="ship", outcome="approve")
        for tool, arguments in BY_FLOW.items():
            if tool not in {"audit", "resume", "check_timeouts"}:
                kind, _ = await error_of(call, tool, flow_id=flow, **arguments)
                assert kind in {"flow_ended", "checkpoint_not_found", "not_revertible"}, (tool, kind)


async def test_results_and_specs_that_are_too_large_or_too_deep_are_refused(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        deep: Any = "end"
        for _ in range(150):
            deep = [deep]
        for result in ({"text": "x" * 1_100_000, "words": 4}, {"text": deep, "words": 4}):
            kind, _ = await error_of(call, "step_done", flow_id=flow, step_id="draft", result=result)
            assert kind == "invalid_result"
        kind, _ = await error_of(call, "plan", spec="# " + "x" * 1_100_000)
        assert kind == "invalid_spec"
        kind, _ = await error_of(call, "plan", spec=ARTICLE, inputs={"topic": "x" * 1_100_000})
        assert kind == "invalid_input"
        kind, _ = await error_of(call, "plan", spec=ARTICLE, flow="x" * 1_100_000)
        assert kind == "unknown_flow"
        assert (await call("resume", flow_id=flow))["attempt"] == 1

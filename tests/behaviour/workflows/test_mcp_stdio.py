"""A coding agent drives a flow over stdio, as its client starts the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import jsonschema
import mcp_types
import pytest
from support.patience import PATIENCE
from support.workflow_servers import ForkedServer, stdio_server
from support.workflow_specs import ARTICLE, DRAFT

pytestmark = pytest.mark.slow

TOOLS = {
    "validate",
    "plan",
    "step_done",
    "audit",
    "resume",
    "gate_resolve",
    "check_timeouts",
    "skip_step",
    "commit",
    "revert",
    "iteration_start",
    "iteration_report",
    "iteration_abort",
    "compile_speckit",
    "list_workflows",
    "draft_pipeline",
}


async def test_every_tool_has_a_prefix_a_description_and_schemas_of_what_it_takes_and_gives(
    tmp_path: Path,
) -> None:
    async with ForkedServer(tmp_path).tools() as call:
        tools = (await call.client.list_tools()).tools
        instructions = call.client.instructions
    assert {tool.name for tool in tools} == {f"fastroai_{name}" for name in TOOLS}
    for tool in tools:
        assert tool.description is not None
        assert len(tool.description) > 60
        assert tool.input_schema["additionalProperties"] is False
        assert all("description" in one for one in tool.input_schema["properties"].values()), tool.name
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert tool.annotations is not None
    assert instructions is not None
    assert "fastroai_plan" in instructions


async def test_a_flow_with_a_failed_check_a_retry_and_a_gate_runs_to_its_end(tmp_path: Path) -> None:
    async with stdio_server(tmp_path) as call:
        first = await call("plan", spec=ARTICLE, inputs={"topic": "tides"})
        assert first["status"] == "execute_step"
        assert first["inputs"] == {"topic": "tides"}
        assert first["output_fields"] == {"text": "string", "words": "integer"}
        flow = first["flow_id"]

        again = await call("step_done", flow_id=flow, step_id="draft", result={"text": "Tides.", "words": 1})
        assert again["status"] == "ensure_failed"
        assert again["violations"] == ["result.words (1) >= 3 is false"]
        assert again["retries_remaining"] == 2
        missing = await call("step_done", flow_id=flow, step_id="draft", result={"text": "Tides."})
        assert missing["status"] == "schema_failed"

        gate = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        assert (gate["status"], gate["inputs"]) == ("await_gate", {"text": DRAFT["text"]})
        same = await call("gate_resolve", flow_id=flow, step_id="ship")
        assert same["status"] == "await_gate", "this client cannot ask anybody"
        end = await call(
            "gate_resolve",
            flow_id=flow,
            step_id="ship",
            outcome="approve",
            rationale="good",
            resolved_by="human",
        )
        assert (end["status"], end["output"]) == ("complete", DRAFT)

        audit = await call("audit", flow_id=flow)
    draft, ship = audit["trace"]
    assert (draft["attempts"], draft["outcome"]) == (3, "succeeded")
    assert (ship["outcome"], ship["resolved_by"], ship["rationale"]) == ("approve", "agent", "good")


async def test_a_server_that_starts_anew_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    async with ForkedServer(tmp_path).tools() as call:
        flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        await call("step_done", flow_id=flow, step_id="draft", result={"text": "Tides.", "words": 1})
    async with ForkedServer(tmp_path).tools() as call:
        due = await call("resume", flow_id=flow)
        assert (due["step_id"], due["attempt"], due["retries_remaining"]) == ("draft", 2, 2)
        gate = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
    assert gate["status"] == "await_gate"


async def test_reported_usage_is_priced(tmp_path: Path) -> None:
    usage = {"model": "openai:gpt-4o-mini", "input_tokens": 1_000_000, "output_tokens": 1_000_000}
    async with ForkedServer(tmp_path).tools() as call:
        flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        await call("step_done", flow_id=flow, step_id="draft", result=DRAFT, usage=usage)
        audit = await call("audit", flow_id=flow)
    assert (audit["cost_usd"], audit["tokens"], audit["cost_complete"]) == ("0.75", 2_000_000, True)


async def test_other_calls_are_answered_while_one_waits_for_a_person(tmp_path: Path) -> None:
    asked, decided = asyncio.Event(), asyncio.Event()

    async def slow_user(*_: Any) -> mcp_types.ElicitResult:
        asked.set()
        await decided.wait()
        return mcp_types.ElicitResult(action="accept", content={"outcome": "approve"})

    async with ForkedServer(tmp_path).tools(mode="legacy", elicitation_callback=slow_user) as call:
        flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        slow = asyncio.create_task(call("step_done", flow_id=flow, step_id="draft", result=DRAFT))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        assert (await call("audit", flow_id=flow))["status"] == "in_progress"
        other = await call("plan", spec=ARTICLE, inputs={"topic": "stars"})
        assert other["status"] == "execute_step"
        decided.set()
        assert (await slow)["status"] == "complete"

"""What the server tells clients before any call: the format of specs, and the schemas of its answers."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import mcp_types
import pytest
from support.workflow_servers import Tools, server_here
from support.workflow_specs import ARTICLE, DRAFT

ROOT = Path(__file__).parents[3]


async def resource(call: Tools, uri: str) -> str:
    (content,) = (await call.client.read_resource(uri)).contents
    assert isinstance(content, mcp_types.TextResourceContents)
    return content.text


async def test_a_resource_describes_the_format_of_specs_as_the_page_does(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        listed = {str(one.uri): one for one in (await call.client.list_resources()).resources}
        told = await resource(call, "fastroai://spec-format")
    assert listed["fastroai://spec-format"].mime_type == "text/markdown"
    spec_format = runpy.run_path(str(ROOT / "docs" / "spec_format.py"))["spec_format"]
    assert told == spec_format(), "the page has changed: run python docs/spec_format.py"
    for key in ("max_rounds", "exit_criterion", "on_revise", "output_schema", "skip_if"):
        assert f"`{key}`" in told
    assert "](" not in told
    example = told.partition("```yaml\n")[2].partition("```")[0]
    async with server_here(tmp_path) as call:
        assert (await call("validate", spec=example))["valid"] is True


async def test_the_list_of_tools_is_small_and_clients_check_every_answer_against_it(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        tools = (await call.client.list_tools()).tools
        listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        assert len(json.dumps(listed)) < 35_000
        full = json.loads(await resource(call, "fastroai://answer-schemas"))
        kinds = {kind["title"] for tool in tools for kind in (tool.output_schema or {})["oneOf"]}
        assert kinds <= set(full["$defs"])

        step = await call("plan", spec=ARTICLE, inputs={"topic": "tides"})
        flow = step["flow_id"]
        again = await call("step_done", flow_id=flow, step_id="draft", result={"text": "x", "words": 1})
        gate = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        error = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        end = await call("gate_resolve", flow_id=flow, step_id="ship", outcome="approve")
        audit = await call("audit", flow_id=flow)
        for kind, answer in (
            ("ExecuteStep", step),
            ("ExecuteStep", again),
            ("AwaitGate", gate),
            ("ErrorAnswer", error),
            ("FlowEnded", end),
            ("AuditAnswer", audit),
        ):
            schema = {**full, "$ref": f"#/$defs/{kind}"}
            jsonschema.validate(answer, schema)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({**answer, "more": 1}, schema)

        async def checked(answer: dict[str, Any]) -> None:
            result = mcp_types.CallToolResult(content=[], structured_content=answer)
            await call.client.session.validate_tool_result("fastroai_step_done", result)

        for answer in (step, again, gate, error, end):
            await checked(answer)
            for field in ("status", "message" if answer is error else "flow"):
                with pytest.raises(RuntimeError, match="Invalid structured content"):
                    await checked({name: value for name, value in answer.items() if name != field})
        with pytest.raises(RuntimeError, match="Invalid structured content"):
            await checked({**step, "status": "done"})


async def test_an_answer_about_an_error_is_an_error_of_the_tool(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        for tool, arguments in (
            ("resume", {"flow_id": "missing"}),
            ("audit", {"flow_id": "missing"}),
            ("plan", {"spec": "no: spec"}),
            ("list_workflows", {"workflows_dir": "missing"}),
            ("validate", {}),
        ):
            result = await call.client.call_tool(f"fastroai_{tool}", arguments)
            assert result.is_error, tool
            assert result.structured_content is not None
            assert result.structured_content["status"] == "error"
        wrong = await call.client.call_tool("fastroai_validate", {"spec": "no: spec"})
        assert not wrong.is_error, "that a spec is wrong is what was asked"

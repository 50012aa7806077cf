"""A call of a tool that is not there says which tool the caller means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mcp_types
from support.workflow_servers import Tools, server_here


async def refused(call: Tools, name: str) -> dict[str, Any]:
    """The answer of a call of a tool that is not there."""
    result = await call.client.call_tool(name, {"flow_id": "f"})
    (text,) = result.content
    assert isinstance(text, mcp_types.TextContent)
    assert result.is_error
    answer: dict[str, Any] = json.loads(text.text)
    assert result.structured_content == answer
    assert answer["error_type"] == "unknown_tool"
    return answer


async def test_each_tool_is_named_to_those_who_know_it_from_stratum(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        names = [tool.name for tool in (await call.client.list_tools()).tools]
        for name in names:
            for other in (name.replace("fastroai_", "stratum_"), name.removeprefix("fastroai_")):
                answer = await refused(call, other)
                assert answer["message"] == f"there is no tool {other!r}. Here, it is {name}."
                assert answer["available"] == names


async def test_a_misspelt_tool_is_named_and_an_invented_one_is_not(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        assert "Did you mean 'fastroai_plan'?" in (await refused(call, "fastroai_paln"))["message"]
        for name in ("stratum_agent_run", "", "x" * 100_000):
            answer = await refused(call, name)
            assert answer["message"].startswith("there is no tool")
            assert "Here, it is" not in answer["message"]
            assert len(answer["message"]) < 500

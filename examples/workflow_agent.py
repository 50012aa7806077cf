"""An agent drives a workflow over MCP: a check refuses its first result, and a person approves the second.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from fastmcp.client import Client
from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

from fastroai import FastroAgent
from fastroai.testing import ModelServer, Reply, ServedRequest, ToolCall

SPEC = (Path(__file__).parent / "release_notes.workflow.yaml").read_text()
TEXTS = ["Widgets are gone.", "Widgets are gone. To migrate, use gadgets."]


def answer(request: ServedRequest) -> Reply:  # offline
    """What a model would do: begin the flow, do as each answer says, and tell how it has ended."""
    if not request.tool_results:
        return Reply(tool_calls=[ToolCall("fastroai_plan", {"spec": SPEC, "inputs": {"version": "2.0"}})])
    last = json.loads(request.tool_results[-1].text)
    if last["status"] not in {"execute_step", "ensure_failed"}:
        return Reply(f"Flow {last['flow']!r} is {last['status']}.")
    result: dict[str, object] = {"text": TEXTS[last["attempt"] - 1], "breaking": ["widgets"]}
    report: dict[str, object] = {"flow_id": last["flow_id"], "step_id": last["step_id"], "result": result}
    return Reply(tool_calls=[ToolCall("fastroai_step_done", report)])


model_server = ModelServer().start()  # offline
model_server.rule(None, answer)  # offline
os.environ.update(model_server.environment())  # offline


async def ask_user(message: str, form: object, params: object, context: object) -> dict[str, str]:
    print(message.splitlines()[0])
    return {"outcome": "approve", "rationale": "clear"}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = ["--store", f"{folder}/flows.db", "--trust-client"]
        server = StdioTransport(sys.executable, ["-m", "fastroai.cli", "mcp", *options], keep_alive=False)
        client = Client(server, elicitation_handler=ask_user, init_timeout=60)
        toolset = MCPToolset[object](client, include_instructions=True)
        agent = FastroAgent("openai:gpt-5-mini", toolsets=[toolset])
        response = await agent.run("Publish the release notes of version 2.0 with the workflow.")
    for call in response.tool_calls:
        print(call.tool_name)
    print(response.output)


asyncio.run(main())

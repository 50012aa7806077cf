"""The server: its tools, over stdio and streamable HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from importlib.resources import files
from typing import Any, Final

from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resources import Resource, TextResource
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations

from fastroai.version import __version__
from fastroai.workflows.server import document_tools, flow_tools
from fastroai.workflows.server.context import ServerContext
from fastroai.workflows.server.replies import SCHEMAS, AnswerTool, schemas, unknown_tool

NAME: Final = "fastroai"

SPEC_FORMAT: Final = "fastroai://spec-format"
"""URI of the resource that describes the format of specs."""

GATE_RULE: Final = """\
At a gate a person decides, and nobody decides for them. Call fastroai_gate_resolve without `outcome` \
first: a client that can ask its user does so. If the answer is still `await_gate`, show the person what \
there is to decide, wait for the answer, and call fastroai_gate_resolve with it and `resolved_by: human`. \
The audit says `human` if the decision has reached FastroAI from the person, or if the operator trusts this \
client; otherwise it says `agent`, because you have reported it."""
"""The rule for gates. The instructions that are installed, the tool and the documentation say the same."""

INSTRUCTIONS: Final = f"""\
Workflows keep long work honest: a spec in YAML says which steps there are and what must hold of each \
result. This server tracks where a flow is, checks every result, stops at gates where a person decides, and \
keeps an audit.

1. Write a spec (the resource {SPEC_FORMAT} has every key), or take one (fastroai_list_workflows), and check \
it with fastroai_validate.
2. fastroai_plan begins a flow and answers with the first step.
3. Do the step, report it with the tool that `next_call` names, and do as the answer says, until the status \
is complete, failed or killed.
4. {GATE_RULE}
5. fastroai_audit tells what happened, at any time. fastroai_resume goes on in another session."""

_SECONDS_TO_DECIDE: Final = 24 * 3600.0
"""Seconds that a user may take to answer. The sealed text says only with which call to go on."""

_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_ENDS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

_TOOLS: Final = (
    (document_tools.validate, _READS),
    (flow_tools.plan, _ADDS),
    (flow_tools.step_done, _ADDS),
    (flow_tools.audit, _READS),
    (flow_tools.resume, _ADDS),
    (flow_tools.gate_resolve, _ENDS),
    (flow_tools.check_timeouts, _ENDS),
    (flow_tools.skip_step, _ENDS),
    (flow_tools.commit, _ADDS),
    (flow_tools.revert, _ENDS),
    (flow_tools.iteration_start, _ADDS),
    (flow_tools.iteration_report, _ADDS),
    (flow_tools.iteration_abort, _ENDS),
    (document_tools.compile_speckit, _READS),
    (document_tools.list_workflows, _READS),
    (document_tools.draft_pipeline, _READS),
)


def _resources(tools: Iterable[AnswerTool]) -> list[Resource]:
    spec_format = (files("fastroai.workflows.server") / "spec_format.md").read_text(encoding="utf-8")
    return [
        TextResource(
            uri=SPEC_FORMAT,
            name="spec-format",
            title="The format of workflow specs",
            description="Every key of a spec in YAML, its expressions and its limits, with an example.",
            mime_type="text/markdown",
            text=spec_format,
        ),
        TextResource(
            uri=SCHEMAS,
            name="answer-schemas",
            title="The JSON Schemas of all answers",
            description="All fields of the answers of the tools, in `$defs` by the titles in output schemas.",
            mime_type="application/schema+json",
            text=json.dumps(schemas(tools)),
        ),
    ]


class _WorkflowServer(MCPServer[ServerContext]):
    """Answers calls of unknown tools as other mistakes, with an error that says what to call instead."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[ServerContext, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """See `MCPServer.call_tool`."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError:
            known = tuple(tool.name for tool in await self.list_tools())
            if name in known:
                raise
            return unknown_tool(name, known)


def workflow_server(context: ServerContext, key: str) -> MCPServer[ServerContext]:
    """Return a server for the flows of a context.

    Servers on one store must have the same `key`, of 32 characters or more, so that each of them understands
    text that another one has sealed.
    """
    tools = [AnswerTool.of(function, hints) for function, hints in _TOOLS]
    return _WorkflowServer(
        NAME,
        title="FastroAI workflows",
        version=__version__,
        instructions=INSTRUCTIONS,
        resources=_resources(tools),
        tools=[*tools],
        lifespan=lambda _: nullcontext(context),
        log_level="WARNING",
        request_state_security=RequestStateSecurity(keys=[key], ttl=_SECONDS_TO_DECIDE),
    )

"""The server: its tools, over stdio and streamable HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from mcp.server.mcpserver import MCPServer, RequestStateSecurity
from mcp_types import ToolAnnotations

from fastroai.version import __version__
from fastroai.workflows.server import document_tools, flow_tools
from fastroai.workflows.server.desk import Desk
from fastroai.workflows.server.replies import AnswerTool

NAME: Final = "fastroai"

INSTRUCTIONS: Final = """\
Workflows keep long work honest: a spec in YAML says which steps there are and what must hold of each \
result. This server tracks where a flow is, checks every result, stops at gates where a person decides, and \
keeps an audit.

1. Write a spec, or take one (fastroai_list_workflows), and check it with fastroai_validate.
2. fastroai_plan begins a flow and answers with the first step.
3. Do the step, report it with fastroai_step_done, and do as the answer says, until the status is complete, \
failed or killed.
4. At `await_gate`, call fastroai_gate_resolve without an outcome, so that the user decides.
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


def workflow_server(desk: Desk, key: str) -> MCPServer[Desk]:
    """Return a server for the flows of a desk.

    Servers on one store must have the same `key`, of 32 characters or more, so that each of them understands
    text that another one has sealed.
    """

    @asynccontextmanager
    async def opened(_: MCPServer[Desk]) -> AsyncGenerator[Desk]:
        yield desk

    return MCPServer(
        NAME,
        title="FastroAI workflows",
        version=__version__,
        instructions=INSTRUCTIONS,
        tools=[AnswerTool.of(function, hints) for function, hints in _TOOLS],
        lifespan=opened,
        log_level="WARNING",
        request_state_security=RequestStateSecurity(keys=[key], ttl=_SECONDS_TO_DECIDE),
    )

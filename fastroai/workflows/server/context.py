"""The context: the flows and settings that the tools of a server work with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from mcp.server.mcpserver import Context

from fastroai.workflows.driven_flows import WorkflowRuns


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The flows that a server drives, and its settings."""

    runs: WorkflowRuns
    workspace: Path
    """The only directory whose files the tools read."""
    trusts_client: bool
    """Whether the record believes the client, and the agent in it, that a person has decided at a gate."""


Call: TypeAlias = Context[ServerContext, Any]
"""A call of a tool, as the SDK hands it to the tool."""


def context_of(call: Call) -> ServerContext:
    """Return the context of the server that a call reached."""
    return call.request_context.lifespan_context

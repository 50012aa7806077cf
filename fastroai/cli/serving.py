"""`mcp`: the server over which coding agents drive workflows."""

from __future__ import annotations

from pathlib import Path

from fastroai.cli.exits import OK
from fastroai.cli.opened import opened_flow_store, without_plugins
from fastroai.cli.targets import codec_at, existing_folder
from fastroai.errors import ConfigurationError, MissingExtraError


async def serve(
    store: str | None,
    http: str | None,
    allowed_hosts: list[str],
    workspace: Path,
    key_file: Path | None,
    trusts_client: bool,
    codec: str | None,
) -> int:
    """See `app`."""
    without_plugins()
    try:
        import mcp.server.mcpserver  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingExtraError("the MCP server", "mcp", "mcp, version 2") from error
    from fastroai.workflows.driven_flows import WorkflowRuns
    from fastroai.workflows.server.app import workflow_server
    from fastroai.workflows.server.context import ServerContext
    from fastroai.workflows.server.serving import HttpPlace, log_to_stderr, serve_http, serve_stdio
    from fastroai.workflows.server.user_files import sealing_key

    root = existing_folder("--workspace", workspace)
    place = None if http is None else HttpPlace.of(http, allowed_hosts)
    if place is None and allowed_hosts:
        raise ConfigurationError("--allow-host", allowed_hosts[0], "no value without --http")
    log_to_stderr()
    async with opened_flow_store(store, may_be_new=True) as (opened, where):
        runs = WorkflowRuns(opened, workspace=root, codec=codec_at(codec))
        server = workflow_server(ServerContext(runs, root, trusts_client), sealing_key(where, key_file))
        await (serve_stdio(server) if place is None else serve_http(server, place))
    return OK

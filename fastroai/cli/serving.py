"""`mcp`: the server over which coding agents drive workflows."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastroai.cli.exits import OK
from fastroai.cli.opened import opened_flow_store, without_plugins
from fastroai.cli.options import Codec, FlowStore
from fastroai.cli.targets import codec_at, existing_folder
from fastroai.errors import ConfigurationError, MissingExtraError


async def serve(
    context: typer.Context,
    store: FlowStore = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve streamable HTTP there, as in 127.0.0.1:8321."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name by which clients call the server. Repeatable."),
    ] = None,
    workspace: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The only folder whose files checks and tools read.")
    ] = Path(),
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The key that all servers on the store share; FASTROAI_MCP_KEY or a file beside the store "
            "unless given.",
            show_default=False,
        ),
    ] = None,
    trust_client: Annotated[
        bool,
        typer.Option(
            "--trust-client",
            help="Trust the client when it says that a person has decided at a gate: the decision is "
            "stored as human, and not as agent.",
        ),
    ] = False,
    codec: Codec = None,
) -> int | None:
    """Serve workflows to coding agents over MCP: over stdio, or with --http over streamable HTTP."""
    if context.invoked_subcommand is not None:
        return None
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
    place = None if http is None else HttpPlace.of(http, allow_host or ())
    if place is None and allow_host:
        raise ConfigurationError("--allow-host", allow_host[0], "no value without --http")
    log_to_stderr()
    async with opened_flow_store(store, may_be_new=True) as (opened, where):
        runs = WorkflowRuns(opened, workspace=root, codec=codec_at(codec))
        server = workflow_server(ServerContext(runs, root, trust_client), sealing_key(where, key_file))
        await (serve_stdio(server) if place is None else serve_http(server, place))
    return OK

"""`mcp install`, `mcp uninstall` and `mcp hook`: coding agents that use the server."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fastroai.cli.exits import OK, complain
from fastroai.cli.options import AsJson
from fastroai.cli.targets import existing_folder
from fastroai.errors import ConfigurationError, MissingExtraError
from fastroai.plain_text import plain, plain_line

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.workflows.server.install.clients import Scope, Target
    from fastroai.workflows.server.install.installing import Change, Setup
    from fastroai.workflows.server.install.record import Record

Clients = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME",
        help="claude-code, cursor, codex, vscode or gemini-cli. Repeatable; those that are found, unless "
        "given. For any other name, the configuration is printed.",
        show_default=False,
    ),
]
SetupScope = Annotated[
    Literal["project", "user"],
    typer.Option("--scope", help="project: for one project; user: for all projects of this user."),
]
Project = Annotated[Path, typer.Option("--project", metavar="FOLDER", help="The folder of the project.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes as a diff, and change nothing.")]


async def install(
    client: Clients = None,
    scope: SetupScope = "project",
    project: Project = Path(),
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="server, instructions, skills or hooks. Repeatable; by default all.",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="How clients start FastroAI, as in 'uv run fastroai'; by default this installation.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Set coding agents up: their MCP configuration, instructions, skills and hooks."""
    from fastroai.workflows.server.install.clients import ALIASES, CLIENTS, snippet
    from fastroai.workflows.server.install.installing import Setup
    from fastroai.workflows.server.install.setup_parts import KINDS

    for kind in part or ():
        if kind not in KINDS:
            raise ConfigurationError("--part", kind, f"one of {', '.join(KINDS)}")
    target = _target(scope, project, command)
    names = [ALIASES.get(name, name) for name in client or ()] or _found(target)
    record = _record(target)
    setups = [Setup(CLIENTS[name], target, record) for name in names if name in CLIENTS]
    worked_out = [
        (setup, setup.install([kind for kind in KINDS if not part or kind in part])) for setup in setups
    ]
    if not dry_run:
        for setup, changes in worked_out:
            setup.write(changes)
    _show(worked_out, dry_run, as_json)
    for name in names:
        if name not in CLIENTS and not as_json:
            known = ", ".join(CLIENTS)
            print(plain(f"{name}: FastroAI can set up {known}. Put this where {name} has its MCP servers.\n"))
            print(plain(snippet(target)))
    return OK


async def uninstall(
    client: Clients = None,
    scope: SetupScope = "project",
    project: Project = Path(),
    keep_skills: Annotated[
        bool, typer.Option("--keep-skills", help="Keep all skills; edited ones are always kept.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Remove what `mcp install` has written."""
    from fastroai.workflows.server.install.clients import ALIASES, CLIENTS
    from fastroai.workflows.server.install.installing import Setup

    target = _target(scope, project, None)
    names = [ALIASES.get(name, name) for name in client or ()]
    for name in names:
        if name not in CLIENTS:
            raise ConfigurationError("--client", name, f"one of {', '.join(CLIENTS)}")
    record = _record(target)
    setups = [Setup(CLIENTS[name], target, record) for name in names or CLIENTS]
    if not names:
        setups = [setup for setup in setups if setup.is_on_record]
    worked_out = [(setup, setup.uninstall(keep_skills)) for setup in setups]
    if not dry_run:
        for setup, changes in worked_out:
            setup.write(changes, is_removal=True)
    _show(worked_out, dry_run, as_json)
    if not setups and not as_json:
        print(f"Nothing of FastroAI's is on record for this {scope}.")
    return OK


def hook(name: str, client: Annotated[str, typer.Option()] = "") -> None:
    """Answer an event of a coding agent, which is JSON on standard input; `mcp install` sets this up."""
    from fastroai.workflows.server.install.hooks import MAX_BYTES, answered

    try:
        said = sys.stdin.buffer.read(MAX_BYTES + 1)
        print(answered(name, client, said, datetime.now()), end="")
    except Exception as error:  # a hook must never fail its client
        complain(f"hook {name}: {error}")


def _target(scope: Scope, project: Path, command: str | None) -> Target:
    from fastroai.workflows.server.install.clients import Target, this_fastroai

    root = existing_folder("--project", project) if scope == "project" else Path.home()
    try:
        words = this_fastroai() if command is None else tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigurationError("--command", command, f"words as in a shell ({error})") from error
    if not words:
        raise ConfigurationError("--command", command, "a command, as in 'uv run fastroai'")
    return Target(scope, root, words, is_named=command is not None)


def _record(target: Target) -> Record:
    from fastroai.workflows.server.install.record import FOLDER, Record

    if target.is_project:
        return Record(target.root, target.root / FOLDER, is_project=True)
    try:
        from platformdirs import user_data_path
    except ImportError as error:
        raise MissingExtraError("mcp install", "workflows", "platformdirs") from error
    folder = user_data_path("fastroai", appauthor=False)
    return Record(folder, folder / "install", is_project=False)


def _found(target: Target) -> list[str]:
    """Return the names of the clients that the project or this user has."""
    from fastroai.workflows.server.install.clients import CLIENTS

    found = [
        client.name
        for client in CLIENTS.values()
        if (target.is_project and (target.root / client.sign).is_dir()) or client.home(Path.home()).is_dir()
    ]
    if not found:
        expected = f"the name of a client, because none was found here: {', '.join(CLIENTS)}"
        raise ConfigurationError("--client", None, expected)
    return found


def _show(worked_out: Iterable[tuple[Setup, list[Change]]], dry_run: bool, as_json: bool) -> None:
    if as_json:
        shown: list[JsonValue] = [
            {
                "client": setup.client.name,
                "scope": setup.target.scope,
                "dry_run": dry_run,
                "files": [
                    {"path": str(one.path), "change": one.word, **({"kept": one.kept} if one.kept else {})}
                    for one in changes
                ],
            }
            for setup, changes in worked_out
        ]
        print(json.dumps(shown, indent=2))
        return
    for setup, changes in worked_out:
        print(f"{setup.client.title} ({setup.target.scope}){', dry run' if dry_run else ''}:")
        for one in changes:
            if one.is_needed or one.kept:
                why = f" ({plain_line(one.kept)})" if one.kept else ""
                print(f"  {one.word:<10} {plain_line(str(one.path))}{why}")
        if not any(one.is_needed or one.kept for one in changes):
            print("  nothing to do")
        if dry_run:
            print(plain("".join(one.diff() for one in changes if one.is_needed)), end="")

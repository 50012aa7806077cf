"""The commands by their names. The modules beside this one have them, each with its options.

These modules import what they need when a command is performed, so that help does not wait for it.
"""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from fastroai.cli import (
    evaluating,
    flows,
    forgetting,
    installing,
    limits,
    reading,
    reviewing,
    running,
    serving,
    specs,
    spending,
    viewing,
    workflow_runs,
    working,
)
from fastroai.cli.exits import Performed, performing
from fastroai.cli.other_commands import Commands

app = typer.Typer(
    cls=Commands,
    help="FastroAI: runs that are stored, what they cost, and what they wait for.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        from fastroai.version import __version__

        typer.echo(f"fastroai {__version__} (PydanticAI {version('pydantic-ai-slim')})")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """FastroAI: runs that are stored, what they cost, and what they wait for."""


def _add(group: typer.Typer, commands: Mapping[str, Performed]) -> None:
    for name, command in commands.items():
        group.command(name)(performing(command))


def _group(name: str, help: str, commands: Mapping[str, Performed]) -> None:
    group = typer.Typer(cls=Commands, help=help, no_args_is_help=True)
    _add(group, commands)
    app.add_typer(group, name=name)


_add(app, {"view": viewing.view, "eval": evaluating.evaluate, "worker": working.work})
_group(
    "runs",
    "Look at runs, continue them, and delete them.",
    {
        "release": working.release,
        "list": reading.list_runs,
        "show": reading.show,
        "trace": reading.trace,
        "transcript": reading.transcript,
        "diff": reading.diff,
        "resume": running.resume,
        "fork": running.fork,
        "delete": forgetting.delete,
        "purge": forgetting.purge,
        "send": reviewing.send,
    },
)
_group("db", "Prepare the database of workers.", {"upgrade": working.upgrade})
_group(
    "review",
    "Answer the questions that runs ask people.",
    {
        "list": reviewing.list_questions,
        "show": reviewing.show,
        "answer": reviewing.answer,
    },
)
_group(
    "spend",
    "See what runs have spent, and what spend limits have left; change limits.",
    {
        "report": spending.report,
        "limits": limits.limits,
        "set": limits.set_limit,
        "reset": limits.reset,
        "adjustments": limits.adjustments,
    },
)
_group(
    "workflow",
    "Check, find, write, draw and run workflow specs.",
    {
        "validate": specs.validate,
        "list": specs.list_specs,
        "compile": specs.compile_tasks,
        "run": workflow_runs.run,
        "draw": specs.draw,
    },
)
_group(
    "flow",
    "Look at flows of workflows, and continue them.",
    {
        "list": flows.list_flows,
        "show": flows.show,
        "audit": flows.audit,
        "resume": flows.resume,
        "revert": flows.revert,
    },
)
_group(
    "gate",
    "Decide at the gates of flows.",
    {
        "list": flows.list_gates,
        "approve": flows.approve,
        "reject": flows.reject,
        "revise": flows.revise,
    },
)

mcp = typer.Typer(help=serving.serve.__doc__, invoke_without_command=True)
mcp.callback()(performing(serving.serve))
_add(mcp, {"install": installing.install, "uninstall": installing.uninstall})
mcp.command("hook", hidden=True)(performing(installing.hook))
app.add_typer(mcp, name="mcp")

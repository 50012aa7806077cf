"""Commands that people know from other tools: `help`, also for exceptions, and what others are here."""

from __future__ import annotations

from typing import Final

import click
from typer.core import TyperGroup

_HERE: Final = {
    "query flows": "flow list --json",
    "query flow": "flow show FLOW --json",
    "query gates": "gate list --json",
    "query": "flow list, flow show FLOW or gate list",
    "install": "mcp install",
    "setup": "mcp install",
    "uninstall": "mcp uninstall",
    "validate": "workflow validate SPEC",
    "compile": "workflow compile FOLDER",
    "audit": "flow audit FLOW",
    "explain": "runs trace RUN",
}
"""Commands of other tools, and what they are here."""


class Commands(TyperGroup):
    """The commands of FastroAI, which also know what those of other tools are here."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group.resolve_command`."""
        first, *more = args
        if first == "help":
            if more and more[0] not in self.commands:
                from fastroai.cli.explaining import explained

                if (entry := explained(more[0])) is not None:
                    click.echo(entry)
                    ctx.exit()
            if more:
                return super().resolve_command(ctx, [*more, "--help"])
            click.echo(ctx.get_help())
            ctx.exit()
        here = _HERE.get(" ".join(args[:2])) or _HERE.get(first)
        if here is not None and first not in self.commands:
            told = f"No such command '{first}'. Here, it is: {ctx.find_root().command_path} {here}"
            raise click.UsageError(told, ctx)
        return super().resolve_command(ctx, args)

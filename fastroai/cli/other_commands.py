"""Commands that people know from other tools: `help`, also for exceptions, and what others are here."""

from __future__ import annotations

import difflib
import inspect
from importlib import import_module
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

_PACKAGES: Final = ("errors", "functions", "graphs", "rows", "workflows")


class Commands(TyperGroup):
    """The commands of FastroAI, which also know what those of other tools are here."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group.resolve_command`."""
        first, *more = args
        if first == "help":
            if more and more[0] not in self.commands and (entry := explained(more[0])) is not None:
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


def explained(name: str) -> str | None:
    """Return what an exception means and what to do about it; `None` if no exception has such a name.

    A name may be written with its module, as in a traceback.
    """
    known = exceptions()
    wanted = name.rpartition(".")[2]
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.8)
    found = known.get(wanted) or (known[near[0]] if near else None)
    if found is None:
        return None
    kind = next(base.__name__ for base in found.__mro__[1:] if not base.__name__.startswith("_"))
    return f"{found.__module__}.{found.__name__}: a {kind}\n\n{inspect.getdoc(found)}"


def exceptions() -> dict[str, type[BaseException]]:
    """Return the public exceptions, by name."""
    found: dict[str, type[BaseException]] = {}
    for package in (import_module(f"fastroai.{one}") for one in _PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value) and issubclass(value, BaseException):
                found.setdefault(name, value)
    return found

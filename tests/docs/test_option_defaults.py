"""The defaults of options of the command line that the docs say are those of the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import typer

from fastroai.cli.app import app

DOCS: Final = Path(__file__).parents[2] / "docs"
SAID: Final = re.compile(
    r"`(--[a-z-]+)[^`]*`[^|]{0,20}\|[^|]*?`?(\w+)`? by default"
    r"|`(--[a-z-]+)` (?:is |\()`(\w+)`(?:, | )by default"
)


def options(command: click.Command) -> Iterator[tuple[str, str]]:
    """Each option of a command and of the commands below it, with its default."""
    for parameter in command.params:
        for name in parameter.opts:
            yield name, str(parameter.default)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from options(inner)


def test_defaults_are_those_of_the_commands() -> None:
    known = set(options(typer.main.get_command(app)))
    found = [
        (page.name, match[1] or match[3], match[2] or match[4])
        for page in sorted(DOCS.rglob("*.md"))
        for match in SAID.finditer(page.read_text("utf-8"))
    ]
    assert {name for _, name, _ in found} >= {"--port", "--window", "--resolved-by"}
    said = [one for one in found if one[2] not in ("store", "user")]
    assert [one for one in said if one[1:] not in known] == []

"""`view`: the viewer, in a browser."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastroai.cli.exits import OK
from fastroai.cli.opened import default_of_option, opened_book, opened_store, without_plugins
from fastroai.cli.options import Codec
from fastroai.cli.targets import codec_at, imported
from fastroai.errors import ConfigurationError

if TYPE_CHECKING:
    from fastroai.runs.door import FrontDoor


async def view(
    store: Annotated[
        str,
        typer.Option(
            "--store",
            "--db",
            envvar="FASTROAI_STORE",
            default_factory=default_of_option,
            help="A file, or a URL of Redis or PostgreSQL; by default that of the project or this user.",
            show_default=False,
        ),
    ],
    spend: Annotated[
        str | None,
        typer.Option(
            "--spend",
            envvar="FASTROAI_SPEND_STORE",
            help="The store of the spend limits; by default that of the runs.",
            show_default=False,
        ),
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE[:NAME]",
            help="Pipelines, graphs and flows, so that runs can be resumed and forked. Repeatable.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1; 0 for any free one.")] = 8321,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the link.")] = False,
    codec: Codec = None,
) -> int:
    """Look at runs, spending and questions in a browser, and answer, pause and cancel there."""
    without_plugins()
    from fastroai.viewer.serving import serve

    runs = [one for target in imports or () for one in _runnables(target)]
    async with opened_store(store) as opened, opened_book(spend or store) as book:
        await serve(
            opened,
            spend=book.store,
            codec=codec_at(codec),
            runs=runs,
            port=port,
            opens_browser=not no_browser,
        )
    return OK


def _runnables(target: str) -> Iterable[FrontDoor[Any, Any, Any]]:
    """Return the pipelines, graphs and flows of a module, or the one that `module:attribute` names.

    Raises:
        ConfigurationError: there are none.
    """
    from fastroai.runs.door import FrontDoor

    doors: list[FrontDoor[Any, Any, Any]] = [one for one in imported(target) if isinstance(one, FrontDoor)]
    if not doors:
        expected = "a module with pipelines, graphs or flows, or one of them, as in app.pipelines:support"
        raise ConfigurationError("--import", target, expected)
    return doors

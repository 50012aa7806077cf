"""`view`: the viewer, in a browser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fastroai.cli.exits import OK
from fastroai.cli.opened import opened_book, opened_store, without_plugins
from fastroai.cli.targets import codec_at, imported
from fastroai.errors import ConfigurationError

if TYPE_CHECKING:
    from fastroai.runs.door import FrontDoor


async def view(
    store: str, spend: str | None, imports: list[str], port: int, browser: bool, codec: str | None
) -> int:
    """See `app`."""
    without_plugins()
    from fastroai.viewer.serving import serve

    runs = [one for target in imports for one in _runnables(target)]
    async with opened_store(store) as opened, opened_book(spend or store) as book:
        await serve(
            opened, spend=book.store, codec=codec_at(codec), runs=runs, port=port, opens_browser=browser
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

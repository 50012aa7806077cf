"""`worker`, `db upgrade` and `runs release`: runs that workers carry."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastroai.cli.exits import OK
from fastroai.cli.opened import opened_store, without_plugins
from fastroai.cli.options import Codec, Run, Store
from fastroai.cli.targets import codec_at, imported
from fastroai.errors import ConfigurationError

if TYPE_CHECKING:
    from fastroai.distributed import Distributed

Url = Annotated[
    str | None,
    typer.Option(
        help="Where runs and queues are: a file of SQLite, or a URL of PostgreSQL.",
        show_default=False,
    ),
]


async def work(
    imports: Annotated[
        list[str],
        typer.Option(
            "--import",
            metavar="MODULE[:NAME]",
            help="The application (Distributed), or pipelines, graphs and flows. Repeatable.",
            show_default=False,
        ),
    ],
    url: Url = None,
    name: Annotated[
        str | None,
        typer.Option(help="The name of the application, if none is imported.", show_default=False),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            help="A queue from which it takes runs, instead of `default`. Repeatable.",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="The most runs at a time of a queue that the application does not declare.",
            show_default=False,
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(help="Seconds that steps have to finish when the worker is stopped.")
    ] = 20.0,
    health: Annotated[
        int | None,
        typer.Option(
            "--health-port",
            help="A port on which /live and /ready answer probes; by default none.",
            show_default=False,
        ),
    ] = None,
    codec: Codec = None,
) -> int:
    """Execute runs of an application, until the process is told to end."""
    without_plugins()
    from fastroai.distributed.health import answering_probes

    app, queues = _application(imports, url, name, codec), queues or ["default"]
    worker = app.worker(queues=queues, concurrency=concurrency, graceful_timeout=grace)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app)
        if health is not None:
            await stack.enter_async_context(answering_probes(worker, health))
        typer.echo(f"worker {worker.executor} of {app.app!r}: {', '.join(queues)}", err=True)
        await worker.serve()


async def upgrade(url: Url = None) -> int:
    """Make the tables for runs and queues at --url, or bring them up to date."""
    from fastroai.distributed import Client

    async with Client(_needed(url)) as client:
        await client.upgrade()
    return OK


async def release(run: Run, store: Store) -> int:
    """Let workers run a run again that was set aside because they died while they ran it."""
    from fastroai.store.record.halting import release as release_run

    async with opened_store(store) as opened:
        await release_run(opened, run)
    return OK


def _application(imports: Sequence[str], url: str | None, name: str | None, codec: str | None) -> Distributed:
    """Return the application that is imported, or one of the pipelines and graphs that are."""
    from fastroai.distributed import Distributed
    from fastroai.runs.door import FrontDoor

    found = [one for target in imports for one in imported(target)]
    apps = list({id(one): one for one in found if isinstance(one, Distributed)}.values())
    if len(apps) > 1:
        raise ConfigurationError("--import", imports, "one application, as in app.pipelines:app")
    if apps:
        if url is not None or name is not None:
            raise ConfigurationError("--import", imports, "an application, or --url and --name; not both")
        return apps[0]
    doors: list[FrontDoor[Any, Any, Any]] = [one for one in found if isinstance(one, FrontDoor)]
    if not doors:
        expected = "a module with an application, pipelines, graphs or flows, or one of them"
        raise ConfigurationError("--import", imports, expected)
    if name is None:
        expected = (
            f"the name of the application to work for, because {', '.join(imports)} has pipelines, but no "
            "application: app = Distributed(url, name=...)"
        )
        raise ConfigurationError("--name", ..., expected)
    app = Distributed(_needed(url), name=name, codec=codec_at(codec))
    app.register(*{id(door): door for door in doors}.values())
    return app


def _needed(url: str | None) -> str:
    if url is None:
        raise ConfigurationError("--url", ..., "a file of SQLite, or a URL of PostgreSQL")
    return url

"""Options and arguments that several commands have."""

# typer 0.25, the newest that can be installed beside huggingface-hub 1.18, has no full types for its options:
# so the modules of commands have this line, too.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fastroai.cli.opened import default_of_option

Store = Annotated[
    str,
    typer.Option(
        envvar="FASTROAI_STORE",
        default_factory=default_of_option,
        help="A file, or a URL of Redis or PostgreSQL; by default that of the project or this user.",
        show_default=False,
    ),
]
FlowStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="FASTROAI_STORE",
        help="A file, or a URL of Redis or PostgreSQL; by default that of the project or this user.",
        show_default=False,
    ),
]
Codec = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        envvar="FASTROAI_CODEC",
        help="The codec of the runs, if they have one, as in app:codec.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Form = Annotated[Literal["table", "json", "csv"], typer.Option("--format", help="How to print it.")]
Limit = Annotated[int, typer.Option(min=1, help="The most to list.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.", show_default=False)]
Deps = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="The deps, or a function without arguments that makes them."),
]
SpecFile = Annotated[str, typer.Argument(metavar="SPEC", help="A file with a spec.", show_default=False)]
SpecFlow = Annotated[
    str | None, typer.Option(help="The flow; by default the one that runs first.", show_default=False)
]

"""The command line, `fastroai`. It needs the extra `cli`."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that `sys.argv` says, and exit with its code."""
    from fastroai.cli.exits import USAGE

    try:
        import rich  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import typer  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        from fastroai.errors import MissingExtraError

        error = MissingExtraError("the command line", "cli", "typer and rich")
        print(f"fastroai: {error}", file=sys.stderr)
        raise SystemExit(USAGE) from None
    from fastroai.cli.app import app

    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # the first run of an agent would print one
    app(prog_name="fastroai")
